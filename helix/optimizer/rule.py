"""What a rule is, and what it may know besides the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from helix.logical import Generate, LogicalPlan


class KnownResults(Protocol):
    """What the store of results tells the optimizer: the text of a reply to a prompt that no row changes, or None.

    `helix.prefixes.literal_messages` gives the messages of the prompt.
    """

    def reply(self, step: Generate) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStats:
    """What the table says of a column: its distinct values, and the mean length of its text in tokens.

    `exact`: the distinct values were counted, not estimated. `p90` is the length that nine of ten texts do not exceed,
    `nulls` the share of rows without a value, `items` the mean length of its lists (None: it holds none).
    """

    distinct: int
    tokens: float
    exact: bool = True
    p90: float = 0.0
    nulls: float = 0.0
    items: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats:
    """What a look at the table says: its rows, and its columns by name.

    `determines` holds the functional dependencies found: pairs of columns, each value of the first comes with one value
    of the second.
    """

    rows: int
    columns: dict[str, ColumnStats] = field(default_factory=dict)
    determines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleContext:
    """What rules may know besides the plan. `selectivity` is the share of rows that a filter of unknown kind keeps."""

    stats: TableStats | None = None
    known: KnownResults | None = None
    selectivity: float = 0.5


RuleFunction = Callable[[LogicalPlan, RuleContext], LogicalPlan]
_Function = TypeVar("_Function", bound=RuleFunction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule as the driver knows it.

    `lossy` rules may change an answer and run only where they are asked for by name. `fewer_calls` and `fewer_tokens`
    are claims that the tests hold a rule to: it never makes more calls, never more prompt tokens. `marks` rules only
    mark operators for the run: no other rule finds more to do after them.
    """

    name: str
    apply: RuleFunction
    law: str
    lossy: bool = False
    fewer_calls: bool = True
    fewer_tokens: bool = True
    marks: bool = False


@dataclass(frozen=True, slots=True)
class _Claims:
    lossy: bool = False
    fewer_calls: bool = True
    fewer_tokens: bool = True
    marks: bool = False


_CLAIMS: dict[RuleFunction, _Claims] = {}


def rule(
    *, lossy: bool = False, fewer_calls: bool = True, fewer_tokens: bool = True, marks: bool = False
) -> Callable[[_Function], _Function]:
    """Marks a function as a rule and states what it claims."""

    def mark(function: _Function) -> _Function:
        _CLAIMS[function] = _Claims(lossy, fewer_calls, fewer_tokens, marks)
        return function

    return mark


def describe(function: RuleFunction) -> Rule:
    """The rule that a function is: its name, and its law from the first line of its docstring."""
    claims = _CLAIMS.get(function, _Claims())
    law = (function.__doc__ or "").strip().partition("\n")[0]
    return Rule(
        name=function.__name__,
        apply=function,
        law=law,
        lossy=claims.lossy,
        fewer_calls=claims.fewer_calls,
        fewer_tokens=claims.fewer_tokens,
        marks=claims.marks,
    )
