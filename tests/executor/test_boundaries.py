"""Filters, spreads, groups, sorts and limits over rows of which some fail: order, errors in place, nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from running import Ran, run, user_text

from helix.errors import EngineError
from helix.executor.engines.base import Request

HEAD = "workflow t(a: text, n: int, xs: list[text]?)\n"


def row(a: str, n: int = 1, xs: Any = ("p", "q")) -> dict[str, Any]:
    return {"a": a, "n": n, "xs": list(xs) if isinstance(xs, tuple) else xs}


def reply(request: Request) -> Any:
    """Capitals; a prompt with `bad` in it is refused."""
    text = user_text(request)
    return EngineError("refused", status=400) if "bad" in text else text.upper()


def ran(body: str, *rows: dict[str, Any], **options: Any) -> Ran:
    return run(HEAD + body, list(rows), reply=reply, **options)


# --- filter ---


def test_a_filter_drops_rows_before_what_follows_is_called() -> None:
    got = ran('keep when n > 1\nx = llm { user "{{ a }}" }\noutput x', row("a", 1), row("b", 2), row("c", 3))
    assert [(each["_row"], each["x"]) for each in got.rows] == [(1, "B"), (2, "C")]
    assert got.engine.calls == 2


def test_a_row_whose_condition_failed_stays_with_its_error() -> None:
    body = 's = llm { user "{{ a }}" }\nkeep when s == "A"\nx = llm { user "x {{ a }}" }\noutput a, x'
    got = ran(body, row("a"), row("bad"), row("c"))
    assert [(each["_row"], each["a"], each["x"]) for each in got.rows] == [(0, "a", "X A"), (1, "bad", None)]
    assert got.errors == [None, ("engine", "s")]
    assert got.rows[1]["_error"]["skipped"] == ["x"]
    assert got.calls("x") == ["x a"]


def test_a_dropped_row_is_no_failed_row_though_a_step_before_failed() -> None:
    body = 'x = llm { user "{{ a }}" }\nkeep when n > 1\noutput x'
    got = ran(body, row("bad", 1), row("bad", 2))
    assert [each["_row"] for each in got.rows] == [1]
    assert got.report.failed_rows == 1


def test_filters_in_a_row() -> None:
    body = 's = llm { user "{{ a }}" }\nkeep when n > 1\nkeep when s != "C"\nkeep when n < 9\noutput a'
    got = ran(body, row("a", 1), row("b", 2), row("c", 3), row("bad", 4), row("bad", 1), row("d", 9))
    assert [(each["a"], each["_error"] is None) for each in got.rows] == [("b", True), ("bad", False)]


# --- spread ---


def test_a_spread_gives_a_row_for_each_item_and_none_for_nothing() -> None:
    got = ran("spread xs as x\noutput a, x", row("a"), row("b", xs=[]), row("c", xs=None), row("d", xs=["r"]))
    assert [(each["_row"], each["a"], each["x"]) for each in got.rows] == [
        (0, "a", "p"),
        (0, "a", "q"),
        (3, "d", "r"),
    ]


def test_a_failed_list_is_one_failed_row() -> None:
    body = 'parts = llm { user "{{ a }}" }\nspread split(parts, " ") as x\ny = llm { user "y {{ x }}" }\noutput a, x, y'
    got = ran(body, row("p q"), row("bad"), row("r"))
    assert [(each["a"], each["x"], each["y"]) for each in got.rows] == [
        ("p q", "P", "Y P"),
        ("p q", "Q", "Y Q"),
        ("bad", None, None),
        ("r", "R", "Y R"),
    ]
    assert got.errors == [None, None, ("engine", "parts"), None]
    assert got.rows[2]["_error"]["skipped"] == ["y"]


def test_a_value_that_is_no_list_is_one_failed_row() -> None:
    got = run("workflow t(a: json)\nspread a as x\noutput x", [{"a": "text"}, {"a": [1, None]}])
    assert got.column("x") == [None, 1, None]
    assert got.errors == [("expression", "line 2"), None, None]


def test_only_the_spread_rows_that_fail_are_failed() -> None:
    got = ran('spread xs as x\ny = llm { user "{{ x }}" }\noutput x, y', row("a", xs=["p", "bad", "q"]))
    assert got.column("y") == ["P", None, "Q"]
    assert got.errors == [None, ("engine", "y"), None]


def test_a_dropped_row_is_not_spread() -> None:
    got = ran('keep when n > 1\nspread xs as x\nkeep when x != "p"\noutput a, x', row("a", 1), row("b", 2))
    assert [(each["a"], each["x"]) for each in got.rows] == [("b", "q")]


def test_a_long_spread_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from helix.executor import operators

    monkeypatch.setattr(operators, "ACTIVE_ITEMS", 3)
    items = [f"i{number}" for number in range(40)]
    got = ran('spread xs as x\ny = llm { user "{{ x }}" }\noutput y', row("a", xs=items), concurrency=32)
    assert got.column("y") == [item.upper() for item in items]
    assert got.engine.peak_in_flight <= 3


# --- group ---


GROUP = """x = llm { user "{{ a }}" }
group by n {
  all = llm { user "sum {{ rows }}" }
  c = len(rows)
}
output n, c, all"""


def test_groups_come_in_the_order_of_their_first_rows_with_their_rows_in_order() -> None:
    body = "group by n { names = rows[0].a + rows[-1].a, c = len(rows) }\noutput n, names, c"
    got = ran(body, row("a", 2), row("b", 1), row("c", 2), row("d", 3), row("e", 1))
    assert [(each["_row"], each["n"], each["names"], each["c"]) for each in got.rows] == [
        (0, 2, "ac", 2),
        (1, 1, "be", 2),
        (3, 3, "dd", 1),
    ]


def test_a_group_with_a_failed_row_has_failed_and_says_which_row() -> None:
    got = ran(GROUP, row("a", 1), row("b", 2), row("bad", 1), row("d", 2))
    assert [(each["_row"], each["n"], each["c"]) for each in got.rows] == [(0, 1, None), (1, 2, 2)]
    assert got.errors == [("engine", "x"), None]
    assert got.rows[0]["_error"]["message"] == "row 2 of the group failed: refused"
    (prompt,) = got.calls("all")
    assert "bad" not in prompt


def test_a_row_whose_key_failed_is_a_group_of_its_own() -> None:
    body = 'k = llm { user "{{ a }}" }\ngroup by k { c = len(rows) }\noutput k, c'
    got = ran(body, row("a"), row("bad one"), row("a"), row("bad two"), row("b"))
    assert [(each["_row"], each["k"], each["c"]) for each in got.rows] == [
        (0, "A", 2),
        (1, None, None),
        (3, None, None),
        (4, "B", 1),
    ]
    assert got.errors == [None, ("engine", "k"), ("engine", "k"), None]


def test_keys_of_several_types_are_told_apart() -> None:
    text = "workflow t(k: json)\nw = text(k)\ngroup by w { c = len(rows) }\noutput w, c"
    got = run(text, [{"k": "1"}, {"k": None}, {"k": ""}, {"k": "1"}])
    assert [(each["w"], each["c"]) for each in got.rows] == [("1", 2), ("", 2)]


@pytest.mark.parametrize(
    "body", [GROUP, "limit 3\noutput a", "sort by a\nlimit 2\nsort by a\noutput a", "spread xs as x\noutput x"]
)
@pytest.mark.parametrize("rows", [[], [row("a", 0)]])
def test_a_table_with_no_rows_gives_none(body: str, rows: list[Any]) -> None:
    assert ran("keep when n > 1\n" + body, *rows).rows == []


# --- sort ---


def test_a_sort_is_stable_with_null_last_and_failed_rows_after_all() -> None:
    text = 'workflow t(a: text, n: int?)\nx = llm { user "{{ a }}" }\nsort by n desc\noutput a, n, x'
    rows = [("a", 1), ("b", None), ("bad1", 9), ("c", 3), ("d", 1), ("bad2", None), ("e", None)]
    got = run(text, [{"a": a, "n": n} for a, n in rows], reply=reply)
    assert got.column("a") == ["bad1", "c", "a", "d", "b", "bad2", "e"]
    keyed = 'workflow t(a: text, n: int?)\nx = llm { user "{{ a }}" }\nsort by x, n\noutput a, n, x'
    got = run(keyed, [{"a": a, "n": n} for a, n in rows], reply=reply)
    assert got.column("a") == ["a", "b", "c", "d", "e", "bad1", "bad2"]


def test_a_row_that_failed_by_itself_sorts_last() -> None:
    body = 's = llm { user "{{ a }}" }\nkeep when s != "DROP"\nsort by n desc\noutput a'
    got = ran(body, row("a", 1), row("bad", 9), row("drop", 5), row("b", 2))
    assert got.column("a") == ["b", "a", "bad"]


@pytest.mark.parametrize("memory", [20_000, 3])
def test_a_sort_by_several_keys_each_its_way(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from helix.executor import spool

    monkeypatch.setattr(spool, "IN_MEMORY", memory)
    rows = [row(a, n) for a in "cab" for n in (2, 3, 1)]
    got = ran("sort by a, n desc\noutput a, n", *rows)
    assert [(each["a"], each["n"]) for each in got.rows] == [(a, n) for a in "abc" for n in (3, 2, 1)]


# --- limit ---


def test_a_limit_takes_the_first_rows_and_makes_few_calls_beyond() -> None:
    body = 'x = llm { user "{{ a }}" }\nlimit 3\noutput x'
    got = ran(body, *(row(f"a{number}") for number in range(5000)), concurrency=4)
    assert got.column("x") == ["A0", "A1", "A2"]
    assert got.engine.calls < 100


def test_a_limit_counts_failed_rows_too() -> None:
    got = ran('x = llm { user "{{ a }}" }\nlimit 2\noutput a, x', row("bad"), row("b"), row("c"))
    assert got.column("a") == ["bad", "b"]


def test_a_limit_of_nothing_calls_nothing() -> None:
    got = ran('x = llm { user "{{ a }}" }\nlimit 0\noutput x', *(row(str(number)) for number in range(100)))
    assert got.rows == []
    assert got.engine.calls == 0


def test_a_later_limit_ends_all_that_comes_before_it() -> None:
    body = 'x = llm { user "{{ a }}" }\nlimit 4000\ny = llm { user "y {{ x }}" }\nlimit 2\noutput y'
    got = ran(body, *(row(f"a{number}") for number in range(5000)), concurrency=4)
    assert got.column("y") == ["Y A0", "Y A1"]
    assert got.engine.calls < 200


def test_a_limit_after_a_spread_cuts_within_a_row() -> None:
    got = ran("spread xs as x\nlimit 3\noutput a, x", row("a"), row("b"), row("c"))
    assert [(each["a"], each["x"]) for each in got.rows] == [("a", "p"), ("a", "q"), ("b", "p")]


def test_a_call_that_a_limit_no_longer_wants_is_made_for_who_still_wants_it() -> None:
    """Rows beyond the limit ask what the rows within it ask again after it."""
    body = 'x = llm { user "{{ n }}" }\nlimit 2\ny = llm { user "{{ n + 1 }}" }\noutput x, y'
    got = ran(body, *(row("a", number) for number in range(50)), concurrency=1)
    assert [(each["x"], each["y"]) for each in got.rows] == [("0", "1"), ("1", "2")]
    assert got.report.failed_rows == 0


def test_a_limit_that_closes_ends_calls_in_flight() -> None:
    async def slow(request: Request) -> str:
        import asyncio

        if "a0" not in user_text(request):
            await asyncio.sleep(20)
        return "done"

    got = run(HEAD + 'x = llm { user "{{ a }}" }\nlimit 1\noutput x', [row(f"a{n}") for n in range(9)], reply=slow)
    assert got.column("x") == ["done"]
    assert got.engine.in_flight == 0


# --- rows that fail before they begin ---


BEFORE = [{"a": "x", "n": 1, "xs": ["p"]}, {"a": None, "n": 2, "xs": ["p"]}, {"a": "z", "n": "no"}]
TWO = [("input.null", None), ("input.type", None)]


def test_a_row_that_cannot_be_used_is_in_place_with_what_came_in() -> None:
    got = ran('x = llm { user "{{ a }}" }\noutput a, n, x', *BEFORE)
    assert [(each["a"], each["n"], each["x"]) for each in got.rows] == [
        ("x", 1, "X"),
        (None, 2, None),
        ("z", None, None),
    ]
    assert got.errors == [None, *TWO]
    assert got.rows[1]["_error"]["skipped"] == ["x"]
    assert got.engine.calls == 1


@pytest.mark.parametrize(
    ("body", "order"),
    [
        ("keep when n > 5\noutput a", [1, 2]),
        ("spread xs as i\noutput a, i", [0, 1, 2]),
        ("sort by n desc\noutput a", [0, 1, 2]),
        ("sort by a\nlimit 2\noutput a", [0, 1]),
        ('spread xs as i\nkeep when i == "p"\nsort by i\noutput a, i', [0, 1, 2]),
        ("group by n { c = len(rows) }\noutput n, c", [0, 1, 2]),
        ("spread xs as i\ngroup by i { c = len(rows) }\nsort by c\noutput i, c", [0, 1, 2]),
    ],
)
def test_rows_that_cannot_be_used_pass_through_everything(body: str, order: list[int]) -> None:
    got = ran(body, *BEFORE)
    assert [each["_row"] for each in got.rows] == order
    failed = {each["_row"]: each["_error"]["kind"] for each in got.rows if each["_error"]}
    assert failed == {row: kind for row, kind in ((1, "input.null"), (2, "input.type")) if row in order}
