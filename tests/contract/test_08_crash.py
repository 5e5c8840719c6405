"""Contract 8: SIGKILL at any point, then the same command: the same file, and only calls in flight are made again."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from call_log import ACTING, CallLog
from running import Folder

AT_ONCE = 8
TOOLS_AT_ONCE = 8
ROWS = 36
TEXT = """workflow crash(a: text, group: text)

tool act(a: text) -> text from python "acts:act" effects write

kind = llm -> choice["bug", "praise"] { system "Sort this for {{ group }}." user "{{ a }}" }
drafts = llm(sample: 3, temperature: 0.9) { user "Draft for {{ a }}" }
shorts = for draft in drafts {
  short = llm { user "Shorten {{ draft }}" }
  yield short
}
reply = llm { user "Answer {{ shorts }}" }
repeat up to 2 until review.ok {
  review = llm -> { ok: bool, note: text } { user "Judge {{ reply }}" }
  reply = llm(temperature: 0.5) { user "Improve {{ reply }} by {{ review.note }}" }
}
done = act(a) when kind == "bug"
"""
PLAIN = TEXT + "\noutput a, kind, shorts, reply, review.note as note, done\n"
SORTED = TEXT + "\nsort by kind desc, a\nspread shorts as one\noutput a, kind, one, done\n"
SUM = 'llm { user "Sum up {{ rows | map(attribute="reply") | join("; ") }}" }'
GROUPED = f"{TEXT}\ngroup by group {{ n = len(rows), sum = {SUM} }}\noutput group, n, sum\n"


def prepare(folder: Folder, text: str = PLAIN) -> CallLog:
    """The folder of a run with about 400 calls: loops, samples, tools that act, rows that fail."""
    folder.workflow(text)
    folder.write("acts.py", ACTING)
    # Contexts far apart, so that rows are grouped by them: their order is then not that of the input.
    rows = [{"a": f"row {number:02}", "group": f"{'context ' * 40}{number % 4}"} for number in range(ROWS)]
    folder.rows(*rows)
    folder.rules(
        {"step": "kind", "match": "row (07|21)", "error": 400, "message": "no"},
        {"step": "kind", "match": "[02468]$", "reply": "bug", "delay": 0.011},
        {"step": "kind", "reply": "praise", "delay": 0.009},
        {"delay": 0.01},
    )
    return CallLog(folder)


def copied(folder: Folder, path: Path) -> tuple[Folder, CallLog]:
    """The same folder at another place, with a log of its own."""
    shutil.copytree(folder.path, path)
    other = Folder(path)
    return other, CallLog(other)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """For each workflow a folder to run it in, and the file that an undisturbed run makes."""
    found: dict[str, Any] = {}
    for name, text in (("plain", PLAIN), ("sorted", SORTED), ("grouped", GROUPED)):
        folder = Folder(tmp_path_factory.mktemp(name))
        log = prepare(folder, text)
        whole, whole_log = copied(folder, folder.path.parent / f"{folder.path.name}-whole")
        done = whole_log.run("-o", "out.jsonl", "-c", str(AT_ONCE))
        assert done.returncode == 3, done.stderr
        assert whole_log.repeated() == whole_log.repeated("act") == 0
        found[name] = folder, (whole.path / "out.jsonl").read_bytes(), whole_log
        log.forget()
    assert 380 <= found["plain"][2].size <= 460
    return found


def killed(log: CallLog, kill: dict[str, str]) -> None:
    done = log.run("-o", "out.jsonl", "-c", str(AT_ONCE), kill=kill)
    assert done.returncode == -signal.SIGKILL, done.stderr


def ends_well(folder: Folder, log: CallLog, expected: bytes, *, kills: int, whole: CallLog) -> None:
    """Runs the command to its end, and looks at the file and at what was called again."""
    done = log.run("-o", "out.jsonl", "-c", str(AT_ONCE))
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert (folder.path / "out.jsonl").read_bytes() == expected
    assert not any(name.endswith("-part") for name in folder.names)
    assert set(log.events("call")) == set(whole.events("call"))
    assert set(log.events("act")) == set(whole.events("act"))
    # Each kill costs the calls in flight at most, and no tool acts again but those in flight.
    assert log.repeated() <= AT_ONCE * kills
    assert log.repeated("act") <= TOOLS_AT_ONCE * kills
    again = log.size
    assert log.run("-o", "out.jsonl", "-c", str(AT_ONCE)).returncode == 3
    assert log.size == again
    assert (folder.path / "out.jsonl").read_bytes() == expected


def points(count: int, seed: int) -> list[dict[str, str]]:
    """Points to kill at, drawn by a seed: at a call or an answer, or so many seconds after the first call."""
    drawn = random.Random(seed)
    found = []
    for number in range(count):
        if number % 2:
            found.append({"KILL_AT": str(drawn.randrange(1, 800))})
        else:
            found.append({"KILL_AFTER": f"{drawn.uniform(0.001, 0.5):.4f}"})
    return found


FEW = points(3, seed=1)
MANY = points(50, seed=8)


def name(kill: dict[str, str]) -> str:
    return "-".join(f"{key}={value}" for key, value in kill.items())


@pytest.mark.parametrize("kill", [*FEW, *(pytest.param(kill, marks=pytest.mark.slow) for kill in MANY)], ids=name)
def test_08_a_killed_run_goes_on_to_the_same_file(undisturbed: Any, tmp_path: Path, kill: dict[str, str]) -> None:
    source, expected, whole = undisturbed["plain"]
    folder, log = copied(source, tmp_path / "run")
    killed(log, kill)
    ends_well(folder, log, expected, kills=1, whole=whole)


@pytest.mark.parametrize("what", ["sorted", "grouped"])
@pytest.mark.parametrize(
    "kill", [{"KILL_AT": "333"}, *(pytest.param(kill, marks=pytest.mark.slow) for kill in points(6, seed=3))], ids=name
)
def test_08_a_killed_run_over_the_whole_table_goes_on(
    undisturbed: Any, tmp_path: Path, what: str, kill: dict[str, str]
) -> None:
    source, expected, whole = undisturbed[what]
    folder, log = copied(source, tmp_path / "run")
    killed(log, kill)
    ends_well(folder, log, expected, kills=1, whole=whole)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_08_a_run_killed_again_and_again_ends_well(undisturbed: Any, tmp_path: Path, seed: int) -> None:
    source, expected, whole = undisturbed["plain"]
    folder, log = copied(source, tmp_path / "run")
    drawn = random.Random(seed)
    kills = 4
    for _ in range(kills):
        killed(log, {"KILL_AT": str(drawn.randrange(30, 180))})
    ends_well(folder, log, expected, kills=kills, whole=whole)


def test_08_what_is_done_is_durable_when_the_process_is_killed_from_outside(undisturbed: Any, tmp_path: Path) -> None:
    source, expected, whole = undisturbed["plain"]
    folder, log = copied(source, tmp_path / "run")
    process = log.start("-o", "out.jsonl", "-c", str(AT_ONCE))
    try:
        ends = time.monotonic() + 20
        while log.size < 100:
            assert time.monotonic() < ends
            assert process.poll() is None
            time.sleep(0.005)
    finally:
        process.kill()
        process.communicate()
    assert (folder.path / "out.jsonl").exists() is False
    ends_well(folder, log, expected, kills=1, whole=whole)


# --- a journal that was torn ---

FEW_DAMAGES = ("cut 10", "flip 40", "zeros")
MANY_DAMAGES = ("cut 1", "cut 300", "cut all", "flip 3", "garbage", "a torn write")


def damage(path: Path, how: str, drawn: random.Random) -> None:
    """What a power cut leaves: an end that is missing, of zeros, or of something else; a bit here and there."""
    data = bytearray(path.read_bytes())
    what, _, number = how.partition(" ")
    if how == "cut all":
        data = data[:0]
    elif what == "cut":
        del data[-int(number) :]
    elif what == "flip":
        at = len(data) - int(number)
        data[at] ^= 1 << drawn.randrange(8)
    elif what == "zeros":
        data += bytes(4096)
    elif what == "garbage":
        data += drawn.randbytes(777)
    else:
        # Two blocks of a write were swapped in time: the later one is there, the earlier one is zeros.
        middle = len(data) - 600
        data[middle : middle + 200] = bytes(200)
    path.write_bytes(data)


def journals(folder: Folder) -> list[Path]:
    return [path for path in (folder.path / ".helix" / "runs").rglob("*") if path.is_file() and path.stat().st_size]


@pytest.mark.parametrize("how", [*FEW_DAMAGES, *(pytest.param(how, marks=pytest.mark.slow) for how in MANY_DAMAGES)])
def test_08_a_torn_journal_costs_calls_and_never_an_answer(undisturbed: Any, tmp_path: Path, how: str) -> None:
    source, expected, whole = undisturbed["plain"]
    folder, log = copied(source, tmp_path / "run")
    killed(log, {"KILL_AT": "400"})
    (journal,) = (path for path in journals(folder) if path.name == "journal")
    damage(journal, how, random.Random(5))
    done = log.run("-o", "out.jsonl", "-c", str(AT_ONCE))
    assert done.returncode == 3, done.stderr
    assert (folder.path / "out.jsonl").read_bytes() == expected
    assert set(log.events("call")) == set(whole.events("call"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_08_any_file_of_the_run_may_be_damaged_anywhere(undisturbed: Any, tmp_path: Path, seed: int) -> None:
    """The result is right, or nothing is done and one message says which file is at fault."""
    source, expected, _ = undisturbed["plain"]
    folder, log = copied(source, tmp_path / "run")
    drawn = random.Random(seed)
    killed(log, {"KILL_AT": str(drawn.randrange(100, 700))})
    path = drawn.choice(sorted(journals(folder)))
    data = bytearray(path.read_bytes())
    for _ in range(drawn.randrange(1, 5)):
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
    path.write_bytes(data)
    done = log.run("-o", "out.jsonl", "-c", str(AT_ONCE))
    assert done.returncode in (2, 3), done.stderr
    if done.returncode == 3:
        assert (folder.path / "out.jsonl").read_bytes() == expected
    else:
        assert done.stderr.startswith("error: ")
        assert path.name in done.stderr
        assert path.read_bytes() == data
