"""Contract 5: what must change the key of a result and what must not, counted on the server and in the tool."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from running import Folder, inside

TEXT = """workflow keys(a: text)

model main { name: "m", temperature: 0, max_tokens: 20 }

tool score(text: text) -> int from python "tools:score" effects pure

x = llm main { system "Be kind." user "Say {{ a }}" }
s = score(x)
y = llm main(sample: 2, temperature: 0.7) -> { n: int } { user "Rate {{ x }}" }

output x, s, y
"""
TOOLS = """BASE = 3
FACTORS = {"one": 1}


def double(number):
    return 2 * number


def score(text: str) -> int:
    with open("tool.log", "a") as log:
        log.write(text + "\\n")
    return double(len(text)) + BASE * FACTORS["one"]
"""
ROWS = ({"a": "one"}, {"a": "two"}, {"a": "three"})
ARGS = ("-o", "out.jsonl", "-c", "4")

Edit = Callable[[Folder], list[str] | None]


def respond(call: Call) -> Answer | None:
    if call.route == "/v1/models":
        return models("m", "m2")
    if call.route != "/v1/chat/completions":
        return None
    said = call.json["messages"][-1]["content"]
    return completion(json.dumps({"n": len(said)}) if "Rate" in said else f"I say {said.removeprefix('Say').strip()}")


class Counted:
    """The folder, the server, and how many calls of each step there were since last asked."""

    def __init__(self, folder: Folder, server: FakeServer, run: Callable[..., Any]) -> None:
        self.folder = folder
        self.server = server
        self._run = run
        self._seen = [0, 0, 0]

    def run(self, *args: str, engine: str | None = None) -> tuple[int, int, int]:
        done = self._run(*args, engine=engine or self.server.url)
        assert done.returncode == 0, done.stderr
        return self.new()

    def new(self, *others: FakeServer) -> tuple[int, int, int]:
        calls = [call for server in (self.server, *others) for call in server.chats()]
        rates = sum("Rate" in call.json["messages"][-1]["content"] for call in calls)
        log = self.folder.path / "tool.log"
        now = [len(calls) - rates, rates, len(log.read_text().splitlines()) if log.exists() else 0]
        x, y, tool = (after - before for after, before in zip(now, self._seen, strict=True))
        self._seen = now
        return x, y, tool


@pytest.fixture
def known(folder: Folder, quick: Any) -> Any:
    """A folder in which the workflow has run once."""
    folder.workflow(TEXT)
    folder.write("tools.py", TOOLS)
    folder.rows(*ROWS)
    with FakeServer(respond) as server:
        counted = Counted(folder, server, quick)
        assert counted.run(*ARGS) == (3, 6, 3)
        yield counted


def text(*pairs: str) -> Edit:
    """Replaces words of the workflow by others: old, new, old, new."""

    def edit(folder: Folder) -> None:
        changed = TEXT
        for old, new in zip(pairs[::2], pairs[1::2], strict=True):
            assert old in changed
            changed = changed.replace(old, new)
        folder.workflow(changed)

    return edit


def tools(old: str, new: str) -> Edit:
    assert old in TOOLS
    return lambda folder: folder.write("tools.py", TOOLS.replace(old, new)) and None


def args(*more: str) -> Edit:
    return lambda folder: list(more)


def rows(*given: dict[str, Any]) -> Edit:
    return lambda folder: folder.rows(*given) and None


def renamed(folder: Folder) -> list[str]:
    folder.write("table.csv", "b\nthree\none\ntwo\n")
    folder.workflow(TEXT.replace("(a: text)", "(b: text)").replace("{{ a }}", "{{ b }}"))
    return ["-i", "table.csv"]


# What is changed, and the calls that are new after it: of x (3 in all), of y (6) and of the tool (3).
CHANGES: dict[str, tuple[Edit, tuple[int, int, int]]] = {
    "the model's name": (text('name: "m"', 'name: "m2"'), (3, 6, 0)),
    "--model": (args("--model", "m2"), (3, 6, 0)),
    "a byte of the system message": (text("Be kind.", "Be kind!"), (3, 0, 0)),
    "a blank at the end of a message": (text('"Be kind."', '"Be kind. "'), (3, 0, 0)),
    "a byte of the user message": (text("Rate {{", "Rate: {{"), (0, 6, 0)),
    "the role of a message": (text('system "Be kind."', 'user "Be kind."'), (3, 0, 0)),
    "where one message ends": (text('"Be kind." user "Say ', '"Be kind.Say" user " '), (3, 0, 0)),
    "a message more": (text('user "Rate', 'system "" user "Rate'), (0, 6, 0)),
    "a byte of a row": (rows({"a": "one"}, {"a": "two!"}, {"a": "three"}), (1, 2, 1)),
    "the case of a row": (rows({"a": "one"}, {"a": "two"}, {"a": "Three"}), (1, 2, 1)),
    "composed and decomposed letters": (rows({"a": "one"}, {"a": "two"}, {"a": "thr\u00e9e"}), (1, 2, 1)),
    "the temperature": (text("temperature: 0,", "temperature: 0.1,"), (3, 0, 0)),
    "the temperature of sampled steps": (text("0.7", "0.71"), (0, 6, 0)),
    "no temperature at all": (text("temperature: 0,", "temperature: null,"), (3, 0, 0)),
    "top_p": (text("llm main {", "llm main(top_p: 0.9) {"), (3, 0, 0)),
    "the seed": (text("llm main {", "llm main(seed: 7) {"), (3, 0, 0)),
    "the seed of sampled steps": (text("0.7)", "0.7, seed: 7)"), (0, 6, 0)),
    "max_tokens": (text("max_tokens: 20", "max_tokens: 21"), (3, 6, 0)),
    "stop": (text("llm main {", 'llm main(stop: "END") {'), (3, 0, 0)),
    "extra": (text("llm main {", "llm main(extra: { top_k: 5 }) {"), (3, 0, 0)),
    "the output's schema": (text("{ n: int }", "{ n: float }"), (0, 6, 0)),
    "a field more": (text("{ n: int }", "{ n: int, why: text? }"), (0, 6, 0)),
    "one sample more": (text("sample: 2", "sample: 3"), (0, 3, 0)),
    "the source of a tool": (tools("double(len(text))", "double(len(text) + 1)"), (0, 0, 3)),
    "a function that a tool calls": (tools("2 * number", "3 * number"), (0, 0, 3)),
    "a constant that a tool reads": (tools("BASE = 3", "BASE = 4"), (0, 0, 3)),
    "what is in a constant": (tools('"one": 1', '"one": 2'), (0, 0, 3)),
    "the type that a tool gives": (text("-> int from", "-> float from"), (0, 0, 3)),
}
SAME: dict[str, Edit] = {
    "nothing": args(),
    "the name of a step": text("x = llm", "f = llm", "(x)", "(f)", "{{ x }}", "{{ f }}", "output x", "output f"),
    "the workflow's name": text("workflow keys", "workflow others"),
    "a comment": text("x = llm main {", "# says it kindly\nx = llm main {   # or so\n "),
    "the name of a model": text("model main", "model big", "llm main", "llm big"),
    "the order of steps": text("s = score(x)\n", "", "output x", "s = score(x)\n\noutput x"),
    "a constant for a text": text('"Be kind."', '"Be {{ how }}."', "\nmodel", '\nlet how = "kind"\n\nmodel'),
    "the columns of the output": text("output x, s, y", "output y, x as said, s, a"),
    "where the sampling is said": text("temperature: 0, max_tokens: 20", "max_tokens: 20, temperature: 0"),
    "the order of rows": rows(*reversed(ROWS)),
    "a row twice": rows(ROWS[1]),
    "the input's file, its format and the name of its column": renamed,
    "the number of calls at once": args("-c", "1"),
    "the output": args("-o", "other.csv"),
    "times and attempts": args("--call-timeout", "9s", "--attempts", "7", "--wait-limit", "1m"),
    "the rules": args("--rules", "none"),
    "merging": args("--no-merge"),
    "a tool's unused neighbour": lambda folder: (
        folder.write("tools.py", TOOLS + "\n\ndef other():\n    return 1\n") and None
    ),
    "a comment beside a tool": lambda folder: folder.write("tools.py", "# tools\n" + TOOLS) and None,
    "effort of the reply": text("llm main {", "llm main(attempts: 5, timeout: 1m, reask: 3) {"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_05_what_changes_a_key(known: Counted, what: str) -> None:
    edit, expected = CHANGES[what]
    more = edit(known.folder) or []
    assert known.run(*ARGS, *more) == expected
    # And what was made now is known from now on, beside what was known before.
    assert known.run(*ARGS, *more) == (0, 0, 0)
    known.folder.workflow(TEXT)
    known.folder.write("tools.py", TOOLS)
    known.folder.rows(*ROWS)
    assert known.run(*ARGS) == (0, 0, 0)


@pytest.mark.parametrize("what", SAME)
def test_05_what_does_not_change_a_key(known: Counted, what: str) -> None:
    more = SAME[what](known.folder) or []
    assert known.run(*ARGS, *more) == (0, 0, 0)


def test_05_the_address_of_the_engine_does_not_change_a_key(known: Counted) -> None:
    before = (known.folder.path / "out.jsonl").read_bytes()
    with FakeServer(respond) as other:
        assert known.run(*ARGS, engine=other.url) == (0, 0, 0)
        assert known.new(other) == (0, 0, 0)
    assert (known.folder.path / "out.jsonl").read_bytes() == before


def test_05_the_folder_and_the_files_name_do_not_change_a_key(
    known: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    there = tmp_path.parent / "elsewhere"
    shutil.copytree(known.folder.path, there)
    (there / "w.helix").rename(there / "another.helix")
    done = inside(
        *("run", "another.helix", "-i", "rows.jsonl", "-e", known.server.url, *ARGS),
        cwd=there,
        monkeypatch=monkeypatch,
        capfd=capfd,
    )
    assert done.returncode == 0
    assert known.new() == (0, 0, 0)
    assert (there / "tool.log").read_text() == (known.folder.path / "tool.log").read_text()
    assert (there / "out.jsonl").read_bytes() == (known.folder.path / "out.jsonl").read_bytes()


def test_05_a_declared_version_stands_for_the_source(folder: Folder, quick: Any) -> None:
    declared = TEXT.replace("effects pure", 'effects pure, version "1"')
    folder.workflow(declared)
    folder.write("tools.py", TOOLS)
    folder.rows(*ROWS)
    with FakeServer(respond) as server:
        counted = Counted(folder, server, quick)
        assert counted.run(*ARGS) == (3, 6, 3)
        folder.write("tools.py", TOOLS.replace("BASE = 3", "BASE = 4"))
        assert counted.run(*ARGS) == (0, 0, 0)
        folder.workflow(declared.replace('"1"', '"2"'))
        assert counted.run(*ARGS) == (0, 0, 3)
    assert [row["s"] for row in folder.read()] == [2 * len(f"I say {row['a']}") + 4 for row in ROWS]


def test_05_a_file_that_a_tool_imports_from_beside_it_counts(known: Counted) -> None:
    """In processes of their own: within one Python keeps what it has imported."""
    known.folder.write("tools.py", "from helpers import double\n" + TOOLS.replace("def double", "def other"))
    results = []
    for factor, fetched in ((2, 9), (2, 12), (3, 9)):
        known.folder.write("helpers.py", f"def double(number):\n    return {factor} * number\n")
        done = known.folder.run(*ARGS, engine=known.server.url)
        assert f"{12 - fetched} calls, {fetched} fetched" in done.stderr
        results.append([row["s"] for row in known.folder.read()])
    assert results[0] == results[1]
    assert [(value - 3) * 3 for value in results[0]] == [(value - 3) * 2 for value in results[2]]
    assert known.new()[:2] == (0, 0)


def test_05_the_revision_of_a_model_changes_a_key(folder: Folder, quick: Any) -> None:
    """The scripted engine's revision is what its rules say."""
    folder.workflow('workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x')
    folder.rows(*ROWS)
    folder.rules({"reply": "old"})
    assert "3 calls" in quick(*ARGS).stderr
    assert "0 calls" in quick(*ARGS).stderr
    folder.rules({"reply": "new"})
    assert "3 calls" in quick(*ARGS).stderr
    assert {row["x"] for row in folder.read()} == {"new"}
