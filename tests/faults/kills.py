"""Ends runs at random points and starts them again: how much comes out otherwise, and how many calls are made again.

    python tests/faults/kills.py --kills 1000 --seed 1

Each trial is one workflow in a folder of its own: its command is killed one to three times, at a call, at an answer or
at any time between its start and its end, then it is run to its end. The result has to be byte-equal to that of an
undisturbed run; the calls made again are counted. Processes are forked from this one, which has everything imported: a
killed process is a real one, but takes 50 ms to start instead of a second.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from call_log import ACTING, HOOK, CallLog
from running import Folder

import helix

AT_ONCE = 8
# Tools run on as many threads of their own.
TOOLS_AT_ONCE = 8
# A run takes half a second; one that hangs is a fault too.
PATIENCE = 120.0
ROWS = 16
# Every so many trials the command is given once more: a finished run makes no call.
AGAIN_EVERY = 10

_ACT = 'tool act(a: text) -> text from python "acts:act" effects write\n'
_HEAD = "workflow t(a: text, team: text)\n"
_CALLS = """first = llm { user "First of {{ a }}" }
second = llm { user "Second of {{ first }}" }
"""
# The workflow, and the file that its result goes to: each format is written in its own way.
WORKFLOWS = {
    "two steps": (f"{_HEAD}{_CALLS}output a, first, second\n", "out.jsonl"),
    "loop": (
        f'{_HEAD}drafts = for part in ["one", "two", "three"] {{\n'
        '  draft = llm { user "{{ part }} of {{ a }}" }\n  yield draft\n}\n'
        'text = llm { user "Join {{ drafts }}" }\n'
        "repeat up to 3 until review.ok {\n"
        '  review = llm -> { ok: bool } { user "Judge {{ text }}" }\n'
        '  text = llm(temperature: 0.5, cache: off) { user "Better than {{ text }}" }\n}\n'
        "output a, drafts, text\n",
        "out.csv",
    ),
    "branch": (
        f'{_HEAD}kind = llm -> choice["bug", "praise"] {{ user "{{{{ a }}}}" }}\n'
        'reply = llm { user "Answer {{ a }}" } when kind == "bug"\n'
        'thanks = llm { user "Thank {{ a }}" } when kind == "praise"\n'
        "output a, kind, reply, thanks\n",
        "out.parquet",
    ),
    "group": (
        f"{_HEAD}{_CALLS}group by team {{\n  n = len(rows)\n"
        "  sum = llm { user \"Sum up {{ rows | map(attribute='second') | join(' ') }}\" }\n}\n"
        "output team, n, sum\n",
        "out.csv",
    ),
    "tools that act": (
        f'{_HEAD}{_ACT}plan = llm {{ user "{{{{ a }}}}" }}\ndone = act(plan)\nseen = act(a)\n'
        'told = llm { user "Say {{ done }}" }\noutput a, done, seen, told\n',
        "out.jsonl",
    ),
    "samples": (
        f'{_HEAD}drafts = llm(sample: 4, temperature: 0.9) {{ user "Draft for {{{{ team }}}}" }}\n'
        'best = llm(temperature: 0.7) { user "Choose {{ drafts }}" }\nsort by a desc\noutput a, drafts, best\n',
        "out.arrow",
    ),
}


@dataclass(kw_only=True)
class Counts:
    """What came out of trials: `wrong` are results that are not the same bytes, each with what is kept of it."""

    trials: int = 0
    kills: int = 0
    rows: int = 0
    calls: int = 0
    repeated: int = 0
    acted_again: int = 0
    too_many: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    peak_mb: float = 0.0

    def add(self, other: Counts) -> None:
        """Adds those of another workflow."""
        for name in ("trials", "kills", "rows", "calls", "repeated", "acted_again"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.too_many += other.too_many
        self.wrong += other.wrong
        self.peak_mb = max(self.peak_mb, other.peak_mb)


@dataclass(kw_only=True)
class Ended:
    """How a process ended: its exit status (negative: by a signal), its peak of memory, what it said."""

    status: int
    peak_mb: float
    seconds: float
    said: str


def prepare(folder: Folder, text: str) -> None:
    """The files of a run: some rows fail, so that failures are resumed as well."""
    folder.workflow(text)
    folder.write("acts.py", ACTING)
    folder.rows(*({"a": f"row {number:02}", "team": f"team {number % 3}"} for number in range(ROWS)))
    folder.rules(
        {"match": "row (03|11)", "error": 400, "message": "no", "delay": 0.002},
        {"step": "kind", "match": "[02468]$", "reply": "bug", "delay": 0.003},
        {"step": "kind", "reply": "praise", "delay": 0.002},
        {"delay": 0.002},
    )


def start(log: CallLog, folder: Folder, output: str, kill: dict[str, str]) -> int:
    """Forks a process that runs the command in the folder; gives its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        os.chdir(folder.path)
        said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ.update({**log.env, **kill})
        exec(compile(HOOK, "hook", "exec"), {})
        sys.argv = ["helix", *map(str, folder.arguments("-o", output, "-c", str(AT_ONCE)))]
        from helix.cli import _guarded

        status = _guarded()
        Path("modules.txt").write_text("\n".join(sorted(sys.modules)))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def wait(pid: int, folder: Folder, kill_at: float | None = None, sign: int = signal.SIGKILL) -> Ended:
    """Waits for a process to end; sends it a signal after so many seconds."""
    began = time.monotonic()
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        now = time.monotonic() - began
        if ended:
            # One that was killed at once has said nothing.
            words = folder.path / "said.txt"
            said = words.read_text("utf-8", "replace") if words.exists() else ""
            return Ended(
                status=os.waitstatus_to_exitcode(status), peak_mb=usage.ru_maxrss / 1024, seconds=now, said=said
            )
        if kill_at is not None and now >= kill_at:
            os.kill(pid, sign)
            kill_at = None
        if now > PATIENCE:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


class Source:
    """A workflow in a folder, and what an undisturbed run of it makes."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        text, self.output = WORKFLOWS[name]
        # Here, so that no process has to make the parser's tables again: they take longer than the run.
        helix.loads(text)
        self.path = path
        self._folder = Folder(path / "source")
        self._folder.path.mkdir(parents=True)
        prepare(self._folder, text)
        folder, log = self.copy("whole")
        whole = wait(start(log, folder, self.output, {}), folder)
        if whole.status not in (0, 3) or log.repeated() or log.repeated("act"):
            raise RuntimeError(f"{name}: the undisturbed run ended with {whole.status}: {whole.said}")
        # What it has imported, so that those to come have it from their start.
        for module in (folder.path / "modules.txt").read_text().splitlines():
            with suppress(ImportError):
                importlib.import_module(module)
        folder, log = self.copy("timed")
        whole = wait(start(log, folder, self.output, {}), folder)
        self.status, self.seconds, self.size = whole.status, whole.seconds, log.size
        self.expected = (folder.path / self.output).read_bytes()
        self.calls = set(log.events("call"))
        self.acts = set(log.events("act"))

    def copy(self, name: str) -> tuple[Folder, CallLog]:
        """The same folder under another name, with a log of its own."""
        shutil.copytree(self._folder.path, self.path / name)
        folder = Folder(self.path / name)
        return folder, CallLog(folder)

    def trial(self, number: int, drawn: random.Random, sign: int, most: int) -> Counts:
        """One run that is ended up to three times, then goes on to its end."""
        folder, log = self.copy(f"trial {number}")
        counts = Counts(trials=1, rows=ROWS)
        for _ in range(min(most, drawn.choice((1, 1, 2, 3)))):
            kill, at = self._point(drawn, sign)
            ended = wait(start(log, folder, self.output, kill), folder, at, sign)
            counts.peak_mb = max(counts.peak_mb, ended.peak_mb)
            counts.kills += ended.status in (-sign, 130)
            if ended.status not in (-sign, 130, self.status):
                counts.wrong.append(f"{self.name}, {number}: ended with {ended.status} at {kill or at}: {ended.said}")
        self._look(folder, log, counts, number)
        if not counts.wrong and not counts.too_many:
            shutil.rmtree(folder.path)
            shutil.rmtree(folder.path.parent / f"{folder.path.name}-hooks")
        return counts

    def _point(self, drawn: random.Random, sign: int) -> tuple[dict[str, str], float | None]:
        """Where to end it: at an event, some time after the first one, or some time after its start."""
        way = drawn.randrange(3)
        if way == 0:
            return {"KILL_AT": str(drawn.randrange(1, 2 * self.size)), "KILL_WITH": str(int(sign))}, None
        if way == 1 or sign != signal.SIGKILL:
            # Other signals come once the command listens to them.
            return {"KILL_AFTER": f"{drawn.uniform(0.0005, self.seconds):.4f}", "KILL_WITH": str(int(sign))}, None
        return {}, drawn.uniform(0.0, 1.05 * self.seconds)

    def _look(self, folder: Folder, log: CallLog, counts: Counts, number: int) -> None:
        """Runs the command to its end, and compares."""
        done = wait(start(log, folder, self.output, {}), folder)
        where = f"{self.name}, {number}, {folder.path}"
        counts.peak_mb = max(counts.peak_mb, done.peak_mb)
        counts.calls, counts.repeated, counts.acted_again = log.size, log.repeated(), log.repeated("act")
        if done.status != self.status or "Traceback" in done.said:
            counts.wrong.append(f"{where}: the resumed run ended with {done.status}: {done.said}")
        elif (folder.path / self.output).read_bytes() != self.expected:
            counts.wrong.append(f"{where}: another file")
        elif set(log.events("call")) != self.calls or set(log.events("act")) != self.acts:
            counts.wrong.append(f"{where}: other calls")
        elif any(name.endswith("-part") for name in folder.names):
            counts.wrong.append(f"{where}: hidden files are left")
        if counts.repeated > AT_ONCE * counts.kills or counts.acted_again > TOOLS_AT_ONCE * counts.kills:
            counts.too_many.append(f"{where}: {counts.repeated} calls, {counts.acted_again} acts made again")
        if number % AGAIN_EVERY == 0 and not counts.wrong:
            wait(start(log, folder, self.output, {}), folder)
            if log.size != counts.calls:
                counts.wrong.append(f"{where}: a finished run made {log.size - counts.calls} calls")


def measured(
    kills: int,
    seed: int,
    path: Path,
    *,
    sign: int = signal.SIGKILL,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[str, Counts]]:
    """Ends runs so many times, the workflows in turn; gives the counts of each workflow."""
    sources = [Source(name, path / name) for name in WORKFLOWS]
    found = {source.name: Counts() for source in sources}
    made = number = 0
    while made < kills:
        source = sources[number % len(sources)]
        # A draw of its own for each trial: how a run fares depends on the machine, the draws after it must not.
        counts = source.trial(number, random.Random(f"{seed} {number}"), sign, kills - made)
        found[source.name].add(counts)
        made += counts.kills
        number += 1
        for text in (*counts.wrong, *counts.too_many):
            tell(text)
        if number % 50 == 0:
            tell(f"{made:,} of {kills:,} kills")
        if number > 20 + 10 * kills:
            raise RuntimeError(f"{number} trials came to {made} kills alone")
    yield from found.items()


def main() -> None:
    """Measures, prints a table, and ends with 1 where anything came out otherwise."""
    parser = argparse.ArgumentParser(description="Kill runs at random points, resume them, compare.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--signal", choices=["SIGKILL", "SIGINT", "SIGTERM"], default="SIGKILL")
    parser.add_argument("--json", action="store_true", help="print the sums as JSON")
    given = parser.parse_args()

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    total = Counts()
    head = ("workflow", "trials", "kills", "calls", "again", "a kill", "acts again", "too many", "wrong", "peak MB")
    shown: list[tuple[Any, ...]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        sign = getattr(signal, given.signal)
        for name, counts in measured(given.kills, given.seed, Path(folder), sign=sign, tell=tell):
            total.add(counts)
            shown.append((name, counts))
    if given.json:
        print(json.dumps(asdict(total)))
        sys.exit(1 if total.wrong or total.too_many else 0)
    print(f"{head[0]:<16}" + "".join(f"{each:>12}" for each in head[1:]))
    for name, counts in (*shown, ("all", total)):
        each = counts.repeated / max(1, counts.kills)
        figures = (counts.trials, counts.kills, counts.calls, counts.repeated, f"{each:.2f}", counts.acted_again)
        ends = (len(counts.too_many), len(counts.wrong), f"{counts.peak_mb:.0f}")
        print(f"{name:<16}" + "".join(f"{figure:>12}" for figure in (*figures, *ends)))
    sys.exit(1 if total.wrong or total.too_many else 0)


if __name__ == "__main__":
    main()
