"""What is told of a run. Seconds are those of the wall clock, unless a model of an engine's time is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from helix.optimizer.bounds import Bounds
from helix.optimizer.cost import Prices
from helix.report.detail import Detail

Basis = Literal["counted", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFigures:
    """Tokens of some calls, as the engine tells them.

    `untold` are the replies that do not tell how much of their prompt was cached: then `cached`, `prefilled` and the
    hit rate are not known, and are None.
    """

    prompt: int = 0
    cached: int | None = 0
    prefilled: int | None = 0
    generated: int = 0
    untold: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Cached prompt tokens over all prompt tokens."""
        return self.cached / self.prompt if self.cached is not None and self.prompt else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFigures:
    """How long a step's replies were thought to be and are, in tokens: means, where the thought is from, and the error
    (actual - predicted) / predicted. The actual length is None where no reply tells it.
    """

    predicted: float
    source: str
    actual: float | None
    p90: float | None

    @property
    def error(self) -> float | None:
        """How far the replies are off, as a share of what was predicted."""
        return None if self.actual is None or not self.predicted else (self.actual - self.predicted) / self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFigures:
    """What the agents of a step did: `turns` are replies of the model, `tool_calls` what they asked for, of which
    `tool_errors` gave no result; `tool_seconds` went by in calls that were made. `at_limit` is how often a limit made
    one answer or fail. Turns and calls that were merged or fetched count too.
    """

    turns: int
    tool_calls: int
    tool_errors: int
    at_limit: int
    tool_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """A step. `calls` were made, `seconds` is the time of its calls added up, `queued` that in the engine's queue."""

    step: str
    kind: Literal["llm", "tool"]
    calls: int
    failed: int
    merged: int
    fetched: int
    tokens: TokenFigures
    seconds: float
    held: float
    queued: float | None
    length: LengthFigures | None = None
    agent: AgentFigures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the run: the llm calls that began in it. Times are in seconds since the first of all began.

    `by` says where the middle begins and ends: `kv`, the first and the last time that nothing but a fifth of the KV
    cache could be evicted, or `time`, the thirds of the run.
    """

    name: Literal["warm-up", "middle", "drain"]
    by: Literal["kv", "time"]
    begins: float
    ends: float
    calls: int
    tokens: TokenFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """What one worker did. `busy` is the time in which it had at least one call."""

    rank: int
    calls: int
    tokens: TokenFigures
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where the time went. Shares are between 0 and 1; None where nothing tells.

    `prefill` is the part of the engine's work that goes to prompts, the rest to replies; `prefill_basis` says how that
    is known. `held` is the part of the llm calls' time, from when they could be made to their reply, that they waited
    in Helix, `queued` that they waited in the engine. `tools` is the part of the makespan in which a tool ran,
    `exposed_tools` that in which one ran and no llm call did.
    """

    prefill: float | None
    prefill_basis: str
    held: float | None
    queued: float | None
    tools: float
    exposed_tools: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """Prefilled tokens, those of warm-ups among them, against those on distinct prefixes: `p_min`.

    Both are of the first `calls` of `all_calls` that were answered. `exact`: by the tokens of the engine's tokenizer,
    else by bytes scaled to tokens. `prefilled` is None where the engine does not tell.
    """

    p_min: float
    prefilled: int | None
    calls: int
    all_calls: int
    exact: bool
    tokenizer: str

    @property
    def amplification(self) -> float | None:
        """How often a distinct token was prefilled in the mean: 1 is the least."""
        return None if self.prefilled is None or not self.p_min else self.prefilled / self.p_min


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """What the batch costs if every step is called for every row, as it is written, on an engine without a cache.

    `calls` and tokens are those made, and those that were merged or fetched with the tokens of the equal call (of the
    step's mean where that is not in this run). `by_rules` is the factor that the rules took off the calls by an
    estimate: the plain plan's over the optimized one's. It is not in the counted figures.
    """

    calls: int
    tool_calls: int
    prompt_tokens: int
    generated_tokens: int
    basis: Basis
    by_rules: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigures:
    """What the tokens of a run cost, and what those cost that the same calls take without Helix, none cached.

    `cached_told`: the engine tells what was cached, else every prompt token has its full price. `prices` in words.
    """

    money: float
    without: float
    currency: str
    cached_told: bool
    prices: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasures:
    """All of it. `plan_seconds` went by before the first call; `bounds` are what no schedule could have beaten.

    `detail` is what a page draws and shows besides, `cost` what it cost where prices are given (`priced`).
    """

    workflow: str
    engine: str
    policy: str
    outcome: str
    stopped: str | None
    rows: int
    output_rows: int
    failed_rows: int
    makespan: float
    plan_seconds: float
    llm_calls: int
    tool_calls: int
    failed_calls: int
    retries: int
    reasks: int
    merged: int
    fetched: int
    warmups: int
    warmup_tokens: int
    tokens: TokenFigures
    steps: tuple[StepFigures, ...]
    phases: tuple[Phase, ...]
    ranks: tuple[RankFigures, ...]
    shares: Shares
    prefixes: Prefixes | None
    bounds: Bounds | None
    without: Without
    notes: tuple[str, ...] = ()
    speculation: Mapping[str, Any] | None = None
    detail: Detail | None = None
    cost: CostFigures | None = None

    @property
    def prefilled(self) -> int | None:
        """The prompt tokens that were computed, those of warm-ups among them; None where the engine does not tell."""
        return None if self.tokens.prefilled is None else self.tokens.prefilled + self.warmup_tokens

    @property
    def over_bound(self) -> float | None:
        """The makespan over the lower bound."""
        bound = None if self.bounds is None else self.bounds.lower_bound
        return self.makespan / bound if bound else None

    def priced(self, prices: Prices) -> RunMeasures:
        """The measures with what the run cost. Warm-ups are paid like prompts."""
        cached = self.tokens.cached or 0
        reused = prices.prompt if prices.cached is None else prices.cached
        fresh = self.tokens.prompt - cached + self.warmup_tokens
        shown = f"prompt {prices.prompt:g}, reply {prices.output:g}"
        cost = CostFigures(
            money=(fresh * prices.prompt + cached * reused + self.tokens.generated * prices.output) / 1e6,
            without=(self.without.prompt_tokens * prices.prompt + self.without.generated_tokens * prices.output) / 1e6,
            currency=prices.currency,
            cached_told=self.tokens.cached is not None,
            prices=shown if prices.cached is None else f"{shown}, cached prompt {prices.cached:g}",
        )
        return replace(self, cost=cost)

    def to_html(self, compare: Mapping[str, Any] | None = None) -> str:
        """The measures as a page that needs nothing else. `compare` is the JSON of an earlier report (`to_json`)."""
        from helix.report.page import run_page

        return run_page(self, compare)

    def to_json(self) -> dict[str, Any]:
        """The measures as JSON values; the keys are described in docs/reference/report.md."""
        from helix.report.as_json import measures_json

        return measures_json(self)

    def text(self) -> str:
        """The measures as a few lines for the end of a run."""
        from helix.report.text import measures_text

        return measures_text(self)

    def _repr_html_(self) -> str:
        from helix.report.page import run_fragment

        return run_fragment(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from helix.notebook import bundle

        return bundle(str(self), self._repr_html_(), include, exclude)

    def __str__(self) -> str:
        return self.text()
