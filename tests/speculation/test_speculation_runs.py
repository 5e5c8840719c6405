"""Speculation in whole runs: agents by patterns, branches by frequency, resumed runs, reports, the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import running
from speculation_world import Predicted

import helix as hx
from helix import api
from helix.errors import OptionError
from helix.executor.engines.base import Capabilities, Load, Reply, Request
from helix.executor.engines.sim.loop import VirtualLoop
from helix.executor.speculation import SpeculationSettings
from helix.executor.speculation.state import SpeculationState, file_of

WIDE: dict[str, Any] = {"concurrency": 8, "lanes": {"tools": 64}}
TRUSTED = SpeculationSettings(chances=5, shadow_guesses=3, matches=3, audit_every=0)


class Thinker:
    """An engine that takes two seconds; `decide` gives the reply to a request. It counts warm-ups, and may be busy."""

    name = "thinker"

    def __init__(self, decide: Any, *, warms: bool = False, busy: bool = False) -> None:
        self.decide = decide
        self.warms = warms
        self.busy = busy
        self.warmed: list[Request] = []

    async def open(self, *, concurrency: int) -> Capabilities:
        return Capabilities(warms=self.warms, prefix_cache=self.warms)

    async def generate(self, request: Request) -> Reply:
        await asyncio.sleep(2.0)
        return Reply(text=self.decide(request))

    async def warm(self, request: Request) -> Reply:
        self.warmed.append(request)
        return Reply(text="")

    async def load(self) -> tuple[Load, ...]:
        return (Load(rank=0, running=int(self.busy), waiting=0),)

    async def count_tokens(self, request: Request) -> int:
        return 1

    async def close(self) -> None:
        """Nothing is held."""


def virtually(workflow: Any, rows: Sequence[dict[str, Any]], engine: Any, **options: Any) -> tuple[Any, float]:
    """The result of a run in virtual time, and the seconds that it took."""

    async def main() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await api.arun(workflow, rows, engine=engine, **options)
        return result, loop.time() - began

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


# --- branches ---


class Shop:
    """A workflow with a read in a branch, and what its tool was asked."""

    def __init__(self, effects: str = "read", **traits: Any) -> None:
        self.asked: list[str] = []

        @hx.tool(effects=effects, cost="1s", **traits)
        async def orders(customer: str) -> list[str]:
            self.asked.append(customer)
            await asyncio.sleep(1.0)
            return [customer.upper()]

        main = hx.model("m")

        @hx.workflow
        def support(ticket: str, customer: str):
            category = main(user=ticket, returns=Literal["billing", "other"])
            history = orders(f"{customer}!").when(category == "billing")
            return hx.output(category=category, history=history)

        self.workflow = support

    rows = tuple({"ticket": f"t{number}", "customer": f"c{number}"} for number in range(160))


def sort(request: Request) -> str:
    return "other" if request.row % 4 == 0 else "billing"


def test_branches_are_guessed_at() -> None:
    plain, shadow, guessed = Shop(), Shop(), Shop()
    off, slow = virtually(plain.workflow, Shop.rows, Thinker(sort), **WIDE)
    counted, same = virtually(shadow.workflow, Shop.rows, Thinker(sort), **WIDE, speculate="shadow",
                              speculation=TRUSTED)  # fmt: skip
    on, quick = virtually(guessed.workflow, Shop.rows, Thinker(sort), **WIDE, speculate="on",
                          speculation=TRUSTED)  # fmt: skip
    assert counted.rows == on.rows == off.rows
    assert shadow.asked == plain.asked
    assert same == slow
    assert quick <= slow
    assert off.report.speculation is None
    assert counted.report.speculation["launched"] == 0
    assert counted.report.speculation["shadow_hits"] > 10
    figures = on.report.speculation
    assert figures["hits"] > 5
    assert figures["hidden_seconds"] == pytest.approx(figures["hits"])
    assert figures["limit_seconds"] >= figures["hidden_seconds"]
    assert figures["stages"] == {"orders": "serve"}
    # The report of a run counts what was asked for, not what was guessed.
    assert on.report.steps["history"].calls == off.report.steps["history"].calls
    assert len(guessed.asked) > len(plain.asked)


def test_a_tool_with_another_source_begins_in_the_shadow(tmp_path: Path) -> None:
    def made(sign: str) -> Any:
        @hx.tool(effects="read", cost="1s")
        async def orders(customer: str) -> str:
            await asyncio.sleep(1.0)
            return customer + sign

        main = hx.model("m")

        @hx.workflow
        def support(ticket: str, customer: str):
            category = main(user=ticket, returns=Literal["billing", "other"])
            return hx.output(category=category, history=orders(customer).when(category == "billing"))

        return support

    options = {**WIDE, "speculate": "on", "speculation": TRUSTED, "store": tmp_path, "fresh": True}
    first, _ = virtually(made("!"), Shop.rows, Thinker(sort), **options)
    assert first.report.speculation["stages"] == {"orders": "serve"}
    again, _ = virtually(made("!"), Shop.rows[:8], Thinker(sort), **options)
    assert again.report.speculation["stages"] == {"orders": "serve"}
    other, _ = virtually(made("?"), Shop.rows[:2], Thinker(sort), **options)
    assert other.report.speculation["stages"] == {"orders": "shadow"}


@pytest.mark.parametrize("effects", ["write", "destructive", "unknown", "idempotent_write"])
def test_what_acts_in_a_branch_is_left_alone(effects: str) -> None:
    shop = Shop(effects)
    result, _ = virtually(shop.workflow, Shop.rows, Thinker(sort), speculate="on", speculation=TRUSTED)
    assert sorted(shop.asked) == sorted(f"c{number}!" for number in range(160) if number % 4)
    assert result.report.speculation["guesses"] == 0
    assert result.report.speculation["refused"]["effects"] > 0


def test_a_finished_run_started_again_makes_no_call(tmp_path: Path) -> None:
    shop = Shop(freshness="1h")
    options = {"store": tmp_path, "resume": True, "speculate": "on", "speculation": TRUSTED}
    first, _ = virtually(shop.workflow, Shop.rows, Thinker(sort), **options)
    asked = len(shop.asked)
    again, _ = virtually(shop.workflow, Shop.rows, Thinker(sort), **options)
    assert again.rows == first.rows
    assert len(shop.asked) == asked
    assert again.report.calls == 0
    # What was learned is there for the next run, in a file of the tenant's own.
    assert SpeculationState(file_of(tmp_path, None)).branches
    assert not file_of(tmp_path, "other").exists()


def test_an_input_that_fails_is_no_guess() -> None:
    shop = Shop()

    @hx.tool(effects="read")
    async def names(customer: str) -> str:
        raise ValueError("no")

    main = hx.model("m")

    @hx.workflow
    def broken(ticket: str, customer: str):
        category = main(user=ticket, returns=Literal["billing", "other"])
        name = names(customer)
        found = names(name).when(category == "billing")
        return hx.output(category=category, name=name, found=found)

    result, _ = virtually(broken, shop.rows[:8], Thinker(sort), speculate="on", speculation=TRUSTED)
    assert all(row["_error"]["step"] == "name" for row in result.rows)
    assert result.report.speculation["guesses"] == 0


# --- agents ---


class Desk:
    """An agent with a reading and a writing tool; its model looks a customer up, writes, looks again, and answers."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.count = 0
        desk = self

        @hx.tool(effects="read", reads="notes", freshness="until_write", cost="1s", version="1")
        async def look(who: str) -> dict[str, Any]:
            desk.log.append(("look", who))
            seen = desk.count
            await asyncio.sleep(1.0)
            return {"who": who, "notes": seen}

        @hx.tool(effects="write", writes="notes", cost="1s", version="1")
        async def note(who: str) -> bool:
            desk.log.append(("note", who))
            await asyncio.sleep(1.0)
            desk.count += 1
            return True

        main = hx.model("m")

        @hx.workflow
        def support(ticket: str):
            answer = hx.agent(tools=[look, note], model=main, user=ticket, max_turns=8)
            return hx.output(answer=answer)

        self.workflow = support
        self.tools = (look, note)

    PLAN = ("look", "note", "look", "look")

    @classmethod
    def decide(cls, request: Request) -> str:
        turn = sum(message.role == "assistant" for message in request.messages)
        who = f"c{request.row}"
        if turn < len(cls.PLAN):
            return json.dumps({"tool": cls.PLAN[turn], "args": {"who": who}})
        seen = [message.content for message in request.messages if message.role == "user"][1:]
        return json.dumps({"answer": " | ".join(seen)})

    def predict(self, history: Any, *, most: int) -> list[Predicted]:
        """Patterns that are sure of everything: the next call, the same as a write, and a wrong one."""
        who = "c0"
        return [
            Predicted("note", {"who": who}, 1.0, 1.0, 1000),
            Predicted("look", {"who": who}, 0.9, 0.9, 1000),
            Predicted("look", {"who": "nobody"}, 0.5, 0.5, 1000),
        ]


def trusted(desk: Desk, folder: Path) -> dict[str, Any]:
    """A store in which the reading tool is served, and decisions are known to take two seconds."""
    from helix.logical import Agent, every_node

    state = SpeculationState(file_of(folder, None))
    for node in every_node(api.check(desk.workflow).plan.sink):
        if isinstance(node, Agent):
            for tool in node.tools:
                state.stage(tool).stage = "serve"
            for _ in range(5):
                state.decision_times(node.step).add(2.0)
    state.save()
    # Equal calls of one run share one result: without that, what was written between them is seen.
    return {"store": folder, "speculate": "on", "patterns": desk, "speculation": TRUSTED, "merge": False}


def test_an_agent_is_served_and_never_acted_for(tmp_path: Path) -> None:
    plain, desk = Desk(), Desk()
    off, slow = virtually(plain.workflow, [{"ticket": "t"}], Thinker(Desk.decide), merge=False)
    on, quick = virtually(desk.workflow, [{"ticket": "t"}], Thinker(Desk.decide), **trusted(desk, tmp_path))
    assert on.rows == off.rows
    assert desk.count == plain.count == 1
    # One write, asked for by the model; the read before it is not served after it.
    assert desk.log.count(("note", "c0")) == 1
    assert '"notes": 0' in on.rows[0]["answer"]
    assert '"notes": 1' in on.rows[0]["answer"]
    figures = on.report.speculation
    assert (figures["hits"], figures["decisions"]) == (3, 5)
    assert slow - quick == pytest.approx(3.0, abs=0.05)
    assert figures["hidden_seconds"] == pytest.approx(3.0, abs=0.05)
    assert figures["limit_seconds"] == pytest.approx(3.0, abs=0.05)
    assert figures["refused"]["effects"] > 0
    assert figures["calibration"]


def test_what_was_launched_is_in_no_trace(tmp_path: Path) -> None:
    events = []
    for name, options in (("off", {"merge": False}), ("on", trusted(Desk(), tmp_path))):
        desk = Desk()
        if name == "on":
            options["patterns"] = desk
        file = tmp_path / f"{name}.jsonl"
        virtually(desk.workflow, [{"ticket": "t"}], Thinker(Desk.decide), trace=file, **options)
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        events.append([{key: value for key, value in line.items() if key not in ("start", "end")} for line in lines])
    assert events[0] == events[1]
    log = (tmp_path / "speculation.log.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum(json.loads(line)["event"] == "launched" for line in log) > 0


def test_the_shadow_of_an_agent(tmp_path: Path) -> None:
    plain = virtually(Desk().workflow, [{"ticket": "t"}], Thinker(Desk.decide), merge=False)[1]
    desk = Desk()
    options = {**trusted(desk, tmp_path), "speculate": "shadow"}
    result, seconds = virtually(desk.workflow, [{"ticket": "t"}], Thinker(Desk.decide), **options)
    assert seconds == pytest.approx(plain)
    assert desk.log == [("look", "c0"), ("note", "c0"), ("look", "c0"), ("look", "c0")]
    assert result.report.speculation["shadow_hits"] == 3


def test_patterns_of_traces_of_earlier_runs(tmp_path: Path) -> None:
    """The whole way: record, mine, explain, run."""
    from helix.mining import Miner
    from helix.traces import read_events, sessions_of

    trace = tmp_path / "run.trace.jsonl"
    rows = [{"ticket": f"I am c{number}"} for number in range(12)]
    first = Desk()
    virtually(first.workflow, rows, Thinker(Desk.decide), trace=trace, merge=False)
    miner = Miner()
    for _ in range(4):
        miner.mine(sessions_of(read_events(trace)))
    patterns = tmp_path / "patterns.json"
    miner.save(patterns)
    desk = Desk()
    options = {**trusted(desk, tmp_path), "patterns": patterns}
    shown = api.explain(desk.workflow, patterns=patterns, store=tmp_path)
    assert "Speculation on what `answer` will ask for" in shown.text()
    assert "look(who = " in shown.text()
    found = shown.to_json()["patterns"]
    assert found[0]["step"] == "answer"
    assert all(each["tool"] == "look" and each["value"] > 0 for each in found[0]["shown"])
    on, quick = virtually(desk.workflow, rows, Thinker(Desk.decide), **options)
    slow = virtually(Desk().workflow, rows, Thinker(Desk.decide), merge=False)[1]
    assert [row["_error"] for row in on.rows] == [None] * len(rows)
    assert len([call for call in desk.log if call[0] == "note"]) == len(rows)
    assert on.report.speculation["hits"] > 0
    assert quick <= slow


def test_an_idle_engine_computes_the_next_beginning(tmp_path: Path) -> None:
    desk = Desk()
    engine = Thinker(Desk.decide, warms=True)
    result, _ = virtually(desk.workflow, [{"ticket": "t"}], engine, policy="fcfs", **trusted(desk, tmp_path))
    own = [request for request in engine.warmed if any(message.role == "assistant" for message in request.messages)]
    assert len(own) == len(Desk.PLAN) == result.report.speculation["prefix_warmups"]
    # What is warmed is the transcript so far, and how the results of the calls will begin.
    assert all(request.messages[-2].role == "assistant" for request in own)
    assert all(request.messages[-1].content.endswith('", "result": ') for request in own)


@pytest.mark.parametrize("budget", [{"max_calls": 100}, {"max_tokens": 10**6}])
def test_a_budget_is_for_what_was_asked_for(tmp_path: Path, budget: dict[str, int]) -> None:
    desk = Desk()
    engine = Thinker(Desk.decide, warms=True)
    options = {**trusted(desk, tmp_path), **budget}
    result, _ = virtually(desk.workflow, [{"ticket": "t"}], engine, policy="fcfs", **options)
    assert not [request for request in engine.warmed if len(request.messages) > 2]
    assert result.report.speculation["prefix_warmups"] == 0
    plain, _ = virtually(Desk().workflow, [{"ticket": "t"}], Thinker(Desk.decide), merge=False, **budget)
    assert result.report.calls == plain.report.calls


def test_a_busy_engine_is_left_alone(tmp_path: Path) -> None:
    desk = Desk()
    engine = Thinker(Desk.decide, warms=True, busy=True)
    result, _ = virtually(desk.workflow, [{"ticket": "t"}], engine, policy="fcfs", **trusted(desk, tmp_path))
    assert not [request for request in engine.warmed if len(request.messages) > 2]
    assert result.report.speculation["prefix_warmups"] == 0


# --- options, reports, the command ---


def test_patterns_want_speculation() -> None:
    with pytest.raises(OptionError, match="patterns are for runs with speculate"):
        api.run(Shop().workflow, Shop.rows, engine="scripted", patterns="p.json")
    with pytest.raises(OptionError, match="speculate is `off`, `shadow` or `on`, found `yes`"):
        api.run(Shop().workflow, Shop.rows, engine="scripted", speculate="yes")


def test_the_report_has_it() -> None:
    result, _ = virtually(Shop().workflow, Shop.rows, Thinker(sort), speculate="on", speculation=TRUSTED, report=True)
    told = result.run_report
    assert told.to_json()["speculation"] == result.report.speculation
    assert "speculation: " in told.text()
    assert json.loads(json.dumps(told.to_json()["speculation"])) == result.report.speculation
    off, _ = virtually(Shop().workflow, Shop.rows, Thinker(sort), report=True)
    assert off.run_report.to_json()["speculation"] is None
    assert "speculation" not in off.run_report.text()


WORKFLOW = """
workflow support(ticket: text, customer: text)
tool orders(customer: text) -> json from python "shop:orders" effects read, cost 50ms
category = llm -> choice["billing", "other"] { user "Sort: {{ ticket }}" }
history = orders(customer) when category == "billing"
output category, history
"""


@pytest.fixture
def shop_folder(tmp_path: Path) -> Path:
    (tmp_path / "support.helix").write_text(WORKFLOW, encoding="utf-8")
    (tmp_path / "shop.py").write_text("def orders(customer):\n    return [customer]\n", encoding="utf-8")
    rows = [json.dumps({"ticket": f"t{number}", "customer": f"c{number}"}) for number in range(50)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    rule = '[[rule]]\nstep = "category"\nreply = "billing"\ndelay = 0.03\n'
    (tmp_path / "replies.toml").write_text(rule, encoding="utf-8")
    return tmp_path


def command(folder: Path, monkeypatch: Any, capfd: Any, *args: str) -> Any:
    return running.inside("run", "support.helix", "-i", "rows.jsonl", "-e", "scripted:replies.toml", *args,
                          cwd=folder, monkeypatch=monkeypatch, capfd=capfd)  # fmt: skip


def test_the_command(shop_folder: Path, monkeypatch: Any, capfd: Any) -> None:
    plain = command(shop_folder, monkeypatch, capfd, "-o", "-", "--no-store", "-c", "4")
    shadow = command(shop_folder, monkeypatch, capfd, "-o", "-", "--no-store", "-c", "4", "--speculate", "shadow")
    on = command(shop_folder, monkeypatch, capfd, "-o", "-", "-c", "4", "--speculate", "on")
    assert plain.returncode == shadow.returncode == on.returncode == 0
    assert plain.stdout == shadow.stdout == on.stdout
    assert "speculation (shadow): " in shadow.stderr
    assert "would have been hidden" in shadow.stderr
    assert "speculation" in on.stderr
    assert "speculation" not in plain.stderr
    assert (shop_folder / ".helix" / "speculation.json").is_file()
    log = (shop_folder / ".helix" / "speculation.log.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(json.loads(line)["event"] in ("shadow", "launched", "settled", "compared") for line in log)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--speculate", "onn"), "--speculate is `off`, `shadow` or `on`, found `onn`"),
        (("--patterns", "p.json"), "--patterns are for runs with speculate `shadow` or `on`"),
        (("--speculate", "on", "--patterns", "none.json"), "none.json"),
        (("--speculate", "on", "--patterns", "replies.toml"), "replies.toml"),
    ],
)
def test_bad_options(shop_folder: Path, monkeypatch: Any, capfd: Any, args: tuple[str, ...], said: str) -> None:
    done = command(shop_folder, monkeypatch, capfd, "-o", "-", "--no-store", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
