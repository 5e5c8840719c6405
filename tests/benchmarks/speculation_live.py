"""An agent over a small airline in SQLite, with speculation and without: what it hides of the time of tools.

    python tests/benchmarks/speculation_live.py [--traces FILE] [--llm 2] [--tool 1] [--sessions N] [--together]

Real trajectories (tau-bench airline) are replayed by a Helix agent in virtual time: its model says what the recorded
one said, after `--llm` seconds, and its tools take `--tool` seconds. The airline is a SQLite database of our own
schema, made from scratch in a temporary folder; its documents are filled in from the recorded results at run time,
since what an agent asks for next depends on what it saw.
What the user answers comes by a tool, `ask_user`, which takes no time;
patterns see it as what the user said.

Patterns are mined from four fifths of the tasks and tried on the rest, five times (the split of the design). Each
session is a run of its own, or with `--together` all of a fold are one run, so that a write of one voids what was read
for another. Every reading tool is at the stage `serve`, as after its roll-out; that its results would have matched is
checked by a run without speculation: equal outputs and equal databases.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import helix as hx
from helix import api
from helix.errors import EngineError
from helix.executor.engines.base import Capabilities, Reply, Request
from helix.executor.engines.sim.loop import VirtualLoop
from helix.executor.speculation import SpeculationSettings
from helix.mining import History, Miner
from helix.traces import LlmEvent, Session, ToolEvent, sessions_of
from helix.traces.importers import import_openai

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces" / "taubench_airline_gpt4o.json"
FOLDS = 5
ASK = "ask_user"

WORKFLOW = """
workflow airline(task: text)

tool get_user_details(user_id: text) -> json from python "airline:get_user_details" READ, reads users
tool get_reservation_details(reservation_id: text) -> json
  from python "airline:get_reservation_details" READ, reads reservations
tool search_direct_flight(origin: text, destination: text, date: text) -> json
  from python "airline:search_direct_flight" READ, reads flights
tool search_onestop_flight(origin: text, destination: text, date: text) -> json
  from python "airline:search_onestop_flight" READ, reads flights
tool list_all_airports() -> json from python "airline:list_all_airports" READ, reads airports
tool calculate(expression: text) -> json from python "airline:calculate" effects pure, version 1, cost COST
tool think(thought: text) -> json from python "airline:think" effects pure, cost 1ms
tool update_reservation_flights(args: json) -> json from python "airline:write" WRITE
tool update_reservation_baggages(args: json) -> json from python "airline:write" WRITE
tool update_reservation_passengers(args: json) -> json from python "airline:write" WRITE
tool cancel_reservation(args: json) -> json from python "airline:write" WRITE
tool book_reservation(args: json) -> json from python "airline:write" WRITE
tool send_certificate(args: json) -> json from python "airline:write" effects write, writes users, cost COST
tool transfer_to_human_agents(args: json) -> json from python "airline:write" effects write, writes handovers, cost COST
tool ask_user(message: text) -> text from python "airline:ask_user" effects write, writes conversations, cost 1ms

answer = agent -> text {
  tools [get_user_details, get_reservation_details, search_direct_flight, search_onestop_flight, list_all_airports,
    calculate, think, update_reservation_flights, update_reservation_baggages, update_reservation_passengers,
    cancel_reservation, book_reservation, send_certificate, transfer_to_human_agents, ask_user]
  max_turns 200
  user "{{ task }}"
}

output answer
"""

SCHEMA = """
CREATE TABLE users (user_id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE reservations (reservation_id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE flights (stops INTEGER, origin TEXT, destination TEXT, day TEXT, document TEXT NOT NULL,
  PRIMARY KEY (stops, origin, destination, day));
CREATE TABLE airports (document TEXT NOT NULL);
CREATE TABLE sums (expression TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE conversations (message TEXT PRIMARY KEY, answer TEXT NOT NULL);
CREATE TABLE changes (arguments TEXT NOT NULL);
"""

MODULE = '''
"""The tools of the airline."""
import json
import sqlite3
from pathlib import Path

FILE = Path(__file__).with_name("airline.db")


def _found(query, *values):
    database = sqlite3.connect(f"file:{FILE}?mode=ro", uri=True)
    try:
        row = database.execute(query, values).fetchone()
    finally:
        database.close()
    return "Error: not found" if row is None else json.loads(row[0])


def get_user_details(user_id):
    return _found("SELECT document FROM users WHERE user_id = ?", user_id)


def get_reservation_details(reservation_id):
    return _found("SELECT document FROM reservations WHERE reservation_id = ?", reservation_id)


def search_direct_flight(origin, destination, date):
    return _flights(0, origin, destination, date)


def search_onestop_flight(origin, destination, date):
    return _flights(1, origin, destination, date)


def _flights(stops, origin, destination, date):
    query = "SELECT document FROM flights WHERE stops = ? AND origin = ? AND destination = ? AND day = ?"
    return _found(query, stops, origin, destination, date)


def list_all_airports():
    return _found("SELECT document FROM airports")


def calculate(expression):
    return _found("SELECT document FROM sums WHERE expression = ?", expression)


def think(thought):
    return ""


def write(args):
    database = sqlite3.connect(FILE)
    with database:
        database.execute("INSERT INTO changes VALUES (?)", (json.dumps(args, sort_keys=True),))
    database.close()
    return {"done": True}


def ask_user(message):
    database = sqlite3.connect(f"file:{FILE}?mode=ro", uri=True)
    try:
        return database.execute("SELECT answer FROM conversations WHERE message = ?", (message,)).fetchone()[0]
    finally:
        database.close()
'''

READS = {
    "get_user_details", "get_reservation_details", "search_direct_flight", "search_onestop_flight",
    "list_all_airports", "calculate",
}  # fmt: skip
PASSED_WHOLE = (
    "update_reservation_flights", "update_reservation_baggages", "update_reservation_passengers", "cancel_reservation",
    "book_reservation", "send_certificate", "transfer_to_human_agents",
)  # fmt: skip


@dataclass
class Played:
    """A session as it is replayed: the first text of its user, and what its model replies turn by turn."""

    session: Session
    task: str = ""
    replies: list[str] = field(default_factory=list)


def played(session: Session) -> Played:
    """The replies of a session. A text of the model before the end is a question to the user."""
    found = Played(session)
    events = list(session.events)
    decisions = [place for place, event in enumerate(events) if isinstance(event, LlmEvent) and event.status == "ok"]
    for number, place in enumerate(decisions):
        event = events[place]
        assert isinstance(event, LlmEvent)
        if number == 0:
            found.task = "\n".join(event.user)
        calls = [each for each in events[place + 1 :] if isinstance(each, ToolEvent) and each.id in event.calls]
        if calls:
            one = calls[0]
            args = {"args": dict(one.args)} if one.tool in PASSED_WHOLE else dict(one.args)
            found.replies.append(json.dumps({"tool": one.tool, "args": args}))
        else:
            said = question(session, number, event.text)
            found.replies.append(json.dumps({"tool": ASK, "args": {"message": said}}))
    found.replies.append(json.dumps({"answer": "done"}))
    return found


def question(session: Session, number: int, text: str | None) -> str:
    """A question to the user that is found again: the place of it before the text."""
    return f"[{session.id} {number}] {text or ''}"


class Replay:
    """An engine that replies as it was recorded, after some seconds. `ended` is when each row had its last reply."""

    name = "replay"

    def __init__(self, sessions: Sequence[Played], seconds: float) -> None:
        self._sessions = sessions
        self._seconds = seconds
        self.ended: dict[int, float] = {}

    async def open(self, *, concurrency: int) -> Capabilities:
        return Capabilities()

    async def generate(self, request: Request) -> Reply:
        await asyncio.sleep(self._seconds)
        turn = sum(message.role == "assistant" for message in request.messages)
        replies = self._sessions[request.row].replies
        if turn >= len(replies):
            raise EngineError(f"no reply was recorded for turn {turn}")
        self.ended[request.row] = asyncio.get_running_loop().time()
        return Reply(text=replies[turn])

    async def count_tokens(self, request: Request) -> int:
        return 1

    async def close(self) -> None:
        """Nothing is held."""


class Talk(History):
    """A history that takes the tool `ask_user` for what it is: the model says something, and the user answers."""

    def called(self, tool: str, args: Any, result: Any, *, ok: bool = True) -> None:
        if tool == ASK:
            super().said(args["message"].partition("] ")[2])
            self.user(str(result))
        elif tool in PASSED_WHOLE:
            super().called(tool, args["args"], result, ok=ok)
        else:
            super().called(tool, args, result, ok=ok)

    def said(self, text: str | None) -> None:
        """A reply is JSON; what the model says to the user comes with the call."""


class Patterns:
    """The patterns of a fold, as a run asks for them."""

    def __init__(self, miner: Miner) -> None:
        self._miner = miner

    def history(self) -> Talk:
        return Talk()

    def predict(self, history: Talk, *, most: int) -> Any:
        return self._miner.predict(history, most=most)


def build(folder: Path, sessions: Sequence[Session]) -> None:
    """Makes the airline: its tools, and its database with what the tools gave in these sessions."""
    (folder / "airline.py").write_text(MODULE, encoding="utf-8")
    file = folder / "airline.db"
    file.unlink(missing_ok=True)
    database = sqlite3.connect(file)
    with database:
        database.executescript(SCHEMA)
        for session in sessions:
            events = session.events
            answers = [event for event in events if isinstance(event, LlmEvent)]
            for number, event in enumerate(answers):
                said = " ".join(answers[number + 1].user) if number + 1 < len(answers) else "###STOP###"
                row = (question(session, number, event.text), said)
                database.execute("INSERT OR REPLACE INTO conversations VALUES (?, ?)", row)
            for call in session.calls:
                put(database, call)
    database.close()


def put(database: sqlite3.Connection, call: ToolEvent) -> None:
    """Fills in what a reading tool gave, the first time that it was asked."""
    args, document = call.args, json.dumps(call.result)
    if call.tool == "get_user_details":
        database.execute("INSERT OR IGNORE INTO users VALUES (?, ?)", (args["user_id"], document))
    elif call.tool == "get_reservation_details":
        database.execute("INSERT OR IGNORE INTO reservations VALUES (?, ?)", (args["reservation_id"], document))
    elif call.tool in ("search_direct_flight", "search_onestop_flight"):
        place = (int("onestop" in call.tool), args["origin"], args["destination"], args["date"], document)
        database.execute("INSERT OR IGNORE INTO flights VALUES (?, ?, ?, ?, ?)", place)
    elif call.tool == "list_all_airports":
        database.execute("INSERT INTO airports VALUES (?)", (document,))
    elif call.tool == "calculate":
        database.execute("INSERT OR IGNORE INTO sums VALUES (?, ?)", (args["expression"], document))


def workflow(folder: Path, tool_seconds: float) -> hx.Workflow:
    """The workflow of the airline."""
    cost = f"{round(tool_seconds * 1000)}ms"
    text = (
        WORKFLOW.replace("READ,", f"effects read, freshness until_write, version 1, cost {cost},")
        .replace("WRITE", f'effects write, writes "reservations, users", cost {cost}')
        .replace("COST", cost)
    )
    path = folder / "airline.helix"
    path.write_text(text, encoding="utf-8")
    return hx.load(str(path))


def served(folder: Path, flow: hx.Workflow, llm: float) -> None:
    """Puts all reading tools at the stage `serve`, and tells how long decisions take, as earlier runs would have."""
    from helix.executor.speculation.state import SpeculationState, file_of
    from helix.logical import Agent, every_node

    state = SpeculationState(file_of(folder, None))
    for node in every_node(api.check(flow).plan.sink):
        if isinstance(node, Agent):
            for tool in node.tools:
                if tool.name in READS:
                    state.stage(tool).stage = "serve"
    for _ in range(20):
        state.decision_times("answer").add(llm)
    state.save()


@dataclass
class Totals:
    """What the runs of one kind took together."""

    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    changes: list[Any] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)

    def add(self, found: dict[str, Any] | None) -> None:
        for name, count in (found or {}).get("refused", {}).items():
            self.refused[name] = self.refused.get(name, 0) + count
        for name, value in (found or {}).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self.figures[name] = self.figures.get(name, 0) + value


def run(
    totals: Totals,
    folder: Path,
    flow: hx.Workflow,
    sessions: list[Played],
    llm: float,
    patterns: Patterns | None = None,
    bounds: SpeculationSettings | None = None,
) -> None:
    """Replays sessions in one run."""
    store = folder / "store"
    options: dict[str, Any] = {}
    if patterns is not None:
        served(store, flow, llm)
        options = {
            "speculate": "on", "patterns": patterns, "store": store,
            "speculation": bounds,
        }  # fmt: skip
    engine = Replay(sessions, llm)
    rows = [{"task": session.task} for session in sessions]
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(
            api.arun(flow, rows, engine=engine, concurrency=256, merge=False, lanes={"tools": 256}, fresh=bool(options),
                     **options)
        )  # fmt: skip
    totals.seconds += sum(engine.ended.values())
    totals.outputs += [dict(row) for row in result.rows]
    totals.add(result.report.speculation)
    database = sqlite3.connect(folder / "airline.db")
    totals.changes.append(sorted(database.execute("SELECT arguments FROM changes")))
    with database:
        database.execute("DELETE FROM changes")
    database.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--llm", type=float, default=2.0, help="seconds of a decision")
    parser.add_argument("--tool", type=float, default=1.0, help="seconds of a call")
    parser.add_argument("--sessions", type=int, default=None, help="of each fold")
    parser.add_argument("--work", type=float, default=0.25, help="what a second of an unused call costs")
    parser.add_argument("--chances", type=int, default=30, help="predictions that a pattern needs")
    parser.add_argument("--together", action="store_true", help="all sessions of a fold in one run")
    given = parser.parse_args()
    sessions = sessions_of(import_openai(given.traces))
    groups = sorted({session.group for session in sessions})
    random.Random(7).shuffle(groups)
    plain, guessed = Totals(), Totals()
    bounds = SpeculationSettings(audit_every=0, work=given.work, chances=given.chances)
    began = perf_counter()
    for fold in range(FOLDS):
        held_out = set(groups[fold::FOLDS])
        miner = Miner()
        miner.mine([session for session in sessions if session.group not in held_out])
        tried = [played(session) for session in sessions if session.group in held_out][: given.sessions]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            build(folder, [each.session for each in tried])
            flow = workflow(folder, given.tool)
            for some in [tried] if given.together else [[each] for each in tried]:
                run(plain, folder, flow, some, given.llm)
                run(guessed, folder, flow, some, given.llm, Patterns(miner), bounds)
        print(f"fold {fold + 1}: {plain.seconds:,.0f} s without, {guessed.seconds:,.0f} s with", file=sys.stderr)
    figures = guessed.figures
    same = plain.outputs == guessed.outputs and plain.changes == guessed.changes
    failed = sum(row["_error"] is not None for row in plain.outputs)
    hidden, limit = figures["hidden_seconds"], figures["limit_seconds"]
    print(f"sessions {len(plain.outputs)} ({failed} failed), outputs and databases {'equal' if same else 'DIFFERENT'}")
    print(f"session seconds: {plain.seconds:,.0f} without, {guessed.seconds:,.0f} with speculation")
    saved = (plain.seconds - guessed.seconds) / plain.seconds
    print(f"hidden: {saved:.1%} of the time; limit {limit / plain.seconds:.1%}")
    print(f"reads {figures['real_reads']:,.0f}, served {figures['hits']:,.0f} ({figures['late_hits']:,.0f} late), "
          f"launched {figures['launched']:,.0f}, wasted {figures['wasted']:,.0f}")  # fmt: skip
    print("not guessed: " + ", ".join(f"{count:,} by {name}" for name, count in sorted(guessed.refused.items())))
    print(
        f"hidden seconds {hidden:,.0f} of {limit:,.0f}; {figures['wasted'] / figures['real_reads']:.2f} wasted a read"
    )
    print(f"{perf_counter() - began:.0f} s of real time", file=sys.stderr)
    return 0 if same and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
