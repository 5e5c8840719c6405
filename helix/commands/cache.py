"""The commands `helix cache show` and `helix cache clear`."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helix.aligned import aligned
from helix.durations import duration
from helix.errors import OptionError
from helix.executor.store.upkeep import Contents, clear, contents
from helix.progress import clean, count, say

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = ("B", "KB", "MB", "GB", "TB")


def show_command(folder: Path, form: str) -> int:
    """Prints what a store holds."""
    found = contents(folder)
    print(_json(found) if form == "json" else clean(_text(found)))
    return 0


def clear_command(folder: Path, older: str | None, keep_runs: bool, sure: bool) -> int:
    """Removes results and runs from a store, after a question where somebody can answer it."""
    seconds = None if older is None else duration(older)
    if older is not None and seconds is None:
        raise OptionError(f"--older-than takes a time such as 12h or 30d, found `{older}`")
    found = contents(folder)
    if not sure:
        what = count(found.results, "result") + ("" if keep_runs else f" and {count(len(found.runs), 'run')}")
        if sys.stdin is None or not sys.stdin.isatty():
            raise OptionError(f"{folder} holds {what}; --yes says that they may go")
        which = "those of them that are old enough" if older else "all of them"
        say(f"{folder} holds {what}; runs that are removed can no longer be resumed. Remove {which}? [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            say("nothing was removed")
            return 0
    done = clear(folder, older=seconds, runs=not keep_runs)
    say(f"removed {count(done.results, 'result')} and {count(done.runs, 'run')}")
    if done.kept:
        say(f"{count(done.kept, 'run')} of other processes were left alone")
    return 0


def size_in_bytes(text: str) -> int:
    """The bytes of `2GB`, `500 MB`, `1000`. Raises OptionError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"--store-size takes a size such as 500MB or 2GB, found `{text}`")
    return int(float(found[1]) * 1024 ** "kmgt".find(found[2].lower()) * 1024) if found[2] else int(float(found[1]))


def shown_size(number: int) -> str:
    """A number of bytes for people."""
    size, unit = float(number), 0
    while size >= 1024 and unit + 1 < len(_UNITS):
        size, unit = size / 1024, unit + 1
    return f"{number} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def _model(text: str) -> str:
    """The model of results, or what kind of tool gave them."""
    told = json.loads(text)
    if "tool" in told:
        return f"{told['tool']} tool"
    name = told.get("name") or told.get("engine") or "(not named)"
    revision = told.get("revision")
    return f"{name} {str(revision)[:16]}" if revision else str(name)


def _text(found: Contents) -> str:
    lines = [
        f"{count(found.results, 'result')} of {shown_size(found.bytes)} in {found.folder}, "
        f"fetched {sum(each.hits for each in found.held):,} times; the files take {shown_size(found.file_bytes)}"
    ]
    if found.held:
        rows = [
            [_model(each.model), each.step, f"{each.results:,}", shown_size(each.bytes), f"{each.hits:,}"]
            for each in found.held
        ]
        lines += ["", *aligned(["model", "step", "results", "size", "fetched"], rows, left=2)]
    if found.lengths:
        lines += ["", f"lengths of {count(found.lengths, 'reply').replace('replys', 'replies')} for the cost model"]
    if found.runs:
        rows = [
            [
                each.workflow,
                each.input,
                "?" if each.began is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(each.began)),
                each.state,
                "?" if each.calls is None else f"{each.calls:,}",
                shown_size(each.bytes),
            ]
            for each in found.runs
        ]
        lines += ["", *aligned(["run of", "input", "begun", "state", "calls", "size"], rows, left=4)]
    return "\n".join(lines)


def _json(found: Contents) -> str:
    shown: dict[str, Any] = {
        "folder": str(found.folder),
        "results": found.results,
        "bytes": found.bytes,
        "file_bytes": found.file_bytes,
        "held": [{**asdict(each), "model": json.loads(each.model)} for each in found.held],
        "lengths": found.lengths,
        "runs": [{**asdict(each), "folder": str(each.folder)} for each in found.runs],
    }
    return json.dumps(shown, ensure_ascii=False, indent=2)
