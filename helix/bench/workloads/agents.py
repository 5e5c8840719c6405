"""Agents that call a model and a tool in turns: groups that share a long system prompt, and gaps while the tool runs.

The shape follows CONCUR (arXiv 2601.22705) with constants of our own: ten turns, an observation of 900 tokens and a
reply of 150 each (normal, deviations 300 and 50), gaps exponential. 128 agents send 11.04 million prompt tokens, of
which 1.164 million differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from helix.bench.texts import Texts, dice, words
from helix.bench.workloads.shape import Row, Told, Tools, Workload

TURNS, GROUPS, SHARED = 10, 4, 3000
OBSERVED, OBSERVED_DEVIATION, OBSERVED_LEAST = 900, 300, 50
SAID, SAID_DEVIATION = 150, 50
GAPS = (0.5, 2.0, 8.0, 20.0)
KV_TOKENS = 200_000


def agents() -> str:
    """The turns of one agent as a dialogue."""
    made = ["workflow agents(brief: text, agent: int, task: text)", "model main { temperature: 0, max_tokens: 350 }"]
    made.append(
        "tool observe(agent: int, turn: int, said: text) -> text"
        ' from python "bench:observe" effects read, lane "agents"'
    )
    turns = '  system "{{ brief }}"\n  user "{{ task }}"\n'
    for at in range(1, TURNS + 1):
        made.append(f"turn_{at} = llm main {{\n{turns}}}")
        if at < TURNS:
            made.append(f"seen_{at} = observe(agent, {at}, turn_{at})")
            turns += f'  assistant "{{{{ turn_{at} }}}}"\n  user "{{{{ seen_{at} }}}}"\n'
    made.append(f"output turn_{TURNS}")
    return "\n\n".join(made) + "\n"


def observed(seed: int, agent: int, turn: int) -> str:
    """What a tool gives an agent in a turn."""
    tokens = max(OBSERVED_LEAST, round(dice(seed, "observation", agent, turn).gauss(OBSERVED, OBSERVED_DEVIATION)))
    return words(f"{seed} observation {agent} {turn}", tokens)


def _tools(gap: float) -> Callable[[int, Told], Tools]:
    def tools(seed: int, told: Told) -> Tools:
        async def observe(agent: int, turn: int, said: str) -> str:
            seconds = dice(seed, "gap", agent, turn).expovariate(1 / gap)
            told(agent, f"seen_{turn}", seconds)
            await asyncio.sleep(seconds)
            return observed(seed, agent, turn)

        made: dict[str, Callable[..., Awaitable[str]]] = {"observe": observe}
        return made

    return tools


def _rows(texts: Texts, group: int, day: int) -> list[Row]:
    brief = texts.of("brief", group % GROUPS, 0, SHARED)
    return [{"brief": brief, "agent": group, "task": observed(texts.seed, group, 0)}]


def make_agents(count: int, gap: float) -> Workload:
    """So many agents with gaps of so many seconds in the mean."""
    return Workload(
        name=f"agents-{count}-{gap:g}",
        title=f"{count} agents, gaps of {gap:g} s",
        helix=agents(),
        rows=_rows,
        groups=count,
        calls=TURNS,
        means={f"turn_{at}": (SAID, SAID_DEVIATION) for at in range(1, TURNS + 1)},
        cap=350,
        kv_tokens=KV_TOKENS,
        ranks=1,
        tools=_tools(gap),
        lanes={"agents": count},
        published="constants of our own",
    )


AGENTS = tuple(make_agents(count, gap) for count in (128, 256) for gap in GAPS)
