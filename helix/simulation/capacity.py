"""How many tokens the KV cache of a GPU holds beside a model's weights."""

from __future__ import annotations

from dataclasses import dataclass

from helix.errors import OptionError, name_help

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What of a model decides its memory. `latent` and `rope` are the widths of multi-head latent attention (0: plain
    attention, of `kv_heads` heads of `head_dim`). `parameters` are all of them, `dtype_bytes` those of a weight.
    """

    name: str
    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    max_context: int
    latent: int = 0
    rope: int = 0
    dtype_bytes: int = 2


# From the models' published configurations.
MODELS = {
    "llama-3.1-8b": ModelShape(
        name="llama-3.1-8b", parameters=8_030_261_248, layers=32, kv_heads=8, head_dim=128, max_context=131_072
    ),
}
# Memory in bytes, as the driver shows it of the SXM parts of 80 and 141 GB.
GPUS = {"h100": 81_559 * MIB, "a100": 81_920 * MIB, "h200": 143_771 * MIB}
# SGLang's share of the memory for weights and KV cache, and what activations and graphs take of it.
FRACTION = 0.88
RESERVE = 2 * GIB


def kv_bytes_per_token(model: ModelShape, *, tp: int = 1, kv_dtype_bytes: int = 2) -> int:
    """Bytes of a token's keys and values on one GPU of `tp` (131,072 for Llama-3.1-8B on one)."""
    if model.latent:
        return model.layers * (model.latent + model.rope) * kv_dtype_bytes
    return 2 * model.layers * max(1, model.kv_heads // tp) * model.head_dim * kv_dtype_bytes


def kv_tokens(
    model: ModelShape,
    memory: int,
    *,
    tp: int = 1,
    kv_dtype_bytes: int = 2,
    page: int = 1,
    fraction: float = FRACTION,
    reserve: int = RESERVE,
) -> int:
    """Tokens that fit on a GPU of `memory` bytes, floored to pages: (fraction * memory - weights - reserve) / bytes.

    Raises OptionError where nothing is left.
    """
    weights = model.parameters * model.dtype_bytes // tp
    left = int(fraction * memory) - weights - reserve
    tokens = left // kv_bytes_per_token(model, tp=tp, kv_dtype_bytes=kv_dtype_bytes) // page * page
    if tokens <= 0:
        room = f"{memory / GIB:.0f} GiB"
        raise OptionError(f"{model.name} leaves no room for a KV cache: {weights / GIB:.1f} GiB of weights on {room}")
    return tokens


def model_shape(name: str) -> ModelShape:
    """The shape of a model by name. Raises OptionError."""
    found = MODELS.get(name.lower())
    if found is None:
        raise OptionError(f"no shape of model `{name}`; {name_help(name.lower(), MODELS, 'models')}")
    return found


def gpu_memory(name: str) -> int:
    """The bytes of a GPU by name. Raises OptionError."""
    found = GPUS.get(name.lower())
    if found is None:
        raise OptionError(f"unknown GPU `{name}`; {name_help(name.lower(), GPUS, 'GPUs')}")
    return found
