"""The page of a run: whole, bounded, safe to open, and right in its figures."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from caching import CachingEngine
from test_tallies import call

import helix
from helix.errors import EngineError
from helix.executor.engines.base import Capabilities, Reply, Request
from helix.executor.records import MOST_SAMPLES, Recorder
from helix.optimizer.cost import Prices
from helix.records import CallRecord, SentPrompt
from helix.report.build import RunFacts, measure
from helix.report.detail import MOST_SPANS, Detail, Kept, detail_of
from helix.report.measures import RunMeasures
from helix.report.page_compare import change
from helix.report.page_data import data_of
from helix.report.page_rows import Room
from helix.report.text import share
from helix.report.words import seconds
from helix.results import RunReport

VOID = {"meta", "br", "hr", "img", "link", "input"}
TEXT = """workflow t(a: text, doc: text)
x = llm { system "be brief and kind" user "{{ doc }} {{ a }}" }
y = llm { system "be brief and kind" user "{{ doc }} {{ a }} then {{ x }}" }
output x, y
"""
ROWS = [{"a": f"q{number}", "doc": f"d{number % 2} of the town"} for number in range(6)]
HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)> & \x1b[31mred\x07 \u202eback \u2028"


class Checker(HTMLParser):
    """Reads a page: tags that close in order, what each holds, where it would look for anything else."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.mistakes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.text += " "
        self.links += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("src", "href", "srcset", "action", "data") or name.startswith("on")
        ]
        if tag == "script":
            assert attrs == [("type", "application/json"), ("id", "helix-report")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mistakes.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


def read(page: str) -> Checker:
    """A page, checked as far as a parser can: it is whole, and asks for nothing from elsewhere."""
    found = Checker()
    found.feed(page)
    found.close()
    assert found.mistakes == []
    assert found.open == []
    assert found.links == []
    assert not {"link", "img", "iframe", "object"} & set(found.seen)
    assert found.seen.count("script") == found.seen.count("h1") == found.seen.count("main") == 1
    for outside in ("https://", "@import", "url(", "//cdn"):
        assert outside not in page
    assert page.startswith("<!doctype html>\n<html lang=")
    return found


def words(page: str) -> str:
    return " ".join(read(page).text.split())


def ran(text: str = TEXT, rows: Any = ROWS, engine: Any = None, **options: Any) -> RunMeasures:
    options = {"concurrency": 1, **options}
    result = helix.loads(text).run(rows, engine=engine or CachingEngine(), report=True, **options)
    assert result.run_report is not None
    return result.run_report


def made(
    records: list[CallRecord], report: RunReport | None = None, plan: str = "", **kept: Any
) -> tuple[RunMeasures, Detail]:
    """The measures of records, with their detail."""
    report = report or RunReport(rows=1, output_rows=1, seconds=10.0)
    holds = Kept(**{"prompts": (), "failures": (), "replies": len(records), "locked": (), **kept})
    detail = detail_of(report, records, holds, plan, ())
    kinds = {each.step: each.kind for each in records}
    return measure(report, records, RunFacts(workflow="w", engine="e", kinds=kinds, detail=detail)), detail


def prompt(row: int, content: str = "ask", reply: str = "answer", **fields: Any) -> SentPrompt:
    return SentPrompt(row=row, step="x", model=None, messages=(("user", content),), reply=reply, **fields)


# --- the whole page -----------------------------------------------------------------------------------------------


def test_a_page_says_what_the_run_took() -> None:
    measures = ran(engine=CachingEngine(ranks=2))
    page = measures.to_html()
    said = words(page)
    for part in (
        "rows 6",
        "calls made 12",
        "calls merged 0",
        f"prompt tokens {measures.tokens.prompt}",
        f"hit rate {share(measures.tokens.hit_rate)}",
        f"makespan {seconds(measures.makespan)}",
        "Calls by step",
        "warm-up",
        "middle",
        "drain",
        "rank 0",
        "rank 1",
        "Generate y",
        "Estimated and measured",
        "Lower bound",
        "binds",
        "Slowest rows",
        "then so it is",
        f"without Helix 12 calls, {measures.without.prompt_tokens} prompt tokens",
    ):
        assert part in said, part
    assert "How full the KV cache was is not drawn" in said
    assert "Rows that failed" not in said
    assert "Compared with" not in said
    assert "prefers-color-scheme: dark" in page
    assert page == measures.to_html()


def test_the_figures_are_in_the_page_as_data() -> None:
    measures = ran()
    held = data_of(measures.to_html())
    assert held is not None
    assert json.loads(held) == measures.to_json()


@pytest.mark.parametrize("rows", [[], ROWS[:1]], ids=["no rows", "one row"])
def test_a_run_may_be_small(rows: list[Any]) -> None:
    said = words(ran(rows=rows).to_html())
    assert f"rows {len(rows)} " in said
    assert ("Slowest rows" in said) == bool(rows)


def test_a_page_can_be_used_with_the_keyboard() -> None:
    page = ran().to_html()
    found = read(page)
    assert found.seen.count("details") == found.seen.count("summary") > 6
    for scrolled in re.findall(r'<(?:pre|div)(?: class="(?:plan|wide|drawing)")?(?: tabindex="0")?[^>]*>', page):
        if "<pre" in scrolled or re.search('"(plan|wide|drawing)"', scrolled):
            assert 'tabindex="0"' in scrolled, scrolled
    assert page.count('role="img" aria-label=') == page.count("<svg") == 2
    assert ":focus-visible" in page


def test_prices_give_the_cost() -> None:
    measures = ran().priced(Prices(prompt=1_000.0, output=2_000.0, cached=100.0))
    tokens = measures.tokens
    assert tokens.cached is not None
    money = ((tokens.prompt - tokens.cached) * 1_000 + tokens.cached * 100 + tokens.generated * 2_000) / 1e6
    assert measures.cost is not None
    assert measures.cost.money == pytest.approx(money)
    assert measures.cost.without == pytest.approx((tokens.prompt * 1_000 + tokens.generated * 2_000) / 1e6)
    assert measures.to_json()["cost"]["money"] == measures.cost.money
    said = words(measures.to_html())
    assert f"cost {money:.2g} USD" in said
    assert "prices of a million tokens: prompt 1000, reply 2000, cached prompt 100" in said
    untold = ran(engine="scripted").priced(Prices(prompt=1.0, output=2.0))
    assert "no prompt token taken as cached" in words(untold.to_html())


# --- texts of models ----------------------------------------------------------------------------------------------


def test_hostile_texts_stay_text() -> None:
    rows = [{"a": HOSTILE, "doc": "d"}]
    measures = ran(rows=rows, engine=CachingEngine(HOSTILE))
    page = measures.to_html()
    found = read(page)
    assert "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)> & ?[31mred? ?back ?" in found.text
    assert not any(char in page for char in "\x1b\x07\u202e\u2028")


def test_hostile_errors_and_names_stay_text_also_in_the_data() -> None:
    report = RunReport(
        rows=1, failed_rows=1, seconds=1.0, errors=[(0, HOSTILE, "engine", HOSTILE)], notes=[HOSTILE], policy=HOSTILE
    )
    measures, _ = made([call(step=HOSTILE, outcome="failed")], report, plan=HOSTILE)
    page = measures.to_html({"workflow": HOSTILE, "steps": [{"step": HOSTILE, "calls": 1}]})
    read(page)
    assert not any(char in page for char in "\x1b\x07\u202e\u2028")
    assert json.loads(data_of(page) or "")["notes"] == [HOSTILE]


def test_long_texts_are_cut_and_the_page_says_so() -> None:
    measures, _ = made([call()], prompts=[prompt(0, "<" * 5_000, "r" * 4_001)])
    said = words(measures.to_html())
    assert "1,000 more characters are cut off" in said
    assert "1 more characters are cut off" in said
    assert "<" * 4_000 in said
    assert "<" * 4_001 not in said


def test_of_a_long_conversation_the_beginning_and_the_end_are_shown() -> None:
    talk = SentPrompt(
        row=0, step="x", model=None, messages=tuple(("user", f"said {at};") for at in range(30)), reply="so"
    )
    measures, _ = made([call()], prompts=[talk])
    said = words(measures.to_html())
    assert re.findall(r"said (\d+);", said) == ["0", "1", *(str(at) for at in range(22, 30))]
    assert "20 messages left out here." in said


def test_prompts_that_were_not_kept_are_told() -> None:
    records = [call(0, 1, row=0), call(0, 5, row=1)]
    report = RunReport(rows=3, failed_rows=1, seconds=9.0, errors=[(2, "x", "input", "no number")])
    measures, detail = made(records, report, prompts=[prompt(0)], replies=2)
    said = words(measures.to_html())
    assert [row.row for row in detail.slow] == [1, 0]
    kept = "texts are kept of the first 1 of 2 prompts that were answered, and of the first calls that failed"
    assert f"No prompt of this row was kept: {kept}" in said
    assert "No call was sent for this row." in said
    assert "input at step x: no number" in said


def test_failed_calls_keep_their_last_prompt() -> None:
    class Broken(CachingEngine):
        async def _answer(self, request: Request) -> Reply:
            if request.row == 3:
                raise EngineError("bad request", status=400)
            return await super()._answer(request)

    measures = ran(engine=Broken())
    assert measures.detail is not None
    (row,) = measures.detail.failed
    assert (row.row, row.step, row.kind) == (3, "x", "engine")
    assert [each.messages[-1] for each in row.exchanges] == [("user", "d1 of the town q3")]
    said = words(measures.to_html())
    assert "1 row failed" in said
    assert "engine at step x: bad request" in said
    assert "no reply, or an empty one" in said


def test_a_reply_that_does_not_parse_is_shown_once() -> None:
    text = 'workflow t(a: text)\nx = llm -> int { user "{{ a }}" }\noutput x\n'
    measures = ran(text, [{"a": "p"}], CachingEngine("four"))
    assert measures.detail is not None
    (row,) = measures.detail.failed
    # The model was asked again once; the last prompt is among those that were answered and those that failed.
    assert [(each.reply, len(each.messages)) for each in row.exchanges] == [("four", 1), ("four", 3)]


def test_only_so_many_failed_rows_are_shown_and_the_rest_counted() -> None:
    report = RunReport(rows=90, failed_rows=90, seconds=1.0, errors=[(row, "x", "engine", "no") for row in range(20)])
    measures, _ = made([call(row=row, outcome="failed") for row in range(90)], report)
    said = words(measures.to_html())
    assert "The first 20 of 90 rows that failed." in said
    assert "The 20 of 90 rows with calls whose calls took longest" in said


# --- many calls ---------------------------------------------------------------------------------------------------


def test_many_calls_are_sampled_of_all_ranks_alike_and_the_page_says_so() -> None:
    many = 4 * MOST_SPANS
    records = [call(at, at + 9, step=f"s{at % 12}", row=at // 4, rank=at % 8) for at in range(many)]
    prompts = [prompt(row, "<&" * 4_000, "&" * 9_000) for row in range(5_000)]
    report = RunReport(rows=many // 4, output_rows=many // 4, seconds=float(many))
    measures, detail = made(records, report, prompts=prompts, plan="line\n" * 9_000)
    assert (detail.stride, len(detail.spans)) == (4, MOST_SPANS)
    by_rank = [sum(span.lane == f"rank {rank}" for span in detail.spans) for rank in range(8)]
    assert min(by_rank) > 0.7 * MOST_SPANS / 8
    assert sum(sum(each.values()) for each in detail.busy.values()) == pytest.approx(9.0 * many)
    page = measures.to_html()
    said = words(page)
    assert f"Of every 4 of {many:,} calls one is drawn" in said
    assert "other steps" in said
    assert "8,600 more lines are left out" in said
    assert len(page.encode()) < 5_000_000


def test_the_page_has_room_for_so_many_texts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.report.page.Room", partial(Room, 900))
    measures, _ = made([call(row=row) for row in range(9)], prompts=[prompt(row, "w" * 400) for row in range(9)])
    page = measures.to_html()
    assert words(page).count("1 prompt of this row left out: the page has no more room.") == 8
    assert page.count("w" * 400) == 1


def test_calls_that_overlap_lie_beside_one_another() -> None:
    measures, _ = made([call(0, 4), call(1, 3), call(3, 5), call(4, 6), call(0, 2, kind="tool", step="look")])
    page = measures.to_html()
    (path,) = re.findall(r'<path class="fill c1" d="([^"]*)"><title>llm: x', page)
    # Two are under way at any time: the third takes the place of the second, the fourth that of the first.
    floors = re.findall(r"M[\d.]+ ([\d.]+)V", path)
    assert len(floors) == 4
    assert floors[0] == floors[3] != floors[1] == floors[2]
    assert "tools: look" in page


def test_a_cache_s_load_is_kept_at_so_many_times_only() -> None:
    recorder = Recorder()

    async def fill() -> None:
        for number in range(10 * MOST_SAMPLES):
            recorder.sample(number / (10 * MOST_SAMPLES))

    asyncio.run(fill())
    assert MOST_SAMPLES / 2 <= len(recorder.locked) <= MOST_SAMPLES
    values = [value for _, value in recorder.locked]
    gaps = {round((b - a) * 10 * MOST_SAMPLES) for a, b in pairwise(values)}
    assert gaps == {16}
    assert values[0] == 0.0


def test_the_load_of_a_cache_is_drawn_where_the_engine_tells_its_size() -> None:
    class Warm(CachingEngine):
        async def open(self, *, concurrency: int) -> Capabilities:
            return replace(await super().open(concurrency=concurrency), prefix_cache=True, warms=True)

        async def load(self) -> tuple[Any, ...]:
            return ()

        async def warm(self, request: Request) -> Reply:
            await asyncio.sleep(0)
            return await self._answer(request)

    measures = ran(engine=Warm())
    assert measures.detail is not None
    assert measures.detail.locked
    assert max(value for _, value in measures.detail.locked) > 0
    said = words(measures.to_html())
    assert "KV cache in use by calls" in said
    assert "is not drawn" not in said


def test_times_of_a_simulated_run_are_virtual() -> None:
    measures = ran(engine="sim:h100x2/llama-3.1-8b", concurrency=4)
    assert measures.detail is not None
    # Calls go on for as long as the run, less what comes before the first and after the last.
    assert measures.makespan > 1.0
    assert 0.9 * measures.makespan < measures.detail.ends <= measures.makespan
    assert measures.detail.locked
    again = ran(engine="sim:h100x2/llama-3.1-8b", concurrency=4)
    assert again.to_json()["phases"] == measures.to_json()["phases"]


# --- beside an earlier run ----------------------------------------------------------------------------------------


def test_an_earlier_run_stands_beside_this_one_with_the_change() -> None:
    earlier, now = ran(rows=ROWS[:3]), ran()
    said = words(now.to_html(earlier.to_json()))
    assert "Compared with an earlier run" in said
    assert "llm calls 12 6 +6 (+100.0%)" in said
    assert "rows failed 0 0 same" in said
    assert "x 6 3" in said
    assert "another workflow" not in said


def test_an_earlier_run_may_be_another_and_lack_anything() -> None:
    odd = {
        "workflow": "other",
        "calls": {"llm": "many", "merged": True, "fetched": 10**400},
        "tokens": [],
        "steps": [1, {"step": "x", "calls": None, "seconds": float("inf")}, None],
        "rows": {"output": 0},
    }
    said = words(ran().to_html(odd))
    assert "The earlier run is of another workflow: other, this one of t." in said
    assert "llm calls 12 - -" in said
    assert "calls merged 0 - -" in said
    assert "rows 6 0 +6" in said


def test_changes_say_how_far_and_by_what_part() -> None:
    assert change(0.97, 0.5, share) == "+47.0 points"
    assert change(0.5, 0.5, share) == "same"
    assert change(8.0, 10.0, seconds) == "-2.0 s (-20.0%)"
    assert change(None, 10.0, seconds) == "-"
    assert change(3.0, 0.0, seconds) == "+3.0 s"


@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0 s"), (8.8e-5, "0.088 ms"), (0.0123, "0.012 s"), (2.04, "2.0 s"), (1234.0, "1,234 s")]
)
def test_times_are_short(value: float, said: str) -> None:
    assert seconds(value) == said
