"""What is told of a simulated batch. Times are simulated seconds, unless they are said to be this machine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from helix.optimizer.bounds import Bounds

PlanName = Literal["optimized", "plain"]
PhaseName = Literal["warm-up", "middle", "drain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What is simulated: `ranks` data-parallel workers of `tp` GPUs each; where prefill and decoding are apart,
    `decode_ranks` of them only decode. `kv_tokens` is what each rank's KV cache holds, `cost` names the model of times,
    `settings` are those that were asked for, by name.
    """

    gpu: str | None
    ranks: int
    tp: int
    model: str
    kv_tokens: int
    max_running: int
    cost: str
    policy: str
    decode_ranks: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.ranks * self.tp

    @property
    def name(self) -> str:
        """As a person says it: `2 x h100, llama-3.1-8b`."""
        apart = f"pd {split_name(self.ranks, self.decode_ranks)}" if self.decode_ranks else ""
        if self.gpu is None:
            more = f" ({apart})" if apart else ""
            return f"{self.ranks} x the measured engine{more}, {self.model}" if self.ranks > 1 else self.model
        count = f"{self.gpus} x " if self.gpus > 1 else ""
        how = ", ".join(each for each in (f"tp {self.tp}" if self.tp > 1 else "", apart) if each)
        return f"{count}{self.gpu}{f' ({how})' if how else ''}, {self.model}"


def split_name(ranks: int, decode_ranks: int) -> str:
    """Ranks as tables have them: `4`, or `1:3` where one prefills and three decode."""
    return f"{ranks - decode_ranks}:{decode_ranks}" if decode_ranks else f"{ranks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """An llm step. `length` is the mean of its replies that was asked for and `source` where that is from: `given`,
    `profile` (earlier runs), `declared` (half of max_tokens), `assumed`, or `type`: a value of the step's type is
    drawn, and is as long as it is.
    """

    step: str
    calls: int
    merged: int
    prompt: int
    cached: int
    generated: int
    length: float | None
    source: str

    @property
    def hit_rate(self) -> float | None:
        """Cached prompt tokens over all prompt tokens."""
        return self.cached / self.prompt if self.prompt else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the run, with the calls that were admitted in it. `by` as in a run's report: `kv` where the caches were
    full to .8 in between, else the thirds of the time.
    """

    name: PhaseName
    by: Literal["kv", "time"]
    begins: float
    ends: float
    calls: int
    prompt: int
    cached: int

    @property
    def hit_rate(self) -> float | None:
        """Cached prompt tokens over all prompt tokens."""
        return self.cached / self.prompt if self.prompt else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """The time that a worker spent in passes of prefill (also such that decode beside) and of decoding."""

    rank: int
    prefill: float
    decode: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What went on in equal spans of `span` seconds. Shares of the time of each rank in passes, `locked` and
    `evictable` tokens of all caches together in the mean, the `prompt` tokens of the calls that were admitted and
    their hit rate (None: there were none).
    """

    span: float
    prefill: tuple[tuple[float, ...], ...]
    decode: tuple[tuple[float, ...], ...]
    locked: tuple[float, ...]
    evictable: tuple[float, ...]
    prompt: tuple[int, ...]
    hit_rate: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One plan, simulated on one deployment. `makespan` is from submit to the last output; planning on this machine is
    not in it and is told as `plan_seconds`.

    `prefilled` are tokens that passes of prefill computed, warm-ups and retracted requests included. `outside` are
    passes of sizes that the cost model was not fitted to. `digest` is the SHA-256 of all events: equal simulations have
    equal ones. `tools` are calls of tools, which are not made.
    """

    plan: PlanName
    policy: str
    deployment: Deployment
    makespan: float
    plan_seconds: float
    rows: int
    failed_rows: int
    calls: int
    merged: int
    tools: int
    warmups: int
    prompt: int
    cached: int
    prefilled: int
    generated: int
    passes: int
    outside: int
    retractions: int
    evicted: int
    peak_locked: float
    events: int
    digest: str
    steps: tuple[StepFigures, ...]
    phases: tuple[Phase, ...]
    ranks: tuple[RankFigures, ...]
    timeline: Timeline
    bounds: Bounds | None = None
    first_error: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def hit_rate(self) -> float | None:
        """Cached prompt tokens over all prompt tokens of the calls."""
        return self.cached / self.prompt if self.prompt else None

    @property
    def gpu_hours(self) -> float:
        """All GPUs for the whole makespan."""
        return self.makespan * self.deployment.gpus / 3600

    @property
    def over_bound(self) -> float | None:
        """The makespan over the lower bound."""
        bound = None if self.bounds is None else self.bounds.lower_bound
        return self.makespan / bound if bound else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The optimized plan on other GPUs: its trial, or why there is none."""

    gpu: str
    ranks: int
    gpus: int
    trial: Trial | None
    problem: str | None = None
    decode_ranks: int = 0

    @property
    def split(self) -> str:
        """Its ranks as tables have them."""
        return split_name(self.ranks, self.decode_ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """All of it. `prices` are for an hour of a GPU, by its name. `seconds` is what it took on this machine."""

    workflow: str
    table: str
    optimized: Trial
    plain: Trial | None
    cases: tuple[Case, ...]
    prices: Mapping[str, float] = field(default_factory=dict)
    currency: str = "USD"
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def money(self, trial: Trial) -> float | None:
        """What a trial costs; None without a price of its GPU."""
        price = self.prices.get(trial.deployment.gpu or "")
        return None if price is None else price * trial.gpu_hours

    def text(self, *, width: int | None = None) -> str:
        """The forecast for a terminal."""
        from helix.forecast.text import forecast_text

        return forecast_text(self, width=width)

    def to_json(self) -> dict[str, Any]:
        """The forecast as JSON values; the keys are described in docs/how-to/plan-capacity.md."""
        from helix.forecast.as_json import forecast_json

        return forecast_json(self)

    def to_html(self) -> str:
        """The forecast as a page of its own, with plots."""
        from helix.forecast.html import forecast_page

        return forecast_page(self)

    def _repr_html_(self) -> str:
        from helix.forecast.html import forecast_fragment

        return forecast_fragment(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from helix.notebook import bundle

        return bundle(self.text(), self._repr_html_(), include, exclude)

    def __str__(self) -> str:
        return self.text()
