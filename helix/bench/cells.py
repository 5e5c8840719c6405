"""The nouns of the benchmark: what is run, what it is compared with, and what came out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from helix.optimizer.apart import Lines

REGIMES = ("ample", "pressure", "redundant", "ranks")
ORDERS = ("grouped", "shuffled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A table of rows: of a workload, so many groups, drawn by a seed. `redundant`: half of the rows are repeats."""

    workload: str
    groups: int
    seed: int
    redundant: bool = False
    data: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run to be made. `method` is a name with what tunes it; `kv_tokens` is of a rank."""

    workload: str
    groups: int
    regime: str
    order: str
    method: str
    seed: int
    gpu: str = "h100"
    ranks: int = 2
    data: bool = False

    @property
    def batch(self) -> Batch:
        """The table that it runs over."""
        return Batch(
            workload=self.workload,
            groups=self.groups,
            seed=self.seed,
            redundant=self.regime == "redundant",
            data=self.data,
        )

    @property
    def place(self) -> tuple[Any, ...]:
        """What methods are compared in: all but the method and the seed."""
        return (self.workload, self.groups, self.regime, self.order, self.gpu, self.ranks, self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a batch comes to, whatever runs it.

    `results` is a digest of the rows, `calls` those that differ, with their prompts and replies in tokens. `distinct`
    are the tokens on distinct prefixes (P_min), `held` those with the replies; the rest is what lower bounds are sums
    of: see `helix.optimizer.bounds.Work`. `longest_call` is the longest prompt with its reply, `longest` the longest
    chain of a row in milliseconds, tools included, `chain` the longest in decode steps, `lines` those of all calls by
    their decode steps, `tool_seconds` the time of all tools.
    """

    results: str
    rows: int
    calls: int
    prompt_tokens: int
    outputs: float
    distinct: float
    pairs: float
    held: float
    contexts: float
    private_area: float
    shared_area: float
    longest: float
    longest_call: int
    chain: float = 0.0
    lines: tuple[Lines, ...] = ()
    tool_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run took. Times are in seconds: `run` is simulated, `plan` the planner's own on this machine, which is
    added; `warm` is the day before, where the workload has one, which is not.

    `bound` is the lower bound of the run and `binder` what binds it. Percentiles are of rows, from the submission of
    the batch to a row's last call; None where rows share calls. `recomputed` are prompt tokens computed again for
    requests that the engine had to take back. `match`: the results are those of the reference. `log` is a digest of
    the simulation's events.
    """

    rows: int
    calls: int
    kv_tokens: int
    plan: float
    profile: float
    warm: float
    run: float
    bound: float
    binder: str
    p50: float | None
    p95: float | None
    p99: float | None
    prompt_tokens: int
    cached_tokens: int
    prefilled: int
    recomputed: int
    distinct: float
    generated: int
    warmups: int
    retractions: int
    outside: int
    passes: int
    busy: float
    failed: int
    match: bool
    log: str
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """What a user waits for: planning, profiling and the run."""
        return self.plan + self.profile + self.run

    @property
    def over_bound(self) -> float:
        """The run over its lower bound."""
        return self.run / self.bound if self.bound else float("nan")

    @property
    def hits(self) -> float:
        """The share of prompt tokens that was found in the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def amplification(self) -> float:
        """Prefilled tokens over those on distinct prefixes."""
        return self.prefilled / self.distinct if self.distinct else 0.0


def to_json(noun: Batch | Cell | Reference | Outcome) -> dict[str, Any]:
    """A noun as a JSON object."""
    return asdict(noun)


def from_json(kind: type[Any], values: dict[str, Any]) -> Any:
    """A noun from a JSON object; what a later version has added is left out. Raises TypeError where something lacks."""
    known = {field.name for field in fields(kind)}
    given = {name: value for name, value in values.items() if name in known}
    if "notes" in given:
        given["notes"] = tuple(given["notes"])
    if "lines" in given:
        given["lines"] = tuple(map(tuple, given["lines"]))
    return kind(**given)
