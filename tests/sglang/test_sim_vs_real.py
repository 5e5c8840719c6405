"""Runs of the comparison replayed on the simulated engine: the same prompts and replies, and what is told of it."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
from running import ROOT
from test_compare_parts import Echo, rows, workload

sys.path.insert(0, str(ROOT / "tests" / "benchmarks"))
from compare.measure import Run
from compare.regimes import Batch
from compare.results import MEASURED
from compare.simulated import Replayed, known_texts, replay

from helix.executor.engines.sim import SimSettings
from helix.simulation.cost import LinearCost

COST = LinearCost(name="round", a=20.0, b=1.0, c=0.0, d=30.0, e=5.0, f=0.0)
SETTINGS = SimSettings(kv_tokens=4096, max_running=16, chunk=512, policy="lpm")


def made(name: str, method: str, at_once: int | None = None, **more: Any) -> tuple[Run, Any, Batch]:
    """A run as it would have been measured, its workload, and its rows."""
    work = workload(name)
    table = rows(work)
    echo = Echo()

    async def main() -> None:
        await asyncio.gather(*(work.program(row, echo) for row in table))

    asyncio.run(main())
    run = Run(
        workload=name,
        regime="ample",
        policy="lpm",
        method=method,
        at_once=at_once,
        phase=MEASURED,
        repeat=0,
        prompts_hash=hashlib.sha256("".join(sorted(echo.asked)).encode()).hexdigest()[:16],
        texts={f"{row} {step}": text for (row, step), text in echo.texts.items()},
        calls=len(echo.asked),
        **more,
    )
    return run, work, Batch(rows=tuple(table))


@pytest.mark.parametrize("method", ["everything", "helix"])
@pytest.mark.parametrize("name", ["W1", "W3", "W4"])
def test_a_run_is_replayed_with_its_own_replies(name: str, method: str) -> None:
    run, work, batch = made(name, method)
    first = replay(run, work, batch, SETTINGS, COST)
    assert first.calls == run.calls
    assert first.seconds > 0
    assert first.prefilled > 0
    # Every reply is the recorded one, or the later prompts would not follow from it.
    assert set(known_texts(run).values()) == set(run.texts.values())
    assert replay(run, work, batch, SETTINGS, COST) == first


def test_calls_at_once_are_those_of_the_run() -> None:
    run, work, batch = made("W1", "fan-out", 1)
    one = replay(run, work, batch, SETTINGS, COST)
    run.at_once = 8
    many = replay(run, work, batch, SETTINGS, COST)
    assert many.seconds < one.seconds


def test_rows_that_are_others_are_refused() -> None:
    run, work, batch = made("W1", "everything")
    run.prompts_hash = "0" * 16
    with pytest.raises(ValueError, match="its rows are others: give the --scale and --size"):
        replay(run, work, batch, SETTINGS, COST)


def test_flags_of_the_server_are_settings_of_the_simulated_one() -> None:
    from sim_vs_real import settings_of

    flags = ["--radix-eviction-policy", "priority", "--disable-overlap-schedule"]
    assert settings_of(flags) == {"eviction": "priority", "overlap": "off"}
    assert settings_of(["--enable-mixed-chunk"]) == {"mixed_chunk": True}
    with pytest.raises(ValueError, match="the flag --page-size of the server, which is not simulated"):
        settings_of(["--page-size", "16"])


def test_errors_and_orders_are_told() -> None:
    from sim_vs_real import report

    def pair(method: str, seconds: tuple[float, float], prefilled: tuple[int, int]) -> tuple[Run, Replayed]:
        run = Run(
            workload="W1", regime="pressure", policy="lpm", method=method, at_once=None, phase=MEASURED, repeat=0,
            seconds=seconds[0], computed=prefilled[0],
        )  # fmt: skip
        return run, Replayed(seconds=seconds[1], prefilled=prefilled[1], calls=1, generated=1, digest="")

    lines = report([pair("helix", (50.0, 55.0), (1000, 900)), pair("everything", (100.0, 90.0), (2000, 800))])
    text = "\n".join(lines)
    assert "+10.0%" in lines[1]
    assert "-60.0%" in lines[2]
    assert "tokens prefilled: 35.0% off in the mean, 35.0% in the middle, 60.0% at most, -35.0% on the whole" in text
    assert "W1 pressure, makespan: helix (lpm) < everything (lpm); the same simulated" in text
    assert (
        "W1 pressure, prefilled: helix (lpm) < everything (lpm); not so simulated: helix (lpm) before everything"
        in text
    )


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sim_vs_real import main

    assert main([str(tmp_path / "none.json"), "--cost", str(tmp_path / "none.json")]) == 2
    assert "holds no measured run" in capsys.readouterr().err
