"""Contract 8 and 10 in the middle of an agent: what had ended is not made again, and no tool acts twice for it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from call_log import ACTING, CallLog
from running import Folder
from test_08_crash import AT_ONCE, TOOLS_AT_ONCE, Source, copied, name, run

ROWS = 10
TEXT = """workflow crash(a: text)

tool act(a: text) -> text from python "acts:act" effects write
tool look(key: text) -> json from python "acts:look" effects read

plan = llm { user "Plan for {{ a }}" }
done = agent { tools [act, look] max_turns 5 trace on user "{{ a }}: {{ plan }}" }
parts = for part in ["one", "two"] {
  tried = agent(temperature: 0.8) -> { n: int } { tools [act, look] max_turns 3 user "Try {{ part }} of {{ a }}" }
  yield tried.n
}
output a, done.answer as done, done.trace, parts
"""
LOOK = """
def look(key: str):
    if key.endswith("7"):
        raise LookupError(key)
    return {"found": key}
"""


def asks(*calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [{"tool": tool, "args": {name: value}} for tool, name, value in calls]


def prepare(folder: Folder) -> CallLog:
    """The folder of a run with some 130 turns and 100 calls of tools, half of which act."""
    folder.workflow(TEXT)
    folder.write("acts.py", ACTING + LOOK)
    folder.rows(*({"a": f"row {number:02}"} for number in range(ROWS)))
    rules = [
        {"step": "plan", "delay": 0.004},
        {"step": "done", "turn": 1, "prompt_match": "(row \\d+):", "calls": asks(("look", "key", r"\1"))},
        {
            "step": "done",
            "turn": 2,
            "prompt_match": "(row \\d+):",
            "calls": asks(("act", "a", r"\1 first"), ("act", "a", r"\1 second"), ("look", "key", r"\1 x")),
        },
        {"step": "done", "turn": 3, "prompt_match": "(row \\d+):", "calls": asks(("act", "a", r"\1 third"))},
        {"step": "done", "turn": 4, "answer": "good"},
        {
            "step": "parts.tried",
            "turn": 1,
            "prompt_match": "Try (\\w+) of (row \\d+)",
            "calls": asks(("act", "a", r"\2 \1")),
        },
        {"step": "parts.tried", "turn": 2, "row": 3, "error": 400, "message": "no"},
        {"step": "parts.tried", "answer": {"n": 3}},
    ]
    folder.rules(*({"delay": 0.005, **rule} for rule in rules))
    return CallLog(folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A folder to run in, and the file that an undisturbed run makes."""
    folder = Folder(tmp_path_factory.mktemp("agents"))
    prepare(folder)
    whole, log = copied(folder, folder.path.parent / f"{folder.path.name}-whole")
    done = run(log, "out.jsonl")
    assert done.returncode == 3, done.stderr
    assert log.repeated() == log.repeated("act") == 0
    assert len(log.events("act")) == ROWS * 5
    rows = whole.read()
    assert [row["done"] for row in rows if row["_row"] != 3] == ["good"] * (ROWS - 1)
    assert rows[3]["_error"]["step"] == "parts[0].tried"
    return Source(folder=folder, output="out.jsonl", expected=(whole.path / "out.jsonl").read_bytes(), log=log)


def points(count: int, seed: int) -> list[dict[str, str]]:
    """Events to kill at: a call, an answer, or a tool that acts."""
    drawn = random.Random(seed)
    return [{"KILL_AT": str(drawn.randrange(5, 220))} for _ in range(count)]


@pytest.mark.parametrize(
    "kill",
    [*points(1, seed=4), *(pytest.param(kill, marks=pytest.mark.slow) for kill in points(10, seed=5))],
    ids=name,
)
def test_08_an_agent_goes_on_where_it_was(undisturbed: Source, tmp_path: Path, kill: dict[str, str]) -> None:
    undisturbed.ends_well(*undisturbed.killed(tmp_path / "run", kill))


@pytest.mark.slow
def test_08_agents_killed_again_and_again_end_well(undisturbed: Source, tmp_path: Path) -> None:
    drawn = random.Random(11)
    kills = [{"KILL_AT": str(drawn.randrange(20, 90))} for _ in range(3)]
    undisturbed.ends_well(*undisturbed.killed(tmp_path / "run", *kills), kills=3)


@pytest.mark.slow
def test_08_a_killed_agent_repeats_only_what_was_in_flight(undisturbed: Source, tmp_path: Path) -> None:
    folder, log = undisturbed.killed(tmp_path / "run", {"KILL_AT": "120"})
    ended = len(log.events("end"))
    assert ended > 20
    done = run(log, undisturbed.output)
    assert done.returncode == 3, done.stderr
    assert log.size <= undisturbed.log.size + AT_ONCE
    assert len(log.events("act")) <= ROWS * 5 + TOOLS_AT_ONCE
    assert json.loads((folder.path / undisturbed.output).read_text().splitlines()[0])["done"] == "good"


def test_10_only_the_agents_of_a_row_that_was_edited_run_again(undisturbed: Source, tmp_path: Path) -> None:
    folder, log = copied(undisturbed.folder, tmp_path / "run")
    assert run(log, "out.jsonl").returncode == 3
    made, acted = log.size, len(log.events("act"))
    rows = [{"a": f"row {number:02}" if number != 5 else "row 77"} for number in range(ROWS)]
    folder.rows(*rows)
    assert run(log, "out.jsonl").returncode == 3
    assert log.size - made == 1 + 4 + 2 * 2
    assert len(log.events("act")) - acted == 5
