"""Who reads what in a traced workflow, and in which order: what giving names and merging steps need to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from helix.dsl.places import problem
from helix.dsl.trace import (
    Binding,
    Block,
    ChooseItem,
    GroupItem,
    Item,
    MapValue,
    OutputItems,
    RepeatItem,
    SpreadItem,
    StepItem,
    Symbol,
)
from helix.expr import Expr, children
from helix.syntax import HistoryPart, Keep, Limit, Llm, MessagePart, Sort

# What the text form can hold and walking a tree can bear.
MAX_DEPTH = 100


class Use(NamedTuple):
    """A place where a binding is read: its position in the order of the program."""

    order: int
    block: Block


@dataclass(eq=False, slots=True)
class Order:
    """The positions of a traced workflow's items, and all uses of each binding. Positions grow in program order."""

    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    uses: dict[Binding, list[Use]] = field(default_factory=dict)
    clock: int = 0

    def tick(self) -> int:
        """The next position."""
        self.clock += 1
        return self.clock

    def read(self, expr: Expr | None, block: Block) -> None:
        """Notes what an expression reads at the present position."""
        stack = [] if expr is None else [(expr, 1)]
        while stack:
            part, depth = stack.pop()
            if depth > MAX_DEPTH:
                help = "give parts of it steps of their own: `hx.step(...)`"
                raise problem(f"an expression of more than {MAX_DEPTH} levels", help, part.span)
            if isinstance(part, Symbol):
                self.uses.setdefault(part.binding, []).append(Use(self.clock, block))
            stack.extend((inner, depth + 1) for inner in children(part))

    def after(self, binding: Binding, position: int) -> int:
        """How often a binding is read later than a position."""
        return sum(use.order > position for use in self.uses.get(binding, ()))


def order_of(top: Block) -> Order:
    """The order of a whole workflow."""
    order = Order()
    _visit_block(order, top)
    return order


def llm_expressions(llm: Llm) -> Iterator[Expr]:
    """The expressions of an LLM step, from left to right."""
    for option in llm.options:
        yield option.value
    for part in llm.parts:
        if isinstance(part, HistoryPart):
            yield part.value
        elif isinstance(part, MessagePart):
            yield from part.content.expressions
        else:
            for each in part.parts:
                yield from each.expressions


def _visit_block(order: Order, block: Block) -> None:
    for item in block.items:
        order.start[id(item)] = order.tick()
        _visit(order, item, block)
        order.end[id(item)] = order.tick()


def _visit(order: Order, item: Item, block: Block) -> None:
    match item:
        case StepItem(value=value):
            order.read(item.when, block)
            if isinstance(value, MapValue):
                order.read(value.over, block)
                _visit_block(order, value.block)
                order.tick()
                order.read(value.result, value.block)
            elif isinstance(value, Llm):
                for expr in llm_expressions(value):
                    order.read(expr, block)
            else:
                order.read(value, block)
        case ChooseItem(arms=arms):
            for arm in arms:
                order.read(arm.condition, block)
            for arm in arms:
                _visit_block(order, arm.block)
                order.end[id(arm)] = order.tick()
                for result in arm.results.values():
                    order.read(result, arm.block)
        case RepeatItem():
            _visit_repeat(order, item, block)
        case SpreadItem(value=value) | Keep(condition=value) | Limit(count=value):
            order.read(value, block)
        case Sort(keys=keys):
            for key, _ in keys:
                order.read(key, block)
        case GroupItem(keys=group_keys):
            for key in group_keys:
                order.read(key, block)
            _visit_block(order, item.block)
        case OutputItems(items=columns):
            for value, _ in columns:
                order.read(value, block)


def _visit_repeat(order: Order, item: RepeatItem, block: Block) -> None:
    order.read(item.times, block)
    for each in item.carried:
        order.read(each.initial, block)
    _visit_block(order, item.block)
    order.tick()
    for each in item.carried:
        order.read(each.following, item.block)
    _visit_block(order, item.tail)
    order.tick()
    order.read(item.until, item.tail)
