"""Golden files: records of a title, a before and an after, the after rewritten by `pytest --update-golden`.

==== a title
what goes in
----
what comes out
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TITLE = "==== "
_SPLIT = "----"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record of a golden file; before and after end with a line break."""

    title: str
    before: str
    after: str


def records(path: Path) -> list[Record]:
    """The records of a golden file, in order."""
    found: list[Record] = []
    for chunk in path.read_bytes().decode("utf-8").split(f"\n{_TITLE}")[0:]:
        title, _, rest = chunk.removeprefix(_TITLE).partition("\n")
        before, split, after = f"\n{rest}".partition(f"\n{_SPLIT}\n")
        assert split, f"{path.name}: record `{title}` has no line `{_SPLIT}`"
        found.append(Record(title=title, before=before[1:] + "\n", after=after.rstrip("\n") + "\n"))
    return found


def update(path: Path, produce: Callable[[str], str]) -> None:
    """Writes the file again with what comes out now."""
    shown = [
        f"{_TITLE}{record.title}\n{record.before}{_SPLIT}\n{produce(record.before).rstrip()}\n"
        for record in records(path)
    ]
    path.write_bytes("\n".join(shown).encode("utf-8"))


def cases(folder: Path) -> list[tuple[Path, str]]:
    """All records below a folder, as parameters of a test: the file and the title."""
    return [(path, record.title) for path in sorted(folder.glob("*.txt")) for record in records(path)]


def record(path: Path, title: str) -> Record:
    """The one record of a title."""
    (found,) = [record for record in records(path) if record.title == title]
    return found
