"""How many tokens the KV cache of a GPU holds beside a model's weights."""

from __future__ import annotations

from helix.errors import OptionError
from helix.simulation.gpus import GIB as GIB
from helix.simulation.gpus import MIB as MIB
from helix.simulation.gpus import gpu_of
from helix.simulation.shapes import ModelShape as ModelShape
from helix.simulation.shapes import model_shape as model_shape

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
    """Tokens that fit on `tp` GPUs of `memory` bytes each, floored to pages:
    (fraction * memory - weights / tp - reserve) / bytes of a token on one of them.

    Raises OptionError where nothing is left.
    """
    weights = model.weight_bytes // tp
    left = int(fraction * memory) - weights - reserve
    tokens = left // kv_bytes_per_token(model, tp=tp, kv_dtype_bytes=kv_dtype_bytes) // page * page
    if tokens <= 0:
        room = f"{memory / GIB:.0f} GiB"
        each = f" on each of {tp} GPUs" if tp > 1 else ""
        raise OptionError(
            f"{model.name} leaves no room for a KV cache: {weights / GIB:.1f} GiB of weights{each} on {room}; "
            "spread it over more GPUs (tp), or take a quantized one"
        )
    return tokens


def gpu_memory(name: str) -> int:
    """The bytes of a GPU by name. Raises OptionError."""
    return gpu_of(name).memory
