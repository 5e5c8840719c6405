"""Every row comes out once and in its place, whatever fails (contract 1, 2, 8, 9, 11): a figure for each kind of fault.

Commands are processes of their own. Each test notes how many rows were tried, lost, doubled or moved, and how much
memory the command took; the table stands at the end of the tests (`pytest -m faults`).
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from call_log import CallLog
from fake_server import Answer, Call, FakeServer, completion
from fault_figures import Figure, compared
from running import Folder, arguments, environment

pytestmark = pytest.mark.faults

TEXT = """workflow t(a: text)
x = llm { user "first {{ a }}" }
y = llm { user "second {{ x }}" }
output a, x, y
"""
ROWS = 150
PATIENCE = 240.0
KILLS = Path(__file__).with_name("kills.py")

Note = Callable[[Figure], None]
Respond = Callable[[Call], Answer | None]


def expected(rows: int = ROWS, failed: Mapping[int, str] | None = None) -> list[dict[str, Any]]:
    """The result over an echo; `failed` are rows whose first step fails, with the kind of their error."""
    found = []
    for number in range(rows):
        kind = (failed or {}).get(number)
        x = None if kind else f"<first row {number}>"
        y = None if kind else f"<second {x}>"
        found.append({"_row": number, "a": f"row {number}", "x": x, "y": y, "_error": kind and {"kind": kind}})
    return found


def prompt_of(call: Call) -> str | None:
    """The last message of a chat; None where the request is another one."""
    return str(call.json["messages"][-1]["content"]) if call.route == "/v1/chat/completions" else None


def echo(call: Call) -> Answer | None:
    prompt = prompt_of(call)
    return None if prompt is None else completion(f"<{prompt}>")


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*({"a": f"row {number}"} for number in range(ROWS)))
    return folder


@dataclass(kw_only=True)
class Ended:
    """How a command ended, and the most memory that it took."""

    status: int
    said: str
    peak_mb: float | None


def ended(process: subprocess.Popen[bytes]) -> Ended:
    """Waits for a command."""
    words: list[bytes] = []
    reader = threading.Thread(target=lambda: words.extend(process.stderr or ()))
    reader.start()
    peak, ends = 0.0, time.monotonic() + PATIENCE
    while process.poll() is None:
        peak = max(peak, _peak_mb(process.pid))
        if time.monotonic() > ends:
            process.kill()
        time.sleep(0.02)
    reader.join()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    said = b"".join(words).decode()
    assert "Traceback" not in said
    assert "internal error" not in said
    return Ended(status=process.returncode, said=said, peak_mb=peak or None)


def _peak_mb(pid: int) -> float:
    """The most memory that a process has had so far. What the system tells at its end counts in that of its parent."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def run(folder: Folder, engine: str, *more: str) -> Ended:
    process = folder.start("-e", engine, "-o", "out.jsonl", "-c", "32", *more, stdout=subprocess.DEVNULL)
    return ended(process)


# --- servers ---


def sometimes(fault: Answer, share: float, seed: int) -> Respond:
    """Fails the first request for some prompts, drawn by a seed."""
    seen: Counter[str] = Counter()

    def respond(call: Call) -> Answer | None:
        prompt = prompt_of(call)
        if prompt is None:
            return None
        seen[prompt] += 1
        hit = random.Random(f"{seed} {prompt}").random() < share
        return fault if hit and seen[prompt] == 1 else completion(f"<{prompt}>")

    return respond


def written(text: str, encoding: str) -> bytes:
    """A completion in an encoding that JSON may not have."""
    reply = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", "index": 0}
    return json.dumps({"choices": [reply]}, ensure_ascii=False).encode(encoding)


WHOLE = completion("late").body
SERVERS: Mapping[str, Answer] = {
    "500": Answer(status=500, body={"error": {"message": "boiler"}}),
    "503 without Retry-After": Answer(status=503, body={"error": {"message": "busy"}}),
    "502 as a page": Answer(status=502, body="<html>bad gateway</html>"),
    "reset": Answer(end="reset"),
    "half a reply": Answer(body=WHOLE, end="half"),
    "slow drip": Answer(body=WHOLE, drip=0.05),
    "hang": Answer(end="silence"),
    "half a character": Answer(body=written("é", "utf-8").replace("é".encode(), b"\xc3")),
    "Latin-1": Answer(body=written("é", "latin-1")),
    "gzip that is none": Answer(body=WHOLE, headers={"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_fails_at_times_costs_no_row(ready: Folder, figure: Note, name: str) -> None:
    slow = name in ("slow drip", "hang")
    with FakeServer(sometimes(SERVERS[name], 0.04 if slow else 0.2, seed=3)) as server:
        # Late replies of a busy machine are tried again as well.
        done = run(ready, server.url, "--call-timeout", "2s" if slow else "60s", "--attempts", "6")
        assert done.status == 0, done.said
        requests = len(server.chats())
    figure(compared(f"server: {name}", ready.read(), expected(), requests=requests, peak_mb=done.peak_mb))


def test_rows_that_a_server_never_answers_are_the_only_ones_that_fail(ready: Folder, figure: Note) -> None:
    bad = dict.fromkeys(range(0, ROWS, 7), "engine")
    faults = [SERVERS[name] for name in ("500", "reset", "half a reply", "Latin-1", "gzip that is none")]

    def respond(call: Call) -> Answer | None:
        prompt = prompt_of(call)
        number = -1 if prompt is None or not prompt.startswith("first row ") else int(prompt.rpartition(" ")[2])
        return faults[number % len(faults)] if number in bad else echo(call)

    with FakeServer(respond) as server:
        done = run(ready, server.url, "--attempts", "2")
        requests = len(server.chats())
    assert done.status == 3, done.said
    assert requests == 2 * ROWS
    figure(
        compared(
            "server: always, for some", ready.read(), expected(failed=bad), requests=requests, peak_mb=done.peak_mb
        )
    )


class Bucket:
    """A server that takes so many calls a second and no more, till it is opened."""

    def __init__(self, rate: float, most: float) -> None:
        self.rate, self.most = rate, most
        self.tokens = most
        self.at = time.monotonic()
        self.opened = False
        self.turned_away = 0
        self.answered: list[float] = []

    def __call__(self, call: Call) -> Answer | None:
        answer = echo(call)
        if answer is None:
            return None
        now = time.monotonic()
        self.tokens = min(self.most, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1 and not self.opened:
            self.turned_away += 1
            return Answer(status=429, headers={"retry-after": "1"}, body={"error": {"message": "slow down"}})
        self.tokens -= 1
        self.answered.append(now)
        answer.delay = 0.1
        return answer


def test_a_storm_of_429_at_ten_times_what_a_server_bears(ready: Folder, figure: Note) -> None:
    """64 at once, each answered in 0.1 s, would be 640 a second: it bears 60. After some seconds it takes all."""
    rows = 1200
    ready.rows(*({"a": f"row {number}"} for number in range(rows)))
    bucket = Bucket(60, 60)
    with FakeServer(bucket) as server:
        process = ready.start("-e", server.url, "-o", "out.jsonl", "-c", "64", stdout=subprocess.DEVNULL)
        ends = time.monotonic() + PATIENCE
        while len(bucket.answered) < 600 and time.monotonic() < ends:
            time.sleep(0.02)
        asked = len(server.chats())
        bucket.opened, lifted = True, time.monotonic()
        done = ended(process)
        requests = len(server.chats())
    assert done.status == 0, done.said
    # At most twice the calls, while the limit holds and in all.
    assert asked <= 2 * 600 + 64
    assert requests == 2 * rows + bucket.turned_away
    after = [at - lifted for at in bucket.answered if at > lifted]
    back = next((at for at, later in zip(after, after[30:], strict=False) if later - at < 30 / 180), None)
    # Three times the pace that the server bore, some seconds after it takes all; a busy machine may take longer.
    note = f"{bucket.turned_away} turned away; {'never' if back is None else f'{back:.1f} s'} to three times the pace"
    figure(
        compared(
            "server: storm of 429", ready.read(), expected(rows), requests=requests, peak_mb=done.peak_mb, note=note
        )
    )
    assert back is None or back < 60


def test_a_server_that_dies_and_comes_back_costs_no_row(ready: Folder, figure: Note) -> None:
    calls = 0
    with FakeServer(echo) as first:
        process = ready.start("-e", first.url, "-o", "out.jsonl", "-c", "8", stdout=subprocess.DEVNULL)
        while len(first.chats()) < ROWS:
            time.sleep(0.001)
        first.stop()
        calls += len(first.chats())
        time.sleep(0.5)
        with FakeServer(echo, port=first.port) as again:
            done = ended(process)
            calls += len(again.chats())
    assert done.status == 0, done.said
    assert calls <= 2 * ROWS + 8
    figure(compared("server: dies and comes back", ready.read(), expected(), requests=calls, peak_mb=done.peak_mb))


# --- disks ---


@pytest.mark.parametrize("kilobytes", [8, 20, 60])
def test_a_disk_that_fills_up_costs_no_row_once_there_is_room(ready: Folder, figure: Note, kilobytes: int) -> None:
    size = kilobytes * 1024

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    ready.rules({"match": "(?s)(.*)", "reply": r"<\1>"})
    first = ended(ready.start("-o", "out.jsonl", preexec_fn=limit, stdout=subprocess.DEVNULL))
    assert first.status in (0, 2, 3), first.said
    if first.status == 3:
        # Nothing that was written is wrong.
        told = [row for row in ready.read() if row["_error"] is None]
        assert told == [row for row in expected() if row["_row"] in {each["_row"] for each in told}]
    done = ended(ready.start("-o", "out.jsonl", stdout=subprocess.DEVNULL))
    assert done.status == 0, done.said
    figure(compared(f"disk of {kilobytes} KB", ready.read(), expected(), peak_mb=done.peak_mb))


@pytest.fixture
def read_only(ready: Folder) -> Iterator[Path]:
    """A folder that nobody may write to: a mount for root, else by its rights."""
    path = ready.path / "locked"
    path.mkdir()
    if os.geteuid() == 0:
        if (
            shutil.which("mount") is None
            or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", str(path)], capture_output=True, check=False
            ).returncode
        ):
            pytest.skip("root may write everywhere, and nothing can be mounted here")
        yield path
        subprocess.run(["umount", "-l", str(path)], check=True)
    else:
        path.chmod(0o500)
        yield path
        path.chmod(0o700)


def test_a_folder_that_may_not_be_written_is_told_before_any_call(ready: Folder, read_only: Path) -> None:
    log = CallLog(ready)
    for target in (("-o", "locked/out.jsonl"), ("-o", "out.jsonl", "--store", "locked/kept")):
        done = ended(log.start(*target))
        assert done.status == 2, done.said
        assert done.said.startswith("error: ")
        assert "locked" in done.said
    assert log.size == 0
    assert "out.jsonl" not in ready.names


def test_a_folder_that_may_not_be_written_can_be_worked_in_all_the_same(
    ready: Folder, read_only: Path, figure: Note
) -> None:
    """Nothing is kept, which is said; the result goes elsewhere."""
    ready.rules({"match": "(?s)(.*)", "reply": r"<\1>"})
    path = ready.path
    command = arguments(
        "run",
        path / "w.helix",
        "-i",
        path / "rows.jsonl",
        "-e",
        f"scripted:{path / 'replies.toml'}",
        "-o",
        path / "out.jsonl",
    )
    done = ended(subprocess.Popen(command, cwd=read_only, env=environment(None), stderr=subprocess.PIPE))
    assert done.status == 0, done.said
    assert "this run cannot be resumed" in done.said
    figure(compared("folder that is read-only", ready.read(), expected(), peak_mb=done.peak_mb))


# --- signals ---


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_a_run_that_a_signal_ends_goes_on_to_the_same_file(figure: Note, name: str) -> None:
    """At random points of six workflows. `kills.py --kills 1000` is the long form."""
    command = [sys.executable, KILLS, "--kills", "18", "--seed", "5", "--signal", name, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(None), timeout=PATIENCE, check=False)
    total = json.loads(done.stdout or "{}")
    assert done.returncode == 0, total.get("wrong") or total.get("too_many") or done.stderr
    if name != "SIGKILL":
        # Calls in flight end and are kept, but those that fail after that: of two rows in each workflow.
        assert total["acted_again"] == 0
        assert total["repeated"] <= 2 * total["kills"]
    note = f"{total['kills']} signals, {total['repeated']} calls made again"
    figure(Figure(family=name, tried=total["rows"], requests=total["calls"], peak_mb=total["peak_mb"], note=note))


# --- the clock ---

_CLOCK = """
import random, time

drawn, real, ahead = random.Random(11), time.time, [0.0]


def jumping():
    ahead[0] += drawn.choice((0.0, 0.0, 3600.0, -7200.0, 86400.0 * 400, -86400.0 * 400, 0.5))
    return max(1.0, real() + ahead[0])


time.time = jumping
time.time_ns = lambda: int(jumping() * 1e9)
"""


def test_a_clock_that_jumps_changes_nothing(ready: Folder, figure: Note) -> None:
    """By hours and by years, forwards and back, each time that it is looked at, also where a run goes on."""
    ready.rules({"match": "(?s)(.*)", "reply": r"<\1>", "delay": 0.002})
    log = CallLog(ready)
    hook = ready.path.parent / f"{ready.path.name}-hooks" / "sitecustomize.py"
    hook.write_text(hook.read_text() + _CLOCK)
    first = ended(log.start("-o", "out.jsonl", "--run-timeout", "1h", "--wait-limit", "60s", kill={"KILL_AT": "200"}))
    assert first.status == -signal.SIGKILL
    done = ended(log.start("-o", "out.jsonl", "--run-timeout", "1h", "--call-timeout", "60s"))
    assert done.status == 0, done.said
    assert log.repeated() <= 16
    made = log.size
    assert ended(log.start("-o", "out.jsonl")).status == 0
    assert log.size == made
    figure(compared("clock that jumps", ready.read(), expected(), requests=made, peak_mb=done.peak_mb))


# --- two at once ---


def test_two_runs_on_one_store_at_once(ready: Folder, figure: Note) -> None:
    ready.rules({"match": "(?s)(.*)", "reply": r"<\1>", "delay": 0.003})
    ready.write("v.helix", TEXT.replace("output a, x, y", "output a, x, y, y as again"))
    log = CallLog(ready)
    options = ("-i", "rows.jsonl", "-e", "scripted:replies.toml")
    processes = [
        subprocess.Popen(
            arguments("run", f"{name}.helix", *options, "-o", f"{name}.jsonl"),
            cwd=ready.path,
            env=environment(log.env),
            stderr=subprocess.PIPE,
        )
        for name in "wv"
    ]
    done = [ended(process) for process in processes]
    assert [each.status for each in done] == [0, 0], [each.said for each in done]
    assert 2 * ROWS <= log.size <= 4 * ROWS
    for name in "wv":
        rows = [{key: value for key, value in row.items() if key != "again"} for row in ready.read(f"{name}.jsonl")]
        figure(compared(f"two on one store: {name}", rows, expected(), peak_mb=done[0].peak_mb))


@pytest.mark.parametrize("workflows", ["ww", "wv"], ids=["one command", "two workflows"])
def test_two_runs_to_one_file_at_once(ready: Folder, figure: Note, workflows: str) -> None:
    """The second is told, and the file is that of one of them, whole."""
    ready.rules({"match": "(?s)(.*)", "reply": r"<\1>", "delay": 0.01})
    ready.write("v.helix", TEXT.replace("output a, x, y", "output a, x, y, y as again"))
    options = ("-i", "rows.jsonl", "-e", "scripted:replies.toml", "-o", "out.jsonl")
    processes = [
        subprocess.Popen(
            arguments("run", f"{name}.helix", *options), cwd=ready.path, env=environment(None), stderr=subprocess.PIPE
        )
        for name in workflows
    ]
    done = [ended(process) for process in processes]
    refused = [each.said for each in done if each.status == 2]
    # The second may come when the first has ended, on a busy machine.
    assert sorted(each.status for each in done) in ([0, 0], [0, 2]), [each.said for each in done]
    assert all("another run is writing it" in said or "going on in another process" in said for said in refused)
    rows = ready.read()
    assert len({"again" in row for row in rows}) == 1
    plain = [{name: value for name, value in row.items() if name != "again"} for row in rows]
    figure(compared(f"two to one file: {workflows}", plain, expected(), peak_mb=done[0].peak_mb))
    assert not any(name.endswith("-part") for name in ready.names)
