"""What a run tells of itself while it goes on: rows through and known, calls, phases, what it waits for.

Runs are in virtual time, so that the looks at them come when they should on any machine.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import helix
from helix.executor import run as running
from helix.executor.engines import loop_factory
from helix.executor.engines.scripted import ScriptedEngine
from helix.prepared import Prepared
from helix.results import Activity, RunReport

ROWS = [{"a": f"row {number}", "n": number % 3} for number in range(9)]
SIMULATED = "sim:h100/llama-3.1-8b?kv_tokens=2048"
TEXT = 'workflow t(a: text, n: int)\nx = llm { user "{{ a }}" }\n'


class Watch:
    """Hears of a run every few milliseconds, and keeps what it is doing."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Activity]] = []

    def __call__(self, report: RunReport) -> None:
        assert report.activity is not None
        self.seen.append((report.done_rows, report.activity))

    @property
    def last(self) -> Activity:
        return self.seen[-1][1]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.setattr(running, "PROGRESS_EVERY", 0.002)
    return Watch()


def ran(text: str, watch: Any, rows: Any = ROWS, *, virtual: bool = True, **options: Any) -> RunReport:
    """Runs a workflow with someone who watches."""
    folder, engine = options.pop("folder", None), options.pop("engine", None)
    prepared = Prepared(
        helix.loads(text, folder=folder), rows, output=None, engine=engine or ScriptedEngine(), model=None,
        api_key=None, set=None, settings=helix.RunSettings(concurrency=4), input_format=None, output_format=None,
        quiet=True, **options,
    )  # fmt: skip
    with asyncio.Runner(loop_factory=loop_factory(SIMULATED) if virtual else None) as runner:
        return runner.run(prepared.run(progress=watch)).report


def test_rows_calls_and_failures(watch: Watch) -> None:
    engine = ScriptedEngine([{"contains": "row 5", "error": 400}, {"reply": "r", "delay": 0.01}])
    report = ran(TEXT + "output x", watch, engine=engine)
    assert report.failed_rows == 1
    first, last = watch.seen[0][1], watch.last
    assert (first.phases[0].all, last.phases[0].done, last.phases[0].over, last.phases[0].known) == (9, 9, True, 0)
    assert last.failed == 1
    assert (last.in_flight, last.queued) == (0, 0)
    assert max(each.in_flight for _, each in watch.seen) == 4
    assert max(each.queued for _, each in watch.seen) == 5


def test_rows_that_wait_for_a_slower_one_count_as_done(watch: Watch) -> None:
    engine = ScriptedEngine([{"contains": "row 0", "reply": "slow", "delay": 0.2}, {"reply": "r"}])
    ran(TEXT + "output x", watch, engine=engine)
    assert any(done == 8 and not each.phases[0].over for done, each in watch.seen)


def test_failed_rows_are_told_before_a_sort_lets_them_out(watch: Watch) -> None:
    engine = ScriptedEngine([{"contains": "row 5", "error": 400}, {"contains": "end", "reply": "r", "delay": 0.02}])
    ran(TEXT + 'sort by n\ny = llm { user "end {{ a }}" }\noutput x, y', watch, engine=engine)
    assert any(each.failed == 1 and each.phases[1].done == 0 for _, each in watch.seen)
    assert [(each.done, each.all) for each in watch.last.phases] == [(9, 9), (9, 9)]


def test_groups_are_a_phase_whose_size_is_known_once_all_rows_are_there(watch: Watch) -> None:
    engine = ScriptedEngine([{"reply": "r", "delay": 0.005}])
    ran(TEXT + 'group by n { y = llm { user "{{ len(rows) }} {{ n }}" } }\noutput n, y', watch, engine=engine)
    sizes = {(each.phases[0].over, each.phases[1].all) for _, each in watch.seen}
    assert sizes <= {(False, None), (True, 3)}
    assert (True, 3) in sizes


def test_rows_known_from_before_are_told_apart(watch: Watch, tmp_path: Path) -> None:
    from helix.executor.store.settings import StoreSettings

    def store() -> StoreSettings:
        return StoreSettings(folder=tmp_path / "kept", named=True)

    ran(TEXT + "output x", Watch(), ROWS[:6], store=store())
    report = ran(TEXT + "output x", watch, store=store())
    assert (report.fetched, report.calls) == (6, 3)
    assert watch.last.phases[0].known == 6
    # Rows that need no call at all are not known: nothing was kept of them.
    other = Watch()
    ran("workflow t(a: text, n: int)\noutput a", other)
    assert other.seen == [] or other.last.phases[0].known == 0


def test_calls_of_tools_are_told_apart(watch: Watch, tmp_path: Path) -> None:
    """The tool ends once it was seen at work."""
    (tmp_path / "slow.py").write_text(
        "import time\nfrom pathlib import Path\n\ndef nap(a: str) -> str:\n"
        f"    while not Path({str(tmp_path / 'seen')!r}).exists():\n        time.sleep(0.01)\n    return a\n"
    )

    def look(report: RunReport) -> None:
        watch(report)
        if watch.last.tools:
            (tmp_path / "seen").touch()

    text = 'workflow t(a: text, n: int)\ntool nap(a: text) -> text from python "slow:nap"\nb = nap(a)\noutput b'
    ran(text, look, folder=tmp_path, virtual=False)
    assert max(each.tools for _, each in watch.seen) >= 1
    assert all(each.tools <= each.in_flight for _, each in watch.seen)


def test_a_pause_is_told(watch: Watch) -> None:
    engine = ScriptedEngine([{"contains": "row 3", "error": 429, "retry_after": 0.3, "attempt": 1}, {"reply": "r"}])
    ran(TEXT + "output x", watch, engine=engine)
    assert 0.0 < max(each.paused for _, each in watch.seen) <= 0.3
    assert watch.last.paused == 0.0


def test_calls_that_wait_for_room_in_the_cache_are_told(watch: Watch) -> None:
    rows = [{"a": f"{number} " + "word " * 700, "n": 0} for number in range(12)]
    ran(TEXT + "output x", watch, rows, engine=SIMULATED)
    waits = [each for _, each in watch.seen if each.no_room]
    assert waits
    assert all(each.queued > 0 for each in waits)
    assert watch.last.no_room is False
