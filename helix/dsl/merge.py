"""Which steps of a traced workflow share a name: those under a condition, joined from branches, or carried round.

The text form has one name where Python has several values: `reply` before a loop, in it and after it. Two bindings may
share a name only where neither is read while the other holds it; where they cannot, the text gets a step that copies.
"""

from __future__ import annotations

from collections.abc import Iterator

from helix.dsl.trace import (
    Arm,
    Binding,
    Block,
    Carried,
    ChooseItem,
    GroupItem,
    MapValue,
    RepeatItem,
    StepItem,
    Symbol,
    Trace,
)
from helix.dsl.uses import Order, order_of
from helix.expr import Binary, Expr


class Merged:
    """The bindings that share a name: each with the one that stands for all."""

    def __init__(self) -> None:
        self._shared: dict[Binding, Binding] = {}

    def root(self, binding: Binding) -> Binding:
        """The binding that stands for all which share its name."""
        while binding in self._shared:
            binding = self._shared[binding]
        return binding

    def share(self, binding: Binding, other: Binding) -> None:
        """Gives a binding the name of another."""
        self._shared[binding] = other

    def free(self, binding: Binding, other: Binding) -> bool:
        """Whether a binding may still take another's name: no name was asked for, or that one."""
        return binding not in self._shared and (not binding.explicit or binding.hint == other.hint)


def merge(trace: Trace) -> Merged:
    """Puts conditions on the steps that they were written for, and decides which bindings share a name."""
    _fuse(trace.top, order_of(trace.top))
    merged = Merged()
    _merge_block(trace.top, order_of(trace.top), merged)
    return merged


def step_of(block: Block, expr: Expr) -> StepItem | None:
    """The step of a block whose value an expression is, or None."""
    if not isinstance(expr, Symbol) or expr.binding.block is not block:
        return None
    return next((i for i in block.items if isinstance(i, StepItem) and i.binding is expr.binding), None)


def _set_in(block: Block) -> Iterator[Binding]:
    """The bindings of a block's own steps, and of what its branches and loops leave behind."""
    for item in block.items:
        match item:
            case StepItem(binding=binding):
                yield binding
            case ChooseItem(joins=joins):
                yield from joins.values()
            case RepeatItem(carried=carried):
                yield from (each.last for each in carried)


def blocks_of(item: object) -> list[Block]:
    """The blocks inside an item."""
    match item:
        case StepItem(value=MapValue(block=block)) | GroupItem(block=block):
            return [block]
        case ChooseItem(arms=arms):
            return [arm.block for arm in arms]
        case RepeatItem(block=block, tail=tail):
            return [block, tail]
    return []


def _fuse(block: Block, order: Order) -> None:
    """`orders(x).when(c)` was traced as two steps, the second reading the first: where nobody else does, it is one."""
    steps: dict[Binding, StepItem] = {}
    kept = []
    gone: set[int] = set()
    for item in block.items:
        for inner in blocks_of(item):
            _fuse(inner, order)
        if isinstance(item, StepItem):
            first = steps.get(item.value.binding) if isinstance(item.value, Symbol) else None
            both = first is not None and first.binding.explicit and item.binding.explicit
            if first is not None and not both and len(order.uses[first.binding]) == 1:
                _put_into(first, item)
                gone.add(id(first))
            steps[item.binding] = item
        kept.append(item)
    block.items = [item for item in kept if id(item) not in gone]


def _put_into(first: StepItem, second: StepItem) -> None:
    second.value = first.value
    if first.when is not None:
        both = first.when, second.when
        second.when = first.when if both[1] is None else Binary(op="and", left=both[0], right=both[1])
    if first.binding.explicit or second.binding.hint is None:
        second.binding.hint, second.binding.explicit = first.binding.hint, first.binding.explicit


def _merge_block(block: Block, order: Order, merged: Merged) -> None:
    for item in block.items:
        if isinstance(item, ChooseItem):
            for arm in item.arms:
                _merge_arm(arm, item, order, merged)
        elif isinstance(item, RepeatItem):
            for carried in item.carried:
                merged.share(carried.now, carried.last)
            for carried in item.carried:
                _merge_initial(carried, item, block, order, merged)
                _merge_following(carried, item, order, merged)
        for inner in blocks_of(item):
            _merge_block(inner, order, merged)


def _merge_arm(arm: Arm, item: ChooseItem, order: Order, merged: Merged) -> None:
    """A step of a branch takes the joined name where nobody reads it outside the branch."""
    for key, result in arm.results.items():
        made = step_of(arm.block, result)
        if made is None or not merged.free(made.binding, item.joins[key]):
            continue
        if not order.after(made.binding, order.end[id(arm)]):
            merged.share(made.binding, item.joins[key])


def _merge_initial(carried: Carried, item: RepeatItem, block: Block, order: Order, merged: Merged) -> None:
    """The step before a loop takes the carried name where only the loop's beginning reads it from then on."""
    if not isinstance(carried.initial, Symbol) or carried.initial.binding not in _set_in(block):
        return
    binding = carried.initial.binding
    if merged.free(binding, carried.last) and order.after(binding, order.start[id(item)] - 1) == 1:
        merged.share(binding, carried.last)


def _merge_following(carried: Carried, item: RepeatItem, order: Order, merged: Merged) -> None:
    """The step that makes the next value takes the carried name where nobody reads the present one after it."""
    made = step_of(item.block, carried.following)
    if made is None or not merged.free(made.binding, carried.last):
        return
    if not order.after(carried.now, order.end[id(made)]):
        merged.share(made.binding, carried.last)
