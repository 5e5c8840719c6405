"""What a notebook shows of workflows, results and reports: whole, and no text of a table or a model becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import helix as hx
from helix.notebook import MOST_CHARACTERS, MOST_ROWS

HOSTILE = '</style></td><img src=x onerror=alert(1)><script>1</script>&"\x1b[31m'
TEXT = """
workflow w(a: text, n: int = 2)

model main { temperature: 0 }

x = llm main { user "Say {{ a }} <b>{{ n }}</b>" }
y = llm main -> { ok: bool, list: list[int] } { user "Judge {{ x }}" } when a != "skip"

output a, x, y
"""


class Reader(HTMLParser):
    """Elements that are opened, those left open, and all text but styles."""

    VOID = frozenset({"br", "hr", "img", "meta", "input", "path", "rect", "line", "circle", "use"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def read(shown: Any) -> Reader:
    """What is shown of an object, after what must hold for all: one element, nothing that runs, nothing fetched."""
    html = shown._repr_html_()
    assert html.startswith('<div class="hx')
    found = Reader(html)
    assert found.open == []
    assert not {"script", "img", "iframe", "link", "html", "body"} & set(found.tags)
    assert not [name for name in found.attributes if name.startswith("on") or name in ("src", "href")]
    assert "\x1b" not in html
    assert "@import" not in html
    return found


def workflow() -> hx.Workflow:
    return hx.loads(TEXT)


def test_a_workflow_is_its_text() -> None:
    shown = read(workflow())
    assert "w(a: text, n: int)" in shown.text
    assert "Say {{ a }} <b>{{ n }}</b>" in shown.text
    assert 'when a != "skip"' in shown.text


def test_a_function_is_shown_as_the_same_workflow() -> None:
    @hx.workflow
    def short(ticket: str):
        return hx.output(ticket, reply=hx.llm(user=f"Shorten <i> {ticket}"))

    shown = read(short)
    assert "short(ticket: text)" in shown.text
    assert 'reply = llm { user "Shorten <i> {{ ticket }}" }' in shown.text


def test_a_function_with_a_mistake_shows_the_mistake() -> None:
    @hx.workflow
    def wrong(ticket: str):
        if ticket == "<b>":
            return hx.output(ticket)
        return hx.output(x=ticket)

    shown = read(wrong)
    assert "wrong(ticket: text)" in shown.text
    assert 'error: the truth of `ticket == "<b>"`' in shown.text


def test_rows_of_a_result() -> None:
    engine = hx.ScriptedEngine(
        [
            {"step": "x", "row": 0, "reply": HOSTILE},
            {"step": "x", "row": 1, "error": 400, "message": HOSTILE},
            {"step": "x", "reply": "z" * (MOST_CHARACTERS + 1)},
            {"step": "y", "reply": '{"ok": true, "list": [1, 2]}'},
        ]
    )
    rows = [{"a": HOSTILE}, {"a": "fails"}, {"a": "skip"}]
    result = workflow().run(rows, engine=engine)
    shown = read(result)
    assert "3 rows, 1 failed, 4 calls" in shown.text
    assert shown.text.count('<img src=x onerror=alert(1)><script>1</script>&"?[31m') >= 2
    assert '{"ok": true, "list": [1, 2]}' in shown.text
    assert "x: engine: " in shown.text
    assert "null" in shown.text
    assert f"{'z' * MOST_CHARACTERS}..." in shown.text
    assert "z" * (MOST_CHARACTERS + 1) not in shown.text
    assert shown.tags.count("tr") == 4
    assert "more in" not in shown.text
    report = read(result.report)
    assert "1 row failed." in report.text
    assert "row 1, step x: engine: " in report.text
    assert "<script>1</script>" in report.text


def test_many_rows_are_shown_in_part_and_counted() -> None:
    rows = [{"a": f"row {number}"} for number in range(MOST_ROWS + 3)]
    shown = read(workflow().run(rows, engine="scripted"))
    assert shown.tags.count("tr") == MOST_ROWS + 1
    assert "3 more in .rows, .table and .to_pandas()" in shown.text
    assert "_error" not in shown.text


def test_no_rows_and_rows_in_a_file(tmp_path: Path) -> None:
    assert "0 rows, 0 calls" in read(workflow().run([], engine="scripted")).text
    path = tmp_path / "<b>.jsonl"
    result = workflow().run([{"a": "x"}], engine="scripted", output=path)
    assert f"The rows are in {path}." in read(result).text


@pytest.mark.parametrize(
    ("options", "said", "plain"),
    [
        ({}, "All rows are well.", "2 rows, 4 calls"),
        ({"max_calls": 1}, "Stopped early: the budget of 1 calls is used up.", "2 rows, 2 failed, 1 call"),
    ],
)
def test_outcomes_of_a_run(options: dict[str, Any], said: str, plain: str) -> None:
    report = workflow().run([{"a": "x"}, {"a": "y"}], engine="scripted", concurrency=1, **options).report
    shown = read(report)
    assert said in shown.text
    assert "prompt tokens" in shown.text
    assert report._repr_mimebundle_(exclude={"text/html"}) == {"text/plain": f"<RunReport: {plain}>"}


def test_what_a_run_took_is_shown_as_its_page() -> None:
    engine = hx.ScriptedEngine([{"step": "x", "reply": HOSTILE}, {"reply": '{"ok": true, "list": []}'}])
    measures = workflow().run([{"a": HOSTILE}], engine=engine, report=True).run_report
    assert measures is not None
    shown = read(measures)
    assert "The report of a run" in shown.text
    assert "without Helix" in shown.text
    # The page has the figures in it too, for a later run to compare with.
    assert '<script type="application/json"' in measures.to_html()


def test_an_explanation_and_a_forecast_are_shown_too() -> None:
    rows = [{"a": HOSTILE}]
    assert "Plan" in read(workflow().explain(rows)).text
    made = workflow().simulate(rows, gpu="h100", model="llama-3.1-8b", what_if_ranks=[], what_if_gpus=[])
    read(made)
    assert made._repr_mimebundle_(include={"text/plain"}) == {"text/plain": made.text()}
