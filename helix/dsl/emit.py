"""A traced workflow function to the syntax tree: names are given, values carried round and joined share theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from helix.dsl.merge import Merged, blocks_of, merge
from helix.dsl.names import Taken
from helix.dsl.places import problem
from helix.dsl.trace import (
    Binding,
    Block,
    Carried,
    ChooseItem,
    GroupItem,
    Item,
    MapValue,
    OutputItems,
    RepeatItem,
    SpreadItem,
    StepItem,
    Symbol,
    Trace,
)
from helix.errors import name_help
from helix.expr import Expr, Field, Name, transform, walk
from helix.span import Span
from helix.syntax import (
    For,
    GroupBy,
    HistoryPart,
    If,
    Keep,
    Limit,
    Llm,
    MessagePart,
    Option,
    Output,
    OutputItem,
    PromptPart,
    Repeat,
    Sort,
    Spread,
    Statement,
    Step,
    UnorderedPart,
    Workflow,
)
from helix.templates.template import map_template


def emit(trace: Trace, span: Span | None) -> Workflow:
    """The syntax tree of a workflow function that was called to its end. Raises BindError for names that clash."""
    merged = merge(trace)
    _name_all(trace, merged)
    emitter = _Emitter(trace, merged)
    statements = (*trace.declarations.values(), *emitter.block(trace.top))
    return Workflow(name=trace.name, params=trace.params, statements=statements, span=span)


# --- names --------------------------------------------------------------------------------------------------------


def _name_all(trace: Trace, merged: Merged) -> None:
    """Gives every binding its name: first those asked for, then the others in the order of the program."""
    names = dict.fromkeys(trace.declarations, "declared") | {param.name: "an input" for param in trace.params}
    if any(isinstance(item, GroupItem) for item in trace.top.items):
        names["rows"] = "the list of a group's rows"
    _name_scope(trace.top, None, merged, Taken(names))


def _name_scope(block: Block, variable: Binding | None, merged: Merged, taken: Taken) -> None:
    """Names what a block sets. The names inside a map are its own: two maps may use the same ones."""
    found = list(_bindings(block)) if variable is None else [(variable, None), *_bindings(block)]
    for binding, _ in found:
        root = merged.root(binding)
        if binding.explicit and binding.hint is not None and root.name != binding.hint:
            if what := taken.what(binding.hint):
                message = f"a step cannot be named `{binding.hint}`: it is already {what}"
                raise problem(message, "give this step another name", binding.span)
            root.name = binding.hint
            taken.take(binding.hint, "a step")
    for binding, mapped in found:
        root = merged.root(binding)
        if root.name is None:
            root.name = taken.free(root.hint, "step")
            taken.take(root.name, "a step")
        if mapped is not None:
            _name_scope(mapped.block, mapped.variable, merged, Taken({}, taken))


def _bindings(block: Block) -> Iterator[tuple[Binding, MapValue | None]]:
    """What a block sets, in order, the insides of its maps left out; for a step that maps, how it does."""
    for item in block.items:
        match item:
            case StepItem(binding=binding, value=MapValue() as value):
                yield binding, value
                continue
            case StepItem(binding=binding) | SpreadItem(binding=binding):
                yield binding, None
            case ChooseItem(joins=joins):
                yield from ((join, None) for join in joins.values())
            case RepeatItem(carried=carried):
                yield from ((each.last, None) for each in carried)
        for inner in blocks_of(item):
            yield from _bindings(inner)


def _all_names(block: Block, merged: Merged) -> Iterator[str]:
    for binding, mapped in _bindings(block):
        yield merged.root(binding).name or ""
        if mapped is not None:
            yield from _all_names(mapped.block, merged)


# --- statements ---------------------------------------------------------------------------------------------------


class _Emitter:
    def __init__(self, trace: Trace, merged: Merged) -> None:
        self._trace = trace
        self._merged = merged
        self._names = {param.name for param in trace.params} | set(_all_names(trace.top, merged))

    def block(self, block: Block) -> tuple[Statement, ...]:
        """The statements of a block."""
        return tuple(statement for item in block.items for statement in self._item(item, block))

    def _name(self, binding: Binding) -> str:
        name = self._merged.root(binding).name
        assert name is not None
        return name

    def _item(self, item: Item, block: Block) -> list[Statement]:
        match item:
            case StepItem():
                return [self._step(item, block)]
            case ChooseItem():
                return [self._choose(item, block)]
            case RepeatItem():
                return self._repeat(item, block)
            case SpreadItem(value=value, span=span):
                return [Spread(value=self._expr(value, block, span), name=self._name(item.binding), span=span)]
            case GroupItem(keys=keys, span=span):
                names = tuple(self._column(key, block, span) for key in keys)
                return [GroupBy(keys=names, body=self.block(item.block), span=span)]
            case OutputItems(items=items, span=span):
                columns = tuple(self._output(value, name, block, span) for value, name in items)
                return [Output(items=columns, span=span)]
            case Keep(condition=condition, span=span):
                return [replace(item, condition=self._expr(condition, block, span))]
            case Limit(count=count, span=span):
                return [replace(item, count=self._expr(count, block, span))]
            case Sort(keys=sort_keys, span=span):
                return [replace(item, keys=tuple((self._sort_key(k, block, span), d) for k, d in sort_keys))]

    def _step(self, item: StepItem, block: Block) -> Step:
        value, span = item.value, item.span
        when = None if item.when is None else self._expr(item.when, block, span)
        made: Expr | Llm | For
        if isinstance(value, MapValue):
            made = For(
                variable=self._name(value.variable),
                over=self._expr(value.over, block, span),
                body=self.block(value.block),
                result=self._expr(value.result, value.block, span),
                span=span,
            )
        elif isinstance(value, Llm):
            made = self._llm(value, block)
        else:
            made = self._expr(value, block, span)
        return Step(name=self._name(item.binding), value=made, when=when, span=span, name_span=span)

    def _llm(self, llm: Llm, block: Block) -> Llm:
        options = tuple(
            Option(name=option.name, value=self._expr(option.value, block, option.span), span=option.span)
            for option in llm.options
        )
        return replace(llm, options=options, parts=tuple(self._part(part, block) for part in llm.parts))

    def _part(self, part: PromptPart, block: Block) -> PromptPart:
        def leaf(expr: Expr) -> Expr:
            return self._leaf(expr, block, part.span)

        match part:
            case MessagePart(content=content):
                return replace(part, content=map_template(content, leaf))
            case HistoryPart(value=value):
                return replace(part, value=transform(value, leaf))
            case UnorderedPart(parts=parts):
                return replace(part, parts=tuple(map_template(each, leaf) for each in parts))

    def _choose(self, item: ChooseItem, block: Block) -> If:
        arms: list[tuple[Expr, tuple[Statement, ...]]] = []
        otherwise: tuple[Statement, ...] = ()
        for arm in item.arms:
            body = list(self.block(arm.block))
            for key, result in arm.results.items():
                copied = self._copy(item.joins[key], result, arm.block, item.span)
                body += [] if copied is None else [copied]
            if arm.condition is None:
                otherwise = tuple(body)
            else:
                arms.append((self._expr(arm.condition, block, item.span), tuple(body)))
        return If(arms=tuple(arms), otherwise=otherwise, span=item.span)

    def _repeat(self, item: RepeatItem, block: Block) -> list[Statement]:
        span = item.span
        before = [self._copy(each.last, each.initial, block, span) for each in item.carried]
        body = [*self.block(item.block), *self._turn(item.carried, item.block, span), *self.block(item.tail)]
        until = None if item.until is None else self._expr(item.until, item.tail, span)
        loop = Repeat(times=self._expr(item.times, block, span), until=until, body=tuple(body), span=span)
        return [*(copied for copied in before if copied is not None), loop]

    def _turn(self, carried: Sequence[Carried], block: Block, span: Span | None) -> list[Statement]:
        """The copies at the end of a round. Where one would read what an earlier one has changed, it is made first."""
        first: list[Statement] = []
        copies: list[Statement] = []
        changed: set[Binding] = set()
        for each in carried:
            copied = self._copy(each.last, each.following, block, span)
            if copied is None:
                continue
            if any(isinstance(part, Symbol) and part.binding in changed for part in walk(each.following)):
                name = Taken(dict.fromkeys(self._names, "a step")).free(f"next_{copied.name}", "step")
                self._names.add(name)
                first.append(replace(copied, name=name))
                copied = replace(copied, value=Name(name=name, span=span))
            changed.add(each.now)
            copies.append(copied)
        return [*first, *copies]

    def _copy(self, target: Binding, value: Expr, block: Block, span: Span | None) -> Step | None:
        """The step that gives a name its value; None where the value already has the name."""
        if isinstance(value, Symbol) and self._merged.root(value.binding) is self._merged.root(target):
            return None
        return Step(name=self._name(target), value=self._expr(value, block, span), span=span, name_span=span)

    # --- expressions ---

    def _expr(self, expr: Expr, block: Block, span: Span | None) -> Expr:
        return transform(expr, lambda part: self._leaf(part, block, span))

    def _leaf(self, expr: Expr, block: Block, span: Span | None) -> Expr:
        if isinstance(expr, Name) and expr.span is None:
            return replace(expr, span=span)
        if not isinstance(expr, Symbol):
            return expr
        self._refuse_unseen(expr.binding, block, expr.span or span)
        return Name(name=self._name(expr.binding), span=expr.span or span)

    def _refuse_unseen(self, binding: Binding, block: Block, span: Span | None) -> None:
        around = []
        inner: Block | None = block
        while inner is not None:
            around.append(inner)
            inner = inner.parent
        home: Block | None = binding.block
        while home is not None and home not in around:
            name = self._name(binding)
            if home.kind == "map":
                message = f"`{name}` is a value inside a `hx.map` and is not known outside"
                raise problem(message, "return it from the function of the map", span)
            if binding.local:
                message = f"`{name}` is the value of one round and is not known outside"
                raise problem(message, "read it from what `hx.repeat` gives", span)
            if home.kind == "branch" and any(b.kind == "branch" and b.owner is home.owner for b in around):
                message = f"`{name}` is a value of another branch"
                raise problem(message, "move the step in front of `hx.choose`", span)
            home = home.parent

    def _column(self, key: Expr, block: Block, span: Span | None) -> str:
        named = self._sort_key(key, block, span)
        assert isinstance(named, Name)
        return named.name

    def _sort_key(self, key: Expr, block: Block, span: Span | None) -> Expr:
        if isinstance(key, Name) and key.name not in self._names:
            raise problem(f"unknown column `{key.name}`", name_help(key.name, self._names, "columns"), key.span)
        return self._expr(key, block, span)

    def _output(self, value: Expr, name: str | None, block: Block, span: Span | None) -> OutputItem:
        expr = self._expr(value, block, span)
        if name is None:
            assert isinstance(expr, Name | Field)
            name = expr.name
        return OutputItem(value=expr, name=name, span=span)
