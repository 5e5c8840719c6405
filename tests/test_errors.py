"""How errors are shown: the line, the carets below it, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix.errors import (
    InputError,
    ParseError,
    SourceError,
    SourceErrors,
    cell_width,
    name_help,
    near_match,
)
from helix.span import Source, Span


def at(text: str, line: int, column: int, end_column: int, end_line: int | None = None, name: str = "w.helix") -> Span:
    """A span of a text."""
    source = Source(name=name, text=text)
    return Span(source=source, line=line, column=column, end_line=end_line or line, end_column=end_column)


def shown(span: Span) -> list[str]:
    """The line of a span and its carets."""
    lines = SourceError("m", span).render().split("\n")
    assert lines[:2] == ["error: m", f"  --> w.helix:{span.line}:{span.column}"]
    return lines[3:]


def test_a_source_error_shows_its_line() -> None:
    error = ParseError("expected `=`", at("a\nname == 3\nb", 2, 6, 8), "write `=`")
    assert error.render() == (
        "error: expected `=`\n  --> w.helix:2:6\n  |\n2 | name == 3\n  |      ^^\n  help: write `=`"
    )
    assert str(error) == "expected `=`"
    assert ParseError("no place").render() == "error: no place"


@pytest.mark.parametrize(
    ("text", "columns", "line", "carets"),
    [
        ("abc def", (5, 8), "1 | abc def", "  |     ^^^"),
        ("\tabc", (2, 5), "1 | \tabc", "  | \t^^^"),
        ("a\tb\tc", (5, 6), "1 | a\tb\tc", "  |  \t \t^"),
        ("票 x", (3, 4), "1 | 票 x", "  |    ^"),
        ("x 票据", (3, 5), "1 | x 票据", "  |   ^^^^"),
        ("ตั๋ว x", (6, 7), "1 | ตั๋ว x", "  |    ^"),
        ("e\u0301 x", (4, 5), "1 | e\u0301 x", "  |   ^"),
        ("👩\u200d🚀 x", (5, 6), "1 | 👩\u200d🚀 x", "  |      ^"),
        ("a\u200bb\x1b[31mc", (2, 3), "1 | a?b?[31mc", "  |  ^"),
        ("a\rb", (3, 4), "1 | a?b", "  |   ^"),
        ("abc", (4, 5), "1 | abc", "  |    ^"),
        ("abc", (9, 12), "1 | abc", "  |    ^"),
        ("abc", (2, 2), "1 | abc", "  |  ^"),
    ],
)
def test_carets_stand_below_what_they_mean(text: str, columns: tuple[int, int], line: str, carets: str) -> None:
    assert shown(at(text, 1, *columns)) == [line, carets]


def test_a_span_over_lines_is_marked_to_the_end_of_its_first() -> None:
    assert shown(at("if a {\n  b\n}", 1, 4, 2, end_line=3)) == ["1 | if a {", "  |    ^^^"]


def test_the_gutter_is_as_wide_as_the_number() -> None:
    assert SourceError("m", at("\n" * 99 + "abc", 100, 1, 4)).render().split("\n")[2:] == [
        "    |",
        "100 | abc",
        "    | ^^^",
    ]


@pytest.mark.parametrize("column", [1, 30, 150, 299, 300])
def test_long_lines_are_shown_around_the_place(column: int) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(300))
    line, carets = shown(at(text, 1, column, column + 1))
    part = line.removeprefix("1 | ")
    assert len(part) == 100
    assert part in text
    assert part[carets.removeprefix("  | ").index("^")] == text[column - 1]


def test_a_long_span_ends_with_the_part_that_is_shown() -> None:
    line, carets = shown(at("x" * 500, 1, 1, 501))
    assert len(line) == len(carets) == 104


def test_a_line_that_is_not_there_is_left_out() -> None:
    assert SourceError("m", at("a", 7, 1, 2)).render() == "error: m\n  --> w.helix:7:1"
    assert SourceError("m", at("", 1, 1, 2)).render() == "error: m\n  --> w.helix:1:1"


def test_a_python_file_is_read_when_its_line_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("first\nsecond line\n", encoding="utf-8")
    span = Span(source=Source(name=str(file)), line=2, column=1, end_line=2, end_column=7)
    assert SourceError("m", span).render().split("\n")[2:] == ["  |", "2 | second line", "  | ^^^^^^"]
    missing = Span(source=Source(name=str(tmp_path / "none.py")), line=2, column=1, end_line=2, end_column=7)
    assert SourceError("m", missing).render() == f"error: m\n  --> {missing}"


def test_several_errors_stand_in_the_order_of_their_places() -> None:
    text = "abc\ndef"
    errors = SourceErrors(
        [SourceError("third", at(text, 2, 2, 3)), SourceError("second", at(text, 1, 3, 4)), SourceError("first")]
    )
    assert [error.message for error in errors.errors] == ["first", "second", "third"]
    assert str(errors) == "first\nsecond\nthird"
    assert errors.render() == (
        "error: first\n\n"
        "error: second\n  --> w.helix:1:3\n  |\n1 | abc\n  |   ^\n\n"
        "error: third\n  --> w.helix:2:2\n  |\n2 | def\n  |  ^\n\n"
        "3 errors"
    )
    assert SourceErrors([SourceError("one")]).render() == "error: one"


def test_an_error_of_a_table_shows_its_place() -> None:
    assert InputError("bad", path="a.csv", line=3, column="name", help="fix it").render() == (
        "error: bad\n  --> a.csv:3:name\n  help: fix it"
    )
    assert InputError("bad").render() == "error: bad"


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("tickte", ["ticket", "policy"], "ticket"),
        ("Ticket", ["ticket", "policy"], "ticket"),
        ("TICKET", ["Ticket"], "Ticket"),
        ("polcy", ["ticket", "policy"], "policy"),
        ("zzz", ["ticket", "policy"], None),
        ("a", [], None),
    ],
)
def test_near_matches(name: str, known: list[str], near: str | None) -> None:
    assert near_match(name, known) == near
    assert near_match(name, reversed(known)) == near


def test_the_help_for_a_name() -> None:
    assert name_help("tickte", ["ticket", "policy"], "inputs") == "did you mean `ticket`? inputs: policy, ticket"
    assert name_help("zzz", ["ticket"], "inputs") == "inputs: ticket"
    assert name_help("zzz", [], "inputs") == "there are no inputs here"
    many = [f"n{i:02}" for i in range(20)]
    assert name_help("zzz", many) == f"known names: {', '.join(many[:12])}, ..."


def test_cells() -> None:
    assert [cell_width(char) for char in "a票Ａé👩\u0301\u200d\u0e34\u0e32"] == [1, 2, 2, 1, 2, 0, 0, 0, 1]


def test_spans() -> None:
    first, last = at("abc def", 1, 1, 4), at("abc def", 1, 5, 8)
    both = first.until(last)
    assert (both.line, both.column, both.end_line, both.end_column) == (1, 1, 1, 8)
    assert str(both) == "w.helix:1:1"
    assert "abc" not in repr(first)
