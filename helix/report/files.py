"""Where a report may be written, and its file: whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from helix.errors import InputError, OptionError
from helix.report.as_json import FORMAT, VERSION
from helix.report.measures import RunMeasures
from helix.report.page_data import data_of

# The beginning of a report as it is written here, and the most bytes of a file that may be one.
_HEAD = f'{{\n  "format": "{FORMAT}"'.encode()
_MOST = 64_000_000


def refuse_report(path: str, *others: str | None) -> None:
    """Refuses a file that no report can be, or that is something else: one of `others`, or any JSON but a report.

    Raises OptionError.
    """
    target = Path(path)
    if target.suffix not in (".json", ".html"):
        raise OptionError(f"--report takes a .html or a .json file, found `{path}`")
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
        if path.suffix == ".html":
            return _report_in(path) is not None
        with path.open("rb") as source:
            return source.read(len(_HEAD)) == _HEAD
    except (OSError, ValueError, RecursionError):
        return False


def read_report(path: str) -> dict[str, Any]:
    """An earlier report, of its file or of its page. Raises OptionError where it is none."""
    try:
        found = _report_in(Path(path))
    except OSError as error:
        raise OptionError(f"cannot read the report {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        found = None
    if found is None:
        raise OptionError(f"{path} is no report of a run; --compare takes what --report wrote, a .json or .html file")
    if found.get("version") != VERSION:
        told = f"found {found.get('version')!r}"[:80]
        raise OptionError(f"the report {path} is of another version; expected {VERSION}, {told}")
    return found


def _report_in(path: Path) -> dict[str, Any] | None:
    """The report that a file holds; None where it holds something else. Raises OSError, ValueError, RecursionError."""
    if path.stat().st_size > _MOST:
        return None
    held: str | None = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        held = data_of(held or "")
    found = None if held is None else json.loads(held, parse_constant=_refused)
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def write_report(path: str, measures: RunMeasures, earlier: Mapping[str, Any] | None = None) -> None:
    """Writes the report as a page or as JSON, by the file's name, beside its place first. `earlier` is compared with in
    a page. Raises InputError where that fails.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.helix-part")
    if target.suffix == ".html":
        text = measures.to_html(earlier)
    else:
        text = json.dumps(measures.to_json(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    try:
        beside.write_text(text, encoding="utf-8", errors="replace", newline="")
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"the report {path} cannot be written: {error.strerror}") from None
