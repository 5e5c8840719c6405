"""What is to be simulated, and the engines that stand for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from helix.errors import OptionError, name_help
from helix.executor.engines.sim import SimSettings
from helix.executor.engines.sim.address import settings_of, split_of
from helix.forecast.measures import Deployment
from helix.logical import Generate, LogicalPlan, every_node
from helix.optimizer.engine_time import EngineTime
from helix.simulation.capacity import kv_bytes_per_token, kv_tokens
from helix.simulation.cost import PUBLISHED, CostModel
from helix.simulation.gpus import Gpu, gpus_of
from helix.simulation.linear import linear_of
from helix.simulation.providers import SOURCES, TABLE, cost_model
from helix.simulation.shapes import ModelShape, model_shape
from helix.simulation.sweep import read_server
from helix.simulation.table import calibrated_cost

DEFAULT_GPU = "h100"
# What `helix serve` has a server do, and with it the simulated one.
ORDER = "lpm"
WHAT_IF_RANKS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for; see `helix.api.simulate`. `tell` hears how far a long simulation is."""

    rows: Any = None
    gpu: str | None = None
    ranks: int | None = None
    pd: str | None = None
    tp: int = 1
    model: str | None = None
    cost: str | None = None
    server: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "helix"
    output_tokens: int | Mapping[str, int] | None = None
    price: float | Mapping[str, float] | None = None
    currency: str = "USD"
    what_if_ranks: Sequence[int] = WHAT_IF_RANKS
    what_if_gpus: Sequence[str] | None = None
    what_if_pd: Sequence[str] = ()
    plain: bool = True
    rules: Iterable[str] | None = None
    without: Iterable[str] = ()
    set: Mapping[str, Any] | None = None
    input_format: str | None = None
    limit: int | None = None
    store: str | os.PathLike[str] | None = None
    seed: int = 0
    tell: Callable[[str], None] = lambda text: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An engine to simulate on."""

    gpu: str | None
    tp: int
    model: str
    cost: CostModel
    settings: SimSettings
    given: Mapping[str, Any]

    @property
    def deployment(self) -> Deployment:
        """As reports tell it."""
        return Deployment(
            gpu=self.gpu,
            ranks=self.settings.ranks,
            decode_ranks=self.settings.decode_ranks,
            tp=self.tp,
            model=self.model,
            kv_tokens=self.settings.kv_tokens,
            max_running=self.settings.max_running,
            cost=self.cost.name,
            policy=self.settings.policy,
            settings=dict(self.given),
        )

    @property
    def time(self) -> EngineTime:
        """The constants that bounds are computed with."""
        return time_of(self.cost, self.settings)


def time_of(cost: CostModel, settings: SimSettings) -> EngineTime:
    """The constants that bounds of a simulated engine are computed with."""
    line = linear_of(cost)
    # A pass that decodes beside a prefill takes what decoding takes, and not both.
    a = min(line.a, line.d + line.e) if settings.mixes else line.a
    # What is not cut goes into one pass, however long it is.
    chunk = settings.chunk or max(settings.max_prefill, settings.kv_tokens)
    return EngineTime(
        name=cost.name, a=a, b=line.b, c=line.c, d=line.d, e=line.e, f=line.f,
        batch=settings.max_running, capacity=settings.kv_tokens, chunk=chunk,
        workers=settings.ranks, decoders=settings.decode_ranks, mixes=settings.mixes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Ranks:
    """All ranks; where prefill and decoding are apart, `decode` of them only decode."""

    decode: int = 0
    all: int


def ranks_of(split: str) -> Ranks:
    """The ranks of a split such as `1:3`. Raises OptionError."""
    made, decode = split_of(split)
    return Ranks(all=made, decode=decode)


class Places:
    """The engines that a simulation asks for. Reads files and options once. Raises OptionError for what is wrong."""

    def __init__(self, wanted: Wanted, plan: LogicalPlan) -> None:
        if wanted.tp < 1:
            raise OptionError(f"tp is 1 or more, found {wanted.tp}")
        if wanted.ranks is not None and wanted.ranks < 1:
            raise OptionError(f"ranks is 1 or more, found {wanted.ranks}")
        self._wanted = wanted
        self._given = _server(wanted.server)
        self._measured: dict[str, Any] = {}
        self._shape: ModelShape | None = None
        self.notes: list[str] = []
        self.swept = _sweep_file(wanted.cost)
        named = models_of(plan)
        self._gpu: Gpu | None = None
        count = 1
        if wanted.gpu is not None or self.swept is None:
            self._gpu, count = gpus_of(wanted.gpu or DEFAULT_GPU)
            if count > 1 and wanted.ranks not in (None, count):
                raise OptionError(f"two numbers of ranks: {wanted.ranks} and, in `{wanted.gpu}`, {count}; give one")
        model = wanted.model or (named[0] if len(named) == 1 else None)
        if self._gpu is None:
            assert self.swept is not None
            told, self._measured = read_server(self.swept)
            self.model = model or told
        else:
            self.model, self._shape = _shape(model, named)
        asked = wanted.ranks or (count if count > 1 else None)
        self.ranks = Ranks(all=asked or self._measured.get("ranks", 1))
        if wanted.pd is not None:
            self.ranks = ranks_of(wanted.pd)
            if asked not in (None, self.ranks.all):
                raise OptionError(f"two numbers of ranks: {asked}, and {self.ranks.all} in pd {wanted.pd}; give one")
        if wanted.model is None and len(named) > 1:
            raise OptionError(
                f"the workflow names several models ({', '.join(named)}); --model says which is simulated"
            )
        if wanted.model is not None and len(named) > 1:
            self.notes.append(f"steps of {', '.join(named)} are all simulated as {self.model}")

    @property
    def gpu(self) -> str | None:
        """The GPU that was asked for; None where a measured engine is simulated."""
        return None if self._gpu is None else self._gpu.name

    def main(self) -> Place:
        """The engine that was asked for."""
        return self.at(None, self.ranks)

    def at(self, gpu: str | None, ranks: Ranks) -> Place:
        """Such an engine on another GPU (None: the one that was asked for), with so many ranks. Raises OptionError."""
        wanted = self._wanted
        card = self._gpu if gpu is None else gpus_of(gpu)[0]
        given: dict[str, Any] = {"policy": ORDER, **self._measured, **self._given, "seed": wanted.seed}
        given |= {"ranks": ranks.all, "decode_ranks": ranks.decode}
        if card is None:
            assert self.swept is not None
            assert wanted.cost is not None
            cost: CostModel = calibrated_cost(self.swept, table=wanted.cost.startswith(TABLE))
        else:
            assert self._shape is not None
            shape = self._shape
            cost = cost_model(wanted.cost, card, shape, tp=wanted.tp, named=wanted.model or self.model)
            if "kv_tokens" not in given:
                given["kv_tokens"] = kv_tokens(shape, card.memory, tp=wanted.tp, page=given.get("page", 1))
            given.setdefault("max_context", shape.max_context)
            given.setdefault("kv_bytes", kv_bytes_per_token(shape, tp=wanted.tp))
        return Place(
            gpu=None if card is None else card.name,
            tp=wanted.tp,
            model=self.model,
            cost=cost,
            settings=SimSettings(**given),
            given={name: value for name, value in self._given.items() if name != "seed"},
        )

    def cases(self) -> list[tuple[str | None, Ranks]]:
        """The GPUs and ranks that a what-if table is of, in its order."""
        wanted = self._wanted
        if any(each < 1 for each in wanted.what_if_ranks):
            raise OptionError(f"what-if ranks are 1 or more, found {min(wanted.what_if_ranks)}")
        others = [*(Ranks(all=each) for each in wanted.what_if_ranks), *map(ranks_of, wanted.what_if_pd)]
        ranks = sorted({*others, self.ranks}) if others else []
        if self._gpu is None:
            return [(None, each) for each in ranks]
        gpus = wanted.what_if_gpus
        if gpus is None:
            gpus = [] if self.swept is not None else sorted(PUBLISHED)
        elif self.swept is not None and any(gpus_of(gpu)[0] != self._gpu for gpu in gpus):
            raise OptionError(
                f"the sweep {self.swept} is of one engine; leave out --what-if-gpus, or take another --cost"
            )
        names = list(dict.fromkeys([self._gpu.name, *(gpus_of(gpu)[0].name for gpu in gpus)]))
        return [(name, each) for name in names for each in ranks]


def models_of(plan: LogicalPlan) -> list[str]:
    """The models that the llm steps name, in the order of the plan."""
    names = [node.model.name for node in every_node(plan.sink) if isinstance(node, Generate)]
    return list(dict.fromkeys(name for name in names if name is not None))


def _shape(model: str | None, named: Sequence[str]) -> tuple[str, ModelShape]:
    """The name and shape of the model that is simulated. Raises OptionError."""
    if model is None:
        what = "the workflow names none" if not named else f"the workflow names several ({', '.join(named)})"
        raise OptionError(f"which model shall be simulated? {what}; --model takes a name or the path of a config.json")
    shape = model_shape(model)
    return shape.name, shape


def _sweep_file(cost: str | None) -> str | None:
    """The file of a sweep, where the cost model is one."""
    if cost is None or cost in SOURCES:
        return None
    path = cost.removeprefix(TABLE)
    return path if os.path.isfile(path) or path.endswith(".json") else None


def _server(server: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the engine by name; texts are read as an address reads them. Raises OptionError."""
    for name in ("ranks", "seed", "reply_tokens", "step_tokens", "cost", "tp"):
        if name in server:
            raise OptionError(f"the setting `{name}` of the engine has an option of its own")
    if "pd" in server or "decode_ranks" in server:
        raise OptionError("the setting `pd` of the engine has an option of its own")
    known = [each.name for each in fields(SimSettings)]
    for name, value in server.items():
        if not isinstance(value, str) and name not in known:
            raise OptionError(f"no setting `{name}` of a simulated engine; {name_help(name, known, 'settings')}")
    texts = {name: value for name, value in server.items() if isinstance(value, str)}
    return {**server, **settings_of(texts)}


def with_lengths(settings: SimSettings, lengths: Mapping[str, float], base: int | None) -> SimSettings:
    """The settings with the mean lengths of replies by step, and `base` for all others."""
    rounded = {name: max(1, round(length)) for name, length in lengths.items()}
    return replace(settings, step_tokens=rounded, reply_tokens=base or settings.reply_tokens)
