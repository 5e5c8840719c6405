"""The ways to run a workload's rows on a server: by hand with asyncio, with LangGraph, and with Helix."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compare.calls import Call, OpenAICalls, flat
from compare.workload import Row, Workload

PATIENCE = 1800.0  # seconds for a run; calls wait long in a queue of hundreds


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where and how to run. `at_once` limits calls (with LangGraph rows) at once, None is the method's own default;
    `store` is a folder of results known from before."""

    address: str
    model: str
    at_once: int | None = None
    store: Path | None = None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a method made: texts by row and step, the calls that it sent, and what failed."""

    seconds: float = 0.0
    texts: dict[tuple[int, str], str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, ask: OpenAICalls, rows: Sequence[Row], done: Sequence[Any]) -> None:
        """Takes what a program's rows ended with, an exception or not, and the calls that they made."""
        for row, value in zip(rows, done, strict=True):
            if isinstance(value, BaseException):
                self.failures.append(f"row {row['id']}: {type(value).__name__}: {value}")
        self.texts, self.calls = ask.texts, ask.made


Method = Callable[[Workload, Sequence[Row], Site], Awaitable[Outcome]]


async def fan_out(workload: Workload, rows: Sequence[Row], site: Site) -> Outcome:
    """All rows as tasks, calls held back by a semaphore (`at_once`), or not at all."""
    outcome = Outcome()
    client = _client(site)
    async with client:
        began = time.perf_counter()
        ask = OpenAICalls(client, site.model, site.at_once)
        done = await asyncio.gather(*(workload.program(row, ask) for row in rows), return_exceptions=True)
        outcome.seconds = time.perf_counter() - began
    outcome.take(ask, rows, done)
    return outcome


async def langgraph(workload: Workload, rows: Sequence[Row], site: Site) -> Outcome:
    """LangGraph's asynchronous batch; `at_once` is its `max_concurrency`, by default it takes all rows."""
    outcome = Outcome()
    client = _client(site)
    async with client:
        began = time.perf_counter()
        ask = OpenAICalls(client, site.model)
        graph = workload.graph(ask)
        config: Any = {} if site.at_once is None else {"max_concurrency": site.at_once}
        states = await graph.abatch([dict(row) for row in rows], config=config, return_exceptions=True)
        outcome.seconds = time.perf_counter() - began
    outcome.take(ask, rows, states)
    return outcome


async def helix_run(workload: Workload, rows: Sequence[Row], site: Site) -> Outcome:
    """`helix.load(...).arun(rows, engine="sglang://...")`, with what it sends written down on the way."""
    import helix
    from helix.executor.engines import open_engine

    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{workload.name.lower()}.helix"
        file.write_text(workload.helix, encoding="utf-8")
        table = [{name: value for name, value in row.items() if name != "id"} for row in rows]
        engine = open_engine(site.address.replace("http://", "sglang://"), model=site.model, quiet=True)
        _write_down(engine, outcome.calls)
        options: dict[str, Any] = {} if site.at_once is None else {"concurrency": site.at_once}
        if site.store is not None:
            options["store"] = site.store
        began = time.perf_counter()
        result = await helix.load(file).arun(table, engine=engine, model=site.model, **options)
        values = result.rows
        outcome.seconds = time.perf_counter() - began
    for value in values:
        number, error = value.pop("_row"), value.pop("_error")
        if error is not None:
            outcome.failures.append(f"row {number}: {error['step']}: {error['kind']}: {error['message']}")
        else:
            outcome.texts.update({(rows[number]["id"], step): text for step, text in flat(value).items()})
    outcome.notes = list(result.report.notes)
    return outcome


METHODS: dict[str, Method] = {"langgraph": langgraph, "fan-out": fan_out, "everything": fan_out, "helix": helix_run}
# Those whose number of calls at once is a choice of the user's.
TUNED = ("langgraph", "fan-out")


def run(method: str, workload: Workload, rows: Sequence[Row], site: Site) -> Outcome:
    """Runs a method in a loop of its own."""

    async def main() -> Outcome:
        async with asyncio.timeout(PATIENCE):
            return await METHODS[method](workload, rows, site)

    return asyncio.run(main())


def _client(site: Site) -> Any:
    """The openai client on the faster of its two transports, the one that Helix uses."""
    import openai

    transport = openai.DefaultAioHttpClient(trust_env=False)
    return openai.AsyncOpenAI(base_url=f"{site.address}/v1", api_key="none", http_client=transport, timeout=PATIENCE)


def _write_down(engine: Any, made: list[Call]) -> None:
    """Keeps each request and reply of an engine; warm-ups are no calls of the workflow."""
    generate = engine.generate

    async def generate_and_keep(request: Any) -> Any:
        reply = await generate(request)
        made.append(
            Call(
                prompt=tuple((message.role, message.content) for message in request.messages),
                max_tokens=request.max_tokens,
                text=reply.text,
                prompt_tokens=reply.prompt_tokens or 0,
                completion_tokens=reply.completion_tokens or 0,
                cached_tokens=reply.cached_tokens or 0,
                temperature=request.temperature,
            )
        )
        return reply

    engine.generate = generate_and_keep
