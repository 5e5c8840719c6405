"""Runs in one process over what earlier ones kept: the same rows, and only the calls that are not known."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from running import Ran, jsonl, run

import helix
from helix.errors import OptionError, StoreError
from helix.executor.engines.base import Request
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.store.database import FILE
from helix.executor.store.runs import RUNS
from helix.executor.tables import Row

PLAIN = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'
SAMPLED = 'workflow t(a: text)\nx = llm(temperature: 0.8) { user "same" }\noutput a, x'
ROWS = [{"a": f"row {number}"} for number in range(6)]


class Numbered:
    """Replies that are never the same, as those of a model that samples."""

    def __init__(self, start: int = 0) -> None:
        self.made = start

    def __call__(self, request: Request) -> str:
        self.made += 1
        return f"reply {self.made}"


def kept(where: Path, text: str = PLAIN, rows: Any = ROWS, **options: Any) -> Ran:
    given = {"store": where / "kept", "resume": True} | options
    return run(text, rows, **given)


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(PLAIN, ROWS)
    assert list(tmp_path.iterdir()) == []
    run(PLAIN, ROWS, store=True)
    assert (tmp_path / ".helix" / FILE).is_file()
    assert not (tmp_path / ".helix" / RUNS).exists()


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="fresh"):
        run(PLAIN, ROWS, fresh=True)


# --- the journal ---


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        SAMPLED,
        'workflow t(a: text)\nx = llm(cache: off) { user "same" }\noutput x',
        'workflow t(a: text)\nx = llm(temperature: 1, sample: 3) { user "same" }\noutput x',
        'workflow t(a: text)\nxs = for w in ["p", "p"] { v = llm(temperature: 1) { user "q" } yield v }\noutput xs',
        'workflow t(a: text)\nx = ""\nrepeat up to 3 { x = llm(temperature: 1) { user "again" } }\noutput x',
        'workflow t(a: text)\nspread ["p", "p"] as w\nx = llm(temperature: 1) { user "{{ w }}" }\noutput x',
        'workflow t(a: text)\nspread ["p", "p"] as w\nsort by a desc\nx = llm(temperature: 1) { user "z" }\noutput x',
        'workflow t(a: text)\nspread ["p", "q"] as w\ngroup by w { x = llm(temperature: 1) { user "z" } }\noutput w, x',
        'workflow t(a: text)\nx = llm(temperature: 1) { user "s" }\nlimit 4\noutput x',
    ],
)
@pytest.mark.parametrize("rows", [ROWS, [{"a": "equal"}] * 4])
def test_a_run_started_again_gives_each_place_its_own_reply(
    tmp_path: Path, text: str, rows: list[dict[str, Any]]
) -> None:
    first = kept(tmp_path, text, rows, reply=Numbered())
    again = kept(tmp_path, text, rows, reply=Numbered(1000))
    assert again.rows == first.rows
    assert again.report.calls == 0
    assert again.report.fetched == first.report.calls
    other = kept(tmp_path, text, rows, reply=Numbered(2000), concurrency=1, rules=[])
    assert (other.rows, other.report.calls) == (first.rows, 0)


@pytest.mark.parametrize("text", [PLAIN, SAMPLED, PLAIN.replace("llm", "llm(cache: off)")])
def test_a_run_that_was_cut_short_makes_the_rest(tmp_path: Path, text: str) -> None:
    replies = Numbered()
    first = kept(tmp_path, text, reply=replies, max_calls=2, concurrency=1)
    assert first.errors == [None, None, *[("limit", "x")] * 4]
    again = kept(tmp_path, text, reply=replies)
    assert (again.report.calls, again.report.fetched) == (4, 2)
    assert again.errors == [None] * 6
    assert again.column("x")[:2] == first.column("x")[:2]
    assert len(set(again.column("x"))) == 6


def test_equal_sampled_prompts_of_a_resumed_run_share_no_stored_reply(tmp_path: Path) -> None:
    """Another run has filled the store for the same prompt: each ordinal is used once all the same."""
    whole = run(SAMPLED, ROWS, store=tmp_path / "kept", reply=Numbered())
    assert whole.report.calls == 6
    part = kept(tmp_path, SAMPLED, ROWS[:3], reply=Numbered(100))
    assert (part.report.calls, part.column("x")) == (0, whole.column("x")[:3])
    again = kept(tmp_path, SAMPLED, [*ROWS, {"a": "one more"}], reply=Numbered(200))
    assert len(set(again.column("x"))) == 7
    assert again.column("x")[:6] == whole.column("x")


def test_more_samples_keep_the_first(tmp_path: Path) -> None:
    text = 'workflow t(a: text)\nx = llm(temperature: 1, sample: 4) { user "{{ a }}" }\noutput x'
    replies = Numbered()
    first = run(text, ROWS, store=tmp_path / "kept", reply=replies)
    more = run(text.replace("4", "6"), ROWS, store=tmp_path / "kept", reply=replies)
    assert more.report.calls == 12
    assert [row[:4] for row in more.column("x")] == first.column("x")
    fewer = run(text.replace("4", "2"), ROWS, store=tmp_path / "kept", reply=replies)
    assert (fewer.report.calls, fewer.column("x")) == (0, [row[:2] for row in first.column("x")])


def test_failures_are_part_of_a_finished_run_until_they_are_retried(tmp_path: Path) -> None:
    rules = [{"contains": "row 3", "error": 400}]
    first = kept(tmp_path, rules=rules)
    assert first.errors[3] == ("engine", "x")
    again = kept(tmp_path)
    assert (again.rows, again.report.calls, again.report.fetched) == (first.rows, 0, 6)
    retried = kept(tmp_path, retry_failed=True)
    assert (retried.errors, retried.report.calls, retried.report.fetched) == ([None] * 6, 1, 5)
    assert kept(tmp_path).rows == retried.rows


def test_what_the_end_of_a_run_made_fail_is_made_again(tmp_path: Path) -> None:
    rules = [{"contains": "row 1", "hang": True}]
    first = kept(tmp_path, rules=rules, run_timeout=0.3, concurrency=2)
    assert first.errors[1] == ("timeout", "x")
    again = kept(tmp_path)
    assert again.errors == [None] * 6


def test_a_refusal_of_the_engine_is_not_kept(tmp_path: Path) -> None:
    rules = [{"contains": "row 3", "error": 401}]
    first = kept(tmp_path, rules=rules, concurrency=1)
    assert first.report.stopped is not None
    assert kept(tmp_path).errors == [None] * 6


ACTS = """workflow t(a: text)
tool act(a: text) -> text from python "acts:act" effects write
x = llm { user "{{ a }}" }
done = act(a)
output a, x, done
"""


def acting(folder: Path, name: str, body: str) -> None:
    (folder / f"{name}.py").write_text(f"import builtins\ndef act(a):\n    builtins.helix_acts.append(a)\n    {body}\n")


def test_a_tool_that_acts_acts_once_for_each_row_also_when_it_is_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[str] = []
    monkeypatch.setattr("builtins.helix_acts", acts, raising=False)
    rows = [*ROWS, ROWS[0]]
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(rows))
    acting(tmp_path, "acts", "return a.upper()")
    first = kept(tmp_path, ACTS, path, folder=tmp_path, max_calls=5)
    assert 0 < len(acts) < 7
    acting(tmp_path, "acts", "return a.title()")
    again = kept(tmp_path, ACTS, path, folder=tmp_path)
    assert again.errors == [None] * 7
    assert sorted(acts) == sorted(row["a"] for row in rows)
    done = [row["done"] for row in first.rows if row["done"] is not None]
    assert [row["done"] for row in again.rows if row["done"].isupper()] == done
    path.write_text(jsonl(list(reversed(rows))))
    assert kept(tmp_path, ACTS, path, folder=tmp_path).errors == [None] * 7
    assert len(acts) == 7
    kept(tmp_path, ACTS, path, folder=tmp_path, fresh=True)
    assert len(acts) == 14


def test_a_run_is_kept_from_others_while_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(ROWS))
    inner: list[BaseException] = []

    async def reply(request: Request) -> str:
        if not inner:
            workflow = helix.loads(PLAIN)
            try:
                await workflow.arun(path, engine="scripted", store=tmp_path / "kept", resume=True)
            except StoreError as error:
                inner.append(error)
        return "r"

    # The engine of the run inside is of another kind, but only its model says which run it is.
    settings = {"models": ("scripted",)}
    first = kept(tmp_path, rows=path, reply=reply, settings=settings, concurrency=1)
    assert first.errors == [None] * 6
    assert f"going on in another process (process {os.getpid()})" in str(inner[0])
    assert kept(tmp_path, rows=path, settings=settings).report.calls == 0


# --- the store ---


def test_equal_calls_of_another_workflow_are_fetched(tmp_path: Path) -> None:
    first = run(PLAIN, ROWS, store=tmp_path)
    other = 'workflow u(text: text)\nprompt = llm { user "{{ text }}" }\ny = llm { user "{{ prompt }}" }\noutput prompt'
    again = run(other, [{"text": row["a"]} for row in ROWS], store=tmp_path)
    assert again.column("prompt") == first.column("x")
    assert again.report.steps["prompt"].calls == 0


def test_fetched_values_are_fresh_objects(tmp_path: Path) -> None:
    text = 'workflow t(a: text)\nx = llm -> { n: int, l: list[text] } { user "same" }\noutput x'
    run(text, ROWS, store=tmp_path)
    again = run(text, ROWS, store=tmp_path)
    assert again.report.calls == 0
    first, second = again.column("x")[:2]
    assert first == second
    assert first is not second
    assert first["l"] is not second["l"]


def test_a_prompt_that_no_row_changes_is_fetched_before_the_run(tmp_path: Path) -> None:
    text = 'workflow t(a: text)\nplan = llm { user "How?" }\nx = llm { user "{{ plan }} {{ a }}" }\noutput plan, x'
    first = run(text, ROWS, store=tmp_path)
    again = run(text, ROWS, store=tmp_path)
    assert (again.rows, again.report.calls, again.report.fetched) == (first.rows, 0, 7)


def test_tenants_share_no_result(tmp_path: Path) -> None:
    assert run(PLAIN, ROWS, store=tmp_path, tenant="a").report.calls == 6
    assert run(PLAIN, ROWS, store=tmp_path, tenant="b").report.calls == 6
    assert run(PLAIN, ROWS, store=tmp_path).report.calls == 6
    assert run(PLAIN, ROWS, store=tmp_path, tenant="a").report.calls == 0


def test_a_replaced_reply_is_not_what_the_journal_holds(tmp_path: Path) -> None:
    first = kept(tmp_path, SAMPLED, reply=Numbered())
    run(SAMPLED, ROWS, store=tmp_path / "kept", fresh=True, reply=Numbered(100))
    assert kept(tmp_path, SAMPLED, reply=Numbered(200)).rows == first.rows


def test_lengths_are_read_by_the_cost_model(tmp_path: Path) -> None:
    rows = [{"a": f"row {number}"} for number in range(40)]
    run(PLAIN, rows, store=tmp_path, engine=None, reply=lambda request: "a reply of some words")
    made = helix.loads(PLAIN).explain(rows, engine="scripted", store=tmp_path)
    assert "lengths of replies are from earlier runs" in " ".join(made.text().split())
    assert "earlier runs" not in helix.loads(PLAIN).explain(rows, engine="scripted").text()


def test_rows_of_an_input_are_known_by_what_is_in_them() -> None:
    from helix.executor.store.rows import RowPrints

    prints = RowPrints()
    values = [{"a": "x"}, {"a": "y"}, {"a": "x"}, {"a": float("nan")}, {"a": "\ud800"}, {"a": "x"}]
    for index, row in enumerate(values):
        prints.add(Row(index, row, None))
    identities = [prints.identity(index) for index in (5, 0, 1, 2, 3, 4)]
    assert len(set(identities)) == 6
    assert identities[0][:16] == identities[1][:16] == identities[3][:16]
    prints.close()


def test_a_thread_of_a_store_ends_with_the_run(tmp_path: Path) -> None:
    import threading

    before = threading.active_count()
    kept(tmp_path)
    assert threading.active_count() == before
    with pytest.raises(OptionError):
        asyncio.run(helix.loads(PLAIN).arun(ROWS, engine="unknown:", store=tmp_path, resume=True))
    assert threading.active_count() == before


def test_known_replies_are_in_the_explanation(tmp_path: Path) -> None:
    text = 'workflow t(a: text)\nplan = llm { user "How?" }\nx = llm { user "{{ plan }} {{ a }}" }\noutput x'
    workflow = helix.loads(text)
    workflow.run(ROWS, engine="scripted", store=tmp_path)
    made = workflow.explain(ROWS, engine="scripted", store=tmp_path)
    assert "fetch_known_results  takes plan from what is known already" in made.text()
    # Another engine gave none of them, and a damaged store tells nothing.
    other = ScriptedEngine([{"reply": "other"}])
    assert "fetch_known_results" not in workflow.explain(ROWS, engine=other, store=tmp_path).text()
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data[:100] + bytes(len(data) - 100))
    assert "fetch_known_results" not in workflow.explain(ROWS, engine="scripted", store=tmp_path).text()
