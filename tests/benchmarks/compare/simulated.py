"""A run of the comparison again, on the simulated engine: the same prompts and replies, in simulated time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helix
from compare.calls import Prompt, Replay
from compare.measure import Run
from compare.regimes import Batch
from compare.workload import Row, Workload
from helix.executor.engines.base import Message, Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.executor.engines.sim.prompts import FOUR_BYTES, WIDTH, Spelling
from helix.simulation.cost import CostModel

MODEL = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a run came to in the simulation."""

    seconds: float
    prefilled: int
    calls: int
    generated: int
    digest: str


class ModelTokens:
    """The tokens that a real model's prompts have: its chat template and its tokenizer, from the folder it lies in."""

    def __init__(self, folder: Path) -> None:
        """Reads them. Raises OSError where they are not there, ImportError without `tokenizers`."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        file = folder / "chat_template.jinja"
        if file.is_file():
            text = file.read_text("utf-8")
        else:
            text = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["chat_template"]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(text)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._known: dict[str, str] = {}

    def prompt(self, messages: Sequence[Message]) -> str:
        return self._spelled(self._rendered(messages, generate=True))

    def beginning(self, messages: Sequence[Message]) -> str:
        # What follows may change the last token, and closes the last message in the template.
        ends = self._rendered(messages, generate=False)
        text = ends[: ends.rindex(messages[-1].content.strip()) + len(messages[-1].content.strip())]
        return self._spelled(text)[:-WIDTH]

    def reply(self, text: str) -> str:
        """A reply ends with a token of its own, unless its limit comes first."""
        return self._spelled(text) + "\0\0\0\0"

    def _rendered(self, messages: Sequence[Message], *, generate: bool) -> str:
        shown = [{"role": message.role, "content": message.content} for message in messages]
        return str(self._template.render(messages=shown, add_generation_prompt=generate))

    def _spelled(self, text: str) -> str:
        if text not in self._known:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            self._known[text] = b"".join(token.to_bytes(WIDTH, "little") for token in ids).decode("latin-1")
        return self._known[text]


def replay(
    run: Run, workload: Workload, batch: Batch, settings: SimSettings, cost: CostModel, spelling: Spelling = FOUR_BYTES
) -> Replayed:
    """Makes a run again. Raises ValueError where the rows are not those that it was made of."""
    texts = known_texts(run)
    replies = asyncio.run(_replies(workload, batch.rows, texts))
    if replies.digest != run.prompts_hash:
        raise ValueError("its rows are others: give the --scale and --size that it was made with")

    def answer(request: Request) -> str | None:
        return replies.by_prompt.get(_key([(each.role, each.content) for each in request.messages], request.max_tokens))

    engine = SimEngine(settings, cost, model=MODEL, answer=answer, spelling=spelling)
    with tempfile.TemporaryDirectory() as folder:
        store = None
        if run.method == "helix" and batch.yesterday:
            store = Path(folder)
            _virtual(_helix(workload, batch.yesterday, engine, None, store))
        seconds, calls = _virtual(_METHODS[run.method](workload, batch.rows, engine, run.at_once, store))
    figures = engine.figures
    return Replayed(
        seconds=seconds,
        prefilled=figures.prefilled,
        calls=calls,
        generated=figures.generated,
        digest=engine.log.digest,
    )


def known_texts(run: Run) -> dict[tuple[int, str], str]:
    """The replies of a run by row and step."""
    found: dict[tuple[int, str], str] = {}
    for place, text in run.texts.items():
        row, _, step = place.partition(" ")
        found[int(row), step] = text
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replies:
    by_prompt: dict[str, str]
    digest: str


async def _replies(workload: Workload, rows: Sequence[Row], texts: dict[tuple[int, str], str]) -> _Replies:
    """The reply to each prompt that follows from a run's results, and the hash that the run has of its prompts."""
    by_prompt: dict[str, str] = {}
    known = Replay(texts)

    async def ask(row: int, step: str, prompt: Prompt, max_tokens: int) -> str:
        text = await known(row, step, prompt, max_tokens)
        by_prompt.setdefault(_key(prompt, max_tokens), text)
        return text

    await asyncio.gather(*(workload.program(row, ask) for row in rows))
    digest = hashlib.sha256("".join(sorted(known.asked)).encode()).hexdigest()[:16]
    return _Replies(by_prompt=by_prompt, digest=digest)


def _key(prompt: Prompt, max_tokens: int | None) -> str:
    return json.dumps([[list(message) for message in prompt], max_tokens], ensure_ascii=False)


# --- the methods of compare/methods.py, on an engine that is not there ----------------------------------------------


class _Ask:
    """Makes the calls of a hand-written program."""

    def __init__(self, engine: SimEngine, at_once: int | None) -> None:
        self._engine = engine
        self._gate = None if at_once is None else asyncio.Semaphore(at_once)
        self.calls = 0

    async def __call__(self, row: int, step: str, prompt: Prompt, max_tokens: int) -> str:
        messages = tuple(Message(role=role, content=text) for role, text in prompt)
        request = Request(model=None, messages=messages, temperature=0.0, max_tokens=max_tokens, row=row, step=step)
        self.calls += 1
        if self._gate is None:
            return (await self._engine.generate(request)).text
        async with self._gate:
            return (await self._engine.generate(request)).text


async def _fan_out(
    workload: Workload, rows: Sequence[Row], engine: SimEngine, at_once: int | None, store: Path | None
) -> tuple[float, int]:
    await engine.open(concurrency=1)
    ask = _Ask(engine, at_once)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(workload.program(row, ask) for row in rows))
    seconds = asyncio.get_running_loop().time() - began
    await engine.close()
    return seconds, ask.calls


async def _langgraph(
    workload: Workload, rows: Sequence[Row], engine: SimEngine, at_once: int | None, store: Path | None
) -> tuple[float, int]:
    await engine.open(concurrency=1)
    ask = _Ask(engine, None)
    graph = workload.graph(ask)
    config: Any = {} if at_once is None else {"max_concurrency": at_once}
    began = asyncio.get_running_loop().time()
    await graph.abatch([dict(row) for row in rows], config=config)
    seconds = asyncio.get_running_loop().time() - began
    await engine.close()
    return seconds, ask.calls


async def _helix(
    workload: Workload, rows: Sequence[Row], engine: SimEngine, at_once: int | None, store: Path | None
) -> tuple[float, int]:
    table = [{name: value for name, value in row.items() if name != "id"} for row in rows]
    options: dict[str, Any] = {} if at_once is None else {"concurrency": at_once}
    if store is not None:
        options["store"] = store
    result = await helix.loads(workload.helix).arun(table, engine=engine, model=MODEL, **options)
    return result.report.seconds, result.report.calls


_Method = Callable[[Workload, Sequence[Row], SimEngine, int | None, Path | None], Any]
_METHODS: dict[str, _Method] = {
    "fan-out": _fan_out, "everything": _fan_out, "langgraph": _langgraph, "helix": _helix
}  # fmt: skip


def _virtual(work: Any) -> tuple[float, int]:
    made: tuple[float, int] = run_virtual(work)
    return made
