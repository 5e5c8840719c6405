"""Loops over lists, branches, bounded loops: values, nesting, failures inside and around them, effects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Ran, run, user_text

from helix.executor import operators
from helix.executor.engines.base import Request


def upper(request: Request) -> str:
    return user_text(request).upper()


def failing(*words: str) -> Callable[[Request], Any]:
    """Replies in capitals; a prompt that holds one of the words is answered with an error that cannot be retried."""
    from helix.errors import EngineError

    def reply(request: Request) -> Any:
        text = user_text(request)
        return EngineError("refused", status=400) if any(word in text for word in words) else text.upper()

    return reply


def one(text: str, row: dict[str, Any] | None = None, reply: Any = upper, **options: Any) -> Ran:
    return run(text, [row or {"a": "v"}], reply=reply, **options)


# --- for ---


def test_a_loop_gives_the_list_of_what_it_yields() -> None:
    text = 'workflow t(a: text)\nr = for n in [1, 2] { v = llm { user "{{ a }}{{ n }}" } yield [n, v] }\noutput r'
    assert one(text).column("r") == [[[1, "V1"], [2, "V2"]]]


@pytest.mark.parametrize(("value", "result"), [(None, None), ([], [])])
def test_a_loop_over_nothing_calls_nothing(value: Any, result: Any) -> None:
    text = 'workflow t(a: list[text]?)\nr = for n in a { v = llm { user "{{ n }}" } yield v }\noutput r'
    ran = one(text, {"a": value})
    assert ran.column("r") == [result]
    assert ran.engine.calls == 0


def test_a_loop_over_a_list_that_a_step_returned() -> None:
    text = """workflow t(a: text)
parts = llm -> list[text] { user "{{ a }}" }
r = for part in parts { v = llm { user "say {{ part }}" } yield v }
output r"""

    def reply(request: Request) -> str:
        return '["x", "y"]' if request.step == "parts" else user_text(request).upper()

    assert one(text, reply=reply).column("r") == [["SAY X", "SAY Y"]]


def test_a_value_that_is_no_list_is_the_rows_error() -> None:
    text = "workflow t(a: json)\nr = for n in a { yield n }\noutput r"
    ran = run(text, [{"a": "text"}, {"a": [1]}, {"a": {"k": 1}}])
    assert ran.errors == [("expression", "r"), None, ("expression", "r")]
    assert ran.rows[0]["_error"]["message"] == '`for` needs a list, found text "text"'


def test_a_list_too_long_is_the_rows_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "MAX_ITEMS", 3)
    text = "workflow t(a: list[int])\nr = for n in a { yield n + 1 }\noutput r"
    ran = run(text, [{"a": [1, 2, 3]}, {"a": [1, 2, 3, 4]}])
    assert ran.column("r") == [[2, 3, 4], None]
    assert ran.rows[1]["_error"]["message"] == "`for` runs over at most 3 items, found 4"


def test_a_long_list_is_worked_on_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "ACTIVE_ITEMS", 4)
    text = 'workflow t(a: list[int])\nr = for n in a { v = llm { user "{{ n }}" } yield v }\noutput r'
    ran = run(text, [{"a": list(range(50))}], reply=upper, concurrency=64)
    assert ran.column("r") == [[str(number) for number in range(50)]]
    assert ran.engine.peak_in_flight <= 4


def test_a_list_of_many_items_ends() -> None:
    text = "workflow t(a: list[int])\nr = for n in a { yield n * 2 }\noutput r"
    ran = run(text, [{"a": list(range(20_000))}])
    assert ran.rows[0]["r"][-1] == 39_998


def test_loops_nest_and_name_the_item_that_failed() -> None:
    text = """workflow t(a: text)
outer = for p in ["x", "y"] {
  inner = for q in ["1", "2"] {
    v = llm { user "{{ p }}{{ q }}{{ a }}" }
    yield v
  }
  yield inner
}
output outer"""
    assert one(text).column("outer") == [[["X1V", "X2V"], ["Y1V", "Y2V"]]]
    ran = one(text, reply=failing("y1"))
    assert ran.errors == [("engine", "outer[1].inner[0].v")]
    assert ran.engine.calls == 4


def test_of_several_failed_items_the_first_is_the_error_whatever_came_first() -> None:
    text = 'workflow t(a: text)\nr = for n in [0, 1, 2] { v = llm { user "n{{ n }}" } yield v }\noutput r'
    for delays in ([0.0, 0.02, 0.0], [0.0, 0.0, 0.02]):
        rules: list[dict[str, Any]] = [
            {"contains": f"n{number}", "error": 400, "delay": delay} for number, delay in enumerate(delays) if number
        ]
        assert run(text, [{"a": "v"}], rules=rules).errors == [("engine", "r[1].v")]


def test_an_item_that_does_not_need_a_failed_capture_is_made() -> None:
    text = """workflow t(a: text)
bad = llm { user "bad {{ a }}" }
r = for n in [1, 2] {
  v = llm { user "item {{ n }}" }
  w = llm { user "{{ bad }} {{ v }}" }
  yield v
}
output r"""
    ran = one(text, reply=failing("bad"))
    assert ran.column("r") == [["ITEM 1", "ITEM 2"]]
    assert ran.errors == [None]


# --- if ---


BRANCH = """workflow t(a: text)
kind = llm { user "kind {{ a }}" }
if kind == "KIND BUG" {
  reply = llm { user "bug {{ a }}" }
  only = llm { user "only {{ a }}" }
} else if kind == "KIND ASK" {
  reply = llm { user "ask {{ a }}" }
} else {
  reply = "none"
}
output reply, only"""


@pytest.mark.parametrize(
    ("value", "reply", "only", "calls"),
    [("bug", "BUG BUG", "ONLY BUG", 3), ("ask", "ASK ASK", None, 2), ("x", "none", None, 1)],
)
def test_one_arm_runs_and_its_names_join(value: str, reply: str, only: str | None, calls: int) -> None:
    ran = one(BRANCH, {"a": value})
    assert (ran.rows[0]["reply"], ran.rows[0]["only"]) == (reply, only)
    assert ran.engine.calls == calls


def test_a_failed_condition_skips_both_arms_and_marks_their_steps() -> None:
    ran = one(BRANCH, {"a": "bug"}, reply=failing("kind"))
    assert ran.errors == [("engine", "kind")]
    assert ran.rows[0]["_error"]["skipped"] == ["reply", "only"]
    assert ran.engine.calls == 1


def test_a_failure_in_an_arm_is_that_of_the_names_that_need_it() -> None:
    ran = one(BRANCH, {"a": "bug"}, reply=failing("only"))
    assert (ran.rows[0]["reply"], ran.rows[0]["only"]) == ("BUG BUG", None)
    assert ran.errors == [("engine", "only")]


def test_a_skipped_step_is_null_and_its_failure_is_its_own() -> None:
    text = """workflow t(a: text)
x = llm { user "x {{ a }}" } when a == "go"
y = llm { user "y {{ x | default("none", true) }}" }
output x, y"""
    assert one(text, {"a": "stay"}).rows[0] | {"_error": None} == {"_row": 0, "x": None, "y": "Y NONE", "_error": None}
    ran = one(text, {"a": "go"}, reply=failing("x go"))
    assert ran.errors == [("engine", "x")]
    assert ran.rows[0]["_error"]["skipped"] == ["y"]


def test_branches_nest_in_loops_and_loops_in_branches() -> None:
    text = """workflow t(a: text)
r = for n in [1, 2, 3] {
  if n == 2 {
    v = for m in ["p", "q"] { w = llm { user "{{ n }}{{ m }}{{ a }}" } yield w }
  } else {
    v = [text(n)]
  }
  yield v
}
output r"""
    ran = one(text)
    assert ran.column("r") == [[["1"], ["2PV", "2QV"], ["3"]]]
    assert one(text, reply=failing("2q")).errors == [("engine", "r[1].v[1].w")]


# --- repeat ---


LOOP = """workflow t(a: text)
draft = llm { user "draft {{ a }}" }
repeat up to 3 until ok {
  note = llm { user "judge {{ draft }}" }
  ok = note == "JUDGE BETTER BETTER DRAFT V"
  draft = llm { user "better {{ draft }}" } when not ok
}
output draft, note, ok"""


def test_a_loop_ends_when_its_condition_holds() -> None:
    text = """workflow t(a: text)
draft = llm { user "{{ a }}" }
repeat up to 5 until len(draft) > 4 {
  draft = llm { user "{{ draft }}+" }
}
output draft"""
    ran = run(text, [{"a": "v"}, {"a": "vvv"}], reply=user_text)
    assert ran.column("draft") == ["v++++", "vvv++"]
    assert ran.engine.calls == 2 + 4 + 2


def test_a_loop_ends_after_its_rounds_and_keeps_the_last_values() -> None:
    text = """workflow t(a: text)
n = 0
last = ""
repeat up to 3 {
  last = llm { user "round {{ n }}" }
  n = n + 1
}
output n, last"""
    ran = one(text)
    assert ran.rows[0] == {"_row": 0, "n": 3, "last": "ROUND 2", "_error": None}
    assert ran.calls("last") == ["round 0", "round 1", "round 2"]


def test_a_condition_that_fails_ends_the_loop_with_its_error() -> None:
    text = """workflow t(a: text)
draft = "x"
repeat up to 3 until draft[5] == "y" {
  draft = llm { user "{{ draft }}" }
}
after = llm { user "after {{ draft }}" }
output draft, after"""
    ran = one(text)
    assert ran.engine.calls == 1
    assert ran.errors[0] is not None
    assert ran.errors[0][0] == "expression"
    assert ran.rows[0]["draft"] is None
    assert ran.rows[0]["_error"]["skipped"] == ["after"]


def test_a_step_that_fails_in_a_round_skips_what_needs_it_in_later_rounds() -> None:
    text = """workflow t(a: text)
draft = "x"
repeat up to 3 {
  draft = llm { user "{{ draft }}" }
}
output draft"""
    ran = one(text, reply=failing("X"))
    assert ran.errors == [("engine", "draft")]
    assert ran.engine.calls == 2


def test_a_loop_whose_start_failed_is_skipped() -> None:
    text = """workflow t(a: text)
draft = llm { user "draft {{ a }}" }
repeat up to 3 until len(draft) > 100 {
  draft = llm { user "better {{ draft }}" }
}
output draft"""
    ran = one(text, reply=failing("draft v"))
    assert ran.errors == [("engine", "draft")]
    assert ran.engine.calls == 1


def test_loops_nest() -> None:
    text = """workflow t(a: text)
s = ""
repeat up to 2 {
  s = s + "o"
  repeat up to 2 { s = s + "i" }
}
rows_of = for n in [1, 2] {
  m = 0
  repeat up to n { m = m + 1 }
  yield m
}
output s, rows_of"""
    with pytest.raises(Exception, match="constant"):
        one(text)
    text = text.replace("repeat up to n", "repeat up to 3 until m == n")
    assert one(text).rows[0] == {"_row": 0, "s": "oiioii", "rows_of": [1, 2], "_error": None}


def test_many_rounds_and_deep_nesting_end() -> None:
    text = "workflow t(a: text)\nn = 0\nrepeat up to 1000 { n = n + 1 }\noutput n"
    assert one(text).column("n") == [1000]
    deep = "n"
    for level in range(12):
        deep = f"for x{level} in [1, 2] {{ yield {deep} }}" if level == 0 else deep
    body = "yield [a]"
    for level in range(8):
        body = f"v{level} = for x{level} in [0, 1] {{ {body} }}\nyield v{level}"
    text = f"workflow t(a: text)\nr = for top in [0] {{ {body} }}\noutput r"
    value = one(text).rows[0]["r"]
    while isinstance(value, list):
        value = value[-1]
    assert value == "v"


# --- effects ---


TOOLS = """def note(what):
    if "bad" in what:
        raise ValueError("no " + what)
    return "noted " + what
"""
DECLARED = 'tool note(what: text) -> text from python "notes:note"\n'


def effect(tmp_path: Path, body: str, value: str = "bad", output: str = "a") -> Ran:
    (tmp_path / "notes.py").write_text(TOOLS)
    return run(f"workflow t(a: text)\n{DECLARED}{body}\noutput {output}", [{"a": value}], folder=tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "n = note(a)",
        'if a != "" { k = "x", n = note(a) }',
        'if a != "" { if a != "y" { n = note(a) } }',
        'repeat up to 2 { k = "x", n = note(a) }',
        "r = for w in [a] { n = note(w) yield w }",
        'r = for w in ["fine", a] { if w == a { n = note(w) } yield w }',
        "n = note(a) when len(a) > 0",
    ],
)
def test_a_failed_effect_is_the_rows_error_wherever_it_stands(tmp_path: Path, body: str) -> None:
    ran = effect(tmp_path, body)
    assert ran.errors[0] is not None
    assert ran.errors[0][0] == "tool"
    assert "no bad" in ran.rows[0]["_error"]["message"]
    assert effect(tmp_path, body, "good").errors == [None]


def test_a_failed_look_up_that_nobody_reads_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(TOOLS)
    declared = DECLARED.strip() + "   effects read\n"
    ran = run(f"workflow t(a: text)\n{declared}n = note(a)\noutput a", [{"a": "bad"}], folder=tmp_path)
    assert ran.errors == [None]


def test_an_effect_of_a_round_that_failed_counts_though_later_rounds_are_well(tmp_path: Path) -> None:
    body = 'n = 0\nrepeat up to 3 { m = note("bad") when n == 0, n = n + 1 }'
    ran = effect(tmp_path, body, "x", "n")
    assert ran.errors == [("tool", "m")]
    assert ran.column("n") == [3]
