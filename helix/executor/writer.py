"""Rows that have passed the last segment to rows of the result: columns in their order, and the row's error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from helix.errors import InputError
from helix.executor.segments import Leaving, skipped_steps
from helix.executor.spool import Spool
from helix.executor.tables import RowSink
from helix.executor.values import Failure
from helix.logical import Project, Scan, Sink
from helix.results import RunReport

KEPT_ERRORS = 20


class Writer:
    """Writes the result, and notes failed rows in the report. `exports` are the slots of the sink's columns.

    With `restore` rows come in another order than they have in the input: they are held back, and `finish` writes them.
    """

    def __init__(
        self, sink: Sink, exports: Mapping[str, int], target: RowSink, report: RunReport, *, restore: bool = False
    ) -> None:
        self._held = Spool((False,)) if restore else None
        self._target = target
        self._report = report
        # Each column with its slot, and the input column that it is, if it is one: a failed row shows what came in.
        self._columns = [
            (name, exports[name], value.field if isinstance(value, Project) and isinstance(value.source, Scan) else "")
            for name, value in sink.columns
        ]

    def write(self, leaving: Leaving) -> bool:
        """Writes a row; gives whether it has failed. An interrupted run leaves out what was cut short."""
        failures = list(leaving.failures)
        given = leaving.given or {}
        out: dict[str, Any] = {"_row": leaving.row}
        for name, slot, column in self._columns:
            value = leaving.values[slot]
            if value.__class__ is Failure:
                failures.append(value)
                value = given.get(column)
            out[name] = value
        if self._report.interrupted and any(failure.cut_short for failure in failures):
            return False
        first = min(failures, key=lambda failure: failure.order) if failures else None
        if self._held is not None:
            self._held.add((leaving.row,), [out, first, skipped_steps(leaving)])
            return first is not None
        return self._done(out, first, lambda: skipped_steps(leaving))

    def finish(self) -> None:
        """Writes the rows that were held back, in the order of the input; those of one input row in their own."""
        if self._held is not None:
            for out, first, skipped in self._held.drain():
                self._done(out, first, lambda found=skipped: found)  # type: ignore[misc]

    def close(self) -> None:
        """Drops what is held back."""
        if self._held is not None:
            self._held.close()

    def _done(self, out: dict[str, Any], first: Failure | None, skipped: Callable[[], list[str]]) -> bool:
        """Writes a row and notes its failure; gives whether it has one."""
        unwritable = self._put(out, first, skipped)
        self._report.output_rows += 1
        if first is None and unwritable is None:
            return False
        self._note(out["_row"], first or unwritable)
        return True

    def _put(self, out: dict[str, Any], failure: Failure | None, skipped: Callable[[], list[str]]) -> Failure | None:
        """Writes the row. A value that the format cannot hold is left out, and is the row's failure if it has none."""
        unwritable: Failure | None = None
        for _ in range(len(self._columns) + 1):
            if failure is not None or unwritable is not None:
                out["_error"] = _error(failure or unwritable, skipped())
            try:
                self._target.write(out)
                return unwritable
            except InputError as error:
                column = str(error.column)
                names = [column] if column in out and column != "_row" else [name for name, _, _ in self._columns]
                out.update(dict.fromkeys(names))
                unwritable = unwritable or Failure("schema", error.message, step=names[0] if names else "")
        self._target.write(out)
        return unwritable

    def _note(self, row: int, failure: Failure | None) -> None:
        assert failure is not None
        report = self._report
        report.failed_rows += 1
        if len(report.errors) < KEPT_ERRORS:
            report.errors.append((row, failure.step, failure.kind, failure.message))
        if failure.traceback:
            report.tracebacks.setdefault(failure.step, failure.traceback)


def _error(failure: Failure | None, skipped: list[str]) -> dict[str, Any]:
    assert failure is not None
    return {
        "step": failure.step or None,
        "kind": failure.kind,
        "message": failure.message,
        "attempts": failure.attempts,
        "skipped": skipped,
        "raw": failure.raw,
    }
