"""The default policy on a real SGLang with its real radix cache, beside the orders of others.

Tokens are the server's own counts. `P_min` is the number of tokens on distinct beginnings of all prompts, as the server
tokenizes them: nothing computes fewer.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from sglang_cpu import Server, Servers

import helix
from helix.dsl import Workflow
from helix.executor.engines.base import Message
from helix.executor.engines.sglang import SGLangEngine
from helix.results import RunResult

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("lpm")]

ROLES = ("an optimist", "a pessimist", "a lawyer")
FACTS = "The clerk at desk {at} files form {number} before noon and notes the colour of its stamp. "


def document(at: int, facts: int = 16) -> str:
    return f"Policy {at}. " + "".join(FACTS.format(at=at, number=number) for number in range(facts))


QUESTIONS = helix.loads(
    "workflow w(doc: text, question: text)\n"
    "model m { temperature: 0, max_tokens: 4 }\n"
    'a = llm m { user "Read this policy.\\n{{ doc }}\\nQuestion: {{ question }}" }\n'
    "output a\n"
)


def roles() -> Workflow:
    steps = "\n".join(
        f'r{at} = llm m {{ user "Read this policy.\\n{{{{ doc }}}}\\nAnswer as {role}." }}'
        for at, role in enumerate(ROLES)
    )
    said = " ".join(f"{{{{ r{at} }}}}" for at in range(len(ROLES)))
    last = f'last = llm m {{ user "Read this policy.\\n{{{{ doc }}}}\\nSum up: {said}" }}'
    return helix.loads(
        f"workflow w(doc: text)\nmodel m {{ temperature: 0, max_tokens: 4 }}\n{steps}\n{last}\noutput last\n"
    )


class Counted:
    """A run and what the servers computed for it."""

    def __init__(self, servers: list[Server], workflow: Workflow, rows: list[dict[str, Any]], **options: Any) -> None:
        for server in servers:
            server.flush()
        before = [server.metrics() for server in servers]
        where = "sglang://" + ",".join(server.address.partition("://")[2] for server in servers)
        engine = SGLangEngine(where, open_timeout=120.0)
        # Of each call the rank that took it, and its last message.
        self.sent: list[tuple[int | None, str]] = []
        generate = engine.generate

        async def noted(request: Any) -> Any:
            reply = await generate(request)
            rank = request.rank if reply.rank is None else reply.rank
            self.sent.append((rank, request.messages[-1].content))
            return reply

        engine.generate = noted  # type: ignore[method-assign]
        self.result: RunResult = workflow.run(rows, engine=engine, report=True, **options)
        assert self.result.report.failed_rows == 0
        grown = [
            {name: after.get(name, 0.0) - had.get(name, 0.0) for name in ("prompt_tokens_total", "cached_tokens_total")}
            for had, after in zip(before, (server.metrics() for server in servers), strict=True)
        ]
        self.asked = [each["prompt_tokens_total"] for each in grown]
        self.prefilled = [each["prompt_tokens_total"] - each["cached_tokens_total"] for each in grown]
        self.rows = self.result.rows

    @property
    def hits(self) -> float:
        """The share of all prompt tokens that was cached."""
        return 1 - sum(self.prefilled) / sum(self.asked)


def distinct_tokens(server: Server, prompts: list[str]) -> int:
    """The tokens on distinct beginnings of prompts of one user message."""

    async def tokens() -> list[list[int]]:
        engine = SGLangEngine("sglang://" + server.address.partition("://")[2], open_timeout=120.0)
        await engine.open(concurrency=8)
        try:
            return [await engine.tokenize_prompt((Message(role="user", content=prompt),)) for prompt in prompts]
        finally:
            await engine.close()

    seen: set[tuple[int, ...]] = set()
    for ids in asyncio.run(tokens()):
        seen.update(tuple(ids[:length]) for length in range(1, len(ids) + 1))
    return len(seen)


def test_twelve_cold_calls_over_three_beginnings(sglang_server: Server) -> None:
    """Of the tokens that could be found in the cache nearly all are: at least 3,700 of 3,752 (98.6 %)."""
    rows = [{"doc": document(at % 3), "question": f"What of form {at}?"} for at in range(12)]
    prompts = [f"Read this policy.\n{row['doc']}\nQuestion: {row['question']}" for row in rows]
    least = distinct_tokens(sglang_server, prompts)
    made = Counted([sglang_server], QUESTIONS, rows)
    calls = made.result.report.total("prompt_tokens")
    chances = calls - least
    assert (calls - sum(made.prefilled)) / chances >= 3700 / 3752
    assert sum(made.prefilled) <= 1.02 * least


def test_calls_of_a_row_share_what_they_begin_with(sglang_server: Server) -> None:
    rows = [{"doc": document(at)} for at in range(4)]
    made = Counted([sglang_server], roles(), rows)
    report = made.result.run_report
    assert report is not None
    assert report.prefixes is not None
    assert sum(made.prefilled) <= 1.02 * report.prefixes.p_min


@pytest.mark.xdist_group("others")
def test_under_pressure_hits_stay_above_those_of_the_servers_own_orders(sglang_servers: Servers) -> None:
    """The documents are three times what the cache holds, and rows are shuffled, as tables are in life."""
    rows = [{"doc": document(at % 10, 20), "question": f"What of form {at}?"} for at in range(40)]
    Random(5).shuffle(rows)
    tight = ("--max-total-tokens", "1400")
    shares: dict[str, float] = {}
    outputs: list[list[Any]] = []
    for name, order, options in (
        ("helix", "lpm", {}),
        ("lpm", "lpm", {"policy": "fcfs", "rules": [], "concurrency": 64}),
        ("fcfs", "fcfs", {"policy": "fcfs", "rules": [], "concurrency": 64}),
    ):
        server = sglang_servers("--schedule-policy", order, *tight)
        made = Counted([server], QUESTIONS, rows, **options)
        shares[name] = made.hits
        outputs.append([row["a"] for row in made.rows])
    assert outputs[0] == outputs[1] == outputs[2]
    assert shares["helix"] > max(shares["lpm"], shares["fcfs"]), shares


def test_two_ranks_compute_each_beginning_once(sglang_servers: Servers) -> None:
    """Two servers with a cache each: rows go where what they share is, not round about."""
    servers = [
        sglang_servers("--schedule-policy", "lpm"),
        sglang_servers("--schedule-policy", "lpm", "--random-seed", "1"),
    ]
    rows = [{"doc": document(at % 6), "question": f"What of form {at}?"} for at in range(36)]
    Random(7).shuffle(rows)
    made = Counted(servers, QUESTIONS, rows)
    around = Counted(servers, QUESTIONS, rows, policy="fcfs", rules=[])
    assert min(made.asked) >= 0.25 * sum(made.asked)
    # Each document once for each rank that works on it: one, but where a rank without work takes over calls.
    by_rank = [[prompt for rank, prompt in made.sent if rank == number] for number in range(2)]
    assert sum(map(len, by_rank)) == len(rows)
    least = sum(distinct_tokens(server, prompts) for server, prompts in zip(servers, by_rank, strict=True))
    assert sum(made.prefilled) <= 1.06 * least
    assert least <= 1.4 * distinct_tokens(servers[0], [prompt for _, prompt in made.sent])
    assert made.hits > around.hits
    assert [row["_row"] for row in made.rows] == list(range(36))
