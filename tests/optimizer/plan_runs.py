"""Runs a plan as it is, with what a workflow has around it: a folder with databases, Python functions, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.run import Run
from helix.executor.settings import RunSettings
from helix.executor.tables import MemorySink, open_rows
from helix.logical import LogicalPlan
from helix.results import RunReport

PATIENCE = 60.0


@dataclass(kw_only=True)
class Ran:
    """A finished run: its rows without what is only told by the way, its report, its engine."""

    rows: list[dict[str, Any]]
    report: RunReport
    engine: Any

    def prompts(self, step: str | None = None) -> list[str]:
        """The prompts of all requests, or of one step's, in the order of arrival."""
        return [
            "\n".join(f"{message.role}: {message.content}" for message in request.messages)
            for request in self.engine.requests
            if step in (None, request.step)
        ]


def run_plan(
    plan: LogicalPlan,
    rows: Sequence[Mapping[str, Any]],
    *,
    engine: Any = None,
    folder: Path | None = None,
    callables: Mapping[str, Callable[..., Any]] | None = None,
    sink: Any = None,
    **settings: Any,
) -> Ran:
    """Runs a plan to its end; nothing may be left running behind it."""
    made = engine or ScriptedEngine()

    async def main() -> Ran:
        source = open_rows([dict(row) for row in rows], plan.scan.columns, on_bad_row="keep")
        columns = tuple((name, value.type) for name, value in plan.sink.columns)
        target = sink or MemorySink(columns)
        run = Run(
            plan,
            source,
            target,
            RunSettings(**settings),
            open_engine=lambda address: made,
            callables=callables,
            folder=folder,
        )
        try:
            source.scan()
            await run.start()
            report = await asyncio.wait_for(run.finish(), PATIENCE)
            target.commit()
        finally:
            await run.close()
            source.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left running: {left}"
        found = target.to_dicts() if isinstance(target, MemorySink) else []
        for row in found:
            if row["_error"] is not None:
                del row["_error"]["skipped"]
        return Ran(rows=found, report=report, engine=made)

    return asyncio.run(main())
