"""Fixture files of rules: a workflow, and after `----` the plan that one rule makes of it.

# title: what it shows
# stats: rows=100 lang=2/1 text=90/40     distinct values and tokens of columns, where the rule may know them;
#                                         `text>lang`: each value of one column comes with one of the other
# known: a reply                          what the store has as the reply to each prompt that no row changes
workflow ...
----
= label                                   records of one label must reach one plan; the first one shows it
Sink ...                                  or `unchanged`: the rule must not fire
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rules_support import Known

from helix.optimizer.rule import ColumnStats, RuleContext, TableStats

_TITLE = re.compile(r"^# title: ", re.MULTILINE)
_HEAD = re.compile(r"# (stats|known): (.*)\n")
_LINE = "----\n"
UNCHANGED = "unchanged\n"


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """One record. `after` is `unchanged`, a plan as text, or empty where another record of the label shows it."""

    file: Path
    title: str
    head: dict[str, str] = field(default_factory=dict)
    workflow: str
    label: str = ""
    after: str

    @property
    def rule(self) -> str:
        """The name of the rule that the file is about."""
        return self.file.stem

    @property
    def context(self) -> RuleContext:
        """What the rule may know besides the plan."""
        reply, shown = self.head.get("known"), self.head.get("stats")
        known = None if reply is None else Known({"": reply})
        if shown is None:
            return RuleContext(known=known)
        rows, columns = 0, {}
        determines: list[tuple[str, str]] = []
        for part in shown.split():
            name, _, value = part.partition("=")
            decides, _, decided = part.partition(">")
            if name == "rows":
                rows = int(value)
            elif decided:
                determines.append((decides, decided))
            else:
                distinct, _, tokens = value.partition("/")
                columns[name] = ColumnStats(distinct=int(distinct), tokens=float(tokens))
        stats = TableStats(rows=rows, columns=columns, determines=tuple(determines))
        return RuleContext(stats=stats, known=known)


def read(file: Path) -> list[Fixture]:
    """The records of a file, in their order."""
    found: list[Fixture] = []
    for block in _TITLE.split(file.read_text(encoding="utf-8"))[1:]:
        title, _, rest = block.partition("\n")
        head: dict[str, str] = {}
        while line := _HEAD.match(rest):
            head[line[1]] = line[2]
            rest = rest[line.end() :]
        workflow, _, after = rest.partition(_LINE)
        label = ""
        if after.startswith("= "):
            label, _, after = after[2:].partition("\n")
        found.append(Fixture(file=file, title=title, head=head, workflow=workflow, label=label, after=after))
    return found


def write(file: Path, fixtures: Sequence[Fixture]) -> None:
    """Writes records with what has come out of them."""
    text = ""
    for each in fixtures:
        head = "".join(f"# {name}: {value}\n" for name, value in each.head.items())
        label = f"= {each.label}\n" if each.label else ""
        text += f"# title: {each.title}\n{head}{each.workflow}{_LINE}{label}{each.after}"
    file.write_text(text, encoding="utf-8")


def with_shared(fixtures: Sequence[Fixture]) -> list[Fixture]:
    """The records, each of a label with the plan that its first one shows."""
    shown = {each.label: each.after for each in reversed(fixtures) if each.label and each.after}
    return [replace(each, after=shown.get(each.label, each.after)) for each in fixtures]


def identifiers(fixtures: Iterable[Fixture]) -> list[str]:
    """What pytest calls each record."""
    return [f"{each.rule}: {each.title}" for each in fixtures]
