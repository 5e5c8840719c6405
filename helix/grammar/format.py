"""A syntax tree as workflow text, in one style: what `helix fmt` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helix.expr import Expr, Field, ListExpr, Literal, Name
from helix.grammar.comments import merge
from helix.grammar.layout import WIDTH, Layout
from helix.grammar.texts import template_token
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
    PromptPart,
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
from helix.types import quote
from helix.unparse import is_duration, unparse_expr

# A step's value that begins with one of these would read as an `llm` step or a loop.
_STEP_WORD = re.compile(r"(llm|for)\b")
_DECLARATIONS = Let | ModelDecl | ToolDecl | FunctionDecl | UseDecl


def format_workflow(workflow: Workflow) -> str:
    """The text of a workflow. Reading it gives the same tree, and printing that the same text.

    Comments and single blank lines stay where they are. A tree from Python has neither, and gets a blank line after its
    inputs, around each model and after its declarations.
    """
    printer = _Printer(workflow.span.source if workflow.span is not None else None)
    printer.workflow(workflow)
    return merge(printer.lines, workflow.comments, printer.places)


class _Printer(Layout):
    """One method for each kind of node."""

    def workflow(self, workflow: Workflow) -> None:
        first = self.places.first_code if self.places is not None else None
        self._params(0, f"workflow {workflow.name}", workflow.params, "", first, self.bracket_after(first))
        previous: Statement | None = None
        for statement in workflow.statements:
            index = len(self.lines)
            self._statement(0, statement)
            self.lines[index].gap = _is_apart(previous, statement)
            previous = statement

    def _body(self, depth: int, body: Sequence[Statement]) -> None:
        for statement in body:
            self._statement(depth, statement)

    def _statement(self, depth: int, statement: Statement) -> None:
        at = self.start(statement.span)
        if isinstance(statement, Let | ModelDecl | ToolDecl | FunctionDecl):
            # Its span is that of its name.
            at = self.word_before(at)
        match statement:
            case Let(name=name, value=value):
                self.value(depth, f"let {name} = ", value, at=at)
            case ModelDecl(name=name, options=options):
                self.add(depth, f"model {name} {{", at, opens=True)
                self._options(depth + 1, options)
                self.add(depth, "}", self.closing(self.bracket_after(at)), closes=True)
            case ToolDecl() | FunctionDecl():
                self._callable(depth, statement, at)
            case UseDecl(path=path, name=name):
                self.add(depth, f"use {quote(path)} as {name}", at)
            case Step():
                self._step(depth, statement, at)
            case If():
                self._if(depth, statement, at)
            case Repeat():
                self._repeat(depth, statement, at)
            case Keep(condition=condition):
                self.value(depth, "keep when ", condition, at=at)
            case Spread(value=value, name=name):
                self.value(depth, "spread ", value, f" as {name}", at=at)
            case GroupBy(keys=keys, body=body):
                self.add(depth, f"group by {', '.join(keys)} {{", at, opens=True)
                self._body(depth + 1, body)
                self.add(depth, "}", self.closing(self.bracket_after(at)), closes=True)
            case Sort(keys=keys):
                sorted_by = [(unparse_expr(key) + " desc" * descends, key.span) for key, descends in keys]
                self.items(depth, "sort by ", sorted_by, at)
            case Limit(count=count):
                self.value(depth, "limit ", count, at=at)
            case Output(items=columns):
                self.items(depth, "output ", [(_column(column), column.span) for column in columns], at)

    # --- declarations ---

    def _params(
        self,
        depth: int,
        head: str,
        params: Sequence[Param],
        tail: str,
        at: int | None,
        bracket: int | None,
        traits: Sequence[str] = (),
    ) -> None:
        """A head with its inputs in brackets; the tail goes on a line of its own where it would be too long, and the
        traits after it on as many as they need.
        """
        line = f"{head}({', '.join(_param(param) for param in params)})"
        if params and (not self.fits(depth, line) or self.commented_inside(bracket)):
            self.add(depth, f"{head}(", at, opens=True)
            for param in params:
                prefix, place = f"{param.name}: {param.type}", self.start(param.span)
                if param.default is None:
                    self.add(depth + 1, prefix, place)
                else:
                    self.value(depth + 1, f"{prefix} = ", param.default, at=place)
            self.add(depth, _with_traits(f"){tail}", traits, depth), self.closing(bracket), closes=True)
            return
        whole = " ".join((line + tail, ", ".join(traits))) if traits else line + tail
        if self.fits(depth, whole) or " from " not in tail:
            self.add(depth, whole, at)
        else:
            returns, _, origin = tail.partition(" from ")
            origin = _with_traits(f"from {origin}", traits, depth + 1)
            self.add(depth, f"{line}{returns}\n{'  ' * (depth + 1)}{origin}", at)

    def _callable(self, depth: int, declared: ToolDecl | FunctionDecl, at: int | None) -> None:
        is_tool = isinstance(declared, ToolDecl)
        origin = declared.origin if isinstance(declared, ToolDecl) else "python"
        tail = f" -> {declared.returns} from {origin} {quote(declared.target)}"
        given = declared.traits if isinstance(declared, ToolDecl) else ()
        traits = [f"{trait.name} {_setting(trait.value)}" for trait in given]
        head = f"{'tool' if is_tool else 'function'} {declared.name}"
        self._params(depth, head, declared.params, tail, at, self.bracket_after(at), traits)

    def _options(self, depth: int, options: Sequence[Option]) -> None:
        for option in options:
            prefix, at = f"{option.name}: ", self.start(option.span)
            shown = _setting(option.value)
            if is_duration(shown):
                self.add(depth, prefix + shown, at)
            else:
                self.value(depth, prefix, option.value, at=at)

    # --- steps ---

    def _step(self, depth: int, step: Step, at: int | None) -> None:
        suffix = f" when {unparse_expr(step.when)}" if step.when is not None else ""
        prefix = f"{step.name} = "
        match step.value:
            case Llm() as llm:
                self._llm(depth, prefix, llm, suffix, at)
            case For(variable=variable, over=over, body=body, result=result):
                self.value(depth, f"{prefix}for {variable} in ", over, " {", at=at, opens=True)
                self._body(depth + 1, body)
                self.value(depth + 1, "yield ", result, at=self.word_before(self.start(result.span)))
                self.add(depth, "}" + suffix, self.closing(self.bracket_after(self.end(over.span))), closes=True)
            case Expr() as value:
                shown = unparse_expr(value)
                if _STEP_WORD.match(shown):
                    self.add(depth, f"{prefix}({shown}){suffix}", at)
                else:
                    self.value(depth, prefix, value, suffix, at=at)

    def _llm(self, depth: int, prefix: str, llm: Llm, suffix: str, at: int | None) -> None:
        word = "agent" if isinstance(llm, Agent) else "llm"
        head = prefix + (word if llm.model is None else f"{word} {llm.model}")
        options = ", ".join(f"{option.name}: {_setting(option.value)}" for option in llm.options)
        options = f"({options})" if llm.options else ""
        settings = self.bracket_around(llm.options[0].span) if llm.options else None
        messages = self.bracket_around(llm.parts[0].span) if llm.parts else None
        broken = self.commented_inside(settings) or (bool(llm.options) and not self.fits(depth, f"{head}{options} {{"))
        places = self.type_places(llm.returns, self.start(llm.span))
        commented = self.commented_inside(messages) or (bool(places) and self.commented(places[0], places[-1]))
        if len(llm.parts) == 1 and not broken and not commented and not isinstance(llm, Agent):
            (part,) = llm.parts
            returns = "" if llm.returns is None else f" -> {llm.returns}"
            if isinstance(part, MessagePart):
                line = f"{head}{options}{returns} {{ {part.role} {template_token(part.content, depth)} }}{suffix}"
                if self.fits(depth, line):
                    self.add(depth, line, at)
                    return
        if broken:
            self.add(depth, f"{head}(", at, opens=True)
            self._options(depth + 1, llm.options)
            head, options, at = ")", "", self.closing(settings)
        if llm.returns is None:
            self.add(depth, f"{head}{options} {{", at, opens=True, closes=broken)
        else:
            self.kind(depth, f"{head}{options} -> ", llm.returns, " {", at=at, places=places, closes=broken)
        if isinstance(llm, Agent):
            self._agent_parts(depth + 1, llm)
        else:
            for part in llm.parts:
                self._part(depth + 1, part)
        end = self.end(llm.span)
        self.add(depth, "}" + suffix, None if end is None else end - 1, closes=True)

    def _agent_parts(self, depth: int, agent: Agent) -> None:
        """The tools, limits and messages of an agent, as they stand in the source; without one in this order."""
        entries: list[ListExpr | Option | PromptPart] = [agent.tools, *agent.limits, *agent.parts]
        for entry in sorted(entries, key=lambda each: self.start(each.span) or 0):
            if isinstance(entry, ListExpr):
                self.value(depth, "tools ", entry, at=self.start(entry.span))
            elif isinstance(entry, Option):
                self.add(depth, f"{entry.name} {_setting(entry.value)}", self.start(entry.span))
            else:
                self._part(depth, entry)

    def _part(self, depth: int, part: PromptPart) -> None:
        at = self.start(part.span)
        match part:
            case MessagePart(role=role, content=content):
                self.add(depth, f"{role} {template_token(content, depth)}", at)
            case HistoryPart(value=value):
                self.value(depth, "history ", value, at=at)
            case UnorderedPart(role=role, parts=parts):
                word = "unordered {" if role == "user" else f"{role} unordered {{"
                self.add(depth, word, at, opens=True)
                for content in parts:
                    self.add(
                        depth + 1,
                        f"part {template_token(content, depth + 1)}",
                        self.word_before(self.start(content.span)),
                    )
                self.add(depth, "}", self.closing(self.bracket_after(at)), closes=True)

    def _if(self, depth: int, branch: If, at: int | None) -> None:
        for position, (condition, body) in enumerate(branch.arms):
            word = "} else if " if position else "if "
            self.value(depth, word, condition, " {", at=at, opens=True, closes=position > 0)
            self._body(depth + 1, body)
            at = self.closing(self.bracket_after(self.end(condition.span)))
        if branch.otherwise:
            self.add(depth, "} else {", at, opens=True, closes=True)
            self._body(depth + 1, branch.otherwise)
            at = self.closing(self.bracket_after(None if at is None else at + 1))
        self.add(depth, "}", at, closes=True)

    def _repeat(self, depth: int, loop: Repeat, at: int | None) -> None:
        prefix = "repeat up to "
        if loop.until is not None:
            prefix += f"{unparse_expr(loop.times)} until "
        last = loop.times if loop.until is None else loop.until
        self.value(depth, prefix, last, " {", at=at, opens=True)
        self._body(depth + 1, loop.body)
        self.add(depth, "}", self.closing(self.bracket_after(self.end(last.span))), closes=True)


def _is_apart(previous: Statement | None, statement: Statement) -> bool:
    """Whether a blank line goes between two statements of a tree that has no text."""
    if previous is None or isinstance(previous, ModelDecl) or isinstance(statement, ModelDecl):
        return True
    return isinstance(previous, _DECLARATIONS) and not isinstance(statement, _DECLARATIONS)


def _with_traits(text: str, traits: Sequence[str], depth: int) -> str:
    """A declaration's last line with its traits, broken after commas where it would be too long."""
    lines, line = [], text
    for place, trait in enumerate(traits):
        joined = f"{line}{', ' if place else ' '}{trait}"
        if place and 2 * depth + len(joined) > WIDTH:
            lines.append(f"{line},")
            line = f"  {trait}"
        else:
            line = joined
    return f"\n{'  ' * depth}".join((*lines, line))


def _param(param: Param) -> str:
    shown = f"{param.name}: {param.type}"
    return shown if param.default is None else f"{shown} = {unparse_expr(param.default)}"


def _setting(value: Expr) -> str:
    """The value of an option or a trait: a duration goes without quotes."""
    if isinstance(value, Literal) and isinstance(value.value, str) and is_duration(value.value):
        return value.value
    return unparse_expr(value)


def _column(item: OutputItem) -> str:
    own = item.value.name if isinstance(item.value, Name | Field) else None
    shown = unparse_expr(item.value)
    return shown if own == item.name else f"{shown} as {item.name}"
