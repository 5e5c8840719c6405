"""Agents that call a model and a tool in turns: groups that share a long system prompt, and gaps while the tool runs.

The shape follows CONCUR (arXiv 2601.22705) with constants of our own: ten turns, an observation of 900 tokens and a
reply of 150 each (normal, deviations 300 and 50), gaps exponential. A reply is a call of the tool as JSON. 128 agents
send 11.2 million prompt tokens, of which 1.2 million differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from helix.bench.texts import Texts, dice, words
from helix.bench.workloads.shape import Row, Told, Tools, Workload
from helix.executor.engines.base import Request

TURNS, GROUPS, SHARED = 10, 4, 3000
OBSERVED, OBSERVED_DEVIATION, OBSERVED_LEAST = 900, 300, 50
SAID, SAID_DEVIATION, CAP = 150, 50, 350
STEP = "answer"
# Of the shared tokens, what a model is told of its tool.
TOLD = 139
GAPS = (0.5, 2.0, 8.0, 20.0)
KV_TOKENS = 200_000


def agents() -> str:
    """An agent that may take more turns than it will: no plan knows when it ends."""
    return f"""
workflow agents(brief: text, task: text)

model main {{ temperature: 0, max_tokens: {CAP} }}

tool observe(number: int, turn: int, said: text) -> text from python "bench:observe" effects read, lane "agents"

{STEP} = agent main {{
  tools [observe]
  max_turns {2 * TURNS}
  tool_calls schema
  system "{{{{ brief }}}}"
  user "{{{{ task }}}}"
}}

output {STEP}
"""


def says(request: Request, text: str) -> str:
    """What an agent replies, of the length of the text: a call of its tool, in its last turn an answer."""
    turn = 1 + sum(message.role == "assistant" for message in request.messages)
    # Tasks begin with the number of the agent, so that replies depend on nothing but the prompt.
    number = int(next(message.content for message in request.messages if message.role == "user").split()[0])
    if turn < TURNS:
        begin, end = f'{{"tool":"observe","args":{{"number":{number},"turn":{turn},"said":"', '"}}'
    else:
        begin, end = '{"answer":"', '"}'
    return begin + text[: len(text) - len(begin) - len(end)] + end


def observed(seed: int, agent: int, turn: int) -> str:
    """What a tool gives an agent in a turn."""
    tokens = max(OBSERVED_LEAST, round(dice(seed, "observation", agent, turn).gauss(OBSERVED, OBSERVED_DEVIATION)))
    return words(f"{seed} observation {agent} {turn}", tokens)


def _tools(gap: float) -> Callable[[int, Told], Tools]:
    def tools(seed: int, told: Told) -> Tools:
        async def observe(number: int, turn: int, said: str) -> str:
            seconds = dice(seed, "gap", number, turn).expovariate(1 / gap)
            told(number, STEP, seconds)
            await asyncio.sleep(seconds)
            return observed(seed, number, turn)

        made: dict[str, Callable[..., Awaitable[str]]] = {"observe": observe}
        return made

    return tools


def _rows(texts: Texts, group: int, day: int) -> list[Row]:
    brief = texts.of("brief", group % GROUPS, 0, SHARED - TOLD)
    return [{"brief": brief, "task": f"{group:3d} {observed(texts.seed, group, 0)}"}]


def make_agents(count: int, gap: float) -> Workload:
    """So many agents with gaps of so many seconds in the mean."""
    return Workload(
        name=f"agents-{count}-{gap:g}",
        title=f"{count} agents, gaps of {gap:g} s",
        helix=agents(),
        rows=_rows,
        groups=count,
        calls=TURNS,
        means={STEP: (SAID, SAID_DEVIATION)},
        cap=CAP,
        says=says,
        kv_tokens=KV_TOKENS,
        ranks=1,
        tools=_tools(gap),
        lanes={"agents": count},
        published="constants of our own",
    )


AGENTS = tuple(make_agents(count, gap) for count in (128, 256) for gap in GAPS)
