"""Cost models: formulas by hand, the published fits against their data, tables, sweeps, and the size of a KV cache."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from helix.errors import OptionError
from helix.simulation.capacity import GIB, ModelShape, gpu_memory, kv_bytes_per_token, kv_tokens, model_shape
from helix.simulation.cost import LinearCost, published_cost
from helix.simulation.table import DecodePoint, PrefillPoint, TableCost, calibrated_cost, fit_linear

ROUND = LinearCost(name="round", a=4.0, b=0.5, c=0.001, d=6.0, e=0.25, f=0.01)
FEW_PREFILL = [
    PrefillPoint(new=n, cached=p, ms=ROUND.prefill(n, n * (n + 2 * p))) for n in (64, 256, 1024) for p in (0, 512)
]
FEW_DECODE = [DecodePoint(batch=b, context=s, ms=ROUND.decode(b, b * s)) for b in (1, 8, 32) for s in (256, 1024)]


def test_the_formulas_by_hand() -> None:
    # Two requests: 100 new tokens behind 50, and 20 behind none: 100 * 200 + 20 * 20 pairs.
    tokens, pairs = 120, 100 * (100 + 2 * 50) + 20 * 20
    assert pairs == 20_400
    assert ROUND.prefill(tokens, pairs) == pytest.approx(4 + 60 + 20.4)
    assert ROUND.decode(3, 900) == pytest.approx(6 + 0.75 + 9)
    assert ROUND.mixed(tokens, pairs, 3, 900) == pytest.approx(15.75 + 80.4)
    assert ROUND.pass_tokens == 8.0
    # A prompt in two chunks costs one more pass and nothing else.
    whole = ROUND.prefill(300, 300 * 300)
    chunks = ROUND.prefill(200, 200 * 200) + ROUND.prefill(100, 100 * (100 + 2 * 200))
    assert chunks - whole == pytest.approx(ROUND.a)


def test_the_h100_by_hand() -> None:
    cost = published_cost("H100")
    assert cost.prefill(1024, 1024**2) == pytest.approx(4.794 + 17.94048 + 0.774375, abs=1e-4)
    assert cost.decode(64, 64 * 2048) == pytest.approx(6.502 + 0.52864 + 5.463081, abs=1e-4)
    assert cost.pass_tokens == pytest.approx(273.6, abs=0.1)


def test_sizes_beyond_the_data_are_flagged() -> None:
    cost = published_cost("h100")
    assert cost.knows_prefill(128, 1)
    assert not cost.knows_prefill(127, 1)
    assert not cost.knows_prefill(1024, 2)
    assert cost.knows_decode(256, 256 * 8192)
    assert not cost.knows_decode(257, 257 * 512)
    assert not cost.knows_decode(8, 8 * 255)
    assert ROUND.knows_prefill(1, 9)
    assert ROUND.knows_decode(9999, 1)


def test_an_unknown_gpu_is_named() -> None:
    with pytest.raises(OptionError, match="did you mean `h100`"):
        published_cost("h10")
    with pytest.raises(OptionError, match=r"unknown GPU `b9000`; .*h100"):
        gpu_memory("b9000")
    with pytest.raises(OptionError, match="no shape of model"):
        model_shape("gpt")


def test_a_fit_finds_what_made_its_points() -> None:
    found = fit_linear(FEW_PREFILL, FEW_DECODE, name="again")
    for name in "abcdef":
        assert getattr(found, name) == pytest.approx(getattr(ROUND, name), rel=1e-6)
    assert not found.knows_prefill(63, 1)
    assert found.knows_decode(32, 32 * 1024)


def test_no_coefficient_of_a_fit_is_negative() -> None:
    prefill = [PrefillPoint(new=n, ms=10 + n - 0.0004 * n * n) for n in (100, 400, 800, 1000)]
    decode = [DecodePoint(batch=b, context=c, ms=50.0 / b) for b in (1, 2, 4) for c in (100, 200)]
    found = fit_linear(prefill, decode, name="bent")
    assert min(found.a, found.b, found.c, found.d, found.e, found.f) == 0.0
    assert found.b > 0
    assert found.d > 0


@pytest.mark.parametrize(
    ("prefill", "decode", "message"),
    [
        (FEW_PREFILL[:2], FEW_DECODE, "three points of prefill are needed, found 2"),
        (FEW_PREFILL, [], "three points of decode are needed, found 0"),
        (FEW_PREFILL, [DecodePoint(batch=1, context=9, ms=0.0)] * 3, "above 0 ms, found 0"),
    ],
)
def test_too_few_points_are_refused(prefill: Any, decode: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fit_linear(prefill, decode, name="few")


def test_a_table_gives_its_points_and_lines_between_them() -> None:
    table = TableCost(FEW_PREFILL, FEW_DECODE)
    for point in FEW_PREFILL:
        pairs = point.new * (point.new + 2 * point.cached)
        assert table.prefill(point.new, pairs) == pytest.approx(point.ms)
    for point in FEW_DECODE:
        assert table.decode(point.batch, point.batch * point.context) == pytest.approx(point.ms)
    assert table.decode(20, 20 * 256) == pytest.approx((table.decode(8, 8 * 256) + table.decode(32, 32 * 256)) / 2)
    middle = (ROUND.prefill(256, 256**2) + ROUND.prefill(1024, 1024**2)) / 2
    assert table.prefill(640, 640**2) == pytest.approx(middle)
    assert table.mixed(64, 64**2, 8, 8 * 256) == pytest.approx(ROUND.mixed(64, 64**2, 8, 8 * 256))
    assert table.pass_tokens == pytest.approx(8.0)
    assert not table.knows_decode(33, 33 * 256)
    assert table.knows_prefill(64, 1)


def test_a_table_needs_uncached_prefills() -> None:
    with pytest.raises(OptionError, match="found 0"):
        TableCost([point for point in FEW_PREFILL if point.cached], FEW_DECODE)


def sweep(path: Path, **more: Any) -> Path:
    data = {
        "format": "helix-sweep",
        "version": 1,
        "engine": "sglang 0.5.23 on two cores",
        "prefill": [{"new": p.new, "cached": p.cached, "ms": p.ms} for p in FEW_PREFILL],
        "decode": [{"batch": p.batch, "context": p.context, "ms": p.ms} for p in FEW_DECODE],
    }
    path.write_text(json.dumps({**data, **more}), encoding="utf-8")
    return path


def test_a_sweep_file_makes_a_model(tmp_path: Path) -> None:
    path = sweep(tmp_path / "cpu.json")
    fitted, table = calibrated_cost(path), calibrated_cost(path, table=True)
    assert fitted.name == f"calibrated:{path}"
    assert fitted.prefill(512, 512**2) == pytest.approx(ROUND.prefill(512, 512**2))
    assert isinstance(table, TableCost)
    assert table.decode(8, 8 * 256) == pytest.approx(ROUND.decode(8, 8 * 256))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"format": "other"}, "is not a sweep"),
        ({"version": 2}, "is not a sweep"),
        ({"prefill": None}, "has no list `prefill`"),
        ({"decode": [{"batch": 1, "context": 5}]}, "a point of decode has numbers batch, context, ms"),
        ({"prefill": [{"new": "1", "ms": 2}]}, "a point of prefill has numbers"),
        ({"prefill": [{"new": 1, "ms": -2}]}, "a point of prefill has numbers"),
    ],
)
def test_a_sweep_file_that_is_none_is_refused(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        calibrated_cost(sweep(tmp_path / "bad.json", **more))


def test_a_sweep_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read the sweep"):
        calibrated_cost(tmp_path / "absent.json")
    (tmp_path / "text.json").write_text("[", encoding="utf-8")
    with pytest.raises(OptionError, match="is not JSON"):
        calibrated_cost(tmp_path / "text.json")


def test_the_size_of_a_cache_by_hand() -> None:
    llama = model_shape("Llama-3.1-8B")
    assert kv_bytes_per_token(llama) == 131_072
    assert kv_bytes_per_token(llama, tp=2) == 65_536
    # More GPUs than heads: each holds one.
    assert kv_bytes_per_token(llama, tp=16) == 16_384
    assert kv_bytes_per_token(llama, kv_dtype_bytes=1) == 65_536
    latent = ModelShape(
        name="mla", parameters=1, layers=61, kv_heads=128, head_dim=128, max_context=1, latent=512, rope=64
    )
    assert kv_bytes_per_token(latent) == 61 * 576 * 2
    left = int(0.88 * 80 * GIB) - 2 * 8_030_261_248 - 2 * GIB
    assert kv_tokens(llama, 80 * GIB) == left // 131_072 == 437_800
    assert kv_tokens(llama, gpu_memory("h100"), page=64) % 64 == 0
    with pytest.raises(OptionError, match="leaves no room"):
        kv_tokens(llama, 16 * GIB)


LIMITS = {
    ("h100", "prefill"): 0.11,
    ("h100", "decode"): 0.035,
    ("a100", "prefill"): 0.02,
    ("a100", "decode"): 0.155,
    ("h200", "prefill"): 0.06,
    ("h200", "decode"): 0.055,
}


def table(shared_data: Path, name: str) -> list[dict[str, str]]:
    with (shared_data / "sim" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.shared
def test_the_published_fits_hold_on_their_data(shared_data: Path) -> None:
    worst: dict[tuple[str, str], float] = dict.fromkeys(LIMITS, 0.0)
    rows = table(shared_data, "aiconfigurator_llama31_8b_bf16_tp1.csv")
    assert len(rows) == 93
    for row in rows:
        gpu, size, batch = row["system"].partition("_")[0], int(row["context_or_isl"]), int(row["batch"])
        cost = published_cost(gpu)
        ms = cost.prefill(size, size * size) if row["phase"] == "prefill" else cost.decode(batch, batch * size)
        key = gpu, row["phase"]
        worst[key] = max(worst[key], abs(ms / float(row["ms"]) - 1))
    assert {key: worst[key] <= limit for key, limit in LIMITS.items()} == dict.fromkeys(LIMITS, True), worst


@pytest.mark.shared
def test_measured_times_of_an_h100_are_near(shared_data: Path) -> None:
    cost = published_cost("h100")
    errors: list[float] = []
    for row in table(shared_data, "aiconfigurator_silicon_llama31_8b.csv"):
        if row["system"] == "h100_sxm" and row["tp_size"] == "1":
            batch, prompt, reply = int(row["batch_size"]), int(row["isl"]), int(row["osl"])
            ms = cost.decode(batch, int(batch * (prompt + reply / 2))) + batch * cost.prefill(prompt, prompt**2) / reply
            errors.append(abs(ms / float(row["silicon_tpot_ms"]) - 1))
    assert len(errors) == 42
    assert sum(errors) / len(errors) <= 0.05
    assert max(errors) <= 0.20


@pytest.mark.shared
@pytest.mark.parametrize(("tokens", "measured"), [(2048, 144.5), (4096, 275.0)])
def test_an_a100_takes_little_more_than_its_layers(shared_data: Path, tokens: int, measured: float) -> None:
    rows = table(shared_data, "vidur_a100_llama3_8b_mlp_medians.csv")
    layers = [
        sum(float(value) for name, value in row.items() if name.startswith("time_stats") and ".emb." not in name)
        for row in rows
        if row["num_tokens"] == str(tokens) and row["num_tensor_parallel_workers"] == "1"
    ]
    assert 32 * sum(layers) / len(layers) == pytest.approx(measured, rel=0.02)
    assert published_cost("a100").prefill(tokens, tokens**2) == pytest.approx(measured, rel=0.10)
