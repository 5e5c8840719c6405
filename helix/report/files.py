"""Where a report may be written, and its file: whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

from helix.errors import InputError, OptionError
from helix.report.as_json import FORMAT
from helix.report.measures import RunMeasures

# The beginning of a report as it is written here.
_HEAD = f'{{\n  "format": "{FORMAT}"'.encode()


def refuse_report(path: str, *others: str | None) -> None:
    """Refuses a file that no report can be, or that is something else: one of `others`, or any JSON but a report.

    Raises OptionError.
    """
    target = Path(path)
    if target.suffix == ".html":
        raise OptionError("a report as a page is not part of this version; --report takes a .json file")
    if target.suffix != ".json":
        raise OptionError(f"--report takes a .json file, found `{path}`")
    if target.is_dir():
        raise OptionError(f"cannot write {path}: it is a folder")
    if not target.parent.is_dir():
        raise OptionError(f"cannot write {path}: there is no folder {target.parent}")
    for other in others:
        if other is not None and _same(target, Path(other)):
            raise OptionError(f"the report {path} is the input or the output; write it to another file")
    if target.exists() and not _is_report(target):
        raise OptionError(f"{path} exists and is no report; write the report to another file")


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as source:
            return source.read(len(_HEAD)) == _HEAD
    except OSError:
        return False


def write_report(path: str, measures: RunMeasures) -> None:
    """Writes the report as JSON, beside its place first. Raises InputError where that fails."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.helix-part")
    text = json.dumps(measures.to_json(), ensure_ascii=False, indent=2, allow_nan=False)
    try:
        beside.write_text(text + "\n", encoding="utf-8", errors="replace", newline="")
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"the report {path} cannot be written: {error.strerror}") from None
