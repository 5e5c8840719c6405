"""The workflow object: when its function is called, from which thread, what it delegates, what an import costs."""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from dsl_same import failure

import helix.dsl as hx
from helix import syntax
from helix.errors import BindError
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse

main = hx.model("m")


@hx.tool
def find(key: str) -> dict:
    """Finds a thing."""
    return {"key": key}


@hx.function
def twice(text: str) -> str:
    return text * 2


def test_the_function_is_called_once_and_only_when_needed():
    calls = []

    @hx.workflow
    def w(a: str):
        """What it does."""
        calls.append(1)
        return hx.output(x=main(user=a))

    assert (w.name, w.__doc__, w.params[0].name, calls) == ("w", "What it does.", "a", [])
    assert w.syntax is w.syntax
    assert (calls, dict(w.callables), dict(w.uses), dict(w.output_types)) == ([1], {}, {}, {})


def test_a_mistake_is_found_each_time_until_it_is_mended():
    wrong = [True]

    @hx.workflow
    def w(a: str):
        return None if wrong else hx.output(a)

    assert failure(w).message == failure(w).message == "workflow `w` returns nothing, not its output"
    wrong.clear()
    assert w.syntax.name == "w"


def test_errors_of_the_users_own_pass_through():
    @hx.workflow
    def w(a: str):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        _ = w.syntax
    assert failure_outside("a call of a model", lambda: main(user="x"))


def failure_outside(what: str, call: Any) -> bool:
    """Whether a call fails because no workflow function is running."""
    with pytest.raises(BindError) as caught:
        call()
    return caught.value.message == f"{what} stands only inside a function marked `@hx.workflow`"


def test_outside_a_workflow():
    assert find("x") == {"key": "x"}
    assert twice("ab") == "abab"
    assert hx.join(["a", "b"], ", ") == "a, b"
    assert hx.length([1, 2]) == 2
    assert failure_outside("`hx.map(...)`", lambda: hx.map(lambda i: i, [1]))
    assert failure_outside("`hx.and_(...)`", lambda: hx.and_(True, False))
    assert failure_outside("`hx.output(...)`", lambda: hx.output(x=1))
    assert failure_outside("`hx.let(...)`", lambda: hx.let(1))
    assert failure_outside("`hx.group_by(...)`", lambda: hx.group_by("x"))

    @hx.workflow
    def w(a: str):
        return hx.output(a)

    with pytest.raises(BindError, match="workflow `w` is run over rows, not called"):
        w(a="x")


def test_what_it_shows():
    @hx.workflow(name="other")
    def w(a: str, n: int = 3):
        assert repr(a) != repr(n)
        assert "<value a>" in repr(a)
        assert "<value n + 1>" in repr(n + 1)
        assert copy.copy(a) is copy.deepcopy(a) is a
        assert not hasattr(a, "_repr_html_")
        assert not hasattr(a, "__array__")
        return hx.output(a)

    assert repr(w) == "<workflow other(a: text, n: int)>"
    assert w.syntax.name == "other"
    assert (find.__name__, find.__doc__) == ("find", "Finds a thing.")
    assert repr(hx.fn.join) == "<built-in function join>"
    assert "join" in dir(hx.fn)


def test_a_workflow_of_a_tree():
    tree = parse("workflow hello(name: text)\noutput name")
    made = hx.Workflow(syntax=tree, callables={"f": len}, folder=Path("here"))
    assert (made.name, made.syntax, made.callables, made.folder) == ("hello", tree, {"f": len}, Path("here"))
    assert (made.params, dict(made.uses), made.path) == (tree.params, {}, None)


def test_a_workflow_of_a_file_inside_one_of_python(tmp_path: Path):
    tree = parse("workflow hello(name: text, n: int = 3)\noutput name")
    path = Path(__file__).parent / "parts" / "hello.helix"
    hello = hx.Workflow(syntax=tree, folder=path.parent, path=path)
    elsewhere = hx.Workflow(syntax=tree, name="other")

    @hx.workflow
    def w(a: str):
        said = hello(a, n=4)
        again = elsewhere(a)
        return hx.output(name=said.name, again=again.name)

    assert format_workflow(w.syntax).splitlines()[2:] == [
        'use "parts/hello.helix" as hello',
        'use "other.helix" as other',
        "",
        "said = hello(a, n: 4)",
        "again = other(a)",
        "output said.name, again.name as again",
    ]
    assert dict(w.uses) == {"parts/hello.helix": hello, "other.helix": elsewhere}

    @hx.workflow
    def wrong(a: str):
        return hx.output(x=hello(a, m=4))

    assert failure(wrong).message == "`hello` has no parameter `m`"


def test_workflows_that_are_traced_inside_others():
    @hx.workflow
    def inner(doc: str):
        return hx.output(title=main(user=doc))

    @hx.workflow
    def outer(doc: str):
        first = main(user=doc)
        assert inner.syntax.name == "inner"
        found = inner(doc=first)
        return hx.output(found.title)

    names = [s.name for s in outer.syntax.statements if isinstance(s, syntax.Step)]
    assert names == ["first", "found"]
    assert [s.name for s in inner.syntax.statements if isinstance(s, syntax.Step)] == ["title"]


def test_an_output_of_another_workflow():
    kept: list[Any] = []

    @hx.workflow
    def one(a: str):
        kept.append(hx.output(a))
        return kept[0]

    @hx.workflow
    def two(a: str):
        return kept[0]

    assert one.syntax.name == "one"
    assert failure(two).message == "workflow `two` returns the output of another"


def test_threads_trace_apart():
    def make(number: int) -> Any:
        @hx.workflow(name=f"w{number}")
        def w(a: str):
            for step in range(20):
                main(user=f"{number} {step} {a}", name=f"s{step}")
                time.sleep(0.0005)
            return hx.output(a)

        return w

    made = [make(number) for number in range(8)]
    shared = make(99)
    threads = [threading.Thread(target=lambda w=w: (w.syntax, shared.syntax)) for w in made]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, w in [*enumerate(made), (99, shared)]:
        texts = [s.value.parts[0].content.segments[0].text for s in w.syntax.statements[1:-1]]
        assert texts == [f"{number} {step} " for step in range(20)]


def test_tools_and_functions_of_one_name():
    def other() -> Any:
        @hx.tool(name="find")
        def find_other(key: str) -> str:
            return "other"

        @hx.function
        def join(a: str) -> str:
            return "mine"

        return find_other, join

    find_other, join = other()

    @hx.workflow
    def w(find_3: str):
        return hx.output(x=find(find_3), y=find_other(find_3), z=join(find_3), again=find(find_3))

    assert {name: call("k") for name, call in w.callables.items()} == {
        "find": {"key": "k"},
        "find_2": "other",
        "join_": "mine",
    }
    targets = [s.target for s in w.syntax.statements if isinstance(s, syntax.ToolDecl | syntax.FunctionDecl)]
    assert targets == [
        f"{__name__}:find",
        f"{__name__}:test_tools_and_functions_of_one_name.other.find_other",
        f"{__name__}:test_tools_and_functions_of_one_name.other.join",
    ]


def test_a_script_names_its_functions_as_a_module(tmp_path: Path):
    script = tmp_path / "flow.py"
    script.write_text(
        "import helix.dsl as hx\n"
        "@hx.tool\n"
        "def find(key: str) -> dict: ...\n"
        "@hx.workflow\n"
        "def w(a: str):\n"
        "    return hx.output(x=find(a))\n"
        "print(w.syntax.statements[0].target, w.folder)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["flow:find", str(tmp_path.resolve())]


def test_running_is_left_to_the_api(monkeypatch: pytest.MonkeyPatch):
    def delegated(name: str) -> Any:
        return lambda program, *args, **options: (name, program.name, args, options)

    async def arun(program: Any, rows: Any, **options: Any) -> Any:
        return ("arun", program.name, rows, options)

    for name in ("run", "explain", "check", "to_text"):
        monkeypatch.setattr(f"helix.api.{name}", delegated(name))
    monkeypatch.setattr("helix.api.arun", arun)

    @hx.workflow
    def w(a: str):
        return hx.output(a)

    assert w.run([1], engine="e") == ("run", "w", ([1],), {"engine": "e"})
    assert asyncio.run(w.arun([2], seed=1)) == ("arun", "w", [2], {"seed": 1})
    assert w.explain(stage="plan") == ("explain", "w", (), {"stage": "plan"})
    assert w.check() == ("check", "w", (), {})
    assert w.to_text() == ("to_text", "w", (), {})


def test_spans_point_at_the_users_lines():
    @hx.workflow
    def w(a: str):
        x = main(user=f"é {a}")
        return hx.output(y=x.note)

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    step, output = w.syntax.statements[1:]
    assert step.span is not None
    assert output.span is not None
    assert step.span.source.name == __file__
    assert lines[step.span.line - 1][step.span.column - 1 : step.span.end_column - 1] == 'main(user=f"é {a}")'
    assert lines[output.span.line - 1].strip() == "return hx.output(y=x.note)"
    assert w.syntax.span is not None
    assert lines[w.syntax.span.line - 1].strip() == "def w(a: str):"


def test_a_long_program_is_traced_in_linear_time():
    @hx.workflow
    def w(a: str):
        text = a
        for _ in range(3000):
            text = main(user=f"{text}").when(a != "")
        return hx.output(text=text)

    start = time.perf_counter()
    assert len(w.syntax.statements) == 3002
    assert time.perf_counter() - start < 5


def test_importing_it_is_light():
    heavy = ("lark", "openai", "pyarrow", "networkx", "pydantic", "jinja2", "asyncio")
    code = f"import sys, helix.dsl; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
