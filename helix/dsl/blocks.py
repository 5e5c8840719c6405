"""Steps inside steps: mapping over a list, branches that join, and bounded loops with values carried round."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import GenericAlias
from typing import Any

from helix.dsl.markers import refuse_markers
from helix.dsl.merge import step_of
from helix.dsl.names import checked_name
from helix.dsl.places import assigned_name, function_span, here, problem
from helix.dsl.trace import (
    Arm,
    Binding,
    Block,
    Carried,
    ChooseItem,
    MapValue,
    RepeatItem,
    Trace,
    current,
    python_type,
)
from helix.dsl.values import Names, Value, kind_of
from helix.expr import Expr

# --- map ----------------------------------------------------------------------------------------------------------


def map(function: Callable[[Any], Any] | None = None, over: Any = None, *, name: str | None = None) -> Any:
    """Runs steps for each item of a list; the value that stands for the list of results.

    `hx.map(lambda role: main(user=...), ["lawyer", "engineer"])`, or over a function with steps of its own:

    ```
    @hx.map(over=roles)
    def opinions(role):
        draft = main(user=f"As {role}: {ticket}")
        return main(user=f"Improve: {draft}")
    ```
    """
    trace = current("`hx.map(...)`")
    if over is None:
        raise problem("`hx.map` needs a list to go over", "write `hx.map(lambda item: ..., items)`")
    if function is None:
        return lambda function: _map(trace, function, over, function.__name__, name)
    return _map(trace, function, over, assigned_name(), name)


def _map(trace: Trace, function: Callable[[Any], Any], over: Any, hint: str | None, name: str | None) -> Value:
    span = here()
    if name is not None:
        hint = checked_name(name, "a step")
    (parameter,) = _parameters(function, "`hx.map`", 1)
    lifted = trace.lift(over)
    block = Block("map", trace.block)
    variable = Binding(block=block, hint=parameter, local=True, span=span)
    with trace.inside(block):
        returned = function(trace.value(variable))
        if returned is None:
            help = "return the value that is collected for each item"
            raise problem("the function of `hx.map` returns nothing", help, function_span(function) or span)
        result = trace.lift(returned)
    python = python_type(result)
    made = MapValue(variable=variable, over=lifted, block=block, result=result)
    kind = None if python is None else GenericAlias(list, (python,))
    return trace.step(made, hint=hint, explicit=name is not None, python=kind, span=span)


# --- choose -------------------------------------------------------------------------------------------------------


def choose(
    condition: Any,
    then: Callable[[], Any],
    *more: Any,
    otherwise: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Runs the steps of one branch: `hx.choose(category == "bug", then=lambda: ..., otherwise=lambda: ...)`.

    Each branch is a function; what it returns joins in one value (null where no branch was taken). A branch that
    returns a dict joins name by name, and the result has the names as attributes. Further conditions follow in pairs:
    `hx.choose(a, lambda: ..., b, lambda: ..., otherwise=lambda: ...)`.
    """
    trace = current("`hx.choose(...)`")
    hint = assigned_name() if name is None else checked_name(name, "a step")
    span = here()
    if len(more) % 2:
        raise problem("`hx.choose` takes pairs of a condition and a function", "the last branch is `otherwise=`")
    item = ChooseItem(arms=[], joins={}, span=span)
    branches = [(condition, then), *zip(more[::2], more[1::2], strict=True)]
    returned = [_arm(trace, item, trace.lift(test), branch) for test, branch in branches]
    if otherwise is not None:
        returned.append(_arm(trace, item, None, otherwise))
    trace.block.items.append(item)
    named = [isinstance(each, dict) for each in returned if each is not None]
    if any(named) and not all(named):
        raise problem("one branch returns a dict and another a single value", "return the same from all branches")
    if all(named):
        if name is not None:
            raise problem("`name` is for branches that return one value", "the keys of the dicts are the names")
        keys = dict.fromkeys(key for arm in item.arms for key in arm.results)
        return Names({key: _join(trace, item, key, checked_name(key, "a value of a branch"), False) for key in keys})
    return _join(trace, item, "", hint, name is not None)


def _arm(trace: Trace, item: ChooseItem, condition: Expr | None, branch: Any) -> Any:
    if not callable(branch) or isinstance(branch, Value):
        help = "write `lambda: ...`, so that its steps belong to the branch"
        raise problem(f"a branch is a function, found {kind_of(branch)}", help)
    _parameters(branch, "a branch of `hx.choose`", 0)
    arm = Arm(condition=condition, block=Block("branch", trace.block, item))
    item.arms.append(arm)
    with trace.inside(arm.block):
        returned = branch()
        if isinstance(returned, Names):
            returned = dict(returned._values)
        # What is given is read here, so that a text or a record is taken apart inside the branch.
        given = returned if isinstance(returned, dict) else {} if returned is None else {"": returned}
        arm.results = {refuse_markers(key, "a name", "names are constants"): trace.lift(v) for key, v in given.items()}
    return returned


def _join(trace: Trace, item: ChooseItem, key: str, hint: str | None, explicit: bool) -> Value:
    kinds = [python_type(arm.results[key]) for arm in item.arms if key in arm.results]
    python = kinds[0] if len(kinds) == len(item.arms) and all(kind is kinds[0] for kind in kinds) else None
    binding = Binding(block=trace.block, hint=hint, explicit=explicit, span=item.span, python=python)
    item.joins[key] = binding
    return trace.value(binding)


# --- repeat -------------------------------------------------------------------------------------------------------


def repeat(
    body: Callable[..., Any] | None = None,
    *,
    up_to: Any,
    until: Callable[[Any], Any] | None = None,
    **carried: Any,
) -> Any:
    """Runs steps again until a condition holds, at most `up_to` times.

    Values given by name are carried round: the body takes them as parameters and returns their next values, with any
    other values of the round in a dict. `until` reads the values of the round by name. The result has them as
    attributes: their values after the last round.

    ```
    @hx.repeat(up_to=3, until=lambda now: now.review.ok, reply=main(user=ticket))
    def done(reply):
        review = main(user=f"Judge: {reply}", returns=Review)
        return {"review": review, "reply": main(user=f"Improve {reply} by {review.note}")}

    return hx.output(reply=done.reply, note=done.review.note)
    ```
    """
    trace = current("`hx.repeat(...)`")
    if body is None:
        return lambda body: _repeat(trace, body, up_to, until, carried)
    return _repeat(trace, body, up_to, until, carried)


def _repeat(
    trace: Trace, body: Callable[..., Any], up_to: Any, until: Callable[[Any], Any] | None, given: dict[str, Any]
) -> Names:
    span = here()
    known = set(_parameters(body, "`hx.repeat`"))
    if known != set(given):
        message = f"the function of `hx.repeat` takes {_listed(known)}, but {_listed(set(given))} is carried round"
        raise problem(message, "each value given by name is a parameter, and the other way round", function_span(body))
    times = trace.lift(up_to)
    initial = {checked_name(key, "a carried value"): trace.lift(value) for key, value in given.items()}
    block = Block("repeat", trace.block)
    item = RepeatItem(times=times, block=block, tail=Block("repeat", block), span=span)
    now = {key: Binding(block=block, hint=key, local=True, span=span) for key in initial}
    with trace.inside(block):
        returned = body(**{key: trace.value(binding) for key, binding in now.items()})
        results = _results(trace, returned, list(now), function_span(body))
    last = {key: Binding(block=trace.block, hint=key, span=span) for key in initial}
    item.carried = [
        Carried(now=now[key], last=last[key], initial=initial[key], following=results[key]) for key in initial
    ]
    for key, binding in last.items():
        kinds = python_type(initial[key]), python_type(results[key])
        binding.python = kinds[0] if kinds[0] is kinds[1] else None
    left = {key: trace.value(last[key]) if key in last else Value(results[key], trace) for key in results}
    names = Names(left)
    if until is not None:
        _parameters(until, "`until`", 1)
        with trace.inside(item.tail):
            item.until = trace.lift(until(names))
    trace.block.items.append(item)
    return names


def _results(trace: Trace, returned: Any, carried: list[str], span: Any) -> dict[str, Expr]:
    """What a round gives by name; each is a step, so that it can be read after the loop."""
    if isinstance(returned, Names):
        returned = dict(returned._values)
    if not isinstance(returned, dict):
        if len(carried) != 1 or returned is None:
            help = f"return a dict: {{{', '.join(f'{name!r}: ...' for name in carried or ['reply'])}}}"
            raise problem("the function of `hx.repeat` returns its values by name", help, span)
        returned = {carried[0]: returned}
    for name in carried:
        if name not in returned:
            help = f"return its next value: {{{name!r}: ...}}"
            raise problem(f"the function of `hx.repeat` does not return `{name}`, which is carried round", help, span)
    found: dict[str, Expr] = {}
    for key, value in returned.items():
        name = checked_name(key, "a value of a loop")
        expr = trace.lift(value)
        if name not in carried:
            made = step_of(trace.block, expr)
            if made is None:
                expr = trace.lift(trace.step(expr, hint=name))
            elif made.binding.hint is None:
                made.binding.hint = name
        found[name] = expr
    return found


# --- shared -------------------------------------------------------------------------------------------------------


def _parameters(function: Any, what: str, count: int | None = None) -> list[str]:
    """The parameters of a function of a block. Raises BindError where it is none, or takes another number of them."""
    if not callable(function) or isinstance(function, Value):
        raise problem(f"{what} takes a function, found {kind_of(function)}", "write `lambda ...: ...`")
    if inspect.iscoroutinefunction(function):
        raise problem(f"the function of {what} is async", "write `def`: it is called once, to see its steps")
    try:
        found = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        raise problem(f"the parameters of {function!r} are not known", "write `lambda item: ...`") from None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found) or count not in (None, len(found)):
        wants = "no parameter" if count == 0 else "one parameter" if count == 1 else "named parameters"
        shown = ", ".join(str(p) for p in found)
        raise problem(f"the function of {what} takes {wants}, found ({shown})", None, function_span(function))
    return [p.name for p in found]


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "nothing"
