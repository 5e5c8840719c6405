"""Fixture files of many small cases: a title, what goes in, and after `----` what has to come out.

A record begins with `# title: ...`; more such lines may follow it (`# set: name=value`). `--update-golden` rewrites
what stands after `----` and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_TITLE = re.compile(r"^# title: ", re.MULTILINE)
_LINE = "----\n"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One case: `given` without the lines of the head, `expected` as it stands after the line."""

    file: Path
    title: str
    head: dict[str, str] = field(default_factory=dict)
    given: str
    expected: str


def read(*files: Path) -> list[Record]:
    """The records of files, in their order."""
    found: list[Record] = []
    for file in files:
        for block in _TITLE.split(file.read_text(encoding="utf-8"))[1:]:
            title, _, rest = block.partition("\n")
            head: dict[str, str] = {}
            while line := re.match(r"# (set|width): (.*)\n", rest):
                head[line[1]] = line[2]
                rest = rest[line.end() :]
            given, _, expected = rest.partition(_LINE)
            found.append(Record(file=file, title=title, head=head, given=given, expected=expected))
    return found


def update(record: Record, made: str) -> None:
    """Writes what came out of one record into its file."""
    text = record.file.read_text(encoding="utf-8")
    head = "".join(f"# {name}: {value}\n" for name, value in record.head.items())
    start = text.index(f"# title: {record.title}\n{head}{record.given}")
    body = start + len(f"# title: {record.title}\n{head}{record.given}")
    following = _TITLE.search(text, body)
    end = following.start() if following else len(text)
    record.file.write_text(text[:body] + _LINE + made + text[end:], encoding="utf-8")


def identifiers(records: Iterable[Record]) -> list[str]:
    """What pytest calls each record."""
    return [f"{record.file.stem}: {record.title}" for record in records]
