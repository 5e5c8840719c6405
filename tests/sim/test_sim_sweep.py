"""Sweeps of a server: what is asked of it, and what comes out. The server here takes the time of a formula."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Call
from fake_sglang import FakeSGLang
from running import inside

from helix.errors import EngineError, OptionError
from helix.executor.engines.sglang.sweep import SweepPlan, measure
from helix.simulation.sweep import Sweep
from helix.simulation.table import calibrated_cost

# Milliseconds: 20 + .2 for each new token, 3 + B for each pass of decoding.
SMALL = SweepPlan(new=(16, 64, 256), cached=(0, 128), batches=(1, 2, 4), contexts=(32, 64), repeats=1)


class Timed(FakeSGLang):
    """Answers /generate after the time that a formula says; `kept` are the prompts that are in its cache."""

    def __init__(self, **options: Any) -> None:
        super().__init__(answer=self._timed, **options)
        self.kept: list[list[int]] = []
        self.asked: list[tuple[int, int, int]] = []

    def _timed(self, call: Call) -> Answer | None:
        if call.route != "/generate":
            return None
        body = call.json
        prompts = body["input_ids"] if isinstance(body["input_ids"][0], list) else [body["input_ids"]]
        tokens = body["sampling_params"]["max_new_tokens"]
        assert body["sampling_params"]["ignore_eos"] is True
        fresh, replies = 0, []
        for prompt in prompts:
            cached = min(max((shared(prompt, other) for other in self.kept), default=0), len(prompt) - 1)
            self.kept.append(prompt)
            fresh += len(prompt) - cached
            meta = {"prompt_tokens": len(prompt), "cached_tokens": cached, "completion_tokens": tokens}
            replies.append({"text": "x", "meta_info": {**meta, "finish_reason": {"type": "length"}}})
        self.asked.append((len(prompts), fresh, tokens))
        delay = 20 + 0.2 * fresh + (tokens - 1) * (3 + len(prompts))
        return Answer(body=replies if isinstance(body["input_ids"][0], list) else replies[0], delay=delay / 1000)


def shared(one: list[int], other: list[int]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def swept(server: FakeSGLang, plan: SweepPlan = SMALL) -> tuple[Sweep, list[str]]:
    told: list[str] = []
    return asyncio.run(measure(server.address, plan=plan, tell=told.append)), told


def test_a_sweep_finds_the_formula() -> None:
    with Timed(info={"chunked_prefill_size": 512, "max_prefill_tokens": 2048, "version": "9.9"}) as server:
        sweep, told = swept(server)
    assert [(point.new, point.cached) for point in sweep.prefill] == [
        (16, 0), (64, 0), (256, 0), (16, 128), (64, 128), (256, 128)
    ]  # fmt: skip
    assert {point.batch for point in sweep.decode} == {1, 2, 4}
    fit = sweep.fit()
    assert fit.prefill(128, 128**2) == pytest.approx(20 + 25.6, rel=0.35)
    assert fit.decode(4, 4 * 64) == pytest.approx(7, rel=0.35)
    # Only what is new is computed, and prompts of a decoding batch are all cached.
    assert (1, 16, 1) in server.asked
    assert all(fresh == count for count, fresh, tokens in server.asked if tokens > 2)
    assert len(told) == len(sweep.prefill) + len(sweep.decode)
    assert sweep.model == "tiny"
    assert sweep.engine.startswith("SGLang 9.9 on")
    assert dict(sweep.server) == {
        "kv_tokens": 16_384, "page": 1, "max_running": 16, "max_context": 8192, "ranks": 1, "policy": "lpm",
        "max_prefill": 2048, "chunk": 512,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("info", "overlap"),
    [
        ({"disable_overlap_schedule": False, "device": "cpu"}, "host"),
        ({"disable_overlap_schedule": False, "device": "cuda"}, "device"),
        ({"disable_overlap_schedule": True, "device": "cuda"}, "off"),
    ],
)
def test_a_sweep_tells_how_passes_overlap(info: dict[str, Any], overlap: str) -> None:
    plan = SweepPlan(new=(16, 64), cached=(0, 128), batches=(1, 2), contexts=(32, 64), repeats=1)
    with Timed(info=info) as server:
        sweep, _ = swept(server, plan)
    assert sweep.server["overlap"] == overlap


def test_sizes_that_do_not_fit_are_left_out() -> None:
    tight = {"max_total_num_tokens": 400, "max_running_requests": 2, "chunked_prefill_size": 128}
    plan = SweepPlan(new=(16, 64, 128, 512), cached=(0, 320), batches=(1, 2, 8), contexts=(32, 64, 1000), repeats=1)
    with Timed(info=tight) as server:
        sweep, _ = swept(server, plan)
    # 512 is more than a chunk, 320 and 128 are more than the cache holds; 8 are more than run at once.
    assert [(point.new, point.cached) for point in sweep.prefill] == [(16, 0), (64, 0), (128, 0), (16, 320), (64, 320)]
    assert [(point.batch, point.context) for point in sweep.decode] == [(1, 48), (2, 48), (1, 80), (2, 80)]


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="one server is measured at a time, found 2"):
        asyncio.run(measure("sglang://a:1,b:2"))
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1"):
        asyncio.run(measure("sglang://127.0.0.1:1"))


def test_the_command_writes_a_file_that_a_simulation_reads(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    from helix.executor.engines.sglang import sweep as module

    monkeypatch.setattr(module, "SweepPlan", lambda: SMALL)
    (tmp_path / "w.helix").write_text('workflow w(q: text)\na = llm { user "{{ q }}" }\noutput a\n', encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text('{"q": "one"}\n{"q": "two"}\n', encoding="utf-8")
    with Timed() as server:
        address = server.address
        ran = inside(
            "simulate", "--calibrate", address, "-o", "cost.json", cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd
        )
    assert ran.returncode == 0, ran.stderr
    assert "prefill: 6 points, the fit is" in ran.stdout
    assert "cost.json: written; use it with --cost cost.json" in ran.stderr
    assert "prefill of 64 tokens behind 128:" in ran.stderr
    assert calibrated_cost(tmp_path / "cost.json").decode(4, 256) == pytest.approx(7, rel=0.35)
    used = inside(
        "simulate", "w.helix", "-i", "rows.jsonl", "--cost", "cost.json", "--format", "json", cwd=tmp_path,
        monkeypatch=monkeypatch, capfd=capfd,
    )  # fmt: skip
    assert used.returncode == 0, used.stderr
    where = json.loads(used.stdout)["optimized"]["deployment"]
    assert (where["gpu"], where["kv_tokens"], where["max_running"], where["policy"]) == (None, 16_384, 16, "lpm")
    assert where["cost"] == "calibrated:cost.json"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["w.helix", "--calibrate", "sglang://127.0.0.1:1", "-o", "c.json"], "takes no workflow, found w.helix"),
        (["--calibrate", "sglang://127.0.0.1:1"], "give --output cost.json"),
        (
            ["--calibrate", "http://127.0.0.1:1", "-o", "c.json"],
            "measures a server at sglang://HOST:PORT, or asks `aiconfigurator`",
        ),
        (["--calibrate", "aiconfigurator", "-o", "c.json"], "needs the model: give --model"),
        (["--calibrate", "aiconfigurator", "-o", "c.json", "-m", "qwen3-8b", "--gpu", "l4"], "knows no GPU `l4`"),
        (["--calibrate", "sglang://127.0.0.1:1", "-o", "no/c.json"], "there is no folder no"),
        (["--calibrate", "sglang://127.0.0.1:1", "-o", "c.json"], "127.0.0.1:1"),
    ],
)
def test_calibration_that_cannot_be(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    ran = inside("simulate", *arguments, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []
