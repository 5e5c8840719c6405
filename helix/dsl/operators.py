"""Built-in functions and logic of expressions: `hx.join(views, ", ")`, `hx.fn.round(score)`, `hx.and_(a, b)`."""

from __future__ import annotations

from typing import Any

from helix.dsl.places import here, problem
from helix.dsl.trace import current, tracing
from helix.dsl.values import Value, is_constant
from helix.errors import name_help
from helix.expr import Binary, Call, Unary
from helix.functions import ALIASES, FUNCTIONS


class BuiltIn:
    """A built-in function. With a value of the workflow it makes an expression; with constants only it is computed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = name
        self.__doc__ = f"The built-in `{name}({', '.join(FUNCTIONS[name].parameters)})` of expressions."

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._positional(args, kwargs)
        if tracing() is None or all(is_constant(value) for value in given):
            return FUNCTIONS[self.name].run(*given)
        trace = current(f"`hx.fn.{self.name}`")
        return Value(Call(function=self.name, args=tuple(trace.lift(v) for v in given), span=here()), trace)

    def __repr__(self) -> str:
        return f"<built-in function {self.name}>"

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments by position, as the text form writes them."""
        known = FUNCTIONS[self.name]
        given, left = list(args), dict(kwargs)
        for parameter in known.parameters[len(args) :]:
            if parameter not in left:
                break
            given.append(left.pop(parameter))
        for name in left:
            if name not in known.parameters:
                help = name_help(name, known.parameters, "parameters")
                raise problem(f"`{self.name}` has no parameter `{name}`", help)
            if name in known.parameters[: len(args)]:
                raise problem(f"`{self.name}` is given `{name}` twice")
            listed = ", ".join(known.parameters[: known.parameters.index(name)])
            raise problem(f"`{self.name}` takes `{name}` only together with {listed}")
        if not known.required <= len(given) <= len(known.parameters):
            listed = ", ".join(known.parameters)
            wants = str(known.required) if known.required == len(known.parameters) else f"{known.required} or more"
            raise problem(f"`{self.name}` takes {wants} of ({listed}), found {len(given)}")
        return given


class BuiltIns:
    """All built-in functions as attributes: `hx.fn.upper(name)`."""

    def __getattr__(self, name: str) -> BuiltIn:
        if name.startswith("__"):
            raise AttributeError(name)
        known = ALIASES.get(name, name)
        if known not in FUNCTIONS:
            raise problem(f"there is no built-in function `{name}`", name_help(name, FUNCTIONS, "functions"))
        return _BUILT_INS[known]

    def __dir__(self) -> list[str]:
        return sorted(FUNCTIONS)


_BUILT_INS = {name: BuiltIn(name) for name in FUNCTIONS}
fn = BuiltIns()

default = _BUILT_INS["default"]
first = _BUILT_INS["first"]
join = _BUILT_INS["join"]
last = _BUILT_INS["last"]
length = _BUILT_INS["len"]
lower = _BUILT_INS["lower"]
replace = _BUILT_INS["replace"]
split = _BUILT_INS["split"]
take = _BUILT_INS["take"]
trim = _BUILT_INS["trim"]
unique = _BUILT_INS["unique"]
upper = _BUILT_INS["upper"]


def and_(first: Any, *more: Any) -> Value:
    """Whether all conditions hold."""
    return _chain("and", first, more)


def or_(first: Any, *more: Any) -> Value:
    """Whether one of the conditions holds."""
    return _chain("or", first, more)


def not_(condition: Any) -> Value:
    """Whether a condition does not hold."""
    trace = current("`hx.not_(...)`")
    return Value(Unary(op="not", operand=trace.lift(condition), span=here()), trace)


def in_(item: Any, container: Any) -> Value:
    """Whether a list has an item, a record a field, or a text a part."""
    return _binary("in", item, container)


def not_in(item: Any, container: Any) -> Value:
    """Whether a list lacks an item, a record a field, or a text a part."""
    return _binary("not in", item, container)


def _chain(op: str, first: Any, more: tuple[Any, ...]) -> Value:
    trace = current(f"`hx.{op}_(...)`")
    expr = trace.lift(first)
    for each in more:
        expr = Binary(op=op, left=expr, right=trace.lift(each), span=here())
    return Value(expr, trace)


def _binary(op: str, left: Any, right: Any) -> Value:
    trace = current(f"`hx.{op.replace(' ', '_')}(...)`")
    return Value(Binary(op=op, left=trace.lift(left), right=trace.lift(right), span=here()), trace)
