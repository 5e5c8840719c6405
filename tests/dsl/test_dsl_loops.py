"""Branches and loops: what their names mean in the text form is what the values meant in Python.

Random programs are run twice: directly, with Python's own loops, and as the syntax tree that they trace to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsl_same import same, steps
from hypothesis import given, settings
from hypothesis import strategies as st

import helix.dsl as hx
from helix import syntax
from helix.evaluate import evaluator
from helix.expr import Arg, Expr, Name, transform
from helix.grammar.bind import bind
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse

main = hx.model("m")


def test_a_loop():
    @hx.workflow
    def w(ticket: str):
        done = hx.repeat(
            lambda reply: {"reply": main(user=f"Improve {reply}")},
            up_to=3,
            until=lambda now: hx.length(now.reply) > 5,
            reply=main(user=ticket),
        )
        return hx.output(reply=done.reply)

    same(
        w,
        """workflow w(ticket: text)
        model main { name: "m" }
        reply = llm main { user "{{ ticket }}" }
        repeat up to 3 until len(reply) > 5 { reply = llm main { user "Improve {{ reply }}" } }
        output reply""",
    )


def test_a_loop_that_returns_its_one_value():
    @hx.workflow
    def w(ticket: str):
        reply = main(user=ticket)

        @hx.repeat(up_to=2, reply=reply)
        def better(reply):
            critique = main(user=f"Judge {reply}")
            return main(user=f"{reply} {critique}")

        return hx.output(better=better.reply)

    same(
        w,
        """workflow w(ticket: text)
        model main { name: "m" }
        reply = llm main { user "{{ ticket }}" }
        repeat up to 2 {
          critique = llm main { user "Judge {{ reply }}" }
          reply = llm main { user "{{ reply }} {{ critique }}" }
        }
        output reply as better""",
    )


def test_a_loop_that_carries_nothing():
    @hx.workflow
    def w(ticket: str):
        found = hx.repeat(lambda: {"try_": main(user=ticket)}, up_to=2, until=lambda now: now.try_ == "yes")
        return hx.output(found.try_)

    same(
        w,
        """workflow w(ticket: text)
        model main { name: "m" }
        repeat up to 2 until try_ == "yes" { try_ = llm main { user "{{ ticket }}" } }
        output try_""",
    )


def test_the_first_value_stays_readable_after_the_loop():
    @hx.workflow
    def w(ticket: str):
        reply = main(user=ticket)
        done = hx.repeat(lambda reply: main(user=reply), up_to=2, reply=reply)
        return hx.output(reply, last=done.reply)

    same(
        w,
        """workflow w(ticket: text)
        model main { name: "m" }
        reply = llm main { user "{{ ticket }}" }
        reply_2 = reply
        repeat up to 2 { reply_2 = llm main { user "{{ reply_2 }}" } }
        output reply, reply_2 as last""",
    )


def test_the_value_of_the_round_stays_readable_to_its_end():
    @hx.workflow
    def w(ticket: str):
        def body(reply):
            better = main(user=f"Improve {reply}")
            verdict = main(user=f"{reply} or {better}?")
            return {"reply": better, "verdict": verdict}

        done = hx.repeat(body, up_to=2, reply=ticket)
        return hx.output(done.reply, done.verdict)

    same(
        w,
        """workflow w(ticket: text)
        model main { name: "m" }
        reply = ticket
        repeat up to 2 {
          better = llm main { user "Improve {{ reply }}" }
          verdict = llm main { user "{{ reply }} or {{ better }}?" }
          reply = better
        }
        output reply, verdict""",
    )


def test_two_values_that_change_places():
    @hx.workflow
    def w(a: str, b: str):
        done = hx.repeat(lambda x, y: {"x": y, "y": x}, up_to=3, x=a, y=b)
        return hx.output(done.x, done.y)

    same(
        w,
        """workflow w(a: text, b: text)
        x = a
        y = b
        repeat up to 3 {
          next_y = x
          x = y
          y = next_y
        }
        output x, y""",
    )


def test_a_loop_inside_a_map_inside_a_branch():
    @hx.workflow
    def w(editors: list[str], deep: bool):
        def interview(editor):
            @hx.repeat(up_to=3, until=lambda now: now.answer == "stop", notes="")
            def talk(notes):
                question = main(user=f"{editor} asks after {notes}")
                answer = main(user=question)
                return {"notes": notes + answer, "answer": answer}

            return talk.notes

        text = hx.choose(deep, then=lambda: hx.map(interview, editors), otherwise=lambda: editors)
        return hx.output(text)

    same(
        w,
        """workflow w(editors: list[text], deep: bool)
        model main { name: "m" }
        if deep {
          text = for editor in editors {
            notes = ""
            repeat up to 3 until answer == "stop" {
              question = llm main { user "{{ editor }} asks after {{ notes }}" }
              answer = llm main { user "{{ question }}" }
              notes = notes + answer
            }
            yield notes
          }
        } else { text = editors }
        output text""",
    )


def test_steps_of_the_condition_run_at_the_end_of_the_round():
    @hx.workflow
    def w(ticket: str):
        done = hx.repeat(
            lambda reply: main(user=reply),
            up_to=3,
            until=lambda now: main(user=f"{now.reply} good?", name="verdict") == "yes",
            reply=ticket,
        )
        return hx.output(done.reply)

    assert steps(w).partition("}\n\n")[2] == (
        "reply = ticket\n"
        'repeat up to 3 until verdict == "yes" {\n'
        '  reply = llm main { user "{{ reply }}" }\n'
        '  verdict = llm main { user "{{ reply }} good?" }\n'
        "}\n"
        "output reply"
    )


def test_a_step_of_a_branch_that_is_read_outside_keeps_a_name_of_its_own():
    @hx.workflow
    def w(a: str):
        kept = {}

        def then():
            kept["x"] = main(user=a)
            return kept["x"]

        reply = hx.choose(a == "x", then, otherwise=lambda: a)
        return hx.output(reply, inner=kept["x"])

    same(
        w,
        """workflow w(a: text)
        model main { name: "m" }
        if a == "x" {
          step1 = llm main { user "{{ a }}" }
          reply = step1
        } else { reply = a }
        output reply, step1 as inner""",
    )


# --- random programs ----------------------------------------------------------------------------------------------

KEYS = ("a", "b", "c")
expressions = st.tuples(st.sampled_from("+-*"), st.integers(0, 9), st.integers(0, 9), st.integers(-2, 3))
conditions = st.tuples(st.sampled_from("<>="), st.integers(0, 9), st.integers(-3, 6))


def programs(depth: int) -> st.SearchStrategy[Any]:
    """Lists of operations on the values seen so far, which they name by number."""
    plain = st.tuples(st.just("step"), expressions) | st.tuples(st.just("when"), st.integers(0, 9), conditions)
    if depth == 0:
        return st.lists(plain, max_size=4)
    inner = programs(depth - 1)
    given = st.lists(st.sampled_from(KEYS), unique=True, max_size=3).flatmap(
        lambda keys: st.tuples(*(st.tuples(st.just(key), st.integers(0, 9), st.integers(0, 9)) for key in keys))
    )
    repeat = st.tuples(st.just("repeat"), st.integers(1, 3), given, inner, st.none() | conditions, st.integers(0, 9))
    choose = st.tuples(
        st.just("choose"), conditions, inner, st.none() | inner, st.integers(0, 9), st.integers(0, 9), st.booleans()
    )
    return st.lists(plain | repeat | choose, max_size=4)


def compute(api: Any, expression: Any, values: list[Any]) -> Any:
    op, left, right, number = expression
    a, b = values[left % len(values)], values[right % len(values)]
    return api.arithmetic(op, a, api.arithmetic("+", b, number))


def holds(api: Any, condition: Any, values: list[Any]) -> Any:
    op, index, number = condition
    return api.compare(op, values[index % len(values)], number)


def run(api: Any, program: Any, values: list[Any]) -> list[Any]:
    """The values after a program, in order."""
    seen = list(values)
    for kind, *rest in program:
        if kind == "step":
            seen.append(api.step(compute(api, rest[0], seen)))
        elif kind == "when":
            seen.append(api.when(seen[rest[0] % len(seen)], holds(api, rest[1], seen)))
        elif kind == "repeat":
            seen.extend(repeat(api, seen, *rest))
        else:
            seen.extend(choose(api, seen, *rest))
    return seen


def repeat(api: Any, seen: list[Any], times: int, given: Any, inner: Any, until: Any, extra: int) -> list[Any]:
    def body(**now: Any) -> Any:
        inside = run(api, inner, [*seen, *now.values()])
        results = {key: inside[-1 - following % len(inside)] for key, _, following in given}
        return results | {"more": api.step(inside[-1 - extra % len(inside)])}

    initial = {key: seen[first % len(seen)] for key, first, _ in given}
    names = [*initial, "more"]
    condition = None if until is None else lambda now: holds(api, until, [now[name] for name in names])
    done = api.repeat(body, times, condition, initial)
    return [done[name] for name in names]


def choose(
    api: Any, seen: list[Any], test: Any, then: Any, otherwise: Any, first: int, second: int, named: bool
) -> list[Any]:
    def branch(program: Any) -> Callable[[], Any]:
        def give() -> Any:
            inside = run(api, program, seen)
            one, two = inside[-1 - first % len(inside)], inside[-1 - second % len(inside)]
            return {"a": one, "b": two} if named else one

        return give

    done = api.choose(holds(api, test, seen), branch(then), None if otherwise is None else branch(otherwise), named)
    return [done["a"], done["b"]] if named else [done]


class Direct:
    """The operations in Python itself, with null as the language has it."""

    step = staticmethod(lambda value: value)
    when = staticmethod(lambda value, condition: value if condition else None)

    @staticmethod
    def arithmetic(op: str, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return None
        return (a + b if op == "+" else a - b if op == "-" else a * b) if abs(a) < 10**9 else 0 * b

    @staticmethod
    def compare(op: str, a: Any, b: int) -> bool:
        if op == "=":
            return a == b
        return a is not None and (a < b if op == "<" else a > b)

    @staticmethod
    def repeat(body: Any, times: int, until: Any, now: dict[str, Any]) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for _ in range(times):
            results = body(**now)
            now = {key: results[key] for key in now}
            if until is not None and until(results):
                break
        return results

    @staticmethod
    def choose(test: bool, then: Any, otherwise: Any, named: bool) -> Any:
        if test:
            return then()
        return otherwise() if otherwise is not None else {"a": None, "b": None} if named else None


class Traced:
    """The same operations of the Python front end."""

    step = staticmethod(lambda value: hx.step(value))
    when = staticmethod(lambda value, condition: value.when(condition))

    @staticmethod
    def arithmetic(op: str, a: Any, b: Any) -> Any:
        return a + b if op == "+" else a - b if op == "-" else a * b

    @staticmethod
    def compare(op: str, a: Any, b: int) -> Any:
        return a == b if op == "=" else a < b if op == "<" else a > b

    @staticmethod
    def repeat(body: Any, times: int, until: Any, now: dict[str, Any]) -> Any:
        # The carried values are the parameters of the body, so it needs some of its own.
        space = {"body": body}
        named = eval(f"lambda {', '.join(now)}: body({', '.join(f'{key}={key}' for key in now)})", space)
        return hx.repeat(named, up_to=times, until=until, **now)

    @staticmethod
    def choose(test: Any, then: Any, otherwise: Any, named: bool) -> Any:
        return hx.choose(test, then, otherwise=otherwise)


def value_of(expr: Expr, names: dict[str, Any]) -> Any:
    known = list(names)

    def leaf(part: Expr) -> Expr:
        return Arg(index=known.index(part.name)) if isinstance(part, Name) else part

    return evaluator(transform(expr, leaf))(list(names.values()))


def execute(statements: Any, names: dict[str, Any]) -> None:
    """Runs the steps of a syntax tree, as its documentation says."""
    for statement in statements:
        match statement:
            case syntax.Step(name=name, value=value, when=when):
                names[name] = value_of(value, names) if when is None or value_of(when, names) else None
            case syntax.If(arms=arms, otherwise=otherwise):
                taken = next((body for test, body in arms if value_of(test, names)), otherwise)
                execute(taken, names)
                for body in (*(body for _, body in arms), otherwise):
                    for name in assigned(body):
                        names.setdefault(name, None)
            case syntax.Repeat(times=times, until=until, body=body):
                fresh = [name for name in assigned(body) if name not in names]
                for _ in range(value_of(times, names)):
                    for name in fresh:
                        names.pop(name, None)
                    execute(body, names)
                    if until is not None and value_of(until, names):
                        break


def assigned(statements: Any) -> list[str]:
    found: list[str] = []
    for statement in statements:
        match statement:
            case syntax.Step(name=name):
                found.append(name)
            case syntax.If(arms=arms, otherwise=otherwise):
                for body in (*(body for _, body in arms), otherwise):
                    found += assigned(body)
            case syntax.Repeat(body=body):
                found += assigned(body)
    return found


@given(programs(2), st.integers(-3, 3), st.integers(-3, 3))
@settings(max_examples=250, deadline=None)
def test_names_mean_what_the_values_meant(program: Any, x: int, y: int):
    @hx.workflow
    def w(x: int, y: int):
        values = run(Traced, program, [x, y])
        return hx.output(**{f"v{i}": value for i, value in enumerate(values)})

    expected = run(Direct, program, [x, y])
    tree = w.syntax
    names: dict[str, Any] = {"x": x, "y": y}
    execute(tree.statements[:-1], names)
    found = [value_of(item.value, names) for item in tree.statements[-1].items]
    assert found == expected, format_workflow(tree)
    assert parse(format_workflow(tree)) == tree
    bind(tree)
