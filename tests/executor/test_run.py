"""A run from Python: how it is stopped, cancelled and watched, and that nothing is left running behind it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from running import run, user_text

import helix
from helix.api import check
from helix.errors import EngineError, HelixError
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.run import Run
from helix.executor.settings import RunSettings
from helix.executor.tables import MemorySink, open_rows
from helix.results import RunReport

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\ny = llm { user "y {{ x }}" }\noutput a, y'
ROWS = [{"a": f"row {number}"} for number in range(20)]


def made(engine: Any, rows: Any = ROWS, text: str = TEXT, **settings: Any) -> tuple[Run, MemorySink]:
    """A run that is not started, with its sink."""
    plan = check(helix.loads(text)).plan
    sink = MemorySink(tuple((name, value.type) for name, value in plan.sink.columns))
    source = open_rows(rows, plan.scan.columns)
    return Run(plan, source, sink, RunSettings(**settings), open_engine=lambda address: engine), sink


def stopped(engine: Any, act: Any, **settings: Any) -> tuple[RunReport, MemorySink, float]:
    """Runs, acts on the run once three calls are in flight, and waits for its end."""

    async def main() -> tuple[RunReport, MemorySink, float]:
        active, sink = made(engine, concurrency=3, **settings)
        await active.start()
        ending = asyncio.ensure_future(active.finish())
        async with asyncio.timeout(10):
            while active.in_flight < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        began = time.monotonic()
        act(active, ending)
        await asyncio.wait((ending,), timeout=10)
        spent = time.monotonic() - began
        report = active.report if ending.cancelled() else ending.result()
        await active.close()
        assert not active.running
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return report, sink, spent

    return asyncio.run(main())


def test_an_interrupt_waits_for_calls_in_flight_and_writes_the_rows_that_are_done() -> None:
    engine = ScriptedEngine(
        [{"step": "y", "row": [0, 1], "reply": "early"}, {"row": [0, 1]}, {"delay": 0.2, "reply": "r"}]
    )
    report, sink, spent = stopped(engine, lambda active, _: active.interrupt())
    assert 0.05 < spent < 2
    assert (report.interrupted, report.outcome) == (True, "interrupted")
    assert [row["_row"] for row in sink.to_dicts()] == [0, 1]
    assert all(row["_error"] is None for row in sink.to_dicts())
    assert engine.in_flight == 0


def test_a_cancelled_run_ends_at_once_and_writes_the_rows_that_are_done() -> None:
    engine = ScriptedEngine(
        [{"contains": "row 0", "hang": True}, {"contains": "row 3", "hang": True}, {"row": 5, "hang": True}]
    )
    report, sink, spent = stopped(engine, lambda _, ending: ending.cancel())
    assert spent < 2
    assert report.interrupted
    assert [row["_row"] for row in sink.to_dicts()][:3] == [1, 2, 4]
    assert engine.in_flight == 0


def test_a_caller_that_gives_up_waiting_leaves_nothing_running() -> None:
    engine = ScriptedEngine([{"hang": True}])

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(helix.loads(TEXT).arun(ROWS, engine=engine), 0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert (engine.in_flight, engine.closed) == (0, 1)


def test_a_run_inside_a_running_loop_has_one_of_its_own() -> None:
    async def main() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = helix.loads(TEXT).run(ROWS[:2], engine="scripted").rows
        return found

    assert len(asyncio.run(main())) == 2


def test_two_runs_at_once_do_not_meet() -> None:
    async def main() -> list[Any]:
        subject = helix.loads(TEXT)
        engines = [ScriptedEngine([{"delay": 0.002, "reply": name}]) for name in ("p", "q")]
        return await asyncio.gather(*(subject.arun(ROWS, engine=engine) for engine in engines))

    first, second = asyncio.run(main())
    assert {row["y"] for row in first.rows} == {"p"}
    assert {row["y"] for row in second.rows} == {"q"}


def test_progress_is_told_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from helix.executor import run as module

    monkeypatch.setattr(module, "PROGRESS_EVERY", 0.02)

    async def main() -> list[int]:
        seen: list[int] = []
        active, _ = made(ScriptedEngine([{"delay": 0.01, "reply": "r"}]), concurrency=2)
        active._progress = lambda report: seen.append(report.done_rows)
        await active.start()
        await active.finish()
        await active.close()
        return seen

    seen = asyncio.run(main())
    assert seen == sorted(seen)
    assert seen[-1] == 20
    assert len(set(seen)) > 2


@pytest.mark.parametrize("scanned", [True, False])
def test_a_share_of_failed_rows_needs_the_number_of_rows(scanned: bool) -> None:
    async def main() -> RunReport:
        engine = ScriptedEngine([{"error": 400}])
        active, _ = made(engine, ({"a": str(n)} for n in range(50)), max_failed=10, max_failed_percent=True)
        if scanned:
            active.source.scan()
        await active.start()
        report = await active.finish()
        await active.close()
        active.source.close()
        return report

    assert (asyncio.run(main()).stopped is not None) is scanned


def test_a_refusal_by_one_engine_leaves_what_others_do() -> None:
    text = (
        'workflow t(a: text)\nmodel m { engine: "http://one/v1" }\nmodel n { engine: "http://two/v1" }\n'
        'x = llm m { user "{{ a }}" }\ny = llm n { user "{{ a }}" }\noutput x, y'
    )
    engines = {
        "http://one/v1": ScriptedEngine([{"delay": 0.05, "reply": "r"}], name="one"),
        "http://two/v1": ScriptedEngine([{"error": 401, "message": "no key"}], name="two"),
    }

    async def main() -> tuple[RunReport, MemorySink]:
        plan = check(helix.loads(text)).plan
        sink = MemorySink((("x", plan.sink.columns[0][1].type), ("y", plan.sink.columns[1][1].type)))
        active = Run(
            plan, open_rows(ROWS, plan.scan.columns), sink, RunSettings(concurrency=2), open_engine=lambda a: engines[a]
        )
        await active.start()
        report = await active.finish()
        await active.close()
        return report, sink

    report, sink = asyncio.run(main())
    assert report.fatal
    assert not report.nothing_done
    assert len(sink.to_dicts()) == 20
    assert sink.to_dicts()[0]["x"] == "r"
    assert all(engine.closed == 1 for engine in engines.values())


def test_what_an_engine_notes_is_in_the_report() -> None:
    engine = ScriptedEngine()
    engine.look_for = lambda steps: None  # type: ignore[method-assign]
    engine.notes = ["the schema was refused"]
    assert run(TEXT, ROWS[:1], engine=engine).report.notes == ["the schema was refused"]


def test_an_error_of_the_table_ends_the_run_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from helix.errors import InputError
    from helix.executor.tables import source

    def broken(self: Any) -> Any:
        for number, record in enumerate(self._reader.records()):
            if number == 7 and self._rows is not None:
                raise InputError("the table broke")
            yield record

    monkeypatch.setattr(source.RowSource, "_records", broken)
    engine = ScriptedEngine([{"delay": 0.01}])
    with pytest.raises(InputError, match="the table broke"):
        run(TEXT, ROWS, engine=engine, plain=True)
    assert (engine.in_flight, engine.closed) == (0, 1)


def test_a_result_that_cannot_be_written_ends_the_run_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from helix.executor.tables import sinks

    def full(self: Any, row: Any) -> None:
        raise HelixError("cannot write out.jsonl: No space left on device")

    monkeypatch.setattr(sinks.FileSink, "write", full)
    engine = ScriptedEngine([{"delay": 0.01}])
    with pytest.raises(HelixError, match="No space left"):
        run(TEXT, ROWS, engine=engine, output=tmp_path / "out.jsonl")
    assert (engine.in_flight, engine.closed) == (0, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_workflow_without_inputs_runs_once() -> None:
    ran = run('workflow t()\nx = llm { user "hello" }\noutput x', None, reply=user_text)
    assert ran.rows == [{"_row": 0, "x": "hello", "_error": None}]


def test_rows_of_all_python_kinds() -> None:
    import pandas
    import pyarrow as pa

    table = pa.table({"a": ["p", "q"]})
    for rows in ([{"a": "p"}, {"a": "q"}], iter([{"a": "p"}, {"a": "q"}]), table, pandas.DataFrame({"a": ["p", "q"]})):
        assert run(TEXT, rows, reply=lambda _: "r").column("a") == ["p", "q"]


class Closing(ScriptedEngine):
    """Fails when it is closed while a call is being made."""

    async def generate(self, request: Request) -> Reply:
        if request.row == 0:
            return await super().generate(request)
        try:
            await asyncio.Event().wait()
        finally:
            assert not self.closed
        raise EngineError("never")


def test_calls_end_before_their_engine_is_closed() -> None:
    engine = Closing()
    ran = run('workflow t(a: text)\nx = llm { user "{{ a }}" }\nlimit 1\noutput x', ROWS, engine=engine)
    assert len(ran.rows) == 1
    assert engine.closed == 1
