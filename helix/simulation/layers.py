"""A cost model from measured layers: the time of a pass is that of its layers, one after the other.

The tables are those of LLMServingSim's profiles of vLLM (casys-kaist/LLMServingSim): `profile_dense.csv`
(layer,tokens,time_us), `profile_per_sequence.csv` (layer,sequences,time_us) and `profile_attention.csv`
(prefill_chunk,kv_prefill,n_decode,kv_decode,time_us), times in microseconds of one layer of a transformer.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

from helix.errors import OptionError, name_help

# How often a layer stands in a block of a transformer; those with 0 stand once in a whole pass.
DENSE = {
    "layernorm": 2,
    "qkv_proj": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
    "embedding": 0,
    "final_layernorm": 0,
}
HEAD = ("lm_head", "sampler")
_FILES = {
    "profile_dense.csv": ("layer", "tokens", "time_us"),
    "profile_per_sequence.csv": ("layer", "sequences", "time_us"),
    "profile_attention.csv": ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"),
}


class Curve:
    """Straight lines between points (x, y) in order of x; beyond them straight on, but never below 0."""

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        made = dict(sorted(points))
        self.x = tuple(made)
        self.y = tuple(made.values())

    def __call__(self, at: float) -> float:
        x, y = self.x, self.y
        if len(x) == 1:
            return y[0]
        right = min(max(bisect_right(x, at), 1), len(x) - 1)
        x0, y0 = x[right - 1], y[right - 1]
        return max(0.0, y0 + (y[right] - y0) * (at - x0) / (x[right] - x0))


class Grid:
    """Straight lines between rows of curves: `points` are ((x, y), value)."""

    def __init__(self, points: Iterable[tuple[tuple[float, float], float]]) -> None:
        rows: dict[float, list[tuple[float, float]]] = {}
        for (x, y), value in points:
            rows.setdefault(x, []).append((y, value))
        self.x = tuple(sorted(rows))
        self._rows = tuple(Curve(rows[x]) for x in self.x)

    def __call__(self, x: float, y: float) -> float:
        if len(self.x) == 1:
            return self._rows[0](y)
        right = min(max(bisect_right(self.x, x), 1), len(self.x) - 1)
        x0, x1 = self.x[right - 1], self.x[right]
        low, high = self._rows[right - 1](y), self._rows[right](y)
        return max(0.0, low + (high - low) * (x - x0) / (x1 - x0))

    @property
    def most(self) -> float:
        """The largest y of all rows."""
        return max(row.x[-1] for row in self._rows)


class LayerCost:
    """The sum of `layers` blocks and what stands around them, in milliseconds.

    `dense` are layers that work on each token, `head` those on each sequence, `prefill` the attention of a chunk behind
    cached tokens, `decode` that of a batch with so many tokens of context each. Where a pass does both, their sum is
    multiplied by `mixed_factor`. Several prompts in a pass count in attention as one with as many pairs of tokens.
    """

    def __init__(
        self,
        *,
        name: str,
        layers: int,
        dense: Mapping[str, Curve],
        head: Mapping[str, Curve],
        prefill: Grid,
        decode: Grid,
        mixed_factor: float = 1.0,
    ) -> None:
        self.name = name
        self.mixed_factor = mixed_factor
        self._layers = layers
        self._prefill = prefill
        self._decode = decode
        sizes = sorted({x for curve in dense.values() for x in curve.x})
        self._dense = Curve(
            (x, sum(curve(x) * (DENSE[layer] * layers or 1) for layer, curve in dense.items())) for x in sizes
        )
        counts = sorted({x for curve in head.values() for x in curve.x})
        self._head = Curve((x, sum(curve(x) for curve in head.values())) for x in counts)

    def prefill(self, tokens: int, pairs: int) -> float:
        return (self._dense(tokens) + self._head(1) + self._layers * self._chunk(tokens, pairs)) / 1000

    def decode(self, batch: int, context: int) -> float:
        attention = self._decode(batch, context / batch if batch else 0.0)
        return (self._dense(batch) + self._head(batch) + self._layers * attention) / 1000

    def mixed(self, tokens: int, pairs: int, batch: int, context: int) -> float:
        attention = self._chunk(tokens, pairs) + self._decode(batch, context / batch if batch else 0.0)
        around = self._dense(tokens + batch) + self._head(batch + 1)
        return (around + self._layers * attention * self.mixed_factor) / 1000

    def _chunk(self, tokens: int, pairs: int) -> float:
        """Attention of new tokens; `pairs` = n * (n + 2 * p) tells how many stand before them."""
        before = (pairs / tokens - tokens) / 2 if tokens else 0.0
        if before >= 0:
            return self._prefill(tokens, before)
        # Several prompts look at fewer tokens than one of their length would.
        return self._prefill(tokens, 0) * pairs / tokens**2

    def knows_prefill(self, tokens: int, requests: int) -> bool:
        return self._prefill.x[0] <= tokens <= self._prefill.x[-1] and requests <= 1

    def knows_decode(self, batch: int, context: int) -> bool:
        mean = context / batch if batch else 0.0
        return self._decode.x[0] <= batch <= self._decode.x[-1] and mean <= self._decode.most

    @property
    def pass_tokens(self) -> float | None:
        most = self._dense.x[-1]
        one, all_ = self._dense(1), self._dense(most)
        return one * (most - 1) / (all_ - one) if all_ > one else None


def layer_cost(folder: str | Path, *, layers: int, name: str | None = None) -> LayerCost:
    """The cost model of the layer tables in a folder, for a model of so many layers. Raises OptionError.

    The factor of passes that prefill and decode is the median, over the rows of the attention table that do both and
    whose parts are in it alone, of their time by the sum of the parts.
    """
    tables = {file: _rows(Path(folder) / file, columns) for file, columns in _FILES.items()}
    dense = _curves(tables["profile_dense.csv"], folder, "profile_dense.csv", tuple(DENSE))
    head = _curves(tables["profile_per_sequence.csv"], folder, "profile_per_sequence.csv", HEAD)
    attention: dict[tuple[float, ...], float] = {
        tuple(map(float, row[:4])): float(row[4]) for row in tables["profile_attention.csv"]
    }
    prefill = Grid(((chunk, kv), time) for (chunk, kv, batch, _), time in attention.items() if not batch)
    decode = Grid(((batch, kv), time) for (chunk, _, batch, kv), time in attention.items() if not chunk and batch)
    if len(prefill.x) < 2 or len(decode.x) < 2:
        raise OptionError(
            f"the layer tables in {folder}: profile_attention.csv has rows of two chunks alone and of two batches "
            f"alone at least, found {len(prefill.x)} and {len(decode.x)}"
        )
    ratios = [
        time / (attention[chunk, before, 0, 0] + attention[0, 0, batch, kv])
        for (chunk, before, batch, kv), time in attention.items()
        if chunk and batch and (chunk, before, 0, 0) in attention and (0, 0, batch, kv) in attention
    ]
    return LayerCost(
        name=name or f"layers:{folder}",
        layers=layers,
        dense=dense,
        head=head,
        prefill=prefill,
        decode=decode,
        mixed_factor=median(ratios) if ratios else 1.0,
    )


def _rows(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """The rows of a table. Raises OptionError where it is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
    except OSError as error:
        raise OptionError(f"cannot read the layer table {path}: {error.strerror or error}") from None
    except ValueError:
        raise OptionError(f"the layer table {path} is empty; expected the columns {', '.join(columns)}") from None
    if tuple(header) != columns:
        raise OptionError(f"the layer table {path} has the columns {', '.join(columns)}, found {', '.join(header)}")
    for number, row in enumerate(rows, 2):
        if len(row) != len(columns) or not all(map(_is_number, row[columns[0] == "layer" :])):
            raise OptionError(f"the layer table {path}, line {number}: expected {', '.join(columns)}, found {row}")
    return rows


def _curves(rows: list[list[str]], folder: str | Path, file: str, layers: tuple[str, ...]) -> dict[str, Curve]:
    """A curve for each layer. Raises OptionError where one is missing or none of them."""
    points: dict[str, list[tuple[float, float]]] = {}
    for layer, size, time in rows:
        points.setdefault(layer, []).append((float(size), float(time)))
    for layer in points:
        if layer not in layers:
            raise OptionError(f"{file} in {folder}: unknown layer `{layer}`; {name_help(layer, layers, 'layers')}")
    missing = [layer for layer in layers if layer not in points]
    if missing:
        raise OptionError(f"{file} in {folder} has no rows of {', '.join(missing)}")
    return {layer: Curve(points[layer]) for layer in layers}


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
