"""What of a model decides its memory and its work: layers, heads, weights; of common models by name, of others from
the `config.json` that lies beside their weights.

Parameters are counted from the configuration, as the models' published totals confirm (see the tests).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helix.errors import OptionError, name_help

CONFIG = "config.json"
# What stands in a name and changes no shape.
_DRESS = re.compile(r"-(instruct|chat|hf|base|it|bf16|v0\.\d|2407|2501|2507|1124)(?=-|$)")
_BITS = re.compile(r"[-_](fp8|w8a8|int8|8bit|awq|gptq|int4|4bit|w4a16|nvfp4)(?:-.*)?$")
_FOUR = ("awq", "gptq", "int4", "4bit", "w4a16", "nvfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Plain attention has `heads` of `head_dim`, of which `kv_heads` are kept; multi-head latent attention keeps
    `latent` + `rope` numbers a token instead. `parameters` are all of them; a token passes through `active` of these
    (0: all), and `embedding` are only looked up. `dtype_bytes` are those of a weight.
    """

    name: str
    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    max_context: int
    latent: int = 0
    rope: int = 0
    dtype_bytes: float = 2
    heads: int = 0
    hidden: int = 0
    active: int = 0
    embedding: int = 0

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights."""
        return round(self.parameters * self.dtype_bytes)


def read_shape(path: str | Path) -> ModelShape:
    """The shape in a Hugging Face `config.json`, or in the folder that holds one. Raises OptionError."""
    file, config = _read(path)
    return shape_of(config, file.parent.resolve().name or "model", where=str(file))


def _read(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """A configuration and its file. Raises OptionError."""
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read the model's configuration {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise OptionError(f"the model's configuration {file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise OptionError(f"the model's configuration {file} is not an object")
    return file, config


def _of_text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a model that also sees, the part that reads and writes text."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, Mapping) else config


def shape_of(config: Mapping[str, Any], name: str, *, where: str = "the configuration") -> ModelShape:
    """The shape that a configuration says. Raises OptionError where it lacks what a shape needs."""
    config = _of_text(config)

    def number(*keys: str, default: int | None = None) -> int:
        for key in keys:
            value = config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise OptionError(f"{where}: {key} is a number of 0 or more, found {value!r}")
            return value
        if default is None:
            raise OptionError(f"{where} does not say {' or '.join(keys)}, which the size of its KV cache follows from")
        return default

    hidden, layers, heads = number("hidden_size"), number("num_hidden_layers"), number("num_attention_heads")
    if not hidden or not layers or not heads:
        raise OptionError(f"{where}: hidden_size, num_hidden_layers and num_attention_heads are above 0")
    kv_heads = number("num_key_value_heads", default=heads) or heads
    head_dim = number("head_dim", default=hidden // heads) or hidden // heads
    latent, rope = number("kv_lora_rank", default=0), number("qk_rope_head_dim", default=0)
    vocabulary, inside = number("vocab_size"), number("intermediate_size", default=4 * hidden)
    experts = number("n_routed_experts", "num_experts", "num_local_experts", default=0)
    used = number("num_experts_per_tok", default=1)
    expert = 3 * hidden * number("moe_intermediate_size", default=inside)
    shared = number("n_shared_experts", default=0)
    kind = str(config.get("model_type") or "")
    if latent:
        nope, value = number("qk_nope_head_dim"), number("v_head_dim")
        squeezed = number("q_lora_rank", default=0)
        query = squeezed * (hidden + 1 + heads * (nope + rope)) if squeezed else hidden * heads * (nope + rope)
        attention = query + hidden * (latent + rope) + latent * (1 + heads * (nope + value)) + heads * value * hidden
    else:
        attention = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim
        attention += 2 * head_dim if kind.startswith("qwen3") else 0
        biased = kind in ("qwen2", "qwen2_moe") or config.get("attention_bias") is True
        attention += (heads + 2 * kv_heads) * head_dim if biased else 0
    dense = number("first_k_dense_replace", default=0) if experts else layers
    plain = layers * (attention + 2 * hidden) + dense * 3 * hidden * inside + hidden
    router = hidden * experts + (experts if kind == "deepseek_v3" else 0)
    sparse = layers - dense
    whole = plain + sparse * ((experts + shared) * expert + router)
    touched = plain + sparse * ((min(used, experts) + shared) * expert + router)
    table = vocabulary * hidden
    tied = config.get("tie_word_embeddings") is True
    return ModelShape(
        name=name,
        parameters=whole + table * (1 if tied else 2),
        layers=layers,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_context=number("max_position_embeddings", default=131_072),
        latent=latent,
        rope=rope if latent else 0,
        dtype_bytes=_weight_bytes(config),
        heads=heads,
        hidden=hidden,
        active=touched + table * (1 if tied else 2) if experts else 0,
        embedding=0 if tied else table,
    )


def _weight_bytes(config: Mapping[str, Any]) -> float:
    """The bytes of a weight, by its quantization or its type."""
    quantized = config.get("quantization_config")
    if isinstance(quantized, Mapping):
        bits = quantized.get("bits")
        method = str(quantized.get("quant_method") or "")
        if isinstance(bits, int) and not isinstance(bits, bool) and bits > 0:
            return bits / 8
        return 0.5 if method in ("awq", "gptq", "mxfp4", "nvfp4") else 1.0
    kind = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
    return 4.0 if kind == "float32" else 1.0 if "8" in kind else 2.0


def _llama(hidden: int, layers: int, heads: int, head_dim: int, inside: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": head_dim,
        "intermediate_size": inside,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        **more,
    }


def _qwen(kind: str, hidden: int, layers: int, heads: int, kv: int, inside: int, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {"model_type": kind, "num_key_value_heads": kv, "vocab_size": 151_936}
    own["max_position_embeddings"] = 40_960 if kind.startswith("qwen3") else 32_768
    return {**_llama(hidden, layers, heads, 128, inside), **own, **more}


_TIED = {"tie_word_embeddings": True}
_EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8}
_WIDE = {"vocab_size": 152_064}
_MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
# From the models' published configurations, those of their instruct versions where these differ.
_CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3-8b": _llama(4096, 32, 32, 128, 14336, max_position_embeddings=8192),
    "llama-3-70b": _llama(8192, 80, 64, 128, 28672, max_position_embeddings=8192),
    "llama-3.1-8b": _llama(4096, 32, 32, 128, 14336),
    "llama-3.1-70b": _llama(8192, 80, 64, 128, 28672),
    "llama-3.1-405b": _llama(16384, 126, 128, 128, 53248),
    "llama-3.2-1b": _llama(2048, 16, 32, 64, 8192, **_TIED),
    "llama-3.2-3b": _llama(3072, 28, 24, 128, 8192, **_TIED),
    "llama-3.3-70b": _llama(8192, 80, 64, 128, 28672),
    "qwen3-0.6b": _qwen("qwen3", 1024, 28, 16, 8, 3072, **_TIED),
    "qwen3-1.7b": _qwen("qwen3", 2048, 28, 16, 8, 6144, **_TIED),
    "qwen3-4b": _qwen("qwen3", 2560, 36, 32, 8, 9728, **_TIED),
    "qwen3-8b": _qwen("qwen3", 4096, 36, 32, 8, 12288),
    "qwen3-14b": _qwen("qwen3", 5120, 40, 40, 8, 17408),
    "qwen3-32b": _qwen("qwen3", 5120, 64, 64, 8, 25600),
    "qwen3-30b-a3b": _qwen("qwen3_moe", 2048, 48, 32, 4, 6144, moe_intermediate_size=768, **_EXPERTS),
    "qwen3-235b-a22b": _qwen("qwen3_moe", 4096, 94, 64, 4, 12288, moe_intermediate_size=1536, **_EXPERTS),
    "qwen2.5-0.5b": _qwen("qwen2", 896, 24, 14, 2, 4864, head_dim=64, **_TIED),
    "qwen2.5-1.5b": _qwen("qwen2", 1536, 28, 12, 2, 8960, **_TIED),
    "qwen2.5-3b": _qwen("qwen2", 2048, 36, 16, 2, 11008, **_TIED),
    "qwen2.5-7b": _qwen("qwen2", 3584, 28, 28, 4, 18944, **_WIDE),
    "qwen2.5-14b": _qwen("qwen2", 5120, 48, 40, 8, 13824, **_WIDE),
    "qwen2.5-32b": _qwen("qwen2", 5120, 64, 40, 8, 27648, **_WIDE),
    "qwen2.5-72b": _qwen("qwen2", 8192, 80, 64, 8, 29568, **_WIDE),
    "mistral-7b": _llama(4096, 32, 32, 128, 14336, vocab_size=32_768, max_position_embeddings=32_768),
    "mistral-nemo-12b": _llama(5120, 40, 32, 128, 14336, vocab_size=131_072),
    "mistral-small-24b": _llama(5120, 40, 32, 128, 32768, vocab_size=131_072, max_position_embeddings=32_768),
    "mixtral-8x7b": _llama(
        4096, 32, 32, 128, 14336, vocab_size=32_000, max_position_embeddings=32_768, num_local_experts=8,
        num_experts_per_tok=2,
    ),
    "phi-4": _llama(
        5120, 40, 40, 128, 17920, num_key_value_heads=10, vocab_size=100_352, max_position_embeddings=16_384
    ),
    "smollm2-135m": _llama(
        576, 30, 9, 64, 1536, num_key_value_heads=3, vocab_size=49_152, max_position_embeddings=8192, **_TIED
    ),
    "smollm2-360m": _llama(
        960, 32, 15, 64, 2560, num_key_value_heads=5, vocab_size=49_152, max_position_embeddings=8192, **_TIED
    ),
    "smollm2-1.7b": _llama(
        2048, 24, 32, 64, 8192, num_key_value_heads=32, vocab_size=49_152, max_position_embeddings=8192, **_TIED
    ),
    "deepseek-v2-lite": _llama(
        2048, 27, 16, 192, 10944, vocab_size=102_400, max_position_embeddings=163_840, moe_intermediate_size=1408,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, **_MLA,
    ),
    "deepseek-v3": _llama(
        7168, 61, 128, 192, 18432, vocab_size=129_280, max_position_embeddings=163_840, moe_intermediate_size=2048,
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, q_lora_rank=1536,
        model_type="deepseek_v3", quantization_config={"quant_method": "fp8"}, **_MLA,
    ),
}  # fmt: skip
_ALSO = {
    "deepseek-r1": "deepseek-v3",
    "mistral-nemo": "mistral-nemo-12b",
    "llama-3.1-8b-turbo": "llama-3.1-8b",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
}
# Types of models, as configurations name them, whose layers all attend.
_ATTEND = (
    "llama", "mistral", "mixtral", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3",
)  # fmt: skip
MODELS: dict[str, ModelShape] = {name: shape_of(config, name) for name, config in _CONFIGS.items()}


def plain_name(name: str) -> str:
    """The name of a model without its owner and what changes no shape: `meta-llama/Llama-3.1-8B-Instruct` is
    `llama-3.1-8b`.
    """
    short = name.strip().rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
    short = _DRESS.sub("", short)
    return _ALSO.get(short, short)


def keeps_no_state(name: str) -> bool:
    """Whether all layers of a model are known to attend, so that all it keeps of a prompt are keys and values by token;
    others carry a state along (Mamba, linear attention). By name, or by its folder or `config.json`.
    """
    if not Path(name).expanduser().exists():
        return _known(plain_name(name)) is not None
    try:
        config = _of_text(_read(name)[1])
    except OptionError:
        return False
    layers = config.get("layer_types") or []
    attends = isinstance(layers, list) and all(layer in ("full_attention", "sliding_attention") for layer in layers)
    return attends and config.get("model_type") in _ATTEND


def model_shape(name: str) -> ModelShape:
    """The shape of a model: by name, also as Hugging Face writes it (a suffix such as -FP8 or -AWQ tells the size of
    its weights), or of a `config.json` or the folder that holds one. Raises OptionError.
    """
    path = Path(name).expanduser()
    if name.endswith(".json") or path.is_dir() or name.startswith((".", "/", "~")):
        return read_shape(path)
    short = plain_name(name)
    found = _known(short)
    if found is None:
        help = name_help(short, MODELS, "models", most=40)
        raise OptionError(f"no shape of model `{name}`; {help}; others by the path of their {CONFIG}")
    return found


def _known(short: str) -> ModelShape | None:
    """The shape of a model by its plain name, with weights of the size that a suffix tells."""
    found = MODELS.get(short)
    bits = _BITS.search(short)
    if found is None and bits is not None:
        base = MODELS.get(plain_name(short[: bits.start()]))
        if base is not None:
            return replace(base, name=short, dtype_bytes=0.5 if bits[1] in _FOUR else 1.0)
    return found
