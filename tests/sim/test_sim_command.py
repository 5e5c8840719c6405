"""The address of the simulated engine, and `helix run` on it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from running import command, jsonl, lines

import helix
from helix.errors import OptionError
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


def test_an_address_splits_ranks_into_those_that_prefill_and_those_that_decode() -> None:
    for address in ("sim:h100x4/llama-3.1-8b?pd=1:3&pd_gbs=100", "sim:h100/llama-3.1-8b?pd=1:3&pd_gbs=100"):
        engine = open_engine(address)
        assert isinstance(engine, SimEngine)
        settings = engine.settings
        assert (settings.ranks, settings.prefill_ranks, settings.decode_ranks, settings.pd_gbs) == (4, 1, 3, 100.0)
        assert settings.kv_bytes == 131_072


def test_an_address_adds_a_host_tier_and_takes_the_dialect_of_vllm() -> None:
    tiered = open_engine("sim:h100/llama-3.1-8b?host=2000000&host_write=write-back&host_load_gbs=25.5")
    assert isinstance(tiered, SimEngine)
    settings = tiered.settings
    assert (settings.host, settings.host_write, settings.host_load_gbs) == (2_000_000, "write-back", 25.5)
    vllm = open_engine("sim:rtx-4090/llama-3.1-8b?dialect=vllm&budget=4096&kv_tokens=41408")
    assert isinstance(vllm, SimEngine)
    settings = vllm.settings
    assert (settings.dialect, settings.budget, settings.page, settings.kv_tokens) == ("vllm", 4096, 16, 41_408)
    spread = open_engine("sim:h100/llama-3.1-8b?tp=2&host=1000")
    assert isinstance(spread, SimEngine)
    assert spread.settings.kv_bytes == 65_536


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("pd=3", "pd says how many ranks of a simulated engine prefill and how many decode, as in 1:3; found `3`"),
        ("pd=0:2", "as in 1:3; found `0:2`"),
        ("pd=2:-1", "as in 1:3; found `2:-1`"),
        ("pd=1:3", "pd=1:3 are 4 ranks of a simulated engine; found 2 in its address"),
        ("hots=5", "no setting `hots` of a simulated engine; did you mean `host`"),
        ("host=many", "the setting `host` of a simulated engine is a number, found `many`"),
        ("host=1e999", "the setting `host` of a simulated engine is a number"),
        ("pd_gbs=inf", "the setting `pd_gbs` of a simulated engine is a number, found `inf`"),
        ("request_ms=nan", "the setting `request_ms` of a simulated engine is a number, found `nan`"),
        ("host=5000&host_write=writeback", "unknown host_write `writeback`; did you mean `write-back`"),
        ("dialect=vllm&host=5000", "host is for the dialect sglang, found it with vllm"),
        ("dialect=sglnag", "unknown dialect `sglnag`; did you mean `sglang`"),
        ("cost=layers:/no/such/folder", "cannot read the layer table"),
        ("page=0", "page must be at least 1, found 0"),
    ],
)
def test_what_an_address_says_wrongly_is_told(options: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        open_engine(f"sim:h100x2/llama-3.1-8b?{options}")
    assert message in str(caught.value)


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


@pytest.mark.parametrize(
    "options", ["host=100000&kv_tokens=6000", "pd=1:2", "pd=1:1&host=50000", "dialect=vllm", "router=prefix-aware"]
)
def test_every_kind_of_engine_gives_the_same_rows(options: str) -> None:
    workflow = helix.loads(TEXT.format(engine=""))
    plain = workflow.run(ROWS, engine="sim:h100/llama-3.1-8b?reply_tokens=40")
    place = "sim:h100x2" if "router" in options else "sim:h100"
    result = workflow.run(ROWS, engine=f"{place}/llama-3.1-8b?reply_tokens=40&{options}")
    assert result.report.failed_rows == 0
    assert [row["b"] for row in result.rows] == [row["b"] for row in plain.rows]
    assert result.report.seconds > 0
