"""A cost model that reads between measured points, and one that is fitted to a sweep of a live engine."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.errors import OptionError
from helix.simulation.cost import LinearCost, Range, in_range
from helix.simulation.fit import fit_three

FORMAT = "helix-sweep"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPoint:
    """A pass that computed `new` tokens of one request behind `cached` ones."""

    new: int
    ms: float
    cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePoint:
    """A pass that generated a token for each of `batch` requests of `context` tokens each."""

    batch: int
    context: int
    ms: float


class TableCost:
    """Piecewise linear between measured points, and straight on beyond them.

    A prefill is looked up by its new tokens, and what other prompts than one uncached one would add or save in
    attention is put in with the slope of the fitted `c`. A pass of decoding is looked up by batch, then by the mean
    context. Raises OptionError where there are too few points.
    """

    def __init__(self, prefill: Iterable[PrefillPoint], decode: Iterable[DecodePoint], *, name: str = "table") -> None:
        points = sorted((point for point in prefill), key=lambda point: (point.new, point.cached))
        self._linear = fit_linear(points, tuple(decode := list(decode)), name=name)
        cold = {point.new: point.ms for point in points if not point.cached}
        if len(cold) < 2:
            raise OptionError(f"{name}: a table takes at least two prefills without cached tokens, found {len(cold)}")
        self._prefill = tuple(cold.items())
        grid: dict[int, dict[int, float]] = {}
        for each in sorted(decode, key=lambda point: (point.batch, point.context)):
            grid.setdefault(each.batch, {})[each.context] = each.ms
        self._decode = tuple((batch, tuple(row.items())) for batch, row in grid.items())
        self.name = name

    def prefill(self, tokens: int, pairs: int) -> float:
        return max(0.0, _between(self._prefill, tokens) + self._linear.c * (pairs - tokens * tokens))

    def decode(self, batch: int, context: int) -> float:
        mean = context / batch if batch else 0.0
        at = tuple((size, _between(row, mean)) for size, row in self._decode)
        return max(0.0, _between(at, batch))

    def mixed(self, tokens: int, pairs: int, batch: int, context: int) -> float:
        return self.decode(batch, context) + max(0.0, self.prefill(tokens, pairs) - self._linear.a)

    def knows_prefill(self, tokens: int, requests: int) -> bool:
        return self._linear.knows_prefill(tokens, requests)

    def knows_decode(self, batch: int, context: int) -> bool:
        return self._linear.fitted is not None and in_range(self._linear.fitted, batch, context)

    @property
    def pass_tokens(self) -> float | None:
        return self._linear.pass_tokens

    @property
    def linear(self) -> LinearCost:
        """The fit to the same points."""
        return self._linear


def fit_linear(prefill: Sequence[PrefillPoint], decode: Sequence[DecodePoint], *, name: str) -> LinearCost:
    """The linear model with the least sum of squared relative errors, no coefficient below zero.

    Raises OptionError for fewer than three points of either kind, or for times that are not above zero.
    """
    for kind, count in (("prefill", len(prefill)), ("decode", len(decode))):
        if count < 3:
            raise OptionError(f"{name}: at least three points of {kind} are needed, found {count}")
    least = min(*(point.ms for point in prefill), *(point.ms for point in decode))
    if not least > 0:
        raise OptionError(f"{name}: times are above 0 ms, found {least:g}")
    a, b, c = fit_three([((1.0, p.new, p.new * (p.new + 2.0 * p.cached)), p.ms) for p in prefill])
    d, e, f = fit_three([((1.0, p.batch, float(p.batch) * p.context), p.ms) for p in decode])
    fitted = Range(
        prefill=(min(p.new for p in prefill), max(p.new for p in prefill)),
        requests=1,
        batch=(min(p.batch for p in decode), max(p.batch for p in decode)),
        context=(min(p.context for p in decode), max(p.context for p in decode)),
    )
    return LinearCost(name=name, a=a, b=b, c=c, d=d, e=e, f=f, fitted=fitted)


def read_sweep(path: str | Path) -> tuple[list[PrefillPoint], list[DecodePoint]]:
    """The points of a sweep file.

    JSON: `{"format": "helix-sweep", "version": 1, "prefill": [{"new": 512, "cached": 0, "ms": 13.1}, ...],
    "decode": [{"batch": 8, "context": 1024, "ms": 7.0}, ...]}`; other keys say where it was measured. Raises
    OptionError for a file that is none.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read the sweep {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise OptionError(f"the sweep {path} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise OptionError(f'{path} is not a sweep: expected "format": "{FORMAT}" and "version": {VERSION}')
    prefill = [PrefillPoint(**_fields(each, path, "prefill", ("new", "cached", "ms"))) for each in _list(data, path, 0)]
    decode = [DecodePoint(**_fields(each, path, "decode", ("batch", "context", "ms"))) for each in _list(data, path, 1)]
    return prefill, decode


def calibrated_cost(path: str | Path, *, table: bool = False) -> LinearCost | TableCost:
    """The cost model of the engine that a sweep file was measured on: the linear fit, or with `table` the points
    themselves. Raises OptionError.
    """
    prefill, decode = read_sweep(path)
    name = f"calibrated:{path}"
    return TableCost(prefill, decode, name=name) if table else fit_linear(prefill, decode, name=name)


def _list(data: dict[str, Any], path: str | Path, which: int) -> list[Any]:
    name = ("prefill", "decode")[which]
    found = data.get(name)
    if not isinstance(found, list):
        raise OptionError(f"the sweep {path} has no list `{name}`")
    return found


def _fields(point: Any, path: str | Path, kind: str, names: tuple[str, ...]) -> dict[str, Any]:
    found = point if isinstance(point, dict) else {}
    made = {name: found[name] for name in names if name in found}
    missing = [name for name in names if name not in made and name != "cached"]
    wrong = [n for n, v in made.items() if isinstance(v, bool) or not isinstance(v, int if n != "ms" else int | float)]
    if missing or wrong or any(not value >= 0 for value in made.values()):
        raise OptionError(f"the sweep {path}: a point of {kind} has numbers {', '.join(names)}, found {point}")
    return made


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at a place on the straight lines through points, which are in order."""
    if len(points) == 1:
        return points[0][1]
    right = min(max(bisect_right(points, at, key=lambda point: point[0]), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
