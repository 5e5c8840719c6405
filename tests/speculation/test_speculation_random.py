"""Random worlds, with speculation and without: equal outputs and state, nothing forbidden started on a guess."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from speculation_world import World, forbidden

from helix.executor.speculation.settings import SpeculationSettings

DRIVER = Path(__file__).parents[1] / "benchmarks" / "speculation_random.py"


def drive(*args: str) -> dict[str, int]:
    done = subprocess.run([sys.executable, str(DRIVER), "--json", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_some_worlds() -> None:
    found = drive("--runs", "60")
    assert found["runs"] == 60
    assert found["forbidden"] == found["different"] == 0
    # The worlds are ones in which there is something to get wrong.
    assert found["launched"] > 50
    assert found["hits"] > 8
    assert found["stale"] > 5


@pytest.mark.slow
def test_many_worlds() -> None:
    found = drive("--runs", "2000", "--first", "1000000")
    assert found["forbidden"] == found["different"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_shadow_starts_nothing(seed: int) -> None:
    shadow = World(seed)
    shadow.run("shadow", state=shadow.trusted("serve"))
    assert not any(start.guessed for start in shadow.starts)
    assert shadow.outputs == World(seed).run("off").outputs


def test_a_against_a() -> None:
    """Two runs without speculation are the same to the clock: what differs later is speculation's."""
    for seed in range(5):
        one, two = World(seed).run("off"), World(seed).run("off")
        assert (one.outputs, one.state, one.seconds) == (two.outputs, two.state, two.seconds)


def test_two_runs_with_speculation_are_the_same() -> None:
    for seed in range(5):
        runs = [World(seed), World(seed)]
        for each in runs:
            each.run("on", state=each.trusted("serve"))
        assert runs[0].outputs == runs[1].outputs
        assert runs[0].seconds == runs[1].seconds
        figures = [each.speculator.figures.to_json("on") for each in runs if each.speculator is not None]
        assert figures[0] == figures[1]


def test_all_wrong_serves_nothing() -> None:
    for seed in range(10):
        off, on = World(seed, right=0.0), World(seed, right=0.0)
        off.run("off")
        on.run("on", SpeculationSettings(chances=1), state=on.trusted("serve"))
        assert on.outputs == off.outputs
        assert not [start for start in on.starts if start.guessed and forbidden(start)]
