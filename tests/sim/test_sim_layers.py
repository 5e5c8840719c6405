"""The cost model made of tables of layers: by hand, and what is wrong with tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix.errors import OptionError
from helix.executor.engines import open_engine
from helix.executor.engines.sim import SimEngine
from helix.simulation.layers import DENSE, Curve, Grid, layer_cost

LAYERS = 10


def tables(folder: Path, **changes: str) -> Path:
    """Tables in which every layer of a block takes 1 us a token, and heads 5 us a sequence."""
    dense = [f"{layer},{tokens},{tokens}" for layer in DENSE for tokens in (1, 100)]
    head = [f"{layer},{count},{5 * count}" for layer in ("lm_head", "sampler") for count in (1, 50)]
    attention = [f"{chunk},{kv},0,0,{chunk + kv}" for chunk in (10, 100) for kv in (0, 100)]
    attention += [f"0,0,{batch},{kv},{batch * kv / 10}" for batch in (1, 40) for kv in (10, 1000)]
    # Both at once take half as long again as one after the other.
    attention += [f"100,0,40,10,{1.5 * (100 + 40)}", f"10,0,40,10,{1.5 * (10 + 40)}", f"10,0,1,10,{4 * (10 + 1)}"]
    made = {
        "profile_dense": ("layer,tokens,time_us", dense),
        "profile_per_sequence": ("layer,sequences,time_us", head),
        "profile_attention": ("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", attention),
    }
    for name, (header, rows) in made.items():
        text = changes.get(name, "\n".join((header, *rows)) + "\n")
        if text != "absent":
            (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def test_lines_and_grids() -> None:
    line = Curve([(10.0, 5.0), (20.0, 15.0), (0.0, 0.0)])
    assert [line(at) for at in (0, 5, 10, 12, 30)] == [0.0, 2.5, 5.0, 7.0, 25.0]
    assert Curve([(3.0, 7.0)])(100) == 7.0
    assert Curve([(1.0, 5.0), (2.0, 1.0)])(9) == 0.0
    grid = Grid([((0.0, 0.0), 0.0), ((0.0, 10.0), 10.0), ((10.0, 0.0), 100.0), ((10.0, 20.0), 120.0)])
    assert grid(5, 5) == pytest.approx((5 + 105) / 2)
    assert grid.most == 20.0


def test_a_pass_is_the_sum_of_its_layers(tmp_path: Path) -> None:
    cost = layer_cost(tables(tmp_path), layers=LAYERS)
    # In a block 8 layers a token (one of them twice), around the blocks 2; heads take 5 us each.
    around = 10 * 8 + 2
    assert cost.prefill(50, 50 * 50) == pytest.approx((around * 50 + 10 + LAYERS * 50) / 1000)
    # Behind 60 tokens.
    assert cost.prefill(50, 50 * (50 + 120)) == pytest.approx((around * 50 + 10 + LAYERS * 110) / 1000)
    assert cost.decode(20, 20 * 300) == pytest.approx((around * 20 + 2 * 5 * 20 + LAYERS * 600) / 1000)
    both = (50 + 20 * 30) * 1.5
    assert cost.mixed_factor == pytest.approx(1.5)
    assert cost.mixed(50, 50 * 50, 20, 20 * 300) == pytest.approx((around * 70 + 2 * 5 * 21 + LAYERS * both) / 1000)
    # Five prompts of 10 tokens look at a fifth of the pairs that one of 50 does.
    assert cost.prefill(50, 5 * 100) == pytest.approx((around * 50 + 10 + LAYERS * 50 / 5) / 1000)
    assert cost.pass_tokens == pytest.approx(1.0)
    assert cost.name == f"layers:{tmp_path}"


def test_sizes_beyond_the_tables_are_flagged(tmp_path: Path) -> None:
    cost = layer_cost(tables(tmp_path), layers=LAYERS)
    assert cost.knows_prefill(100, 1)
    assert not cost.knows_prefill(101, 1)
    assert not cost.knows_prefill(50, 2)
    assert cost.knows_decode(40, 40 * 1000)
    assert not cost.knows_decode(41, 41 * 10)
    assert not cost.knows_decode(4, 4 * 1001)


def test_an_address_takes_a_folder_of_tables(tmp_path: Path) -> None:
    engine = open_engine(f"sim:rtx4090/llama-3.1-8b?dialect=vllm&cost=layers:{tables(tmp_path)}")
    assert isinstance(engine, SimEngine)
    assert engine.cost.name == f"layers:{tmp_path}"
    assert engine.settings.page == 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile_dense": "absent"}, "cannot read the layer table .*profile_dense.csv: No such file"),
        ({"profile_dense": ""}, "profile_dense.csv is empty; expected the columns layer, tokens, time_us"),
        ({"profile_dense": "layer,time_us\n"}, "has the columns layer, tokens, time_us, found layer, time_us"),
        ({"profile_dense": "layer,tokens,time_us\nqkv_proj,1\n"}, "line 2: expected layer, tokens, time_us"),
        ({"profile_dense": "layer,tokens,time_us\nqkv_proj,1,fast\n"}, "line 2: expected"),
        ({"profile_dense": "layer,tokens,time_us\nqkv_proj,1,-2\n"}, "line 2: expected"),
        ({"profile_dense": "layer,tokens,time_us\nqkv_prj,1,2\n"}, "unknown layer `qkv_prj`; did you mean `qkv_proj`"),
        ({"profile_dense": "layer,tokens,time_us\nqkv_proj,1,2\n"}, "has no rows of layernorm, rotary_emb"),
        ({"profile_per_sequence": "layer,sequences,time_us\nlm_head,1,2\n"}, "has no rows of sampler"),
        (
            {"profile_attention": "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n10,0,0,0,5\n"},
            "two chunks alone and of two batches alone at least, found 1 and 0",
        ),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        layer_cost(tables(tmp_path, **changes), layers=LAYERS)


@pytest.mark.shared
@pytest.mark.parametrize(("gpu", "factor"), [("RTX4090", 1.42), ("RTXPRO6000", 1.22)])
def test_measured_tables_are_read(shared_data: Path, gpu: str, factor: float) -> None:
    cost = layer_cost(shared_data / "sim" / "llmservingsim" / gpu, layers=32)
    assert cost.mixed_factor == pytest.approx(factor, abs=0.01)
    assert cost.prefill(512, 512**2) < cost.prefill(1024, 1024**2) < cost.prefill(1024, 1024 * (1024 + 2 * 4096))
    assert cost.decode(8, 8 * 512) < cost.decode(64, 64 * 512) < cost.decode(64, 64 * 4096)
