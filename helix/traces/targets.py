"""Where a run may write its trace."""

from __future__ import annotations

import os
from pathlib import Path

from helix.errors import OptionError
from helix.traces.events import FORMAT

# The beginning of a trace as it is written here.
_HEAD = f'{{"v":{FORMAT},"session":'.encode()


def refuse_trace(path: str | os.PathLike[str], *others: str | None) -> None:
    """Refuses a file that no trace can be, or that is something else: one of `others`, or any file but a trace.

    Raises OptionError.
    """
    target = Path(path)
    if target.is_dir():
        raise OptionError(f"cannot write {target}: it is a folder")
    if not target.parent.is_dir():
        raise OptionError(f"cannot write {target}: there is no folder {target.parent}")
    for other in others:
        if other is not None and _same(target, Path(other)):
            raise OptionError(f"the trace {target} is the input or the output; write it to another file")
    if target.exists() and not _is_trace(target):
        raise OptionError(f"{target} exists and is no trace; write the trace to another file")


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def _is_trace(path: Path) -> bool:
    try:
        with path.open("rb") as source:
            return source.read(len(_HEAD)) in (_HEAD, b"")
    except OSError:
        return False
