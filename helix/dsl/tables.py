"""Constants, plain steps, conditions of steps, what works over the whole table, and the output."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from helix.dsl.markers import refuse_markers
from helix.dsl.names import checked_name
from helix.dsl.places import assigned_name, here, problem
from helix.dsl.trace import (
    Binding,
    Block,
    GroupItem,
    OutputItems,
    SpreadItem,
    Symbol,
    Trace,
    current,
    python_type,
)
from helix.dsl.values import Value, describe, is_constant
from helix.expr import Expr, Field, Name
from helix.syntax import Keep, Let, Limit, Sort


def let(value: Any, *, name: str | None = None) -> Value:
    """A constant of the workflow that a run may override (`--set tone=warm`)."""
    trace = current("`hx.let(...)`")
    hint = assigned_name() if name is None else checked_name(name, "a constant")
    if not is_constant(value):
        raise problem("`hx.let` takes a constant, found a value of the workflow", "write `hx.step(...)` for a step")
    lifted, span = trace.lift(value), here()
    binding = Binding(block=trace.top, span=span)
    if name is not None and name in {param.name for param in trace.params} | set(trace.declarations):
        raise problem(f"`{name}` is already declared", "give the constant another name")
    binding.name = trace.declare(binding, hint, "constant", lambda name: Let(name=name, value=lifted, span=span))
    return trace.value(binding)


def step(value: Any, *, name: str | None = None, when: Any = None) -> Value:
    """Makes a step of an expression: `total = hx.step(a + b)`; or gives the step of a value a name or a condition."""
    trace = current("`hx.step(...)`")
    hint = assigned_name() if name is None else checked_name(name, "a step")
    condition = None if when is None else trace.lift(when)
    expr = trace.lift(value)
    return trace.step(expr, hint=hint, explicit=name is not None, when=condition, python=python_type(expr))


def conditional(value: Value, condition: Any) -> Value:
    """A value where a condition holds, null elsewhere; its step is run only then, unless something else reads it."""
    trace = current("`.when(...)`")
    expr = trace.lift(value)
    return trace.step(expr, hint=assigned_name(), when=trace.lift(condition), python=python_type(expr))


def keep(condition: Any) -> None:
    """Only rows whose condition holds go on."""
    trace = current("`hx.keep(...)`")
    trace.block.items.append(Keep(condition=trace.lift(condition), span=here()))


def spread(items: Any, *, name: str | None = None) -> Value:
    """One row for each item of a list: `chunk = hx.spread(chunks)`; the value that stands for the item."""
    trace = current("`hx.spread(...)`")
    hint = assigned_name() if name is None else checked_name(name, "the item of a spread")
    span = here()
    binding = Binding(block=trace.block, hint=hint, explicit=name is not None, span=span)
    trace.block.items.append(SpreadItem(binding=binding, value=trace.lift(items), span=span))
    return trace.value(binding)


class Descending:
    """A key of `hx.sort` from the largest to the smallest."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key


def desc(key: Any) -> Descending:
    """For `hx.sort`: this key from the largest to the smallest."""
    return Descending(key)


def sort(*keys: Any, desc: bool = False) -> None:
    """Sorts the rows by values, or columns given by name; `hx.desc(key)` turns one key round, `desc=True` all."""
    trace = current("`hx.sort(...)`")
    if not keys:
        raise problem("`hx.sort` needs a key", "write `hx.sort(score, desc=True)`")
    found: list[tuple[Expr, bool]] = []
    for key in keys:
        turned = isinstance(key, Descending)
        found.append((_column(trace, key.key if turned else key), turned != desc))
    trace.block.items.append(Sort(keys=tuple(found), span=here()))


def limit(count: Any) -> None:
    """Only the first rows go on."""
    trace = current("`hx.limit(...)`")
    trace.block.items.append(Limit(count=trace.lift(count), span=here()))


class group_by:
    """One row for each value of the keys. Inside the `with`, `rows` is the list of the group's rows as records.

    ```
    with hx.group_by(product) as rows:
        summary = main(user=f"Sum up: {rows}")
    ```

    Afterwards the workflow has the keys and the steps of the block.
    """

    def __init__(self, *keys: Any) -> None:
        trace = current("`hx.group_by(...)`")
        if not keys:
            raise problem("`hx.group_by` needs a key", "write `with hx.group_by(product) as rows:`")
        lifted = [_column(trace, key) for key in keys]
        for key in lifted:
            if not isinstance(key, Symbol | Name):
                help = "make a step of it first: `key = hx.step(...)`"
                raise problem(f"rows are grouped by an input or a step, found `{describe(key)}`", help)
        self._trace = trace
        self._item = GroupItem(keys=lifted, block=Block("group", trace.block), span=here())
        self._inside = trace.inside(self._item.block)

    def __enter__(self) -> Value:
        self._trace.block.items.append(self._item)
        self._inside.__enter__()
        return Value(Name(name="rows", span=here()), self._trace)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inside.__exit__(kind, error, traceback)


class Output:
    """What a workflow function returns."""

    __slots__ = ("item", "trace")

    def __init__(self, item: OutputItems, trace: Trace) -> None:
        self.item = item
        self.trace = trace


def output(*values: Any, **named: Any) -> Output:
    """The columns of the result, in order: values under their own names first, then those given by name."""
    trace = current("`hx.output(...)`")
    items: list[tuple[Expr, str | None]] = []
    for value in values:
        expr = trace.lift(value)
        if not isinstance(value, Value) or not isinstance(expr, Symbol | Name | Field):
            raise problem("a column that is not a plain name needs one", "write `hx.output(name=...)`")
        items.append((expr, None))
    for name, value in named.items():
        items.append((trace.lift(value), name))
    if not items:
        raise problem("`hx.output` has no column", "write `hx.output(reply=reply)`")
    return Output(OutputItems(items=items, span=here()), trace)


def _column(trace: Trace, key: Any) -> Expr:
    """A value, or a column given by its name."""
    if isinstance(key, str):
        refuse_markers(key, "the name of a column", "give the value itself")
        return Name(name=key, span=here())
    return trace.lift(key)
