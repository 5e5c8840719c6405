"""The physical plan: a logical plan with where its calls run, in which order, and what is computed ahead of them.

Lowering (`helix/optimizer/lowering`) makes it, the executor follows it. A plan is per template: what grows with the
table are groups of rows, never calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from helix.logical import LogicalPlan

# Who makes a plan: Helix; nobody, of whom only the steps and their needs are wanted; or Helium's algorithm (arXiv
# 2603.16104), as its code has it or as its paper does.
Planner = Literal["helix", "outline", "helium-code", "helium-paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalStep:
    """One llm step as it is scheduled. `node` is the id of its `Generate`, `step` its name in reports.

    Of two steps that are ready in one block of rows, the one of the lower `phase` is released first; within a phase
    rows go one after the other. `rank_up` is the time in seconds from the step's start to the end of the longest chain
    of steps and tools that waits for it. `calls` are for the whole table; tokens are means for one call, `output_p90`
    is what nine of ten replies stay below. `source` says where the length of the reply is known from. `needs` are the
    nodes of the llm steps whose replies it waits for, with none between.
    """

    node: str
    step: str
    phase: int
    rank_up: float
    calls: float
    prompt_tokens: float
    private_tokens: float
    output_tokens: float
    output_p90: float
    source: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPrefix:
    """A beginning that many calls share and no row changes: computed once on each rank before they are released.

    `steps` are the names of the steps that begin with it, `text` its beginning as a person reads it, `tokens` its
    length, `calls` how many begin with it. `messages` are its role and text one by one, the last perhaps cut off;
    `node` is the id of a `Generate` that begins so, whose model and engine it is for. `after` is the place in the plan
    of the shorter one that it goes on from, which is computed first.
    """

    steps: tuple[str, ...]
    text: str
    tokens: float
    calls: float
    node: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    after: int | None = None

    def behind(self, place: int | None) -> WarmPrefix:
        """The same, going on from the one at another place."""
        return replace(self, after=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Rows whose prompts share more than all rows do: opened, drained and freed together.

    `key` are the values of the group's columns as canonical JSON, `first` the place of its first row in the order of
    release. `shared_tokens` are those that the rows share, `row_tokens` those that a row adds, in the mean, replies
    aside; `work` is in seconds of engine time. `ranks` are the workers that take its rows: several where the prefix is
    cheaper to compute again than to wait for.
    """

    key: tuple[str, ...]
    first: int
    rows: int
    shared_tokens: float
    row_tokens: float
    work: float
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAdvice:
    """A setting that the plan wants of the engine: its flag, the value, and why."""

    flag: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCost:
    """What the order of the steps costs over a few rows, in token steps: as it was found first, and as it is now.

    `exact` is what the best order of all these calls costs, known only where they are few; `proven` that no other is
    better. `rows` are those that were looked at, `tried` the orders.
    """

    first: float
    now: float
    rows: int
    tried: int
    exact: float | None = None
    proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalPlan:
    """How a plan is run.

    Rows are released in blocks of `block` rows in the order of `plan.scan.order`; `group_by` are the columns whose
    equal values make a `RowGroup` (none: every row stands for itself). `groups` are known where the table was looked
    at, in the order of release: on one rank that of their keys, on several the ranks' own orders side by side. Ranks
    of other rows are chosen as they come. `steps` stand in the order of release for one row. `calls` are those of a
    small table in their order, each by its row and node, where that is better than the order of the steps. `row_tokens`
    is the room in tokens that a row takes in a KV cache while it is worked on, its replies included, and `held_tokens`
    the part of it that has to stay from one phase to a later one; `fixed_tokens` are what all rows share, `call_tokens`
    the most that one call takes below that. `fills`: a block has rows enough to keep a rank busy in each phase.

    `kv_tokens` and `max_running` are those of one rank, as they were given; `kv_wanted` are the tokens that the cache
    of a rank should hold. `rows` are those of the table, `loads` the seconds of engine time of each rank, where groups
    were placed.
    """

    plan: LogicalPlan
    ranks: int = 1
    group_by: tuple[str, ...] = ()
    block: int = 1
    fills: bool = True
    steps: tuple[PhysicalStep, ...] = ()
    warm: tuple[WarmPrefix, ...] = ()
    groups: tuple[RowGroup, ...] = ()
    advice: tuple[EngineAdvice, ...] = field(default=())
    row_tokens: float = 0.0
    kv_tokens: int | None = None
    kv_wanted: int = 0
    held_tokens: float = 0.0
    fixed_tokens: float = 0.0
    call_tokens: float = 0.0
    max_running: int | None = None
    rows: float = 1.0
    loads: tuple[float, ...] = ()
    order: OrderCost | None = None
    calls: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()
