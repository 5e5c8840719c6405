"""Figures of faults: of the rows that went in, how many came out lost, twice, in another order or with other content.

A test says its own by the fixture `figure`; they are shown as a table when the tests have ended, also under xdist.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

_KEY = "fault figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What became of so many rows under one kind of fault. `peak_mb` is the most memory that a command took, if told.

    `requests` are those that a server had or calls that were made, `note` says what else was measured.
    """

    family: str
    tried: int
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    changed: int = 0
    requests: int | None = None
    peak_mb: float | None = None
    note: str = ""

    @property
    def whole(self) -> bool:
        """Whether every row came out once, in its place, as it has to be."""
        return not (self.lost or self.duplicated or self.reordered or self.changed)


def compared(
    family: str, found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]], **more: Any
) -> Figure:
    """Compares rows of a result by their `_row` with what they have to be, both in order. A row that failed is to be
    there in its place with its error: an error that is expected is given as `{"kind": ...}`, to which others may add.
    """
    wanted = {row["_row"]: row for row in expected}
    seen: set[int] = set()
    duplicated = reordered = changed = 0
    last = -1
    for row in found:
        number = row["_row"]
        duplicated += number in seen
        reordered += number < last
        last = max(last, number)
        seen.add(number)
        changed += number not in wanted or not _same(row, wanted[number])
    return Figure(
        family=family,
        tried=len(wanted),
        lost=len(wanted.keys() - seen),
        duplicated=duplicated,
        reordered=reordered,
        changed=changed,
        **more,
    )


def _same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    error, expected = found.get("_error"), wanted.get("_error")
    if expected is not None and (error is None or any(error[name] != value for name, value in expected.items())):
        return False
    return (error is None) == (expected is None) and {**found, "_error": None} == {**wanted, "_error": None}


def noted(figure: Figure) -> tuple[str, str]:
    """A figure as a property of a test, which its report carries."""
    return _KEY, json.dumps(asdict(figure))


def table(reports: Iterable[Any]) -> list[str]:
    """The lines of a table of all figures in reports of tests; none where there are none."""
    figures = [Figure(**json.loads(text)) for each in reports for key, text in each.user_properties if key == _KEY]
    if not figures:
        return []
    names = ("rows", "lost", "twice", "moved", "changed", "requests", "peak MB")
    lines = [f"{'fault':<38}" + "".join(f"{name:>10}" for name in names)]
    for each in sorted(figures, key=lambda figure: figure.family):
        counts = (each.tried, each.lost, each.duplicated, each.reordered, each.changed, each.requests)
        shown = ["" if count is None else f"{count:,}" for count in counts]
        shown.append("" if each.peak_mb is None else f"{each.peak_mb:.0f}")
        lines.append(f"{each.family:<38}" + "".join(f"{text:>10}" for text in shown) + (f"  {each.note}").rstrip())
    return lines
