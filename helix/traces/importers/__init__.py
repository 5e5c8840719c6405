"""Reads trajectories that others recorded as events of a trace. Their times and effects are not known.

`import_trace` looks at what a path holds; each importer can be called by itself. All raise InputError that names the
file and the place for what they cannot read.
"""

from __future__ import annotations

import os
from pathlib import Path

from helix.errors import InputError, OptionError
from helix.traces.events import Event
from helix.traces.importers.apibank import import_apibank
from helix.traces.importers.bfcl import import_bfcl
from helix.traces.importers.openai import import_openai

__all__ = ["FORMATS", "import_apibank", "import_bfcl", "import_openai", "import_trace"]

FORMATS = ("openai", "bfcl", "api-bank")


def import_trace(
    path: str | os.PathLike[str],
    form: str,
    *,
    answers: str | os.PathLike[str] | None = None,
    results: str | os.PathLike[str] | None = None,
) -> list[Event]:
    """The events of a file (API-Bank: a folder) in one of `FORMATS`.

    `answers` is the file of the call strings and `results` that of the calls' results, both for BFCL alone.
    """
    if form not in FORMATS:
        raise OptionError(f"traces are imported from {', '.join(FORMATS)}, found `{form}`")
    if form != "bfcl" and (answers is not None or results is not None):
        raise OptionError("an answer key and a file of results are for traces in the format bfcl")
    if not Path(path).exists():
        raise InputError(f"{os.fspath(path)} does not exist")
    if form == "openai":
        return import_openai(path)
    if form == "api-bank":
        return import_apibank(path)
    if answers is None:
        raise OptionError("the format bfcl takes a second file with the calls of each turn (--answers)")
    return import_bfcl(path, answers, results)
