"""What lowering may know besides the plan: the table, lengths of replies, and what the engine says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from helix.errors import OptionError
from helix.evaluate import Callables
from helix.logical import LogicalPlan
from helix.optimizer.engine_time import H100, EngineTime, engine_time
from helix.optimizer.lengths import Lengths
from helix.optimizer.rule import TableStats
from helix.optimizer.tokens import ESTIMATE, Tokenizer
from helix.physical import Planner

Row = Mapping[str, Any]


class Workers(Protocol):
    """What an engine says of its workers when it is opened."""

    @property
    def ranks(self) -> int:
        """How many there are."""

    @property
    def kv_tokens(self) -> int | None:
        """The tokens that the cache of one holds."""

    @property
    def max_running(self) -> int | None:
        """The requests that one runs at once."""


# The shortest beginning, in tokens, that is worth a request of its own.
THETA = 256
# Seconds of planning for each second that the run is taken to last, at most.
SHARE = 0.01
# What the order of a small table's calls may take in any case, in seconds: nobody notices.
LEAST_BUDGET = 0.1
# Calls that are bound one by one to find the sizes of rows; what a table makes beyond is taken to be like those.
BOUND_CALLS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerContext:
    """What lowering rests on. `rows` are the usable rows of the table, values as the input declares them, read once.

    `ranks` are the engine's workers, each with a cache of `kv_tokens` tokens that runs `max_running` requests at once;
    None takes those of the model `engine`. `theta` is the least length of a beginning that is computed ahead. `budget`
    is the time in seconds that a search for a better order may take: it is counted in steps of a fixed price, so that
    a plan comes out the same each time, and it is never more than a hundredth of the run's estimated time. `planner`
    says whose plan is wanted: of `outline` only the steps and what they need count.
    """

    stats: TableStats | None = None
    rows: Iterable[Row] | None = None
    tokenizer: Tokenizer = ESTIMATE
    lengths: Lengths = field(default_factory=Lengths)
    engine: EngineTime = H100
    ranks: int = 1
    kv_tokens: int | None = None
    max_running: int | None = None
    theta: int = THETA
    budget: float = 1.0
    callables: Callables = field(default_factory=dict)
    bound_calls: int = BOUND_CALLS
    planner: Planner = "helix"

    def __post_init__(self) -> None:
        for name, least in (("ranks", 1), ("kv_tokens", 1), ("max_running", 1), ("theta", 1), ("budget", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise OptionError(f"{name} is {least} or more, found {value}")

    @property
    def capacity(self) -> int:
        """The tokens that one rank's cache holds."""
        return self.engine.capacity if self.kv_tokens is None else self.kv_tokens

    @property
    def running(self) -> int:
        """The requests that one rank runs at once."""
        return self.engine.batch if self.max_running is None else self.max_running

    def on(self, workers: Workers | None, plan: LogicalPlan, engine: str | None = None) -> LowerContext:
        """The same for an engine: its workers, and the model of its time by its address or those in the plan."""
        time = engine_time(plan, engine)
        if workers is None:
            return replace(self, engine=time)
        return replace(
            self, engine=time, ranks=workers.ranks, kv_tokens=workers.kv_tokens, max_running=workers.max_running
        )
