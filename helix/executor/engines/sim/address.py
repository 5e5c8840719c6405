"""The address `sim:GPU[xRANKS]/MODEL[?SETTING=VALUE&...]`, such as `sim:h100x2/llama-3.1-8b?policy=lpm`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from urllib.parse import parse_qsl

from helix.errors import OptionError, name_help
from helix.executor.engines.sim.engine import SimEngine
from helix.executor.engines.sim.settings import SimSettings
from helix.simulation.capacity import gpu_memory, kv_tokens, model_shape
from helix.simulation.cost import CostModel, published_cost
from helix.simulation.table import calibrated_cost

FORM = "sim:GPU[xRANKS]/MODEL"
# A sweep file in place of the published fit.
COST = "cost"
# What an address cannot say.
_NOT_HERE = ("step_tokens", "ranks")
_KINDS = {each.name: str(each.type) for each in fields(SimSettings) if each.name not in _NOT_HERE}
_SWITCH = {"on": True, "off": False}


def engine_at(rest: str) -> SimEngine:
    """The engine of an address, without its `sim:`. Raises OptionError for what is none."""
    place, _, query = rest.partition("?")
    gpu, slash, model = place.partition("/")
    gpu, times, count = gpu.strip().lower().partition("x")
    if not slash or not gpu or not model or (times and not (count.isascii() and count.isdigit() and int(count) > 0)):
        raise OptionError(
            f"not an address of a simulated engine: `sim:{place}`; expected {FORM}, as in sim:h100x2/llama-3.1-8b"
        )
    shape = model_shape(model)
    options = dict(parse_qsl(query, keep_blank_values=True))
    sweep = options.pop(COST, None)
    cost: CostModel = published_cost(gpu) if sweep is None else calibrated_cost(sweep)
    given = {name: _value(name, text) for name, text in options.items()}
    given.setdefault("kv_tokens", kv_tokens(shape, gpu_memory(gpu), page=given.get("page", 1)))
    given.setdefault("max_context", shape.max_context)
    settings = SimSettings(**given, ranks=int(count or 1))
    return SimEngine(settings, cost, model=shape.name, name=f"sim:{place}")


def _value(name: str, text: str) -> Any:
    """The value of a setting. Raises OptionError."""
    kind = _KINDS.get(name)
    if kind is None:
        raise OptionError(f"no setting `{name}` of a simulated engine; {name_help(name, (*_KINDS, COST), 'settings')}")
    if kind == "bool":
        if text in _SWITCH:
            return _SWITCH[text]
        raise OptionError(f"the setting `{name}` of a simulated engine is on or off, found `{text}`")
    if kind == "str":
        return text
    if text == "none" and "None" in kind:
        return None
    try:
        return float(text) if kind == "float" else int(text)
    except ValueError:
        raise OptionError(f"the setting `{name}` of a simulated engine is a number, found `{text}`") from None
