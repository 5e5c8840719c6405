"""Contract 6 from the command line: what is stored, what is refused, how much, and who may use it at once."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from call_log import CallLog
from running import Folder, arguments, environment, inside, said_calls

TEXT = 'workflow t(a: text)\nx = llm { user "say {{ a }}" }\noutput a, x\n'
# The same calls in another run, so that what is known comes from the store and not from the journal.
OTHER = TEXT.replace("output a, x", "output x, a")
ROWS = [{"a": f"row {number}"} for number in range(12)]
OUT = ("-o", "out.jsonl")


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    return folder


@pytest.fixture
def stored(ready: Folder, quick: Any) -> Folder:
    """A folder in which the workflow has run, and another one that makes the same calls is about to."""
    assert said_calls(quick(*OUT).stderr) == 12
    ready.workflow(OTHER)
    return ready


def store(folder: Folder) -> Path:
    return folder.path / ".helix" / "store.db"


def shown(helix: Any) -> Any:
    done = helix("cache", "show", "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def helix(folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> Callable[..., Any]:
    """Runs any command of `helix` in the folder."""
    return lambda *args: inside(*args, cwd=folder.path, monkeypatch=monkeypatch, capfd=capfd)


# --- what is stored ---


def test_06_another_run_takes_equal_calls_from_the_store(stored: Folder, quick: Any, helix: Any) -> None:
    done = quick(*OUT)
    assert said_calls(done.stderr) == 0
    assert "12 fetched" in done.stderr
    found = shown(helix)
    assert found["results"] == 12
    assert sum(each["hits"] for each in found["held"]) == 12
    assert len(found["runs"]) == 2


def test_06_only_successes_are_stored(ready: Folder, quick: Any, helix: Any) -> None:
    ready.workflow(TEXT.replace("llm {", "llm -> int {"))
    ready.rules(
        {"match": "row 3$", "error": 400, "message": "no"},
        {"prompt_contains": "row 5", "reply": "not a number"},
        {"match": "row 7$", "reply": "12", "finish": "length"},
        {"reply": "4"},
    )
    assert quick(*OUT).returncode == 3
    kinds = [row["_error"] and row["_error"]["kind"] for row in ready.read()]
    assert [number for number, kind in enumerate(kinds) if kind] == [3, 5, 7]
    assert shown(helix)["results"] == 9
    # Another run asks again what has failed, and only that.
    ready.workflow(OTHER.replace("llm {", "llm -> int {"))
    done = quick(*OUT)
    assert said_calls(done.stderr) == 1 + 2 + 1


def test_06_what_is_stored_is_bytes_and_what_is_read_is_a_new_value(ready: Folder, quick: Any) -> None:
    """A tool changes the value in place that it is given: nobody else sees that, nor does the store."""
    text = """workflow t(a: text)
tool spoil(v: json) -> json from python "spoils:spoil" effects pure
x = llm -> json {{ user "say" }}
y = spoil(x)
output {output}
"""
    ready.write("spoils.py", "def spoil(v):\n    v['n'].append(9)\n    return v\n")
    ready.rules({"reply": '{"n": [1]}'})
    for output in ("x, y", "y, x", "x, y, a"):
        ready.workflow(text.format(output=output))
        assert quick(*OUT).returncode == 0
        assert [(row["x"], row["y"]) for row in ready.read()] == [({"n": [1]}, {"n": [1, 9]})] * 12
    with sqlite3.connect(store(ready)) as database:
        values = [bytes(value) for (value,) in database.execute("SELECT value FROM results")]
    database.close()
    assert b'{"n": [1]}' in values


def test_06_a_step_without_cache_is_not_stored(ready: Folder, quick: Any, helix: Any) -> None:
    ready.workflow(TEXT.replace("llm {", "llm(cache: off) {"))
    assert said_calls(quick(*OUT).stderr) == 12
    assert shown(helix)["results"] == 0
    ready.workflow(OTHER.replace("llm {", "llm(cache: off) {"))
    assert said_calls(quick(*OUT).stderr) == 12


# --- files that are not to be used ---


def newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE recipes (id INTEGER)")
    database.close()


def in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192 : 8192 * 3] = random.Random(1).randbytes(8192 * 2)
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "random bytes": (lambda path: path.write_bytes(random.Random(1).randbytes(90_000)), "is no result store of Helix"),
    "a text": (lambda path: path.write_text("my notes\n"), "is no result store of Helix"),
    "nothing": (lambda path: path.write_bytes(b""), "is no result store of Helix"),
    "the head alone": (lambda path: path.write_bytes(path.read_bytes()[:100]), "bytes are missing at its end"),
    "cut in half": (lambda path: path.write_bytes(path.read_bytes()[:40_000]), "bytes are missing at its end"),
    "random bytes in the middle": (in_the_middle, "cannot be used"),
    "another database": (foreign, "is a database, but no result store of Helix"),
    "a newer version": (newer, "was written by a newer version of Helix (format 99; this one knows"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_06_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    stored: Folder, quick: Any, helix: Any, what: str
) -> None:
    path = store(stored)
    damage, message = DAMAGES[what]
    damage(path)
    before = path.read_bytes()
    made = (stored.path / "out.jsonl").read_bytes()
    for command in (
        ("cache", "show"),
        ("cache", "clear", "--yes"),
        stored.arguments(*OUT),
        stored.arguments("--fresh"),
    ):
        done = helix(*command)
        assert (done.returncode, done.stdout) == (2, ""), command
        assert done.stderr.startswith("error: "), done.stderr
        assert message in done.stderr
        assert str(path.relative_to(stored.path)) in done.stderr
        assert "Traceback" not in done.stderr
    assert "--no-store" in done.stderr
    assert path.read_bytes() == before
    assert (stored.path / "out.jsonl").read_bytes() == made
    # Without it, and with another one, all is well.
    assert said_calls(quick(*OUT, "--no-store").stderr) == 12
    assert said_calls(quick(*OUT, "--store", "another").stderr) == 12


@pytest.mark.parametrize("field", ["value", "digest", "model", "parameters", "asking"])
def test_06_a_result_that_is_not_what_was_stored_is_never_given(stored: Folder, quick: Any, field: str) -> None:
    right = {row["a"]: row["x"] for row in stored.read()}
    with sqlite3.connect(store(stored)) as database:
        match field:
            case "value":
                database.execute("UPDATE results SET value = CAST('another reply' AS BLOB)")
            case "digest":
                database.execute("UPDATE results SET digest = zeroblob(16)")
            case "asking":
                database.execute("UPDATE results SET asking = 77")
            case _:
                database.execute(f"UPDATE askings SET {field} = 'another'")
    database.close()
    done = quick(*OUT)
    assert done.returncode == 0, done.stderr
    assert said_calls(done.stderr) == 12
    assert {row["a"]: row["x"] for row in stored.read()} == right


def test_06_bits_that_flip_anywhere_cost_calls_or_stop_the_run_but_never_answer(stored: Folder, quick: Any) -> None:
    right = {row["a"]: row["x"] for row in stored.read()}
    path, whole, drawn = store(stored), store(stored).read_bytes(), random.Random(6)
    outcomes = set()
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(drawn.randrange(1, 6)):
            data[drawn.randrange(100, len(data))] ^= 1 << drawn.randrange(8)
        path.write_bytes(data)
        done = quick(*OUT)
        outcomes.add(done.returncode)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        if done.returncode == 0:
            assert {row["a"]: row["x"] for row in stored.read()} == right
        for left in (Path(f"{path}-wal"), Path(f"{path}-shm")):
            left.unlink(missing_ok=True)
        for run in (stored.path / ".helix" / "runs").iterdir():
            (run / "journal").unlink(missing_ok=True)
    assert 0 in outcomes


# --- how much, and together with others ---


def test_06_the_store_is_held_within_its_size_and_what_was_used_longest_ago_goes(
    ready: Folder, quick: Any, helix: Any
) -> None:
    ready.rules({"reply": "x" * 1000})

    def use(first: int, last: int, output: str) -> int:
        ready.rows(*({"a": f"row {number}"} for number in range(first, last)))
        ready.workflow(TEXT.replace("output a, x", f"output {output}"))
        done = quick(*OUT, "--store-size", "30KB")
        assert done.returncode == 0, done.stderr
        assert shown(helix)["bytes"] <= 30 * 1024
        return said_calls(done.stderr)

    assert use(0, 20, "a, x") == 20
    assert use(0, 10, "x, a") == 0
    # Ten new ones: those that were not used a second time go.
    assert use(20, 30, "x as one, a") == 10
    assert use(0, 10, "x as two, a") == 0
    assert use(20, 30, "x as three, a") == 0
    assert use(10, 20, "x as four, a") > 0
    assert use(0, 200, "x as five, a") > 150
    assert shown(helix)["results"] <= 30


def test_06_two_processes_share_one_store(ready: Folder) -> None:
    rows = [{"a": f"row {number}"} for number in range(150)]
    ready.rows(*rows)
    (ready.path / "v.helix").write_text(OTHER)
    (ready.path / "third.helix").write_text(TEXT.replace("output a, x", "output a, x as y"))
    ready.rules({"match": "row 77$", "error": 400}, {"delay": 0.003})
    log = CallLog(ready)
    args = ("-i", "rows.jsonl", "-e", "scripted:replies.toml", "-c", "4")
    processes = [
        subprocess.Popen(
            arguments("run", workflow, *args, "-o", f"{workflow}.jsonl"),
            cwd=ready.path,
            env=environment(log.env),
            stderr=subprocess.PIPE,
        )
        for workflow in ("w.helix", "v.helix")
    ]
    for process in processes:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 3, err.decode()
        assert b"store" not in err
    one, two = ({row["a"]: row["x"] for row in ready.read(f"{name}.helix.jsonl")} for name in "wv")
    assert one == two
    assert 150 <= log.size <= 300
    made = log.size
    done = ready.run(*OUT, env=log.env)
    assert done.returncode == 3
    (ready.path / "w.helix").write_text((ready.path / "third.helix").read_text())
    done = ready.run(*OUT, env=log.env)
    assert {row["a"]: row["y"] for row in ready.read()} == one
    # All but the row that fails came from the store.
    assert log.size == made + 1


def test_06_what_is_cleared_is_made_again(stored: Folder, quick: Any, helix: Any) -> None:
    assert helix("cache", "clear").returncode == 2
    assert said_calls(quick(*OUT).stderr) == 0
    done = helix("cache", "clear", "--keep-runs", "--yes")
    assert (done.returncode, "removed 12 results" in done.stderr) == (0, True)
    assert said_calls(quick(*OUT).stderr) == 0
    done = helix("cache", "clear", "--yes")
    assert "2 runs" in done.stderr
    assert said_calls(quick(*OUT).stderr) == 12
    assert helix("cache", "clear", "--older-than", "1h", "--yes").returncode == 0
    assert shown(helix)["results"] == 12
    assert helix("cache", "show", "--store", "nowhere").returncode in (0, 2)
    assert not (stored.path / "nowhere").exists()
