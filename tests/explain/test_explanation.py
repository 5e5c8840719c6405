"""What `workflow.explain()` gives in Python: text, a page in a notebook, the plan."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from explain_support import ROWS, TWICE, explained, workflow_of

import helix as hx
from helix.errors import EngineError, InputError, OptionError
from helix.executor.engines.base import Capabilities, Reply, Request
from helix.logical import Generate, every_node


def steps(plan: Any) -> set[str]:
    return {node.step for node in every_node(plan.sink) if isinstance(node, Generate)}


def test_it_is_its_text() -> None:
    made = explained(TWICE, width=60)
    assert str(made) == repr(made) == made.text(width=60).rstrip("\n")
    assert max(map(len, str(made).splitlines())) <= 60
    assert made.text(width=90) != made.text()


def test_it_holds_the_optimized_plan() -> None:
    made = explained(TWICE)
    assert steps(made.plan) == {"short", "title"}
    assert steps(made.report.plain) == {"short", "gist", "title", "spare"}


def test_a_notebook_shows_a_page() -> None:
    made = explained(TWICE)
    html = made._repr_html_()
    assert html.startswith('<div class="hx"><style>')
    assert html.endswith("</div>")
    assert "<html" not in html
    bundle = made._repr_mimebundle_()
    assert bundle == {"text/plain": str(made), "text/html": html}
    assert made._repr_mimebundle_(include={"text/plain"}) == {"text/plain": str(made)}
    assert made._repr_mimebundle_(exclude={"text/plain"}) == {"text/html": html}


def test_inside_a_running_loop() -> None:
    async def main() -> Any:
        return explained(TWICE, ROWS, engine="scripted", analyze=True)

    measured = asyncio.run(main()).report.measured
    assert measured is not None
    assert measured.rows == 4


def test_rows_of_every_kind(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "rows.csv"
    path.write_text("text\nIt broke\nIt is fine\n", encoding="utf-8")
    for rows in (path, str(path), pa.table({"text": ["It broke", "It is fine"]}), iter([{"text": "a"}, {"text": "b"}])):
        made = explained(TWICE, rows)
        assert made.report.table is not None
        assert made.report.table.rows == made.report.costs.optimized.rows == 2
    assert explained(TWICE, path, limit=1).report.costs.optimized.rows == 1


def test_functions_of_the_workflow_are_computed() -> None:
    calls: list[str] = []

    @hx.function
    def shorter(text: str) -> str:
        calls.append(text)
        return text[:2]

    @hx.workflow
    def w(a: str):
        return hx.output(x=hx.model()(user=f"Say {shorter(a)}"))

    made = w.explain([{"a": "one"}, {"a": "only"}, {"a": "two"}])
    assert calls
    # "one" and "only" are one prompt once they are cut.
    assert made.report.costs.optimized.calls == 2
    assert made.report.costs.optimized.merged == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": ["merge_equal_step"]}, r"there is no rule `merge_equal_step`; did you mean `merge_equal_steps`\?"),
        ({"without": ["fold"]}, r"there is no rule `fold`"),
        ({"prices": (1,)}, "prices are two or three numbers"),
        ({"prices": (1, -1)}, "prices are two or three numbers"),
        ({"prices": (1, float("nan"))}, "prices are two or three numbers"),
        ({"concurency": 3}, "unknown option `concurency`; did you mean `concurrency`"),
        ({"analyze": True}, "no rows were given"),
        ({"engine": "scripte"}, "unknown engine `scripte`"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        explained(TWICE, **options)


def test_a_table_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="column `text`"):
        explained(TWICE, [{"txt": "a"}])


# --- the run ------------------------------------------------------------------------------------------------------


def test_what_was_measured_stands_beside_the_estimates() -> None:
    made = explained(TWICE, ROWS, analyze=True, engine="scripted")
    measured = made.report.measured
    assert measured is not None
    assert measured.optimized
    assert (measured.rows, measured.failed_rows) == (4, 1)
    by_step = {each.step: each.report for each in measured.steps}
    assert list(by_step) == ["short", "title"]
    estimated = {each.step: each for each in measured.cost.steps}
    assert by_step["short"].calls == estimated["short"].calls == 2
    assert by_step["short"].merged == estimated["short"].merged == 1
    assert measured.bounds is not None
    assert measured.bounds.p_min > 0
    text = made.text(stage="cost")
    assert "Measured on scripted, the optimized plan" in text
    assert "4 rows, 1 failed in" in text


def test_the_plain_plan_is_run_where_no_rule_may_change_it() -> None:
    made = explained(TWICE, ROWS, rules=[], analyze=True, engine="scripted")
    measured = made.report.measured
    assert measured is not None
    assert not measured.optimized
    assert [each.step for each in measured.steps] == ["short", "gist", "title", "spare"]


def test_tools_are_measured_too() -> None:
    @hx.tool(effects="read")
    def look(a: str) -> str:
        return a.upper()

    @hx.workflow
    def w(a: str):
        found = look(a)
        return hx.output(x=hx.model()(user=f"Say {found}"))

    made = w.explain([{"a": "one"}, {"a": "two"}], analyze=True, engine="scripted")
    measured = made.report.measured
    assert measured is not None
    assert [(each.step, each.llm, each.report.calls) for each in measured.steps] == [
        ("found", False, 2),
        ("x", True, 2),
    ]
    assert "tools are not in the bounds" in measured.notes
    assert "found estimated 2 measured 2" in " ".join(made.text(stage="cost").split())


def test_an_engine_that_refuses_all_is_one_error() -> None:
    refusing = hx.ScriptedEngine([{"error": 401, "message": "no key"}])
    with pytest.raises(EngineError, match="no key"):
        explained(TWICE, ROWS[:1], analyze=True, engine=refusing)


class Counting:
    """An engine of one's own that knows how to cut texts into tokens: one for each word."""

    name = "counting"

    def __init__(self, *, tokens: bool) -> None:
        self.opened = self.closed = 0
        if tokens:
            self.tokenize = self._tokenize

    async def open(self, *, concurrency: int) -> Capabilities:
        self.opened += 1
        return Capabilities(counts_tokens=True)

    async def generate(self, request: Request) -> Reply:
        count = await self.count_tokens(request)
        return Reply(text="a reply", prompt_tokens=count, completion_tokens=2, cached_tokens=1)

    async def count_tokens(self, request: Request) -> int:
        return sum(len(message.content.split()) + 3 for message in request.messages) + 3

    async def _tokenize(self, text: str) -> list[int]:
        return [sum(word.encode()) for word in text.split()]

    async def close(self) -> None:
        self.closed += 1


ONE_STEP = 'workflow w(a: text)\n\nx = llm { user "Say this again: {{ a }}" }\n\noutput x\n'


def test_tokens_are_counted_by_the_engine() -> None:
    engine = Counting(tokens=True)
    made = explained(ONE_STEP, [{"a": "one two"}, {"a": "one three"}], engine=engine)
    cost = made.report.costs.optimized
    # Two turns of three tokens, "Say this again:", and the two words of the row.
    assert cost.prompt_tokens == 2 * (3 + 3 + 3 + 2)
    # The second prompt shares all but its last word and the reply's turn.
    assert cost.p_min == 11 + 4
    assert made.report.exact_prefixes
    assert "distinct prefixes (exact)" in made.text()
    assert "tokens are counted by counting" in made.text()
    assert (engine.opened, engine.closed) == (1, 1)


def test_counts_alone_do_not_make_prefixes_exact() -> None:
    made = explained(ONE_STEP, [{"a": "one two"}, {"a": "one three"}], engine=Counting(tokens=False))
    assert made.report.costs.optimized.prompt_tokens == 22
    assert not made.report.exact_prefixes
    assert "(exact)" not in made.text()


def test_the_engine_is_opened_once_for_tokens_and_for_the_run() -> None:
    engine = Counting(tokens=True)
    made = explained(ONE_STEP, [{"a": "one two"}, {"a": "one three"}], engine=engine, analyze=True)
    assert (engine.opened, engine.closed) == (1, 1)
    measured = made.report.measured
    assert measured is not None
    assert measured.steps[0].report.prompt_tokens == 22
    assert "distinct prefixes of the calls made: 15 tokens (exact); prefilled 20, 1.33 times as many" in made.text()


def test_of_a_large_table_the_engine_counts_some_rows() -> None:
    asked: list[str] = []

    class Noting(Counting):
        async def _tokenize(self, text: str) -> list[int]:
            asked.append(text)
            return [len(word) for word in text.split()]

    rows = [{"a": f"one two three {number % 1500}"} for number in range(2_400)]
    made = explained(ONE_STEP, rows, engine=Noting(tokens=True))
    assert 100 < len(asked) < 260
    text = " ".join(made.text().split())
    assert "counting counted the tokens of one row in 12; tokens are estimated from characters" in text
    # Four words a row, three of the step, two turns of three: what was counted carries over to the others.
    cost = made.report.costs.optimized
    assert cost.calls == 1500
    assert cost.prompt_tokens / cost.calls == pytest.approx(13, rel=0.02)


def test_an_engine_that_counts_nothing_leaves_the_estimate() -> None:
    silent = hx.ScriptedEngine(counts_tokens=False)
    made = explained(ONE_STEP, [{"a": "one"}], engine=silent)
    assert "tokens are estimated from characters" in made.text()
    assert made.report.costs.optimized.tokenizer == "estimate"


def test_without_llm_steps_no_engine_is_opened() -> None:
    engine = Counting(tokens=True)
    made = workflow_of("workflow w(n: int)\n\noutput n + 1 as m\n").explain([{"n": 1}], engine=engine, analyze=True)
    assert engine.opened == 0
    assert made.report.measured is not None
    assert made.report.measured.engine == "no engine"
