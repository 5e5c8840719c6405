"""The address of the simulated engine, and `helix run` on it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from running import command, jsonl, lines

import helix
from helix.executor.engines import loop_factory, open_engine
from helix.executor.engines.sim import SimEngine
from helix.executor.engines.sim.loop import VirtualLoop

TEXT = (
    "workflow w(context: text)\n"
    "model m {{ temperature: 0{engine} }}\n"
    'a = llm m {{ user "{{{{ context }}}} one" }}\n'
    'b = llm m {{ user "{{{{ context }}}} two {{{{ a }}}}" }}\n'
    "output b\n"
)
ROWS = [{"context": "word " * 200 + str(at)} for at in range(12)]


def test_an_address_says_all_of_it() -> None:
    engine = open_engine("sim:H200x4/llama-3.1-8b?policy=lpm&page=16&chunk=none&mixed_chunk=on&seed=7&ratio=0.5")
    assert isinstance(engine, SimEngine)
    settings = engine.settings
    assert engine.name == "sim:H200x4/llama-3.1-8b"
    assert engine.cost.name == "linear:h200"
    assert (settings.ranks, settings.policy, settings.page, settings.chunk) == (4, "lpm", 16, None)
    assert (settings.mixed_chunk, settings.seed, settings.ratio, settings.max_context) == (True, 7, 0.5, 131_072)
    assert settings.kv_tokens % 16 == 0
    assert 800_000 < settings.kv_tokens < 900_000


def test_a_simulated_engine_brings_its_loop() -> None:
    assert loop_factory("sim:h100/llama-3.1-8b") is VirtualLoop
    assert loop_factory(open_engine("sim:h100/llama-3.1-8b")) is VirtualLoop
    assert loop_factory("sim:h100/llama-3.1-8b", "scripted") is None
    assert loop_factory("scripted") is loop_factory(None) is loop_factory(open_engine("scripted")) is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(jsonl(ROWS), encoding="utf-8")
    (tmp_path / "w.helix").write_text(TEXT.format(engine=""), encoding="utf-8")
    (tmp_path / "own.helix").write_text(TEXT.format(engine=', engine: "sim:h100/llama-3.1-8b"'), encoding="utf-8")
    return tmp_path


def test_the_command_runs_in_virtual_time_and_keeps_nothing(folder: Path) -> None:
    outputs = []
    began = time.monotonic()
    for _ in range(2):
        ran = command("run", "w.helix", "-i", "rows.jsonl", "-e", "sim:h100x2/llama-3.1-8b", cwd=folder)
        assert ran.returncode == 0, ran.stderr
        assert "12 rows, 24 calls" in ran.stderr
        outputs.append((ran.stdout, ran.stderr.splitlines()[-1]))
    # Replies, their order and the seconds are those of the simulation.
    assert outputs[0] == outputs[1]
    assert " in 0.0 s" not in outputs[0][1]
    assert time.monotonic() - began < 60
    assert sorted(path.name for path in folder.iterdir()) == ["own.helix", "rows.jsonl", "w.helix"]


def test_with_a_store_the_clock_waits_for_the_disk(folder: Path) -> None:
    plain = command("run", "w.helix", "-i", "rows.jsonl", "-e", "sim:h100/llama-3.1-8b", cwd=folder)
    kept = command("run", "w.helix", "-i", "rows.jsonl", "-e", "sim:h100/llama-3.1-8b", "--store", "kept", cwd=folder)
    assert kept.returncode == plain.returncode == 0
    assert lines(kept.stdout) == lines(plain.stdout)
    assert kept.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    again = command("run", "w.helix", "-i", "rows.jsonl", "-e", "sim:h100/llama-3.1-8b", "--store", "kept", cwd=folder)
    assert "24 fetched" in again.stderr


def test_an_engine_that_the_workflow_names(folder: Path) -> None:
    ran = command("run", "own.helix", "-i", "rows.jsonl", "--no-store", cwd=folder)
    named = command("run", "w.helix", "-i", "rows.jsonl", "-e", "sim:h100/llama-3.1-8b", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == named.stdout


def test_explain_counts_and_analyzes_on_it(folder: Path) -> None:
    address = "sim:h100x2/llama-3.1-8b?reply_tokens=10"
    ran = command("explain", "w.helix", "-i", "rows.jsonl", "-e", address, "--analyze", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "tokens are counted by sim:h100x2/llama-3.1-8b" in " ".join(ran.stdout.split())
    assert "Measured on sim:h100x2/llama-3.1-8b" in ran.stdout


def test_from_python_an_address_is_enough() -> None:
    began = time.monotonic()
    result = helix.loads(TEXT.format(engine="")).run(ROWS, engine="sim:h100/llama-3.1-8b?reply_tokens=4000")
    assert result.report.failed_rows == 0
    assert result.report.seconds > 40
    assert time.monotonic() - began < 30
