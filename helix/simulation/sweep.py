"""Sweep files: measured passes of an engine, what the engine is, and how well the linear model fits them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from helix.errors import OptionError
from helix.simulation.cost import LinearCost
from helix.simulation.table import FORMAT, VERSION, DecodePoint, PrefillPoint, fit_linear

# What a file may say of the server, and what a simulated engine calls it.
SERVER = (
    "kv_tokens", "page", "max_running", "max_context", "ranks", "chunk", "max_prefill", "policy", "overlap",
    "mixed_chunk",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The passes of an engine. `engine` says whose, `model` which model it serves, `server` its settings by the names
    of `SimSettings`, as far as it tells them.
    """

    engine: str
    model: str
    prefill: tuple[PrefillPoint, ...]
    decode: tuple[DecodePoint, ...]
    server: Mapping[str, Any] = field(default_factory=dict)

    def fit(self) -> LinearCost:
        """The linear model of it. Raises OptionError for too few points."""
        return fit_linear(self.prefill, self.decode, name=f"calibrated:{self.engine}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitErrors:
    """How far a fit is from its points, as shares of them: the mean and the largest, without their signs."""

    prefill_mean: float
    prefill_most: float
    decode_mean: float
    decode_most: float


def fit_errors(cost: LinearCost, prefill: Sequence[PrefillPoint], decode: Sequence[DecodePoint]) -> FitErrors:
    """The errors of a fit on its points."""
    first = [abs(cost.prefill(p.new, p.new * (p.new + 2 * p.cached)) / p.ms - 1) for p in prefill]
    then = [abs(cost.decode(p.batch, p.batch * p.context) / p.ms - 1) for p in decode]
    return FitErrors(
        prefill_mean=sum(first) / len(first),
        prefill_most=max(first),
        decode_mean=sum(then) / len(then),
        decode_most=max(then),
    )


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """The sweep as a file holds it, with the fit and its errors for whoever reads it. Raises OptionError."""
    cost = sweep.fit()
    return {
        "format": FORMAT,
        "version": VERSION,
        "engine": sweep.engine,
        "model": sweep.model,
        "server": dict(sweep.server),
        "fit": {
            **{name: getattr(cost, name) for name in "abcdef"},
            "errors": asdict(fit_errors(cost, sweep.prefill, sweep.decode)),
        },
        "prefill": [asdict(point) for point in sweep.prefill],
        "decode": [asdict(point) for point in sweep.decode],
    }


def read_server(path: str | Path) -> tuple[str, dict[str, Any]]:
    """The model and the settings that a sweep file tells of its server. Raises OptionError where these are none."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"cannot read the sweep {path}: {error}") from None
    server = data.get("server") if isinstance(data, dict) else None
    if not isinstance(server, dict) or not isinstance(server.get("kv_tokens"), int):
        raise OptionError(
            f"the sweep {path} does not tell the size of its server's KV cache; give a GPU and a model for it"
        )
    wrong = [name for name, value in server.items() if name in SERVER and not _fits(name, value)]
    if wrong:
        raise OptionError(f"the sweep {path}: server.{wrong[0]} is {server[wrong[0]]!r}, which is none")
    known = {name: server[name] for name in SERVER if name in server}
    return str(data.get("model") or "simulated"), known


def _fits(name: str, value: Any) -> bool:
    if name in ("policy", "overlap"):
        return isinstance(value, str)
    if name == "mixed_chunk":
        return isinstance(value, bool)
    return (value is None and name == "chunk") or (isinstance(value, int) and not isinstance(value, bool) and value > 0)
