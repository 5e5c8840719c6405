"""The log of launches: one JSON line for each guess that was made or counted, compared and settled.

It is apart from traces: what nobody asked for must not be learned from.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from helix.executor.speculation.guess import Guess

# A log is begun anew above this size; the one before is kept beside it.
_MOST_BYTES = 16 * 1024 * 1024


class LaunchLog:
    """Appends to a file; one that cannot be written is given up in silence, since it changes nothing."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] | None = None
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size > _MOST_BYTES:
                path.replace(path.with_name(f"{path.name}.1"))
            self._file = path.open("a", encoding="utf-8")

    def launched(self, guess: Guess, now: float) -> None:
        """A guess was made, or counted in the shadow."""
        self._write(
            {
                "event": "launched" if guess.kind != "shadow" else "shadow",
                "at": now,
                "kind": guess.kind,
                "call": guess.call,
                "pattern": guess.pattern,
                "p_low": guess.p_low,
                "value": guess.worth.value,
                "effects": guess.effect.effects,
                "open_world": guess.tool.open_world,
            }
        )

    def compared(self, guess: Guess, equal: bool) -> None:
        """A guess was compared with the real result."""
        self._write({"event": "compared", "call": guess.call, "equal": equal})

    def settled(self, guess: Guess, hidden: float | None, now: float) -> None:
        """A guess was right (`hidden` seconds) or not."""
        self._write({"event": "settled", "at": now, "call": guess.call, "state": guess.state, "hidden": hidden})

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            with suppress(OSError, ValueError):
                self._file.write(json.dumps(line, sort_keys=True) + "\n")

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
