"""LLM steps: models, and the messages of a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from types import GenericAlias
from typing import Any
from typing import Literal as OneOf

from helix.dsl.annotations import is_structured, to_type
from helix.dsl.markers import refuse_markers
from helix.dsl.names import checked_name
from helix.dsl.places import assigned_name, here, problem
from helix.dsl.trace import Symbol, Trace, current
from helix.dsl.values import Value, is_constant, kind_of
from helix.expr import Call, Expr, Name
from helix.syntax import HistoryPart, Let, Llm, MessagePart, ModelDecl, Option, PromptPart, UnorderedPart

Role = OneOf["system", "user", "assistant"]
_ROLES: tuple[Role, ...] = ("system", "user", "assistant")
_SWITCHES = ("cache", "coerce")


class Message:
    """A message of a prompt, or a stretch of messages, until a step is made of it."""

    __slots__ = ("kind", "parts", "role")

    def __init__(self, kind: OneOf["message", "history", "unordered"], role: Role, parts: tuple[Any, ...]) -> None:
        self.kind = kind
        self.role = role
        self.parts = parts

    def part(self, trace: Trace) -> PromptPart:
        """The message in the syntax tree."""
        span = here()
        if self.kind == "history":
            return HistoryPart(value=trace.lift(self.parts[0]), span=span)
        if self.kind == "unordered":
            templates = tuple(trace.template(each, "a part of a message") for each in self.parts)
            return UnorderedPart(role=self.role, parts=templates, span=span)
        return MessagePart(role=self.role, content=trace.template(self.parts[0], f"a {self.role} message"), span=span)


def system(text: Any) -> Message:
    """A system message: a text, an f-string or a value."""
    return Message("message", "system", (text,))


def user(text: Any) -> Message:
    """A user message: a text, an f-string or a value."""
    return Message("message", "user", (text,))


def assistant(text: Any) -> Message:
    """An assistant message: a text, an f-string or a value."""
    return Message("message", "assistant", (text,))


def history(turns: Any) -> Message:
    """The messages of a list of records {role, content}, such as the turns of a conversation so far."""
    return Message("history", "user", (turns,))


def unordered(*parts: Any, role: Role = "user") -> Message:
    """One message made of parts whose order does not matter to the author: the optimizer may lay them out."""
    if role not in _ROLES:
        raise problem(f"a message is of system, user or assistant, found {role!r}")
    if not parts:
        raise problem("an unordered message has no part", "write `hx.unordered(policy, ticket)`")
    return Message("unordered", role, parts)


def truncate(value: Any, *, keep: OneOf["head", "tail"] = "head") -> Value:
    """For `on_overflow=`: cuts this value where a prompt is too long, and keeps its head or its tail."""
    trace = current("`hx.truncate(...)`")
    subject = trace.lift(value)
    if not isinstance(subject, Symbol | Name):
        raise problem("`hx.truncate` takes an input or the value of a step")
    if keep not in ("head", "tail"):
        raise problem(f'`keep` is "head" or "tail", found {keep!r}')
    named = (("keep", Name(name=keep)),)
    return Value(Call(function="truncate", args=(subject,), named=named, span=here()), trace)


class Model:
    """A model with its options. Called inside a workflow function it makes an LLM step."""

    def __init__(self, name: str | None = None, options: dict[str, Any] | None = None) -> None:
        self._options = dict(options or {}) if name is None else {"name": name, **(options or {})}
        self._hint = assigned_name()
        for option, value in self._options.items():
            if not is_constant(value):
                raise problem(f"option `{option}` of a model must be a constant", "give it to the step instead")

    def __call__(
        self,
        user: Any = None,
        *,
        system: Any = None,
        history: Any = None,
        assistant: Any = None,
        messages: Iterable[Any] | None = None,
        returns: Any = None,
        when: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> Value:
        """Makes an LLM step; the value that stands for its reply.

        The messages come in the order system, history, user, assistant; `messages=[hx.system(...), ...]` gives any
        order and number. `returns` is the Python type of the reply (text if left out), `when` the condition under which
        the step is run, `name` its name (the variable it is assigned to if left out). All else are options:
        `temperature`, `max_tokens`, `sample`, `cache`, ...
        """
        trace = current("a call of a model")
        parts = self.prompt(trace, user, system=system, history=history, assistant=assistant, messages=messages)
        llm = self.syntax(trace, parts, returns, options)
        sampled = options.get("sample", 1) != 1
        typed = None if returns is None or not is_structured(returns) else returns
        if typed is not None and sampled:
            typed = GenericAlias(list, (typed,))
        return self.step(trace, llm, python=typed, when=when, name=name)

    @staticmethod
    def prompt(
        trace: Trace, user: Any, *, system: Any, history: Any, assistant: Any, messages: Iterable[Any] | None
    ) -> tuple[PromptPart, ...]:
        """The messages of a step in the syntax tree."""
        given = {"system": system, "history": history, "user": user, "assistant": assistant}
        return tuple(message.part(trace) for message in _messages(given, messages))

    def syntax(self, trace: Trace, parts: tuple[PromptPart, ...], returns: Any, options: dict[str, Any]) -> Llm:
        """A step of this model in the syntax tree."""
        kind = None if returns is None else to_type(returns, "`returns`")
        return Llm(
            model=self._declared(trace),
            options=tuple(_option(trace, option, value) for option, value in options.items()),
            returns=kind,
            parts=parts,
            span=here(),
        )

    @staticmethod
    def step(trace: Trace, llm: Llm, *, python: Any, when: Any, name: str | None) -> Value:
        """Makes the step; the value that stands for its result, objects of the type `python` in Python."""
        hint = assigned_name() if name is None else checked_name(name, "a step")
        condition = None if when is None else trace.lift(when)
        return trace.step(llm, hint=hint, explicit=name is not None, when=condition, python=python)

    def _declared(self, trace: Trace) -> str | None:
        span = here()

        def make(name: str) -> ModelDecl:
            options = tuple(_option(trace, option, value) for option, value in self._options.items())
            return ModelDecl(name=name, options=options, span=span)

        return trace.declare(self, self._hint, "model", make)


class DefaultModel(Model):
    """The model that a run is given: a step that names none."""

    def __init__(self) -> None:
        super().__init__()

    def _declared(self, trace: Trace) -> str | None:
        return None


def model(name: str | None = None, **options: Any) -> Model:
    """Declares a model: the name under which the engine knows it, and options such as `temperature` and `engine`.

    In the workflow it is called as the variable it is assigned to.
    """
    return Model(name, options)


llm = DefaultModel()


def _messages(given: dict[str, Any], messages: Iterable[Any] | None) -> list[Message]:
    if messages is None:
        found = [_keyword(role, value) for role, value in given.items() if value is not None]
        if not found:
            raise problem("a call of a model has no message", "write `user=...`")
        return found
    if any(value is not None for value in given.values()):
        raise problem("`messages` is the whole prompt", "put the system and user messages into the list too")
    if isinstance(messages, Value | str):
        raise problem("`messages` is a list of messages", "a list that the workflow knows only later is `history=...`")
    found = [_listed(message) for message in messages]
    if not found:
        raise problem("`messages` is empty", "write `messages=[hx.user(...)]`")
    return found


def _keyword(role: str, value: Any) -> Message:
    if role == "history":
        return Message("history", "user", (value,))
    known: Role = "system" if role == "system" else "assistant" if role == "assistant" else "user"
    if isinstance(value, Message):
        if value.kind == "history":
            raise problem(f"`{role}` is one message", "a list of turns is `history=...`")
        return Message(value.kind, known, value.parts)
    return Message("message", known, (value,))


def _listed(message: Any) -> Message:
    if isinstance(message, Message):
        return message
    if isinstance(message, dict) and set(message) == {"role", "content"} and message["role"] in _ROLES:
        return Message("message", message["role"], (message["content"],))
    help = "write `hx.system(...)`, `hx.user(...)`, `hx.assistant(...)`, `hx.history(...)` or `hx.unordered(...)`"
    raise problem(f"`messages` holds messages, found {kind_of(message)}", help)


def _option(trace: Trace, name: str, value: Any) -> Option:
    """An option of a model or step: a constant, or a `let` of this workflow."""
    span = here()
    if isinstance(value, str):
        refuse_markers(value, f"option `{name}`", "an option is the same for all rows; `hx.let(...)` makes a constant")
    if name in _SWITCHES and isinstance(value, bool):
        return Option(name=name, value=Name(name="on" if value else "off", span=span), span=span)
    expr = trace.lift(value)
    if not is_constant(value) and not _is_setting(trace, expr):
        help = "an option is the same for all rows; `hx.let(...)` makes a constant"
        raise problem(f"option `{name}` must be a constant, found a value of the workflow", help)
    return Option(name=name, value=expr, span=span)


def _is_setting(trace: Trace, expr: Expr) -> bool:
    """Whether an expression is a `let`, or the `truncate(...)` of `on_overflow`."""
    if isinstance(expr, Call):
        return expr.function == "truncate"
    return isinstance(expr, Symbol) and isinstance(trace.declarations.get(expr.binding.name or ""), Let)
