"""Models, GPUs and where their times come from: shapes, data sheets, estimates, aiconfigurator, sweeps."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helix.errors import OptionError
from helix.executor.engines.sim.address import engine_at
from helix.simulation.aiconfigurator import aiconfigurator_cost, aiconfigurator_sweep
from helix.simulation.capacity import kv_bytes_per_token, kv_tokens
from helix.simulation.cost import LinearCost
from helix.simulation.estimate import SHARES, estimated_cost
from helix.simulation.gpus import GIB, GPUS, gpu_of, gpus_of
from helix.simulation.linear import linear_of
from helix.simulation.providers import cost_model, cost_note
from helix.simulation.shapes import MODELS, model_shape, plain_name, read_shape, shape_of
from helix.simulation.sweep import Sweep, fit_errors, read_server, sweep_json
from helix.simulation.table import DecodePoint, PrefillPoint, TableCost, calibrated_cost

# Totals that the models' makers publish.
PARAMETERS = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "mistral-7b": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x7b": 46_702_792_704,
    "phi-4": 14_659_507_200,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
}


def test_shapes_have_the_parameters_that_their_makers_count() -> None:
    assert {name: MODELS[name].parameters for name in PARAMETERS} == PARAMETERS
    # Of the mixtures a token passes through a part.
    assert MODELS["qwen3-30b-a3b"].active == pytest.approx(3.3e9, rel=0.03)
    assert MODELS["mixtral-8x7b"].active == pytest.approx(12.9e9, rel=0.01)
    assert MODELS["deepseek-v3"].active == pytest.approx(37e9, rel=0.02)


def test_bytes_of_a_token_by_hand() -> None:
    assert kv_bytes_per_token(MODELS["qwen3-8b"]) == 2 * 36 * 8 * 128 * 2
    assert kv_bytes_per_token(MODELS["deepseek-v3"]) == 61 * (512 + 64) * 2
    assert kv_bytes_per_token(MODELS["llama-3.1-70b"], tp=4) == 2 * 80 * 2 * 128 * 2
    # Latent attention is on every GPU whole.
    assert kv_bytes_per_token(MODELS["deepseek-v3"], tp=8) == kv_bytes_per_token(MODELS["deepseek-v3"])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        (" LLAMA-3.3-70B-instruct ", "llama-3.3-70b"),
    ],
)
def test_names_as_people_write_them(name: str, found: str) -> None:
    assert plain_name(name) == found
    assert model_shape(name).name == found


def test_a_quantized_name_says_how_large_its_weights_are() -> None:
    eight, four = model_shape("Qwen/Qwen3-8B-FP8"), model_shape("qwen2.5-72b-instruct-awq")
    assert (eight.dtype_bytes, four.dtype_bytes) == (1.0, 0.5)
    assert eight.weight_bytes == MODELS["qwen3-8b"].parameters
    card = gpu_of("h100").memory
    assert kv_tokens(eight, card) > kv_tokens(MODELS["qwen3-8b"], card)
    with pytest.raises(OptionError, match=r"qwen2.5-72b leaves no room .* 135.4 GiB of weights on 80 GiB; spread it"):
        kv_tokens(MODELS["qwen2.5-72b"], card)
    assert kv_tokens(MODELS["qwen2.5-72b"], card, tp=4) > 300_000


CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}


def test_a_configuration_file_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for path in (folder, folder / "config.json"):
        made = read_shape(path)
        assert made.name == "my-model"
        assert made.parameters == PARAMETERS["qwen2.5-7b"]
    assert model_shape(str(folder)) == read_shape(folder)
    vision = {"model_type": "vl", "text_config": CONFIG}
    assert shape_of(vision, "v").parameters == PARAMETERS["qwen2.5-7b"]
    assert shape_of({**CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4}}, "q").dtype_bytes == 0.5
    assert shape_of({**CONFIG, "torch_dtype": "float32"}, "f").dtype_bytes == 4.0
    engine = engine_at(f"h100/{folder}")
    assert engine.settings.max_context == 32768
    assert engine.cost.name == "estimate:h100/my-model"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is not JSON"),
        ("[]", "is not an object"),
        ("{}", "does not say hidden_size"),
        (json.dumps({**CONFIG, "hidden_size": "wide"}), "hidden_size is a number of 0 or more, found 'wide'"),
        (json.dumps({**CONFIG, "num_hidden_layers": 0}), "are above 0"),
        (json.dumps({**CONFIG, "kv_lora_rank": 512}), "does not say qk_nope_head_dim"),
    ],
)
def test_a_configuration_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match=message):
        model_shape(str(tmp_path))


def test_what_is_not_known_is_said_with_a_near_match() -> None:
    with pytest.raises(OptionError, match=r"cannot read the model's configuration .*absent"):
        model_shape("./absent")
    with pytest.raises(OptionError, match=r"did you mean `qwen3-8b`\?.*by the path of their config.json"):
        model_shape("qwen-3-8b")
    with pytest.raises(OptionError, match=r"did you mean `h100-nvl`"):
        gpu_of("h100nvl")
    with pytest.raises(OptionError, match=r"at least one GPU, found `h100x0`"):
        gpus_of("h100x0")


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [("h100", "h100", 1), ("H100_SXM", "h100", 1), ("a100-80gb", "a100", 1), ("rtx4090", "rtx-4090", 1),
     ("rtx-4090x4", "rtx-4090", 4), ("mi300x", "mi300x", 1), ("h200x16", "h200", 16)],
)  # fmt: skip
def test_gpus_and_how_many(text: str, name: str, count: int) -> None:
    gpu, ranks = gpus_of(text)
    assert (gpu.name, ranks) == (name, count)


# --- estimates ----------------------------------------------------------------------------------------------------


def test_an_estimate_by_hand() -> None:
    gpu, shape = gpu_of("h100"), MODELS["llama-3.1-8b"]
    resident = shape.parameters - 128_256 * 4096
    cost = estimated_cost(gpu, shape)
    assert cost.d == pytest.approx(2 * resident / 3350e9 * 1000 / 0.66)
    assert cost.b == pytest.approx(2 * resident / 989e12 * 1000 / 0.83)
    assert cost.f == pytest.approx(131_072 / 3350e9 * 1000 / 0.81)
    assert cost.name == "estimate:h100/llama-3.1-8b"
    four = estimated_cost(gpu, shape, tp=4)
    # A quarter of the weights, and 47 us for each of 32 layers.
    assert four.d == pytest.approx(cost.d / 4 + 32 * 0.047)
    assert four.name == "estimate:h100x4/llama-3.1-8b"
    # A mixture computes a part of what it holds, and reads all of it for many requests at once.
    mixture = estimated_cost(gpu, MODELS["qwen3-30b-a3b"])
    whole = 2 * (MODELS["qwen3-30b-a3b"].parameters - 151_936 * 2048) / 3350e9 * 1000 / 0.66
    assert mixture.b < cost.b / 2
    assert mixture.d < cost.d
    assert mixture.decode(192, 0) == pytest.approx(whole, rel=0.05)
    note = cost_note(cost)
    assert note is not None
    assert "estimated from data sheets" in note


def test_larger_models_and_slower_gpus_take_longer() -> None:
    times = [estimated_cost(GPUS["h100"], MODELS[f"qwen3-{size}b"]).decode(64, 64 * 1000) for size in (4, 8, 14, 32)]
    assert times == sorted(times)
    times = [
        estimated_cost(GPUS[gpu], MODELS["qwen3-8b"]).prefill(2048, 2048**2) for gpu in ("b200", "h100", "a100", "l4")
    ]
    assert times == sorted(times)


def held_out(rows: list[dict[str, str]], gpu: str) -> dict[str, list[float]]:
    """The errors on a GPU of shares that come from the two others' published fits."""
    shape = MODELS["llama-3.1-8b"]
    peak = estimated_cost(gpu_of(gpu), shape, shares=(1.0,) * 6)
    others = [name for name in ("a100", "h100", "h200") if name != gpu]
    shares = []
    for letter in "abcdef":
        product = 1.0
        for name in others:
            fit = getattr(cost_model("linear", gpu_of(name), shape), letter)
            ideal = getattr(estimated_cost(gpu_of(name), shape, shares=(1.0,) * 6), letter)
            product *= fit / ideal if letter == "e" else ideal / fit
        shares.append(product ** (1 / len(others)))
    cost = estimated_cost(gpu_of(gpu), shape, shares=tuple(shares))
    assert peak.d < cost.d
    errors: dict[str, list[float]] = {"prefill": [], "decode": []}
    for row in rows:
        if row["system"].startswith(gpu):
            size, batch, ms = int(row["context_or_isl"]), int(row["batch"]), float(row["ms"])
            made = cost.prefill(size, size**2) if row["phase"] == "prefill" else cost.decode(batch, batch * size)
            errors[row["phase"]].append(abs(made / ms - 1))
    return errors


@pytest.mark.shared
@pytest.mark.parametrize(
    ("gpu", "prefill", "decode"), [("h100", 0.07, 0.14), ("a100", 0.07, 0.18), ("h200", 0.07, 0.08)]
)
def test_an_estimate_of_a_gpu_that_was_held_out(gpu: str, prefill: float, decode: float, shared_data: Path) -> None:
    with (shared_data / "sim" / "aiconfigurator_llama31_8b_bf16_tp1.csv").open(encoding="utf-8", newline="") as file:
        errors = held_out(list(csv.DictReader(file)), gpu)
    assert sum(errors["prefill"]) / len(errors["prefill"]) <= prefill
    assert sum(errors["decode"]) / len(errors["decode"]) <= decode
    assert max(errors["prefill"]) <= 0.17
    assert max(errors["decode"]) <= 0.33


@pytest.mark.shared
def test_an_estimate_of_several_gpus_beside_measured_ones(shared_data: Path) -> None:
    errors = []
    with (shared_data / "sim" / "aiconfigurator_silicon_llama31_8b.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["system"] == "h100_sxm" and row["backend"] == "trtllm" and row["tp_size"] != "1":
                cost = estimated_cost(gpu_of("h100"), MODELS["llama-3.1-8b"], tp=int(row["tp_size"]))
                batch, prompt, reply = int(row["batch_size"]), int(row["isl"]), int(row["osl"])
                ms = cost.decode(batch, int(batch * (prompt + reply / 2)))
                ms += batch * cost.prefill(prompt, prompt**2) / reply
                errors.append(abs(ms / float(row["silicon_tpot_ms"]) - 1))
    assert len(errors) == 135
    assert sum(errors) / len(errors) <= 0.115
    assert max(errors) <= 0.49


def test_shares_are_those_of_the_published_fits() -> None:
    shape = MODELS["llama-3.1-8b"]
    for at, letter in enumerate("abcdef"):
        product = 1.0
        for name in ("a100", "h100", "h200"):
            fit = getattr(cost_model("linear", gpu_of(name), shape), letter)
            ideal = getattr(estimated_cost(gpu_of(name), shape, shares=(1.0,) * 6), letter)
            product *= fit / ideal if letter == "e" else ideal / fit
        assert product ** (1 / 3) == pytest.approx(SHARES[at], rel=0.01)


# --- which one is used --------------------------------------------------------------------------------------------


def test_the_published_fit_is_for_its_model_alone() -> None:
    llama, qwen = MODELS["llama-3.1-8b"], MODELS["qwen3-8b"]
    assert cost_model(None, gpu_of("h100"), llama).name == "linear:h100"
    assert cost_model(None, gpu_of("h100"), llama, tp=2).name == "estimate:h100x2/llama-3.1-8b"
    assert cost_model(None, gpu_of("l4"), llama).name == "estimate:l4/llama-3.1-8b"
    assert cost_model(None, gpu_of("h100"), qwen).name == "estimate:h100/qwen3-8b"
    assert cost_model(None, gpu_of("h100"), model_shape("llama-3.1-8b-fp8")).name.startswith("estimate:")
    with pytest.raises(
        OptionError, match=r"no published fit of qwen3-8b on h100; .*estimate.*aiconfigurator.*--calibrate"
    ):
        cost_model("linear", gpu_of("h100"), qwen)
    with pytest.raises(OptionError, match=r"no cost model `estimat`; did you mean `estimate`"):
        cost_model("estimat", gpu_of("h100"), qwen)


class Told:
    """Stands for aiconfigurator: answers by a linear model, and keeps what it was asked."""

    def __init__(self) -> None:
        self.cost = LinearCost(name="x", a=4.0, b=0.02, c=1e-6, d=6.0, e=0.01, f=4e-5)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, model: str, system: str, **options: Any) -> SimpleNamespace:
        self.asked.append({"model": model, "system": system, **options})
        if options["mode"] == "static_ctx":
            new = options["isl"] - options["prefix"]
            return SimpleNamespace(ttft=self.cost.prefill(new, new * (new + 2 * options["prefix"])), tpot=0.0)
        batch = options["batch_size"]
        return SimpleNamespace(ttft=0.0, tpot=self.cost.decode(batch, batch * options["isl"]))


def test_aiconfigurator_is_asked_for_single_passes() -> None:
    told = Told()
    cost = aiconfigurator_cost(gpu_of("h100"), MODELS["qwen3-8b"], tp=2, estimate=told)
    for name in "abcdef":
        assert getattr(cost, name) == pytest.approx(getattr(told.cost, name), rel=1e-6)
    assert cost.name == "aiconfigurator:h100x2/qwen3-8b"
    assert cost.fitted is not None
    assert {(each["model"], each["system"], each["backend_name"], each["tp_size"]) for each in told.asked} == {
        ("Qwen/Qwen3-8B", "h100_sxm", "sglang", 2)
    }
    named = Told()
    aiconfigurator_cost(gpu_of("h200"), MODELS["qwen3-8b"], named="me/my-qwen", estimate=named)
    assert named.asked[0]["model"] == "me/my-qwen"


def test_what_aiconfigurator_says_is_kept_in_a_file(tmp_path: Path) -> None:
    told: list[str] = []
    made = aiconfigurator_sweep(gpu_of("h200"), MODELS["qwen3-8b"], tp=2, estimate=Told(), tell=told.append)
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(sweep_json(made)), encoding="utf-8")
    assert calibrated_cost(path).prefill(1024, 1024**2) == pytest.approx(Told().cost.prefill(1024, 1024**2))
    model, server = read_server(path)
    assert (model, server["max_context"]) == ("qwen3-8b", 40_960)
    assert server["kv_tokens"] == kv_tokens(MODELS["qwen3-8b"], gpu_of("h200").memory, tp=2)
    assert len(told) == len(made.prefill) + len(made.decode) == 33


def test_what_aiconfigurator_does_not_know() -> None:
    def refuses(*args: Any, **options: Any) -> Any:
        raise RuntimeError("no database for that")

    with pytest.raises(
        OptionError, match="aiconfigurator does not know Qwen/Qwen3-8B on h100_sxm with 1 GPUs: no database"
    ):
        aiconfigurator_cost(gpu_of("h100"), MODELS["qwen3-8b"], estimate=refuses)
    with pytest.raises(OptionError, match="aiconfigurator knows no GPU `rtx-4090`"):
        aiconfigurator_cost(gpu_of("rtx-4090"), MODELS["qwen3-8b"], estimate=refuses)


# --- sweeps -------------------------------------------------------------------------------------------------------

COST = LinearCost(name="of a sweep", a=20.0, b=1.5, c=1e-4, d=30.0, e=4.0, f=0.002)


def sweep(**server: Any) -> Sweep:
    return Sweep(
        engine="SGLang on two cores",
        model="tiny",
        prefill=tuple(
            PrefillPoint(new=new, cached=cached, ms=COST.prefill(new, new * (new + 2 * cached)))
            for new in (32, 128, 512)
            for cached in (0, 256)
        ),
        decode=tuple(DecodePoint(batch=b, context=c, ms=COST.decode(b, b * c)) for b in (1, 4, 16) for c in (128, 512)),
        server={"kv_tokens": 16_384, "page": 1, "max_running": 16, "policy": "lpm", "chunk": 512, **server},
    )


def test_a_sweep_is_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(sweep_json(sweep())), encoding="utf-8")
    found = calibrated_cost(path)
    assert isinstance(found, LinearCost)
    for name in "abcdef":
        assert getattr(found, name) == pytest.approx(getattr(COST, name), rel=1e-6)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["fit"]["errors"]["prefill_most"] == pytest.approx(0, abs=1e-9)
    model, server = read_server(path)
    assert (model, server["kv_tokens"], server["policy"], server["chunk"]) == ("tiny", 16_384, "lpm", 512)


def test_how_far_a_fit_is_off() -> None:
    points = (PrefillPoint(new=100, ms=200.0), PrefillPoint(new=200, ms=300.0))
    flat = LinearCost(name="flat", a=250.0, b=0.0, c=0.0, d=10.0, e=0.0, f=0.0)
    errors = fit_errors(flat, points, (DecodePoint(batch=1, context=9, ms=8.0),))
    assert errors.prefill_most == 0.25
    assert errors.prefill_mean == pytest.approx((0.25 + 1 / 6) / 2)
    assert errors.decode_mean == errors.decode_most == 0.25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"server": {}}, "does not tell the size of its server's KV cache; give a GPU and a model"),
        ({"server": {"kv_tokens": 100, "page": 0}}, "server.page is 0"),
        ({"server": {"kv_tokens": 100, "policy": 3}}, "server.policy is 3"),
    ],
)
def test_a_sweep_that_tells_too_little_of_its_server(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    path.write_text(json.dumps({**sweep_json(sweep()), **change}), encoding="utf-8")
    with pytest.raises(OptionError, match=message):
        read_server(path)
    with pytest.raises(OptionError, match="cannot read the sweep"):
        read_server(tmp_path / "absent.json")


def test_the_linear_model_that_is_nearest() -> None:
    assert linear_of(COST) is COST
    table = TableCost(sweep().prefill, sweep().decode)
    assert linear_of(table) is table.linear

    class Doubled:
        """Some other model: twice as slow."""

        name = "doubled"

        def prefill(self, tokens: int, pairs: int) -> float:
            return 2 * COST.prefill(tokens, pairs)

        def decode(self, batch: int, context: int) -> float:
            return 2 * COST.decode(batch, context)

    made = linear_of(Doubled())  # type: ignore[arg-type]
    for name in "abcdef":
        assert getattr(made, name) == pytest.approx(2 * getattr(COST, name), rel=1e-6)


def test_an_address_takes_several_gpus_and_a_cost_model() -> None:
    engine = engine_at("h100x2/qwen3-8b?tp=2&cost=estimate")
    assert engine.cost.name == "estimate:h100x2/qwen3-8b"
    assert engine.settings.ranks == 2
    one = engine_at("h100/qwen3-8b")
    assert engine.settings.kv_tokens > 2 * one.settings.kv_tokens
    assert one.settings.kv_tokens == kv_tokens(MODELS["qwen3-8b"], gpu_of("h100").memory)
    assert 300_000 < one.settings.kv_tokens < 80 * GIB // kv_bytes_per_token(MODELS["qwen3-8b"])
    for wrong in ("0", "x", "-1"):
        with pytest.raises(OptionError, match=f"`tp` of a simulated engine is a number, found `{wrong}`"):
            engine_at(f"h100/qwen3-8b?tp={wrong}")
