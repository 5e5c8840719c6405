"""The linear model that is nearest to any cost model: what bounds are computed with."""

from __future__ import annotations

from helix.simulation.cost import CostModel, LinearCost
from helix.simulation.table import DecodePoint, PrefillPoint, TableCost, fit_linear

_NEW = (64, 256, 1024, 4096)
_CACHED = (0, 2048)
_BATCHES = (1, 8, 64, 256)
_CONTEXTS = (256, 1024, 4096)


def linear_of(cost: CostModel) -> LinearCost:
    """The model itself where it is linear, the fit to the points of a table, else a fit to some of its passes."""
    if isinstance(cost, LinearCost):
        return cost
    if isinstance(cost, TableCost):
        return cost.linear
    prefill = [
        PrefillPoint(new=new, cached=cached, ms=max(1e-6, cost.prefill(new, new * (new + 2 * cached))))
        for new in _NEW
        for cached in _CACHED
    ]
    decode = [
        DecodePoint(batch=batch, context=context, ms=max(1e-6, cost.decode(batch, batch * context)))
        for batch in _BATCHES
        for context in _CONTEXTS
    ]
    return fit_linear(prefill, decode, name=cost.name)
