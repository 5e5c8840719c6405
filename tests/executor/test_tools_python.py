"""Python tools: values of their own, results checked, what they raise kept out of prompts, time limits, effects."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, Ran, run, user_text

TOOL = 'workflow t(a: json)\ntool f(x: json) -> {returns} from python "tools:f"{traits}\ny = f(a)\noutput y'


def tool(
    tmp_path: Path, code: str, *values: Any, returns: str = "json", traits: str = " effects read", **options: Any
) -> Ran:
    """Runs a tool `f` of a module beside the workflow on these values."""
    (tmp_path / "tools.py").write_text(code)
    text = TOOL.replace("{returns}", returns).replace("{traits}", f"   {traits.strip()}" if traits else "")
    return run(text, [{"a": value} for value in values], folder=tmp_path, **options)


# --- results ---


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("x", {"k": [1, None]}),
        ("(1, (2, 3))", [1, [2, 3]]),
        ("{1: 'a'}", {"1": "a"}),
        ("Point(1, [Point(2, None)])", {"x": 1, "y": [{"x": 2, "y": None}]}),
        ("Model(n=3)", {"n": 3}),
        ("[Colour.RED, Size.SMALL]", ["red", 1]),
        ("True", True),
        ("None", None),
        ("{'b': 1, 'a': 2}", {"b": 1, "a": 2}),
    ],
)
def test_results_are_json(tmp_path: Path, body: str, value: Any) -> None:
    code = (
        "from __future__ import annotations\nimport dataclasses, enum, pydantic\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n    y: object\n"
        "class Model(pydantic.BaseModel):\n    n: int\n"
        "class Colour(str, enum.Enum):\n    RED = 'red'\n"
        "class Size(enum.IntEnum):\n    SMALL = 1\n"
        f"def f(x):\n    return {body}\n"
    )
    ran = tool(tmp_path, code, {"k": [1, None]})
    assert ran.errors == [None]
    assert ran.rows[0]["y"] == value
    if isinstance(value, dict):
        assert list(ran.rows[0]["y"]) == list(value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("object()", "f gave a result that is not JSON: found object, which JSON has no form for"),
        ("float('nan')", "f gave a result that is not JSON"),
        ("{1, 2}", "f gave a result that is not JSON"),
        ("x.append(x) or x", "f gave a result that is not JSON: nested too deeply, or in itself"),
    ],
)
def test_results_that_are_not_json_are_the_rows_error(tmp_path: Path, body: str, message: str) -> None:
    ran = tool(tmp_path, f"def f(x):\n    return {body}\n", [1])
    assert ran.errors == [("tool", "y")]
    assert ran.rows[0]["_error"]["message"].startswith(message)


def test_results_are_checked_against_the_declared_type(tmp_path: Path) -> None:
    returns = "{ a: int, b: text? }"
    ran = tool(tmp_path, "def f(x):\n    return x\n", {"a": 1, "c": 9}, {"a": "1"}, {"b": "x"}, 7, returns=returns)
    assert ran.column("y") == [{"a": 1, "b": None}, None, None, None]
    assert [row["_error"]["message"] for row in ran.rows[1:]] == [
        'f gave a result that does not fit at `/a`: expected int, found text "1"',
        "f gave a result that does not fit at `/a`: field `a` is missing",
        "f gave a result that does not fit at `/`: expected { a: int, b: text? }, found int 7",
    ]


# --- raising ---


RAISES = """class Odd(Exception):
    pass

def helper(x):
    raise Odd(f"cannot do {x}")

def f(x):
    if x == "stop":
        raise StopIteration(1)
    if x == "exit":
        raise SystemExit(4)
    if x == "silent":
        raise ValueError
    if x == "bad":
        helper(x)
    return x
"""


def test_what_a_tool_raises_is_the_rows_error_with_the_traceback_in_the_report(tmp_path: Path) -> None:
    ran = tool(tmp_path, RAISES, "fine", "bad", "stop", "exit", "silent")
    assert ran.errors == [None, *[("tool", "y")] * 4]
    assert [row["_error"]["message"] for row in ran.rows[1:]] == [
        "f raised Odd: cannot do bad",
        "f raised StopIteration: 1",
        "f raised SystemExit: 4",
        "f raised ValueError",
    ]
    assert [row["_error"]["attempts"] for row in ran.rows[1:]] == [1] * 4
    (trace,) = ran.report.tracebacks.values()
    assert trace.splitlines()[0].endswith("line 15, in f")
    assert "line 5, in helper" in trace
    assert trace.endswith("tools.Odd: cannot do bad\n")
    assert "threads.py" not in trace


def test_the_words_of_an_error_enter_no_prompt(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(RAISES)
    text = (
        'workflow t(a: text)\ntool f(x: json) -> json from python "tools:f"   effects read\ny = f(a)\n'
        'z = llm { user "say {{ y }} {{ a }}" }\nw = llm { user "w {{ a }}" }\noutput z, w'
    )
    ran = run(text, [{"a": "bad"}, {"a": "fine"}], folder=tmp_path)
    assert "cannot do" not in str(ran.engine.requests)
    assert ran.calls("z") == ["say fine fine"]
    assert sorted(ran.calls("w")) == ["w bad", "w fine"]


def test_an_async_tool_runs_on_the_loop_and_raises_alike(tmp_path: Path) -> None:
    code = (
        "import asyncio\nactive = peak = 0\n"
        "async def f(x):\n    global active, peak\n    active += 1\n    peak = max(peak, active)\n"
        "    await asyncio.sleep(0.02)\n    active -= 1\n"
        "    if x == 'bad':\n        raise KeyError(x)\n    return peak\n"
    )
    ran = tool(tmp_path, code, 1, 2, 3, "bad")
    assert ran.errors == [None, None, None, ("tool", "y")]
    assert max(ran.column("y")[:3]) > 1
    assert "in f" in ran.report.tracebacks["y"]


def test_a_function_that_gives_an_awaitable_is_awaited(tmp_path: Path) -> None:
    code = "import asyncio\nasync def g(x):\n    await asyncio.sleep(0)\n    return [x]\ndef f(x):\n    return g(x)\n"
    assert tool(tmp_path, code, 1).column("y") == [[1]]


def test_an_async_tool_whose_own_task_was_cancelled_is_the_rows_error(tmp_path: Path) -> None:
    code = "import asyncio\nasync def f(x):\n    raise asyncio.CancelledError\n"
    assert tool(tmp_path, code, 1, 2).errors == [("tool", "y")] * 2


# --- values of its own ---


def test_a_tool_cannot_change_the_values_of_its_row_or_of_others(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def f(x):\n    x['n'].append(9)\n    return x\n")
    text = (
        "workflow t(a: json)\nlet words = { n: [1] }\n"
        'tool f(x: json) -> json from python "tools:f"   effects write\n'
        "y = f(a)\nz = f(words)\noutput a, y, z, words"
    )
    ran = run(text, [{"a": {"n": [0]}}, {"a": {"n": [0]}}], folder=tmp_path)
    for row in ran.rows:
        assert (row["a"], row["y"]) == ({"n": [0]}, {"n": [0, 9]})
        assert (row["words"], row["z"]) == ({"n": [1]}, {"n": [1, 9]})


def test_a_pure_function_cannot_change_values_and_must_give_json(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(
        "def add(x):\n    x.append(9)\n    return tuple(x)\n"
        "def odd(x):\n    return {1, 2}\nasync def late(x):\n    return x\n"
    )
    text = (
        'workflow t(a: list[int])\nfunction add(x: list[int]) -> list[int] from python "lib:add"\n'
        'function odd(x: json) -> json from python "lib:odd"\nfunction late(x: json) -> json from python "lib:late"\n'
        "y = add(a)\no = odd(a) when len(a) == 1\nl = late(a) when len(a) == 2\noutput a, y, o, l"
    )
    ran = run(text, [{"a": []}, {"a": [1]}, {"a": [1, 2]}], folder=tmp_path)
    assert ran.column("a") == [[], [1], [1, 2]]
    assert ran.column("y") == [[9], [1, 9], [1, 2, 9]]
    assert ran.errors == [None, ("tool", "o"), ("tool", "l")]
    assert "odd: TypeError" in ran.rows[1]["_error"]["message"]
    assert "declare it as a tool" in ran.rows[2]["_error"]["message"]


# --- merging by effects ---


COUNTS = "calls = []\ndef f(x):\n    calls.append(x)\n    return len(calls)\n"


@pytest.mark.parametrize(
    ("traits", "calls"),
    [
        ("effects pure", 1),
        ("effects read", 1),
        ("effects idempotent_write", 3),
        ("effects write", 3),
        ("effects destructive", 3),
        ("", 3),
    ],
)
def test_only_what_looks_things_up_is_merged(tmp_path: Path, traits: str, calls: int) -> None:
    ran = tool(tmp_path, COUNTS, 7, 7, 7, traits=traits)
    assert ran.report.calls == calls
    assert ran.report.merged == 3 - calls
    assert sorted(ran.column("y")) == ([1, 1, 1] if calls == 1 else [1, 2, 3])


def test_merging_off_calls_look_ups_again(tmp_path: Path) -> None:
    assert tool(tmp_path, COUNTS, 7, 7, merge=False).report.calls == 2


def test_tools_count_against_the_budget_of_calls(tmp_path: Path) -> None:
    ran = tool(tmp_path, COUNTS, 1, 2, 3, max_calls=2)
    assert ran.errors == [None, None, ("limit", "y")]
    assert ran.rows[2]["_error"]["attempts"] == 0


# --- time ---


def test_a_tool_that_blocks_does_not_block_the_loop(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("import time\ndef f(x):\n    time.sleep(0.3)\n    return x\n")
    text = (
        'workflow t(a: text)\ntool f(x: json) -> json from python "tools:f"   effects read\ny = f(a)\n'
        'z = llm { user "{{ a }}" }\noutput y, z'
    )
    seen: list[float] = []

    def reply(request: Any) -> str:
        seen.append(time.monotonic())
        return user_text(request)

    began = time.monotonic()
    ran = run(text, [{"a": str(number)} for number in range(8)], folder=tmp_path, reply=reply)
    assert ran.errors == [None] * 8
    assert max(seen) - began < 0.25
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("traits", "options"), [("effects read timeout 100ms", {}), ("effects read", {"call_timeout": 0.1})]
)
def test_a_tool_that_takes_too_long_times_out(tmp_path: Path, traits: str, options: dict[str, Any]) -> None:
    code = "import time\ndef f(x):\n    time.sleep(x)\n    return x\n"
    began = time.monotonic()
    ran = tool(tmp_path, code, 0, 3, traits=traits.replace(" timeout", ", timeout"), **options)
    assert time.monotonic() - began < 2
    assert ran.errors == [None, ("timeout", "y")]
    assert ran.rows[1]["_error"]["message"] == "no result within 0.1 s"


def test_an_async_tool_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    code = (
        "import asyncio\nended = []\nasync def f(x):\n    try:\n        await asyncio.sleep(x)\n"
        "    finally:\n        ended.append(x)\n    return list(ended)\n"
    )
    ran = tool(tmp_path, code, 3, 0.3, call_timeout=0.1, traits="effects write")
    assert ran.errors == [("timeout", "y")] * 2


def test_tools_that_hang_neither_stop_the_others_nor_keep_the_program_from_ending(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("import time\ndef f(x):\n    if x % 2:\n        time.sleep(600)\n    return x\n")
    script = (
        "import helix, sys\n"
        f"text = '''{TOOL.replace('{returns}', 'json').replace('{traits}', '   effects read, timeout 200ms')}'''\n"
        "result = helix.loads(text, folder=sys.argv[1]).run([{'a': n} for n in range(40)], engine='scripted')\n"
        "print(sum(row['_error'] is None for row in result.rows), result.report.failed_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        capture_output=True,
        text=True,
        timeout=20,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.stderr) == ("20 20\n", "")


def test_no_thread_is_left_after_a_run(tmp_path: Path) -> None:
    tool(tmp_path, "def f(x):\n    return x\n", *range(20))
    ends = time.monotonic() + 5
    while any(thread.name == "helix-tool" for thread in threading.enumerate()):
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_lanes_bound_how_many_calls_of_a_tool_run_at_once(tmp_path: Path) -> None:
    code = (
        "import threading, time\nlock = threading.Lock()\nactive = peak = 0\n"
        "def f(x):\n    global active, peak\n    with lock:\n        active += 1\n        peak = max(peak, active)\n"
        "    time.sleep(0.02)\n    with lock:\n        active -= 1\n    return peak\n"
    )
    assert 1 < max(tool(tmp_path, code, *range(30)).column("y")) <= 8
