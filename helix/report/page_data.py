"""The figures of a run inside its page: a block of data, from which a later run is compared with this one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_BEGIN, _END = '<script type="application/json" id="helix-report">', "</script>"


def data_block(report: Mapping[str, Any]) -> str:
    """The report as a block that no browser runs. No text in it can end it."""
    data = json.dumps(report, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        data = data.replace(char, f"\\u{ord(char):04x}")
    return f"{_BEGIN}{data}{_END}"


def data_of(page: str) -> str | None:
    """The text of the block in a page; None where there is none."""
    begins = page.rfind(_BEGIN)
    ends = page.find(_END, begins)
    return None if begins < 0 or ends < 0 else page[begins + len(_BEGIN) : ends]
