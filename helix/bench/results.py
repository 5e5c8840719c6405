"""The results of runs by cell, and the file that keeps them: a run that is there is not made again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helix import __version__
from helix.bench.cells import Batch, Cell, Outcome, Reference, from_json, to_json
from helix.bench.milp import Solved
from helix.bench.table5 import solved_from_json, solved_to_json
from helix.errors import InputError

FORMAT, VERSION = "helix-bench", 1


class Results:
    """Outcomes by cell, references by batch, and small cases with their optima. `path` is the file that keeps them
    (None: none).
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.runs: dict[Cell, Outcome] = {}
        self.references: dict[Batch, Reference] = {}
        self.optima: list[Solved] = []
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            found: Any = json.loads(path.read_text("utf-8"))
            if found["format"] != FORMAT or found["version"] != VERSION:
                raise InputError(f"{path} holds {found['format']} {found['version']}, expected {FORMAT} {VERSION}")
            for each in found["batches"]:
                self.references[from_json(Batch, each["batch"])] = from_json(Reference, each["reference"])
            for each in found["runs"]:
                self.runs[from_json(Cell, each["cell"])] = from_json(Outcome, each["outcome"])
            self.optima = [solved_from_json(each) for each in found.get("optima", ())]
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path} holds no results of `helix bench`; name another file") from None

    def as_json(self, cells: Iterable[Cell] | None = None) -> dict[str, Any]:
        """All of it as JSON values, or those of some cells."""
        wanted = [cell for cell in (self.runs if cells is None else cells) if cell in self.runs]
        batches = dict.fromkeys(cell.batch for cell in wanted)
        return {
            "format": FORMAT,
            "version": VERSION,
            "helix": __version__,
            "batches": [
                {"batch": to_json(batch), "reference": to_json(self.references[batch])}
                for batch in batches
                if batch in self.references
            ],
            "runs": [
                {"cell": to_json(cell), "outcome": to_json(self.runs[cell]) | _derived(self.runs[cell])}
                for cell in wanted
            ],
            "optima": [solved_to_json(each) for each in self.optima],
        }

    def save(self) -> None:
        """Writes the file, whole."""
        if self.path is None:
            return
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            beside.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")
            beside.replace(self.path)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from None


def _derived(outcome: Outcome) -> dict[str, Any]:
    """What follows from an outcome, for those who read the file."""
    return {
        "total": outcome.total,
        "over_bound": outcome.over_bound,
        "hits": outcome.hits,
        "amplification": outcome.amplification,
    }
