"""A made-up world for speculation, in virtual time: tools over state, models that decide, patterns often wrong.

Everything is drawn from a seed, by hashing where a thing stands, so that it does not depend on the order in which
things happen: a call takes, gives and raises the same with speculation and without. Each tool notes who started it, so
that a test can see what was started on a guess.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helix.errors import ToolError
from helix.executor.engines.sim.loop import run_virtual
from helix.executor.speculation.effect import effect_of
from helix.executor.speculation.settings import Mode, SpeculationSettings
from helix.executor.speculation.speculator import Speculator
from helix.executor.speculation.stages import STAGES, Stage
from helix.executor.speculation.state import SpeculationState
from helix.executor.tool_calls import Deciding, Decision, ToolCall, ToolCalls
from helix.schema import Column
from helix.services import Tool
from helix.tools.effects import Effect, effects_of_hints, overlap
from helix.types import INT, JSON, TEXT

DOMAINS = ("a", "a.x", "b", "c.y")
READS = (
    "SELECT * FROM a", "SELECT total FROM b WHERE id = :n", "SELECT count(*) FROM a JOIN b USING (id)",
    "WITH x AS (SELECT * FROM b) SELECT * FROM x", "SELECT 1",
)  # fmt: skip
TRAPS = (
    "DELETE FROM a", "SELECT 1; DROP TABLE a", "WITH x AS (DELETE FROM a RETURNING *) SELECT * FROM x",
    "SELECT nextval('s')", "SELECT * INTO b FROM a", "SELECT * FROM a FOR UPDATE", "PRAGMA user_version = 3",
    "EXPLAIN ANALYZE DELETE FROM a", "SELECT pg_sleep(1)", "ATTACH 'x' AS y", "SELECT /*! SLEEP(1) */ 1",
    "SELECT 1 /* /* */; DELETE FROM a -- */", "COPY a TO 'x'", "SELECT random()", "SELECT now()", "",
)  # fmt: skip
DIALECTS = ("sqlite:a.db", "duckdb:a.db", "postgresql://host/a", "mysql://host/a", "mssql://host/a")
QUICK = SpeculationSettings(chances=1, shadow_guesses=1, matches=1, least=15, cool_off=3.0, patience=0.002)


def draw(*parts: Any) -> random.Random:
    """Chance that depends on where something stands alone."""
    return random.Random(int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big"))


@dataclass(slots=True)
class Start:
    """A call that was started: what it does, by its tool and statement."""

    tool: Tool
    args: Mapping[str, Any]
    guessed: bool


@dataclass(frozen=True, slots=True)
class Predicted:
    """A candidate of the made-up patterns."""

    tool: str
    args: Mapping[str, Any]
    p: float
    p_low: float
    chances: float
    pattern: str = "made up"
    text: str = ""
    stale: bool = False


class Remembered:
    """A history: the events so far. The model decides by the same ones."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def user(self, text: str) -> None:
        self.events.append(["user", text])

    def said(self, text: str | None) -> None:
        """What the model says adds nothing."""

    def called(self, tool: str, args: Mapping[str, Any], result: Any, *, ok: bool = True) -> None:
        self.events.append([tool, dict(args), result if ok else None, ok])


@dataclass(slots=True)
class World:
    """One world. `right` is how often the first candidate is what the model will ask for; `sessions` run at once.

    `outputs` is what each session saw, `state` what is there at the end, `starts` are all calls that were started.
    """

    seed: int
    right: float = 0.6
    sessions: int = 3
    turns: int = 6
    cancels: bool = False
    tools: tuple[Tool, ...] = ()
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    state: dict[str, dict[str, int]] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    volatile: dict[str, int] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    seconds: float = 0.0
    speculator: Speculator | None = None

    def __post_init__(self) -> None:
        if not self.tools:
            self.tools = made_up_tools(self.seed)

    # --- what the model asks for, and what patterns say that it will ---

    def decision(self, events: Sequence[Any], turn: int) -> list[tuple[Tool, dict[str, Any]]]:
        """The calls that a model asks for after these events: reads together, or one call of any kind; or none."""
        chance = draw(self.seed, "decision", json.dumps(events, sort_keys=True, default=str))
        if turn + 1 >= self.turns or chance.random() < 0.1:
            return []
        who, pick = str(events[0][1]), chance.choice(self.tools)
        if not harmless(pick) or pick.origin == "sql" or chance.random() < 0.6:
            return [(pick, self.arguments(pick, chance, who))]
        # What a statement does is not seen here: those are asked for one at a time.
        reads = [tool for tool in self.tools if harmless(tool) and tool.origin != "sql"]
        chosen = [chance.choice(reads) for _ in range(chance.randint(1, 3))]
        return [(tool, self.arguments(tool, chance, who)) for tool in chosen]

    def arguments(self, tool: Tool, chance: random.Random, who: str) -> dict[str, Any]:
        """Arguments from a small world, so that calls repeat."""
        found: dict[str, Any] = {}
        for param in tool.params:
            if param.name == "who":
                found["who"] = who
            elif param.name == "query":
                found["query"] = chance.choice(READS if chance.random() < 0.7 else TRAPS)
            else:
                found[param.name] = chance.randint(0, 2)
        return found

    def predict(self, history: Remembered, *, most: int) -> list[Predicted]:
        """Candidates: often the truth first, then anything at all, also what writes, and all of it quite sure."""
        chance = draw(self.seed, "patterns", json.dumps(history.events, sort_keys=True, default=str))
        found: list[tuple[Tool, Mapping[str, Any]]] = []
        if chance.random() < self.right:
            found += self.decision(history.events, sum(event[0] == "user" for event in history.events) - 1)
        true = len(found)
        while len(found) < min(most, 6):
            tool = chance.choice(self.tools)
            found.append((tool, self.arguments(tool, chance, str(history.events[0][1]))))
        if chance.random() < 0.1:
            found.append((replace(self.tools[0], name="no_such_tool"), {}))
        if chance.random() < 0.1:
            found.append((self.tools[0], {"n": "not a number", "odd": 1}))
        return [
            Predicted(
                tool.name, args, 0.9, 0.97 if place < true else chance.choice((0.95, 0.6, 0.3)),
                chance.choice((50, 1000) if place < true else (0, 50, 1000)),
            )
            for place, (tool, args) in enumerate(found)
        ]  # fmt: skip

    # --- tools ---

    async def run_tool(self, tool: Tool, args: list[Any], *, guessed: bool) -> str:
        """A call. What a tool does is what it declares; what is unknown writes."""
        named = {param.name: value for param, value in zip(tool.params, args, strict=True)}
        session = str(named.get("who", "nobody"))
        self.starts.append(Start(tool, named, guessed))
        effect = effect_of(tool, named)
        chance = draw(self.seed, "call", tool.name, json.dumps(named, sort_keys=True))
        before, after = chance.choice((0.0, 0.01, 0.3, 1.5)), chance.choice((0.0, 0.05, 0.8))
        fails = chance.random() < 0.1
        kept = self.state.setdefault(session, dict.fromkeys(DOMAINS, 0))
        await asyncio.sleep(before)
        if guessed and draw(self.seed, "luck", len(self.starts)).random() < 0.15:
            # What goes wrong once, and not when it is called again.
            raise ToolError(f"{tool.name}: 429 too many requests" if before > 1 else f"{tool.name} lost its connection")
        if fails:
            raise ToolError(f"{tool.name} cannot")
        seen = {name: kept[name] for name in DOMAINS if overlap((name,), effect.reads)}
        if effect.effects not in ("pure", "read"):
            for name in DOMAINS:
                if overlap((name,), effect.writes):
                    kept[name] += 1 + chance.randint(0, 3)
        if effect.volatile or tool.freshness == Tool.NOT_FRESH:
            # Each call of it gives another result: one call more would be seen.
            place = json.dumps([tool.name, named], sort_keys=True)
            seen["count"] = self.volatile[place] = self.volatile.get(place, 0) + 1
        await asyncio.sleep(after)
        return json.dumps([tool.name, named, seen], sort_keys=True)

    # --- the run ---

    def run(self, mode: Mode, settings: SpeculationSettings = QUICK, state: SpeculationState | None = None) -> World:
        """Runs all sessions to their end, in a loop of virtual time of its own."""
        run_virtual(self.arun(mode, settings, state))
        return self

    async def arun(
        self, mode: Mode, settings: SpeculationSettings = QUICK, state: SpeculationState | None = None
    ) -> World:
        """Runs all sessions to their end, in the loop of virtual time that is there."""
        await self._run(mode, settings, state or SpeculationState())
        return self

    def trusted(self, stage: Stage | None = None) -> SpeculationState:
        """A state in which each tool is at a stage (None: at any one)."""
        state = SpeculationState()
        for tool in self.tools:
            drawn = draw(self.seed, "stage", tool.name).choice(STAGES)
            state.stage(tool).stage = drawn if stage is None else stage
        for seconds in (0.0, 0.001, 0.4, 2.0):
            state.decision_times("agent").add(seconds)
        return state

    async def _run(self, mode: Mode, settings: SpeculationSettings, state: SpeculationState) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def limited(tool: Tool, work: Any) -> str:
            async with asyncio.timeout(tool.timeout):
                text: str = await work
                return text

        calls = ToolCalls(limited)
        lanes = {"slow": 2, "wide": 6}
        real = {name: asyncio.Semaphore(size) for name, size in lanes.items()}

        for tool in self.tools:
            calls.add(tool, Opened(self, tool))
        speculator: Speculator | None = None
        if mode != "off":

            async def guessed(tool: Tool, args: list[Any]) -> str:
                return await self.run_tool(tool, args, guessed=True)

            def lane(tool: Tool) -> tuple[str, int]:
                return tool.lane or "wide", lanes[tool.lane or "wide"]

            self.speculator = speculator = Speculator(
                settings, mode, state=state, lanes=lane, run=guessed, predictor=self, history=Remembered,
                tools=self.tools,
            )  # fmt: skip
            calls.around = speculator
            calls.watchers.append(speculator)

        async def call_one(call: ToolCall) -> Any:
            name = call.tool.lane or "wide"
            await real[name].acquire()
            try:
                return json.loads(await calls.call(call))
            except ToolError as error:
                return f"error: {error}"
            except TimeoutError:
                return "error: timeout"
            finally:
                real[name].release()

        async def agent(session: str) -> None:
            events: list[Any] = []
            seen = self.outputs.setdefault(session, [])
            told: tuple[str, ...] = (session,)
            for turn in range(self.turns):
                calls.deciding(Deciding(session=session, row=0, step="agent", turn=turn, told=told, tools=self.tools))
                events += [["user", text] for text in told]
                await asyncio.sleep(draw(self.seed, "think", session, turn).choice((0.0, 0.001, 0.4, 2.0)))
                asked = self.decision(events, turn)
                made = tuple(
                    ToolCall(
                        tool=tool, args=args, row=0, step="agent", session=session, turn=turn, position=position
                    )
                    for position, (tool, args) in enumerate(asked)
                )  # fmt: skip
                calls.decided(
                    Decision(session=session, row=0, step="agent", turn=turn, told=told, text="", calls=made)
                )  # fmt: skip
                if not made:
                    break
                results = await asyncio.gather(*(call_one(call) for call in made))
                for call, result in zip(made, results, strict=True):
                    ok = not (isinstance(result, str) and result.startswith("error"))
                    events.append([call.tool.name, call.args, result if ok else None, ok])
                    seen.append([call.tool.name, call.args, result])
                told = (f"{session} {turn}",)
            calls.closed(session)

        for number in range(self.sessions):
            self.state[f"s{number}"] = dict.fromkeys(DOMAINS, 0)
        tasks = {f"s{number}": loop.create_task(agent(f"s{number}")) for number in range(self.sessions)}
        if self.cancels:
            for name, task in tasks.items():
                chance = draw(self.seed, "cut", name)
                if chance.random() < 0.4:
                    loop.call_later(chance.uniform(0.0, 4.0), task.cancel)
                    self.cut.add(name)
        for ended in await asyncio.gather(*tasks.values(), return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        self.seconds = loop.time() - began
        if speculator is not None:
            await speculator.close()
        calls.close()


class Opened:
    """A tool of a world as a run opens it."""

    def __init__(self, world: World, tool: Tool) -> None:
        self._world, self._tool = world, tool

    async def __call__(self, args: list[Any]) -> str:
        return await self._world.run_tool(self._tool, args, guessed=False)

    def close(self) -> None:
        """Nothing is held."""


def harmless(tool: Tool) -> bool:
    """Whether a tool declares that it only reads."""
    return tool.effects in ("pure", "read")


def made_up_tools(seed: int) -> tuple[Tool, ...]:
    """Tools of all kinds: each effect, each freshness, hostile hints, statements that are traps."""
    chance = draw(seed, "tools")
    found: list[Tool] = []
    for number in range(chance.randint(3, 8)):
        kind = chance.random()
        params = [Column(name="n", type=INT)]
        traits: dict[str, Any] = {
            "timeout": chance.choice((None, None, 1.0, 0.2)),
            "lane": chance.choice((None, None, "slow")),
            "freshness": chance.choice((None, None, Tool.UNTIL_WRITE, Tool.UNTIL_WRITE, "2s", Tool.NOT_FRESH)),
            "cost": chance.choice((None, 0.01, 1.0)),
            "cancellable": chance.random() < 0.5,
            "rate_group": chance.choice((None, None, "shared")),
        }
        if kind < 0.25:
            params.append(Column(name="query", type=TEXT))
            found.append(
                Tool(
                    name=f"sql{number}", origin="sql", target=chance.choice(DIALECTS), params=tuple(params),
                    returns=JSON, effects="read", **traits,
                )
            )  # fmt: skip
            continue
        if kind < 0.4:
            # A server that nobody vouches for says that it only reads.
            effects = effects_of_hints({"readOnlyHint": True, "openWorldHint": False}, allowed=False)
        else:
            effects = chance.choice(
                ("pure", "read", "read", "read", "write", "destructive", "idempotent_write", "unknown")
            )
        reads = chance.choice((None, ("a",), ("a.x",), ("b", "c"), ())) if effects != "pure" else ()
        writes = chance.choice((None, ("a",), ("a.x",), ("b",))) if effects not in ("pure", "read") else ()
        found.append(
            Tool(
                name=f"tool{number}", origin="mcp" if kind < 0.4 else "python", target="made:up", params=tuple(params),
                returns=JSON, effects=effects, reads=reads, writes=writes,
                open_world=effects == "read" and chance.random() < 0.1, **traits,
            )
        )  # fmt: skip
    # Whose state it is: each session has its own, so that what it sees does not depend on when others write.
    return tuple(
        replace(tool, params=(Column(name="who", type=TEXT), *tool.params))
        if tool.effects != "pure" or tool.freshness == "0"
        else tool
        for tool in found
    )


def forbidden(start: Start) -> Effect | None:
    """What is wrong with a call that was started on a guess; None where it may have been."""
    effect = effect_of(start.tool, start.args)
    allowed = start.tool.effects in ("pure", "read") and start.tool.freshness != Tool.NOT_FRESH
    query = start.args.get("query")
    if allowed and effect.harmless and (query is None or query in READS):
        return None
    return effect
