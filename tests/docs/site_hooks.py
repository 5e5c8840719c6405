"""What MkDocs does to a page before it is laid out: the words of code blocks that only the tests read are left out."""

from __future__ import annotations

import re
import shlex
from typing import Any

_FENCE = re.compile(r"(?P<indent> {0,3})(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)")
# Languages of blocks, by the names under which they are highlighted.
_HIGHLIGHTED = {"jsonl": "json", "output": "text", "helix": "text", "csv": "text"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with plain info strings: a language, and the file's name as title."""
    lines: list[str] = []
    closing: str | None = None
    for line in markdown.split("\n"):
        fence = _FENCE.fullmatch(line)
        if closing is not None:
            closing = None if line.strip() == closing else closing
        elif fence is not None:
            closing = fence["mark"]
            line = f"{fence['indent']}{fence['mark']}{_info(fence['info'])}"
        lines.append(line)
    return "\n".join(lines)


def _info(info: str) -> str:
    language, *words = shlex.split(info) or [""]
    title = next((word.partition("=")[2] for word in words if word.startswith("title=")), None)
    return _HIGHLIGHTED.get(language, language) + (f' title="{title}"' if title else "")
