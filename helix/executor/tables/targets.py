"""Where a result may be written, and what becomes of a part of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from helix.errors import OptionError
from helix.executor.tables.formats import output_format

# Files that are never results: to write over one is a slip.
_SOURCES = {
    ".helix": "workflow",
    ".py": "Python file",
    ".toml": "settings file",
    ".sqlite": "database",
    ".db": "database",
}


def refuse_target(output: str | None, form: str | None, rows: Any) -> None:
    """Refuses a target that cannot be written, or whose content is no result: the input, a workflow, a program."""
    if output is None or output == "-":
        return
    path = Path(output)
    if path.is_dir():
        raise OptionError(f"cannot write {output}: it is a folder")
    output_format(path, form)
    if not path.parent.is_dir():
        raise OptionError(f"cannot write {output}: there is no folder {path.parent}")
    if isinstance(rows, str | os.PathLike) and path.exists() and Path(rows).exists() and path.samefile(rows):
        raise OptionError(f"the output {output} is the input; write the result to another file")
    if path.suffix in _SOURCES and path.exists():
        raise OptionError(f"the output {output} would replace a {_SOURCES[path.suffix]}; write to another file")


def partial_path(output: str) -> Path:
    """Where the finished rows of an interrupted run go: `out.partial.jsonl` beside `out.jsonl`."""
    path = Path(output)
    return path.with_name(f"{path.stem}.partial{path.suffix}")
