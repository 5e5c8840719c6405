"""A plan made ready to run: operators in numbered slots, with who waits for whom.

A `Program` is the dataflow of one scope: a level of the table or the body of a loop or branch. One `Frame` runs it for
one row. `Level`s that spread rows nest inside each other; a `Segment` is a chain of levels whose rows leave in order,
up to the next operator that needs that order (limit, sort, group) or the sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from helix.logical import GroupReduce, Limit, Relation, Sink, Sort

if TYPE_CHECKING:
    from helix.executor.operators import Operator


@dataclass(slots=True, kw_only=True)
class Program:
    """The slots of one scope. Slot 0 is the control: it holds a failure where the whole row has failed.

    `needs` counts for each slot the slots it waits for; `initial` holds constants and PENDING; `unresolved` counts the
    slots without a constant. `inputs` are the slots set from outside by name, `imports` those set from a level above,
    by node id. `ready` are the operators that wait for nothing. `also` are steps with effects: their failure counts
    though nothing reads them. `steps` names the slots of steps, to tell which were skipped.
    """

    operators: list[Operator] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    readers: list[tuple[int, ...]] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    initial: list[Any] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    imports: dict[str, int] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    ready: tuple[int, ...] = ()
    unresolved: int = 0
    also: tuple[int, ...] = ()
    steps: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True, kw_only=True)
class Level:
    """One level of a segment: its program, the slot that says whether the row is still there, and what spreads it.

    `alive` is the last filter (or the control). `kept` are the slots that are read after the row has finished.
    """

    program: Program
    alive: int
    spread: int | None = None
    kept: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class Segment:
    """Levels from a source of rows to the boundary that needs them in order.

    `exports` are the slots of the last level that cross the boundary: for the sink its columns by name, else what later
    segments import, by node id. `keys` and `columns` are the slots that a sort or a group reads.
    """

    source: Relation
    levels: list[Level]
    boundary: Limit | Sort | GroupReduce | Sink
    exports: dict[str, int]
    keys: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
