"""Binding: what it says about mistakes, and what it makes of names, types, branches and loops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import records

from helix.errors import SourceErrors
from helix.grammar.bind import bind
from helix.grammar.parse import parse

CASES = records.read(*sorted((Path(__file__).parent / "bind_errors").glob("*.txt")))
_FILE = re.compile(r"^# file: (.*)\n", re.MULTILINE)


def message_of(record: records.Record, folder: Path) -> str:
    """What binding says about a workflow that stands in a folder of its own, with the files that it uses."""
    main, *others = _FILE.split(record.given)
    for name, text in zip(others[::2], others[1::2], strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    overrides = dict([record.head["set"].split("=", 1)]) if "set" in record.head else None
    with pytest.raises(SourceErrors) as caught:
        bind(parse(main, "w.helix"), folder=folder, overrides=overrides)
    return caught.value.render().replace(f"{folder}/", "") + "\n"


@pytest.mark.parametrize("record", CASES, ids=records.identifiers(CASES))
def test_message(record: records.Record, tmp_path: Path, update_golden: bool) -> None:
    message = message_of(record, tmp_path)
    if update_golden:
        records.update(record, message)
    else:
        assert message == record.expected


def test_every_kind_of_mistake_has_a_message_of_its_own() -> None:
    titles = [record.title for record in CASES]
    assert len(titles) == len(set(titles))
    first_lines = {record.expected.splitlines()[0] for record in CASES}
    assert len(first_lines) > 100
