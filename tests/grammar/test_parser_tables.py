"""The parser's tables, which are kept beside Python's bytecode: made once, and never in the way."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import lark
import pytest
from lark.parsers import lalr_parser

from helix.errors import SourceErrors
from helix.grammar import parse as parsing

TEXT = 'workflow w(a: text)\n# why\nx = llm { user "{{ a }}" }\noutput x\n'
Fresh = Callable[[], int]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tables are kept here."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    grammar = Path(parsing.__file__).with_name("helix.lark")
    file = Path(str(parsing._tables_file(grammar, lark.__version__)))
    assert file.is_relative_to(tmp_path)
    file.parent.mkdir(parents=True)
    return file


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Fresh:
    """Parses as a process does that begins, and says how often tables of the grammar of workflows were made."""

    def run() -> int:
        made: list[object] = []
        analyzer = lalr_parser.LALR_Analyzer

        def counting(parser_conf: lark.common.ParserConf, *more: object, **options: object) -> object:
            if any(rule.origin.name == "header" for rule in parser_conf.rules):
                made.append(parser_conf)
            return analyzer(parser_conf, *more, **options)

        parsing._lark.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(lalr_parser, "LALR_Analyzer", counting)
            found = parsing.parse(TEXT)
            assert (found.name, len(found.comments)) == ("w", 1)
            with pytest.raises(SourceErrors, match="unexpected `x`: expected `=`"):
                parsing.parse(TEXT.replace("output", "outptu"))
        parsing._lark.cache_clear()
        return len(made)

    return run


def test_they_are_made_once(tables: Path, fresh: Fresh) -> None:
    assert [fresh(), fresh(), fresh()] == [1, 0, 0]
    assert tables.is_file()


@pytest.mark.parametrize("damage", [b"", b"\x80\x04garbage", None])
def test_what_cannot_be_read_is_made_anew(tables: Path, fresh: Fresh, damage: bytes | None) -> None:
    """A process that ends as it writes leaves a part of the file."""
    fresh()
    whole = tables.read_bytes()
    tables.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert [fresh(), fresh()] == [1, 0]


def test_those_of_another_grammar_are_not_used(tables: Path, fresh: Fresh) -> None:
    fresh()
    first, rest = tables.read_bytes().split(b"\n", 1)
    tables.write_bytes(first[::-1] + b"\n" + rest)
    assert [fresh(), fresh()] == [1, 0]


def test_a_folder_that_cannot_be_written(tables: Path, fresh: Fresh) -> None:
    tables.mkdir()  # root may write everywhere, but nobody writes a folder as a file
    assert [fresh(), fresh()] == [1, 1]
    shutil.rmtree(tables.parent)
    assert fresh() == 1


def test_who_wants_no_bytecode_gets_no_tables(tables: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert [fresh(), fresh()] == [1, 1]
    assert os.listdir(tables.parent) == []
