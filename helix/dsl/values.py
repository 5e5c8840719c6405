"""Symbolic values: what the parameters and steps of a workflow function are while it is traced.

A `Value` stands for what a row will have; operators on it build expressions. What Python would have to know now (a
truth value, a length, the next item) raises an error that says what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from helix.dsl.places import here, problem
from helix.errors import name_help
from helix.expr import Binary, Call, Expr, Field, Index, Unary
from helix.functions import ALIASES, FUNCTIONS
from helix.unparse import unparse_expr

if TYPE_CHECKING:
    from helix.dsl.trace import Trace

_TRUTH = "a branch is `hx.choose(...)` or `step.when(...)`; conditions are `hx.and_`, `hx.or_`, `hx.not_`, `hx.in_`"


class Value:
    """What each row has its own of. Fields are `.name` or `["name"]`, items `[0]`, a condition `.when(...)`."""

    __slots__ = ("_expr", "_trace")

    _expr: Expr
    _trace: Trace

    def __init__(self, expr: Expr, trace: Trace) -> None:
        object.__setattr__(self, "_expr", expr)
        object.__setattr__(self, "_trace", trace)

    def when(self, condition: Any) -> Value:
        """The value where the condition holds, null elsewhere; a step is then not run at all."""
        from helix.dsl.tables import conditional

        return conditional(self, condition)

    # --- parts ---

    def __getattr__(self, name: str) -> Value:
        # Python and notebooks look for names such as __array__ and _repr_html_; none of them is a field.
        if name.startswith("_"):
            raise AttributeError(name)
        return Value(Field(base=self._expr, name=name, span=here()), self._trace)

    def __getitem__(self, key: Any) -> Value:
        if isinstance(key, slice):
            raise problem("a value has no slices", "write `hx.take(value, 10)` for the first items")
        if isinstance(key, str) and not _holds_marker(key):
            return Value(Field(base=self._expr, name=key, span=here()), self._trace)
        if isinstance(key, bool) or not isinstance(key, int | str | Value):
            raise problem(f"an index is an int or a text, found {type(key).__name__}")
        return Value(Index(base=self._expr, index=self._trace.lift(key), span=here()), self._trace)

    # --- comparison and arithmetic ---

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._binary("==", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._binary("!=", other)

    def __lt__(self, other: Any) -> Value:
        return self._binary("<", other)

    def __le__(self, other: Any) -> Value:
        return self._binary("<=", other)

    def __gt__(self, other: Any) -> Value:
        return self._binary(">", other)

    def __ge__(self, other: Any) -> Value:
        return self._binary(">=", other)

    def __add__(self, other: Any) -> Value:
        return self._binary("+", other)

    def __radd__(self, other: Any) -> Value:
        return self._reversed("+", other)

    def __sub__(self, other: Any) -> Value:
        return self._binary("-", other)

    def __rsub__(self, other: Any) -> Value:
        return self._reversed("-", other)

    def __mul__(self, other: Any) -> Value:
        return self._binary("*", other)

    def __rmul__(self, other: Any) -> Value:
        return self._reversed("*", other)

    def __truediv__(self, other: Any) -> Value:
        return self._binary("/", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._reversed("/", other)

    def __and__(self, other: Any) -> Value:
        return self._binary("and", self._condition("&", other))

    def __rand__(self, other: Any) -> Value:
        return self._reversed("and", self._condition("&", other))

    def __or__(self, other: Any) -> Value:
        return self._binary("or", self._condition("|", other))

    def __ror__(self, other: Any) -> Value:
        return self._reversed("or", self._condition("|", other))

    def __invert__(self) -> Value:
        return Value(Unary(op="not", operand=self._expr, span=here()), self._trace)

    def __neg__(self) -> Value:
        return Value(Unary(op="-", operand=self._expr, span=here()), self._trace)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return Value(Call(function="abs", args=(self._expr,), span=here()), self._trace)

    def __round__(self, digits: int | None = None) -> Value:
        args = (self._expr,) if digits is None else (self._expr, self._trace.lift(digits))
        return Value(Call(function="round", args=args, span=here()), self._trace)

    def _binary(self, op: str, other: Any) -> Value:
        return Value(Binary(op=op, left=self._expr, right=self._trace.lift(other), span=here()), self._trace)

    def _reversed(self, op: str, other: Any) -> Value:
        return Value(Binary(op=op, left=self._trace.lift(other), right=self._expr, span=here()), self._trace)

    def _condition(self, op: str, other: Any) -> Any:
        # In Python `a == "x" & b` means `a == ("x" & b)`: the slip shows by a bare constant beside the operator.
        if isinstance(other, Value | bool):
            return other
        found = f"`{op}` joins two conditions, found {other!r}"
        raise problem(found, f'put parentheses around each comparison: `(a == "x") {op} (b > 3)`')

    # --- text ---

    def __format__(self, spec: str) -> str:
        if spec:
            help = "format the value in a tool or in a function marked `@hx.function`, and use its result"
            raise problem(f"a value of a workflow takes no format, found `:{spec}`", help)
        return self._trace.mark(self._expr)

    def __str__(self) -> str:
        return self._trace.mark(self._expr)

    def __repr__(self) -> str:
        from helix.dsl.markers import CLOSE, OPEN

        # The marks around it make an `!r` in a prompt known for what it is.
        return f"{OPEN}<value {describe(self._expr)}>{CLOSE}"

    # --- what cannot be known before a row is there ---

    def __bool__(self) -> NoReturn:
        self._refuse("the truth", _TRUTH)

    def __len__(self) -> NoReturn:
        self._refuse("the length", "write `hx.length(value)`")

    def __iter__(self) -> NoReturn:
        self._refuse("the number of items", "write `hx.map(lambda item: ..., value)`")

    def __contains__(self, item: object) -> NoReturn:
        self._refuse("the content", "write `hx.in_(item, value)`")

    def __reversed__(self) -> NoReturn:
        self._refuse("the last item", "write `hx.fn.reverse(value)`")

    def __hash__(self) -> NoReturn:
        message = f"`{describe(self._expr)}` is known only when a row is run, so it cannot be a key or in a set"
        raise problem(message, "use texts as keys; a branch on a value is `hx.choose(...)`")

    def __int__(self) -> NoReturn:
        self._refuse("the value", "write `hx.fn.int(value)`")

    def __float__(self) -> NoReturn:
        self._refuse("the value", "write `hx.fn.float(value)`")

    def __index__(self) -> NoReturn:
        self._refuse("the value", "write `hx.map(lambda item: ..., hx.fn.range(value))` to repeat something")

    def __complex__(self) -> NoReturn:
        self._refuse("the value", "write `hx.fn.float(value)`")

    def __floor__(self) -> NoReturn:
        self._refuse("the value", "write `hx.fn.int(value)` or `round(value)`")

    def __ceil__(self) -> NoReturn:
        self._refuse("the value", "write `round(value)`")

    def __trunc__(self) -> NoReturn:
        self._refuse("the value", "write `hx.fn.int(value)`")

    def _refuse(self, what: str, help: str) -> NoReturn:
        raise problem(f"{what} of `{describe(self._expr)}` is known only when a row is run", help)

    # --- what the language does not have ---

    def _no_operator(self, op: str) -> NoReturn:
        raise problem(f"expressions have no `{op}`", "compute it in a function marked `@hx.function`")

    def __mod__(self, other: Any) -> NoReturn:
        self._no_operator("%")

    def __rmod__(self, other: Any) -> NoReturn:
        self._no_operator("%")

    def __floordiv__(self, other: Any) -> NoReturn:
        self._no_operator("//")

    def __rfloordiv__(self, other: Any) -> NoReturn:
        self._no_operator("//")

    def __pow__(self, other: Any) -> NoReturn:
        self._no_operator("**")

    def __rpow__(self, other: Any) -> NoReturn:
        self._no_operator("**")

    def __matmul__(self, other: Any) -> NoReturn:
        self._no_operator("@")

    def __xor__(self, other: Any) -> NoReturn:
        self._no_operator("^")

    def __lshift__(self, other: Any) -> NoReturn:
        self._no_operator("<<")

    def __rshift__(self, other: Any) -> NoReturn:
        self._no_operator(">>")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self._expr.name if isinstance(self._expr, Field) else ""
        known = ALIASES.get(name, {"strip": "trim"}.get(name, name))
        help = f"write `hx.fn.{known}(...)` with the value first" if known in FUNCTIONS else None
        raise problem(f"`{describe(self._expr)}` cannot be called: a value has no methods", help)

    def __await__(self) -> NoReturn:
        raise problem(
            "a step is not awaited", "write the step without `await`: Helix runs steps side by side by itself"
        )

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise problem(f"a value cannot be changed, so `.{name}` cannot be set", "make a new record: `{...}`")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise problem("a value cannot be changed, so its items cannot be set", "make a new list or record")

    def __delattr__(self, name: str) -> NoReturn:
        raise problem(f"a value cannot be changed, so `.{name}` cannot be removed", "make a new record: `{...}`")

    def __copy__(self) -> Value:
        return self

    def __deepcopy__(self, memo: Any) -> Value:
        return self


class Names:
    """The values that a branch or a loop leaves behind, by name: `done.reply`."""

    __slots__ = ("_values",)

    _values: dict[str, Value]

    def __init__(self, values: dict[str, Value]) -> None:
        object.__setattr__(self, "_values", values)

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._values:
            raise problem(f"the block gives no `{name}`", name_help(name, self._values, "names"))
        return self._values[name]

    def __getitem__(self, name: str) -> Value:
        return self.__getattr__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise problem(f"`{name}` cannot be set here", "return it from the function of the block")


def describe(expr: Expr) -> str:
    """An expression as a message shows it."""
    from helix.dsl.trace import shown

    text = unparse_expr(shown(expr))
    return text if len(text) <= 60 else text[:57] + "..."


def is_constant(value: object) -> bool:
    """Whether something of Python has no value of a workflow in it, at any depth."""
    match value:
        case Value() | Names():
            return False
        case str():
            return not _holds_marker(value)
        case list() | tuple():
            return all(is_constant(item) for item in value)
        case dict():
            return all(is_constant(item) for pair in value.items() for item in pair)
    if is_dataclass(value) and not isinstance(value, type):
        return all(is_constant(getattr(value, each.name)) for each in fields(value))
    return not is_tstring(value)


def kind_of(value: object) -> str:
    """What something of Python is, for messages."""
    if isinstance(value, Value):
        return "a value of the workflow"
    return "nothing" if value is None else type(value).__name__


def is_tstring(value: object) -> bool:
    """Whether something is a template string, `t"..."` (Python 3.14)."""
    return type(value).__module__ == "string.templatelib" and type(value).__name__ == "Template"


def _holds_marker(text: str) -> bool:
    from helix.dsl.markers import holds_marker

    return holds_marker(text)
