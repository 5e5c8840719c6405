"""Times as people write them: `300ms 2s 5m 1h 7d`."""

from __future__ import annotations

import re
from typing import Any

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: Any) -> float | None:
    """The seconds of a duration as the language writes it; a number is seconds; None: neither, or no time at all."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or float(found[1]) <= 0:
        return None
    return float(found[1]) * _UNITS[found[2]]
