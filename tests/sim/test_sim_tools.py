"""Tools in simulated time: what waits on the loop takes its own time, what blocks takes what it declares."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from running import command

import helix
from helix.executor.engines.shared import SharedEngines
from helix.executor.engines.sim import SimEngine, SimSettings
from helix.executor.engines.sim.loop import DeadlockError, VirtualLoop
from helix.results import RunResult
from helix.simulation.cost import LinearCost

# Passes that take no time to speak of: what is left is the tools'.
QUICK = LinearCost(name="quick", a=1e-6, b=0.0, c=0.0, d=1e-6, e=0.0, f=0.0)
TOOLS = """
import asyncio
import time


def blocks(x: str) -> str:
    time.sleep(0.002)
    return x * 2


async def waits(x: str) -> str:
    await asyncio.sleep(40)
    return x * 2


async def both(x: str) -> str:
    await asyncio.sleep(5)
    return await asyncio.to_thread(blocks, x)


def fails(x: str) -> str:
    raise ValueError(x)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "simtools.py").write_text(TOOLS, encoding="utf-8")
    with sqlite3.connect(tmp_path / "data.sqlite") as database:
        database.execute("CREATE TABLE facts (x TEXT, fact TEXT)")
        database.execute("INSERT INTO facts VALUES ('a', 'one')")
    database.close()
    return tmp_path


def ran(folder: Path, tool: str, *, rows: int = 8, call: str = "look(x)", **options: Any) -> RunResult:
    """A run in which each row calls a tool once, then the model."""
    (folder / "w.helix").write_text(
        f"workflow w(x: text)\ntool look{tool}\nmodel m {{ temperature: 0, max_tokens: 4 }}\n"
        f'y = {call}\na = llm m {{ user "Say {{{{ y }}}}" }}\noutput a\n',
        encoding="utf-8",
    )
    engine = SimEngine(SimSettings(kv_tokens=100_000, request_ms=0.0), QUICK)
    table = [{"x": chr(ord("a") + number)} for number in range(rows)]
    return helix.load(folder / "w.helix").run(table, engine=engine, **options)


def test_a_tool_that_blocks_takes_what_it_declares(folder: Path) -> None:
    began = time.monotonic()
    result = ran(folder, '(x: text) -> text from python "simtools:blocks" cost 10m')
    assert result.report.failed_rows == 0
    # Eight calls of a tool are made at once.
    assert result.report.seconds == pytest.approx(600, abs=1)
    assert ran(folder, '(x: text) -> text from python "simtools:blocks" cost 10m', rows=20).report.seconds == (
        pytest.approx(3 * 600, abs=1)
    )
    assert time.monotonic() - began < 30


def test_one_that_declares_nothing_takes_no_time(folder: Path) -> None:
    assert ran(folder, '(x: text) -> text from python "simtools:blocks"').report.seconds < 0.5


def test_what_waits_on_the_loop_takes_its_own_time(folder: Path) -> None:
    for cost in ("", " cost 1h"):
        result = ran(folder, f'(x: text) -> text from python "simtools:waits"{cost}')
        assert result.report.seconds == pytest.approx(40, abs=1)
    both = ran(folder, '(x: text) -> text from python "simtools:both" cost 30s')
    assert both.report.seconds == pytest.approx(35, abs=1)


def test_a_query_takes_what_it_declares(folder: Path) -> None:
    target = 'from sql "sqlite:data.sqlite" cost 20s, query "SELECT fact FROM facts WHERE x = :x"'
    result = ran(folder, f"(x: text) -> list[{{ fact: text }}] {target}", rows=3)
    assert result.report.failed_rows == 0
    assert 20 <= result.report.seconds <= 3 * 20 + 1


def test_a_tool_that_raises_takes_its_time_too(folder: Path) -> None:
    result = ran(folder, '(x: text) -> text from python "simtools:fails" cost 7s', rows=3)
    assert result.report.failed_rows == 3
    assert result.report.seconds == pytest.approx(7, abs=1)


def test_a_time_limit_is_one_of_simulated_time(folder: Path) -> None:
    result = ran(folder, '(x: text) -> text from python "simtools:waits" timeout 30s', rows=3)
    assert [row["_error"]["kind"] for row in result.rows] == ["timeout"] * 3
    assert result.report.seconds == pytest.approx(30, abs=1)
    late = ran(folder, '(x: text) -> text from python "simtools:blocks" timeout 30s, cost 1m', rows=3)
    assert [row["_error"]["kind"] for row in late.rows] == ["timeout"] * 3


def test_equal_runs_are_equal_however_threads_are_scheduled(folder: Path) -> None:
    (folder / "simtools.py").write_text(
        "import random\nimport time\n\n\ndef blocks(x: str) -> str:\n"
        "    time.sleep(random.random() / 100)\n    return x * 40\n",
        encoding="utf-8",
    )
    (folder / "w.helix").write_text(
        'workflow w(x: text)\ntool look(x: text) -> text from python "simtools:blocks" cost 300ms\n'
        'model m { temperature: 0 }\ny = look(x)\na = llm m { user "Say {{ y }}" }\noutput a\n',
        encoding="utf-8",
    )
    digests = []
    for _ in range(3):
        engine = SimEngine(SimSettings(kv_tokens=100_000, reply_tokens=20), LinearCost(
            name="slow", a=5.0, b=0.1, c=0.0, d=10.0, e=1.0, f=0.0
        ))  # fmt: skip
        result = helix.load(folder / "w.helix").run([{"x": f"{at:03}"} for at in range(30)], engine=engine)
        assert result.report.failed_rows == 0
        digests.append(engine.log.digest)
    assert len(set(digests)) == 1


def test_explain_analyze_passes_in_simulated_time(folder: Path) -> None:
    (folder / "w.helix").write_text(
        'workflow w(x: text)\ntool look(x: text) -> text from python "simtools:waits"\n'
        'model m { temperature: 0 }\ny = look(x)\na = llm m { user "Say {{ y }}" }\noutput a\n',
        encoding="utf-8",
    )
    workflow = helix.load(folder / "w.helix")
    address = "sim:h100/llama-3.1-8b?reply_tokens=4000"
    began = time.monotonic()
    explained = workflow.explain([{"x": "a"}, {"x": "b"}], engine=address, analyze=True)
    assert time.monotonic() - began < 20
    measured = explained.report.measured
    assert measured is not None
    # 40 s of the tool, and some 4,000 tokens at 7 ms.
    assert measured.seconds > 40 + 14
    (folder / "rows.jsonl").write_text('{"x": "a"}\n', encoding="utf-8")
    shown = command("explain", "w.helix", "-i", "rows.jsonl", "-e", address, "--analyze", cwd=folder)
    assert shown.returncode == 0, shown.stderr


def test_whoever_waits_for_shared_engines_is_told_that_nothing_can_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.executor.engines.sim.loop.GRACE", 0.05)

    async def stuck() -> None:
        import asyncio

        await asyncio.sleep(5)
        await asyncio.Event().wait()

    async def well() -> float:
        import asyncio

        await asyncio.sleep(1000)
        return asyncio.get_running_loop().time()

    with SharedEngines(concurrency=1, loop_factory=VirtualLoop) as engines:
        assert engines.wait(well()) == 1000
        # Nobody waits meanwhile: that is no deadlock.
        time.sleep(0.15)
        with pytest.raises(DeadlockError, match=r"nothing can happen any more at 1005\.0"):
            engines.wait(stuck())
