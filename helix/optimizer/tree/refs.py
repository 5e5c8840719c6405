"""A plan with its sub-plans laid open: every value once, by where it comes from, and every call where it stands.

The sub-plans of a plan are closed: they read parameters. Here a parameter is what its holder passes in, so that a
column captured by a loop is the column itself. What a loop makes anew has a reference of its own: the item of a `for`,
the value that a `repeat` carries round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from helix.expr import Expr
from helix.logical import Generate, Invoke, LogicalPlan, Node
from helix.optimizer.tree.shape import BATCH, FrameKind, Hole, Scope
from helix.templates.template import Template
from helix.types import Type

RefKind = Literal["const", "column", "item", "carried", "reply", "tool", "map", "choose", "repeat", "apply", "render"]

# A prompt's part in the making: a turn's role is a 1-tuple, literal text a str.
Piece = str | tuple[str] | Hole


@dataclass(slots=True, kw_only=True)
class Ref:
    """One value of the plan.

    `ident` is equal for values that are equal by construction. `args` are the values that it is computed from, `calls`
    the calls that it comes from directly, as bits. `roots` are the values that decide it: columns, items, and what
    differs from row to row though all columns are equal (`random`). `known`: the input table alone gives it.
    `inner` is the frame of the sub-plan that makes it (the first arm's of a branch, -1 for none).
    """

    index: int
    ident: str
    kind: RefKind
    name: str
    type: Type
    frame: int
    calls: int = 0
    roots: int = 0
    known: bool = False
    random: bool = False
    scope: Scope = BATCH
    node: Node | None = None
    field: str = ""
    inner: int = -1
    args: tuple[int, ...] = ()
    expr: Expr | None = None
    template: Template | None = None
    text: tuple[Piece, ...] | None = None


@dataclass(slots=True, kw_only=True)
class Place:
    """Where steps run: the rows of a relation, the items of a `for`, the rounds of a `repeat`, one arm of a branch.

    `value` is the list, condition or key that decides how often. `control` are the calls that have to end before
    anything in it begins. `item` is the item of a `for` or of spread rows. `carried` are the values of a `repeat`:
    what they are in a round, what they start as, and what the round makes of them.
    """

    kind: FrameKind
    parent: int
    name: str
    node: Node
    depth: int
    control: int = 0
    value: int | None = None
    values: tuple[int, ...] = ()
    item: int | None = None
    carried: list[tuple[int, int, int]] = field(default_factory=list)
    until: int | None = None
    result: int | None = None
    times: int = 1
    expected: float = 1.0
    source: str = "plan"


@dataclass(slots=True, kw_only=True)
class CallSite:
    """A call where it stands: an llm step or a tool step, in its frame. `needs` are call sites, as bits."""

    index: int
    node: Generate | Invoke
    ref: int
    frame: int
    needs: int
    prompt: tuple[Piece, ...] = ()


@dataclass(slots=True, kw_only=True)
class HoleSource:
    """How a hole's value is made: an expression or a block over references (`Arg(n)` is the n-th)."""

    hole: Hole
    template: Template
    args: tuple[int, ...]
    known: bool
    roots: int


@dataclass(slots=True, kw_only=True)
class Resolution:
    """A plan laid open. `calls` are in the order of the workflow's data: a call stands after all that it needs."""

    plan: LogicalPlan
    refs: list[Ref] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    calls: list[CallSite] = field(default_factory=list)
    holes: dict[int, HoleSource] = field(default_factory=dict)
