"""Lark's tree to the syntax tree: one method for each grammar rule."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree
from lark.visitors import v_args

from helix.errors import ParseError, SourceError
from helix.expr import Expr, Field, ListExpr, Name
from helix.grammar.build_values import Children, Values
from helix.span import Source
from helix.syntax import (
    Agent,
    For,
    FunctionDecl,
    GroupBy,
    HistoryPart,
    If,
    Keep,
    Let,
    Limit,
    Llm,
    MessagePart,
    ModelDecl,
    Option,
    Output,
    OutputItem,
    Param,
    Repeat,
    Sort,
    Spread,
    Statement,
    Step,
    ToolDecl,
    UnorderedPart,
    UseDecl,
    Workflow,
)
from helix.templates.template import Template
from helix.types import Type


class Builder:
    """Builds a Workflow from a parse tree; mistakes that leave the tree whole are collected in `errors`."""

    def __init__(self, source: Source) -> None:
        self.errors: list[SourceError] = []
        self._transformer = _Transformer(source, self.errors)

    def build(self, tree: Tree[Token]) -> Workflow:
        """The workflow; where `errors` is not empty afterwards, it is not to be used."""
        built = self._transformer.transform(tree)
        assert isinstance(built, Workflow)
        return built


@v_args(meta=True)
class _Transformer(Values):
    # --- the file, inputs ---

    def start(self, meta: Any, children: Children) -> Workflow:
        (name, params), *statements = children
        return Workflow(name=name, params=params, statements=tuple(statements), span=self._span(meta))

    def header(self, meta: Any, children: Children) -> tuple[str, tuple[Param, ...]]:
        return str(children[0]), children[1]

    def params(self, meta: Any, children: Children) -> tuple[Param, ...]:
        return tuple(children)

    def param(self, meta: Any, children: Children) -> Param:
        default = children[2] if len(children) > 2 else None
        return Param(name=self._declared(children[0]), type=children[1], default=default, span=self._token(children[0]))

    # --- declarations ---

    def let(self, meta: Any, children: Children) -> Let:
        return Let(name=self._declared(children[0]), value=children[1], span=self._token(children[0]))

    def model(self, meta: Any, children: Children) -> ModelDecl:
        return ModelDecl(name=str(children[0]), options=children[1], span=self._token(children[0]))

    def options(self, meta: Any, children: Children) -> tuple[Option, ...]:
        return tuple(children)

    def option(self, meta: Any, children: Children) -> Option:
        return Option(name=str(children[0]), value=children[1], span=self._span(meta))

    def tool(self, meta: Any, children: Children) -> ToolDecl:
        name, params, returns, origin, target, traits = children
        return ToolDecl(
            name=self._declared(name),
            params=params,
            returns=returns,
            origin=str(origin),
            target=self._string(target).text,
            traits=traits,
            span=self._token(name),
        )

    def traits(self, meta: Any, children: Children) -> tuple[Option, ...]:
        return tuple(children)

    def trait(self, meta: Any, children: Children) -> Option:
        return Option(name=str(children[0]), value=children[1], span=self._span(meta))

    def function(self, meta: Any, children: Children) -> FunctionDecl:
        name, params, returns, origin, target = children
        if str(origin) != "python":
            self._errors.append(
                ParseError(
                    f"a function comes from python, found `{origin}`", self._token(origin), 'from python "module:name"'
                )
            )
        return FunctionDecl(
            name=self._declared(name),
            params=params,
            returns=returns,
            target=self._string(target).text,
            span=self._token(name),
        )

    def use(self, meta: Any, children: Children) -> UseDecl:
        return UseDecl(path=self._string(children[0]).text, name=self._declared(children[1]), span=self._span(meta))

    # --- steps ---

    def step(self, meta: Any, children: Children) -> Step:
        name, value = children[0], children[1]
        when = children[2] if len(children) > 2 else None
        return Step(
            name=self._declared(name), value=value, when=when, span=self._span(meta), name_span=self._token(name)
        )

    def llm(self, meta: Any, children: Children) -> Llm:
        model, options, returns = None, (), None
        parts: list[Any] = []
        for child in children:
            if isinstance(child, Token):
                model = str(child)
            elif isinstance(child, tuple):
                options = child
            elif isinstance(child, Type):
                returns = child
            else:
                parts.append(child)
        return Llm(model=model, options=options, returns=returns, parts=tuple(parts), span=self._span(meta))

    def agent(self, meta: Any, children: Children) -> Agent:
        tools = [child for child in children if isinstance(child, ListExpr)]
        limits = tuple(child for child in children if isinstance(child, Option))
        llm = self.llm(meta, [child for child in children if not isinstance(child, ListExpr | Option)])
        if len(tools) > 1:
            self._errors.append(ParseError("an agent has one list of `tools`", tools[1].span))
        return Agent(
            model=llm.model,
            options=llm.options,
            returns=llm.returns,
            parts=llm.parts,
            tools=tools[0] if tools else ListExpr(items=()),
            limits=limits,
            span=self._span(meta),
        )

    def agent_tools(self, meta: Any, children: Children) -> ListExpr:
        return ListExpr(items=tuple(children), span=self._span(meta))

    def agent_limit(self, meta: Any, children: Children) -> Option:
        return Option(name=str(children[0]), value=children[1], span=self._span(meta))

    def message(self, meta: Any, children: Children) -> MessagePart:
        return MessagePart(role=str(children[0]), content=self._template(children[1]), span=self._span(meta))  # type: ignore[arg-type]

    def history(self, meta: Any, children: Children) -> HistoryPart:
        return HistoryPart(value=children[0], span=self._span(meta))

    def unordered(self, meta: Any, children: Children) -> UnorderedPart:
        role = "user"
        if children and isinstance(children[0], Token):
            role, children = str(children[0]), children[1:]
        return UnorderedPart(role=role, parts=tuple(children), span=self._span(meta))  # type: ignore[arg-type]

    def part(self, meta: Any, children: Children) -> Template:
        return self._template(children[0])

    def for_(self, meta: Any, children: Children) -> For:
        variable, over, body, result = children
        return For(variable=self._declared(variable), over=over, body=body, result=result, span=self._token(variable))

    def body(self, meta: Any, children: Children) -> tuple[Statement, ...]:
        return tuple(children)

    def if_(self, meta: Any, children: Children) -> If:
        arms = [(children[0], children[1])]
        otherwise: tuple[Statement, ...] = ()
        for tag, *rest in children[2:]:
            if tag == "else_if":
                arms.append((rest[0], rest[1]))
            else:
                otherwise = rest[0]
        return If(arms=tuple(arms), otherwise=otherwise, span=self._span(meta))

    def else_if(self, meta: Any, children: Children) -> tuple[Any, ...]:
        return ("else_if", *children)

    def else_(self, meta: Any, children: Children) -> tuple[Any, ...]:
        return ("else", *children)

    def repeat(self, meta: Any, children: Children) -> Repeat:
        until = children[1] if len(children) > 2 else None
        return Repeat(times=children[0], until=until, body=children[-1], span=self._span(meta))

    # --- over the whole table ---

    def keep(self, meta: Any, children: Children) -> Keep:
        return Keep(condition=children[0], span=self._span(meta))

    def spread(self, meta: Any, children: Children) -> Spread:
        return Spread(value=children[0], name=self._declared(children[1]), span=self._span(meta))

    def group(self, meta: Any, children: Children) -> GroupBy:
        return GroupBy(
            keys=tuple(self._declared(key) for key in children[:-1]), body=children[-1], span=self._span(meta)
        )

    def sort(self, meta: Any, children: Children) -> Sort:
        return Sort(keys=tuple(children), span=self._span(meta))

    def sort_key(self, meta: Any, children: Children) -> tuple[Expr, bool]:
        return children[0], len(children) > 1 and str(children[1]) == "desc"

    def limit(self, meta: Any, children: Children) -> Limit:
        return Limit(count=children[0], span=self._span(meta))

    def output(self, meta: Any, children: Children) -> Output:
        return Output(items=tuple(children), span=self._span(meta))

    def item(self, meta: Any, children: Children) -> OutputItem:
        value: Expr = children[0]
        if len(children) > 1:
            return OutputItem(value=value, name=str(children[1]), span=self._span(meta))
        name = value.name if isinstance(value, Name | Field) else ""
        if not name:
            message = "a column that is not a plain name needs one"
            self._errors.append(ParseError(message, self._span(meta), "write `... as name`"))
        return OutputItem(value=value, name=name, span=self._span(meta))
