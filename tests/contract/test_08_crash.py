"""Contract 8: SIGKILL at any point, then the same command: the same file, and only calls in flight are made again."""

from __future__ import annotations

import random
import re
import shutil
import signal
import sqlite3
from dataclasses import dataclass
from itertools import pairwise
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
tool stock(a: text) -> list[{ n: int }] from sql "sqlite:shop.sqlite" effects read,
  query "SELECT n FROM stock WHERE a = :a"

kind = llm -> choice["bug", "praise"] { system "Sort this for {{ group }}." user "{{ a }}" }
drafts = llm(sample: 3, temperature: 0.9) { user "Draft for {{ a }}" }
shorts = for draft in drafts {
  short = llm { user "Shorten {{ draft }}" }
  yield short
}
reply = llm { user "Answer {{ shorts }}" }
repeat up to 2 until review.ok {
  review = llm -> { ok: bool, note: text } { user "Judge {{ reply }}" }
  reply = llm(temperature: 0.5, cache: off) { user "Improve {{ reply }} by {{ review.note }}" }
}
left = stock(a)
doubt = llm(on_error: null) -> bool { user "Are {{ left[0].n }} enough for {{ a }}?" }
done = act(a) when kind == "bug"
"""
ALL = "kind, reply, review.note as note, left, doubt, done"
PLAIN = f"{TEXT}\noutput a, shorts, {ALL}\n"
SORTED = f"{TEXT}\nsort by kind desc, a\nspread shorts as one\noutput a, one, {ALL}\n"
SUM = 'llm { user "Sum up {{ rows | map(attribute="reply") | join("; ") }}" }'
GROUPED = f"{TEXT}\ngroup by group {{ n = len(rows), sum = {SUM} }}\noutput group, n, sum\n"
LIMITED = f"{TEXT}\nlimit 30\noutput a, shorts, {ALL}\n"
# The formats that are made of batches of rows as well: what is in one must not hang on the time.
WORKFLOWS = {
    "plain": (PLAIN, "out.jsonl"),
    "sorted": (SORTED, "out.parquet"),
    "grouped": (GROUPED, "out.csv"),
    # Without the tool that acts rows are worked on in groups of one context, not in the order of the input.
    "ordered": (re.sub(r"\ntool act.*|\ndone = .*|, done", "", PLAIN), "out.csv"),
    "limited": (LIMITED, "out.arrow"),
}


def prepare(folder: Folder, text: str = PLAIN) -> CallLog:
    """The folder of a run with about 400 calls: loops, samples, tools that act, rows that fail."""
    folder.workflow(text)
    folder.write("acts.py", ACTING)
    # Contexts far apart, so that rows are grouped by them: their order is then not that of the input.
    rows = [{"a": f"row {number:02}", "group": f"{'context ' * 40}{number % 4}"} for number in range(ROWS)]
    folder.rows(*rows)
    with sqlite3.connect(folder.path / "shop.sqlite") as database:
        database.execute("CREATE TABLE stock (a TEXT, n INTEGER)")
        database.executemany("INSERT INTO stock VALUES (?, ?)", [(row["a"], number) for number, row in enumerate(rows)])
    database.close()
    folder.rules(
        {"step": "doubt", "match": "row 1[0-3]", "error": 400, "message": "in doubt"},
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
    for name, (text, output) in WORKFLOWS.items():
        folder = Folder(tmp_path_factory.mktemp(name))
        prepare(folder, text)
        whole, log = copied(folder, folder.path.parent / f"{folder.path.name}-whole")
        done = run(log, output)
        assert done.returncode == 3, done.stderr
        assert log.repeated() == log.repeated("act") == 0
        found[name] = Source(folder=folder, output=output, expected=(whole.path / output).read_bytes(), log=log)
    assert 400 <= found["plain"].log.size <= 500
    return found


def run(log: CallLog, output: str, kill: dict[str, str] | None = None) -> Any:
    return log.run("-o", output, "-c", str(AT_ONCE), kill=kill)


@dataclass(kw_only=True)
class Source:
    """A folder to run in, the file that an undisturbed run makes of it, and what that one called."""

    folder: Folder
    output: str
    expected: bytes
    log: CallLog

    def killed(self, path: Path, *kills: dict[str, str]) -> tuple[Folder, CallLog]:
        """A copy of the folder in which the command was killed so often."""
        folder, log = copied(self.folder, path)
        for kill in kills:
            done = run(log, self.output, kill)
            assert done.returncode == -signal.SIGKILL, done.stderr
        return folder, log

    def ends_well(self, folder: Folder, log: CallLog, *, kills: int = 1) -> None:
        """Runs the command to its end, and looks at the file and at what was called again."""
        done = run(log, self.output)
        assert done.returncode == 3, done.stderr
        assert "Traceback" not in done.stderr
        assert (folder.path / self.output).read_bytes() == self.expected
        assert not any(name.endswith("-part") for name in folder.names)
        # How far rows are begun that a limit then cuts hangs on the time.
        if "limit 30" not in (folder.path / "w.helix").read_text():
            assert set(log.events("call")) == set(self.log.events("call"))
            assert set(log.events("act")) == set(self.log.events("act"))
        # Each kill costs the calls in flight at most, and no tool acts again but those in flight.
        assert log.repeated() <= AT_ONCE * kills
        assert log.repeated("act") <= TOOLS_AT_ONCE * kills
        made = log.size
        assert run(log, self.output).returncode == 3
        assert log.size == made
        assert (folder.path / self.output).read_bytes() == self.expected


def points(count: int, seed: int) -> list[dict[str, str]]:
    """Points to kill at, drawn by a seed: at a call or an answer, or so many seconds after the first call."""
    drawn = random.Random(seed)
    found = []
    for number in range(count):
        if number % 2:
            found.append({"KILL_AT": str(drawn.randrange(1, 640))})
        else:
            found.append({"KILL_AFTER": f"{drawn.uniform(0.001, 0.5):.4f}"})
    return found


FEW = points(3, seed=1)
MANY = points(50, seed=8)


def name(kill: dict[str, str]) -> str:
    return "-".join(f"{key}={value}" for key, value in kill.items())


@pytest.mark.parametrize("kill", [*FEW, *(pytest.param(kill, marks=pytest.mark.slow) for kill in MANY)], ids=name)
def test_08_a_killed_run_goes_on_to_the_same_file(undisturbed: Any, tmp_path: Path, kill: dict[str, str]) -> None:
    source = undisturbed["plain"]
    source.ends_well(*source.killed(tmp_path / "run", kill))


def test_08_the_rows_of_one_workflow_are_worked_on_in_another_order(undisturbed: Any) -> None:
    """So that the tests below are of such a run too."""
    contexts = [row % 4 for step, row, *_ in undisturbed["ordered"].log.events("call") if step == "kind"]
    changes = sum(one != other for one, other in pairwise(contexts))
    assert changes <= 12 < ROWS - 1


@pytest.mark.parametrize("what", ["sorted", "grouped", "ordered", "limited"])
@pytest.mark.parametrize(
    "kill", [{"KILL_AT": "333"}, *(pytest.param(kill, marks=pytest.mark.slow) for kill in points(4, seed=3))], ids=name
)
def test_08_a_killed_run_over_the_whole_table_goes_on(
    undisturbed: Any, tmp_path: Path, what: str, kill: dict[str, str]
) -> None:
    source = undisturbed[what]
    source.ends_well(*source.killed(tmp_path / "run", kill))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_08_a_run_killed_again_and_again_ends_well(undisturbed: Any, tmp_path: Path, seed: int) -> None:
    source, drawn = undisturbed["plain"], random.Random(seed)
    kills = [{"KILL_AT": str(drawn.randrange(30, 180))} for _ in range(4)]
    source.ends_well(*source.killed(tmp_path / "run", *kills), kills=4)


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
        # Of two blocks of a write the later one came to the disk, of the earlier one only zeros.
        middle = len(data) - 600
        data[middle : middle + 200] = bytes(200)
    path.write_bytes(data)


def files_of_run(folder: Folder) -> list[Path]:
    return [path for path in (folder.path / ".helix" / "runs").rglob("*") if path.is_file() and path.stat().st_size]


@pytest.mark.parametrize("how", [*FEW_DAMAGES, *(pytest.param(how, marks=pytest.mark.slow) for how in MANY_DAMAGES)])
def test_08_a_torn_journal_costs_calls_and_never_an_answer(undisturbed: Any, tmp_path: Path, how: str) -> None:
    source = undisturbed["plain"]
    folder, log = source.killed(tmp_path / "run", {"KILL_AT": "400"})
    (journal,) = (path for path in files_of_run(folder) if path.name == "journal")
    damage(journal, how, random.Random(5))
    done = run(log, source.output)
    assert done.returncode == 3, done.stderr
    assert (folder.path / source.output).read_bytes() == source.expected
    assert set(log.events("call")) == set(source.log.events("call"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_08_any_file_of_the_run_may_be_damaged_anywhere(undisturbed: Any, tmp_path: Path, seed: int) -> None:
    """The result is right, or nothing is done and one message says which file is at fault."""
    source, drawn = undisturbed["plain"], random.Random(seed)
    folder, log = source.killed(tmp_path / "run", {"KILL_AT": str(drawn.randrange(100, 700))})
    path = drawn.choice(sorted(files_of_run(folder)))
    data = bytearray(path.read_bytes())
    for _ in range(drawn.randrange(1, 5)):
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
    path.write_bytes(data)
    done = run(log, source.output)
    assert done.returncode in (2, 3), done.stderr
    if done.returncode == 3:
        assert (folder.path / source.output).read_bytes() == source.expected
    else:
        assert done.stderr.startswith("error: ")
        assert path.name in done.stderr
        assert path.read_bytes() == data
