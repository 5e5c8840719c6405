"""What is said about texts that are no workflows: whole messages, one fixture for each kind of mistake."""

from __future__ import annotations

from pathlib import Path

import golden
import pytest

from helix.errors import SourceErrors
from helix.grammar.parse import MAX_BYTES, MAX_ERRORS, parse

FOLDER = Path(__file__).with_name("errors")


def _message(text: str | bytes) -> str:
    with pytest.raises(SourceErrors) as raised:
        parse(text, "w.helix")
    return raised.value.render() + "\n"


@pytest.mark.parametrize(("path", "title"), golden.cases(FOLDER), ids=lambda value: getattr(value, "stem", value))
def test_a_mistake_is_told(path: Path, title: str, update_golden: bool) -> None:
    if update_golden:
        golden.update(path, _message)
    record = golden.record(path, title)
    assert _message(record.before) == record.after


def test_an_empty_file_is_no_workflow() -> None:
    expected = (
        "error: the file holds no workflow\n"
        "  --> w.helix:1:1\n"
        "  help: a workflow begins with `workflow name(input: text)`\n"
    )
    assert _message("") == expected
    assert _message(b"\xef\xbb\xbf\r\n") == expected


def test_bytes_that_are_not_utf8_are_placed() -> None:
    assert _message(b'workflow w(a: text)\nx = "ab\xff"\n') == (
        "error: the file is not UTF-8: byte 0xff\n"
        "  --> w.helix:2:8\n"
        "  |\n"
        '2 | x = "ab\n'
        "  |        ^\n"
        "  help: save it as UTF-8\n"
    )


@pytest.mark.parametrize(("char", "shown"), [("\0", "U+0000"), ("\ud800", "U+D800"), ("\udfff", "U+DFFF")])
def test_characters_without_a_place_in_text_are_refused(char: str, shown: str) -> None:
    assert f"error: character {shown} cannot stand in a workflow\n  --> w.helix:2:6" in _message(
        f'workflow w(a: text)\nx = "{char}"\n'
    )


def test_a_file_that_is_too_large_is_refused() -> None:
    text = "workflow w()\n" + "#" * MAX_BYTES
    assert _message(text) == (
        f"error: the workflow has {len(text)} characters; at most {MAX_BYTES} are read\n"
        "  --> w.helix:1:1\n"
        "  help: put long texts into the table's columns\n"
    )


def test_numbers_of_too_many_digits_are_refused() -> None:
    assert "error: a number of more than 1000 digits" in _message(f"workflow w()\nlet x = {'1' * 1001}\n")


@pytest.mark.parametrize(
    "value",
    [
        "[" * 200 + "]" * 200,
        " + ".join(["a"] * 400),
        "not " * 200 + "a",
        "-" * 200 + "a",
        "a" + ".b" * 200,
        "f(" * 200 + ")" * 200,
        "{ a: " * 200 + "1" + " }" * 200,
    ],
)
def test_deep_nesting_is_refused(value: str) -> None:
    message = _message(f"workflow w(a: json)\nx = {value}\noutput x\n")
    assert message.startswith("error: more than 150 levels of nesting\n")
    assert message.endswith("  help: give parts of it steps of their own\n")


def test_only_the_first_mistakes_are_told() -> None:
    with pytest.raises(SourceErrors) as raised:
        parse("workflow w()\n" + "x = 1 2\n" * 50)
    assert len(raised.value.errors) == MAX_ERRORS
    assert [error.span.line for error in raised.value.errors if error.span] == list(range(2, 2 + MAX_ERRORS))
