"""The address `sim:GPU[xRANKS]/MODEL[?SETTING=VALUE&...]`, such as `sim:h100x2/llama-3.1-8b?policy=lpm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl

from helix.errors import OptionError, name_help
from helix.executor.engines.sim.engine import SimEngine
from helix.executor.engines.sim.settings import SimSettings
from helix.simulation.capacity import kv_bytes_per_token, kv_tokens
from helix.simulation.gpus import gpus_of
from helix.simulation.providers import cost_model
from helix.simulation.shapes import model_shape

FORM = "sim:GPU[xRANKS]/MODEL"
# What the cost model is, how many GPUs a rank is spread over, and how many ranks prefill and how many decode.
COST, TP, SPLIT = "cost", "tp", "pd"
# What an address cannot say, or says otherwise.
_NOT_HERE = ("step_tokens", "ranks", "decode_ranks")
# The page of vLLM.
_BLOCK = 16
_KINDS = {each.name: str(each.type) for each in fields(SimSettings) if each.name not in _NOT_HERE}
_SWITCH = {"on": True, "off": False}


def engine_at(rest: str) -> SimEngine:
    """The engine of an address, without its `sim:`. Raises OptionError for what is none."""
    place, _, query = rest.partition("?")
    gpus, slash, model = place.partition("/")
    if not slash or not gpus.strip() or not model:
        raise OptionError(
            f"not an address of a simulated engine: `sim:{place}`; expected {FORM}, as in sim:h100x2/llama-3.1-8b"
        )
    gpu, found = gpus_of(gpus)
    shape = model_shape(model)
    options = dict(parse_qsl(query, keep_blank_values=True))
    source = options.pop(COST, None)
    tp = _value(TP, options.pop(TP, "1"))
    split = options.pop(SPLIT, None)
    ranks, decode_ranks = found, 0
    if split is not None:
        ranks, decode_ranks = split_of(split)
        if gpus.strip().lower().endswith(f"x{found}") and found != ranks:
            raise OptionError(f"pd={split} are {ranks} ranks of a simulated engine; found {found} in its address")
    given = settings_of(options)
    if given.get("dialect") == "vllm":
        given.setdefault("page", _BLOCK)
    cost = cost_model(source, gpu, shape, tp=tp, named=model)
    if "kv_tokens" not in given:
        given["kv_tokens"] = kv_tokens(shape, gpu.memory, tp=tp, page=max(1, given.get("page", 1)))
    given.setdefault("kv_bytes", kv_bytes_per_token(shape, tp=tp))
    given.setdefault("max_context", shape.max_context)
    settings = SimSettings(**given, ranks=ranks, decode_ranks=decode_ranks)
    return SimEngine(settings, cost, model=shape.name, name=f"sim:{place}")


def split_of(text: str) -> tuple[int, int]:
    """All ranks of a split, as 1:3 is one, and those of them that decode. Raises OptionError."""
    first, _, second = text.partition(":")
    if not all(each.isascii() and each.isdigit() and int(each) > 0 for each in (first, second)):
        raise OptionError(
            f"pd says how many ranks of a simulated engine prefill and how many decode, as in 1:3; found `{text}`"
        )
    return int(first) + int(second), int(second)


def settings_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Settings by name, from their texts. Raises OptionError for a name or a value that is none."""
    return {name: _value(name, text) for name, text in options.items()}


def _value(name: str, text: str) -> Any:
    """The value of a setting. Raises OptionError."""
    kind = "int" if name == TP else _KINDS.get(name)
    if kind is None:
        known = name_help(name, (*_KINDS, COST, TP, SPLIT), "settings", most=60)
        raise OptionError(f"no setting `{name}` of a simulated engine; {known}")
    if kind == "bool":
        if text in _SWITCH:
            return _SWITCH[text]
        raise OptionError(f"the setting `{name}` of a simulated engine is on or off, found `{text}`")
    if kind == "str":
        return text
    if text == "none" and "None" in kind:
        return None
    try:
        number = float(text) if kind == "float" else int(text)
        if not isfinite(number) or (name == TP and number < 1):
            raise ValueError
        return number
    except (ValueError, OverflowError):
        raise OptionError(f"the setting `{name}` of a simulated engine is a number, found `{text}`") from None
