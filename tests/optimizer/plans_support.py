"""What tests of trees, tries and costs share: plans from workflow text, and the requests that a run of one makes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compared import PATIENCE, Tools, shop

from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.run import Run
from helix.executor.settings import RunSettings
from helix.executor.tables import MemorySink, open_rows
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import LogicalPlan
from helix.optimizer.tree import Hole, Static, Turn
from helix.optimizer.tree.shape import Segment


def plan_of(text: str, folder: Path | None = None) -> LogicalPlan:
    """The bound plan of a workflow's text, as it is before any rule."""
    return bind(parse(text.strip() + "\n"), folder=folder).plan


# A value in a pattern: of one message, or of whole messages.
_ONE, _MANY = "[^\x00\x01]*", ".*"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as an engine got it: its row, its step without positions of items, its messages."""

    row: int
    step: str
    messages: tuple[tuple[str, str], ...]


def asked_of(plan: LogicalPlan, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Asked], list[dict[str, Any]]]:
    """The requests of a run on the scripted engine, and its rows. Equal calls are made once; replies that
    did not fit are asked for again, which is left out here."""
    engine = ScriptedEngine()
    tools = Tools()

    async def main() -> list[dict[str, Any]]:
        source = open_rows([dict(row) for row in rows], plan.scan.columns, on_bad_row="keep")
        sink = MemorySink(tuple((name, value.type) for name, value in plan.sink.columns))
        run = Run(
            plan, source, sink, RunSettings(concurrency=2),
            open_engine=lambda address: engine, callables=tools.callables, folder=shop(),
        )  # fmt: skip
        try:
            source.scan()
            await run.start()
            await run.finish()
            sink.commit()
        finally:
            await run.close()
            source.close()
        return sink.to_dicts()

    made = asyncio.run(asyncio.wait_for(main(), PATIENCE))
    asked = [
        Asked(
            row=request.row,
            step=re.sub(r"\[\d+\]", "", request.step),
            messages=tuple((message.role, message.content) for message in request.messages),
        )
        for request in engine.requests
        if not request.messages[-1].content.startswith("That reply cannot be used")
    ]
    return asked, made


def matches(path: Sequence[Segment], messages: Sequence[tuple[str, str]]) -> bool:
    """Whether a prompt can be what a path of the tree becomes: literals as they are, one value for each hole."""
    shown = "".join(f"\x00{role}\x01{text}" for role, text in (*messages, ("assistant", "")))
    pattern, names = "", dict[int, str]()
    for segment in path:
        match segment:
            case Turn(role=role):
                pattern += f"\x00{role}\x01"
            case Static(text=text):
                pattern += re.escape(text)
            case Hole(key=key) if key in names:
                pattern += f"(?P={names[key]})"
            case Hole(key=key, messages=whole):
                names[key] = f"h{len(names)}"
                pattern += f"(?P<{names[key]}>{_MANY if whole else _ONE})"
    return re.fullmatch(pattern, shown, re.DOTALL) is not None
