"""What the steps of a run call: engines and tools, opened before the first call and closed after the last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from helix.errors import OptionError
from helix.executor.agent import AgentStep
from helix.executor.agent_prompt import AgentPrompt
from helix.executor.agent_turns import pack
from helix.executor.attempts import EngineCaller, ToolCaller
from helix.executor.batches import BatchCaller
from helix.executor.calls import Dispatcher
from helix.executor.engines.base import Capabilities, Engine, HintedEngine, ProbingEngine, WarmingEngine
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.frame import Dataflow
from helix.executor.gates import Gate
from helix.executor.limits import Limits
from helix.executor.operators import Operator
from helix.executor.outage import Outage
from helix.executor.overload import Overload
from helix.executor.places import Place, static_name
from helix.executor.policies.base import EnginePlace
from helix.executor.policies.choose import choose_policy
from helix.executor.policies.ordered import OrderedQueue
from helix.executor.policies.warmer import Warmer
from helix.executor.prompts import Prompt
from helix.executor.settings import RunSettings
from helix.executor.steps import GenerateStep, InvokeStep, Shortener
from helix.executor.store.keys import Asking
from helix.executor.tool_calls import ToolCalls
from helix.executor.tools import RunTool
from helix.executor.tools.access import ToolAccess
from helix.executor.tools.lanes import TOOL_LANE, TOOLS_AT_ONCE, lane_of, lane_sizes
from helix.executor.tools.opener import ToolOpener
from helix.executor.tools.secrets_file import with_secrets
from helix.logical import Agent, Fetch, Generate, Invoke, LogicalPlan, Node, Render, Tool, every_node
from helix.physical import PhysicalPlan
from helix.prefixes import static_prefix
from helix.results import RunReport, StepReport
from helix.types import TEXT

# The lanes of calls: each has workers of its own.
ENGINE_LANE = ""
# Of the calls that an engine runs at once on a rank, as many again wait there, so that it never waits for us; in longer
# lines the engine's own order takes the place of ours.
AHEAD = 2
MOST_AT_ONCE = 128

# The shortest beginning, in characters, that steps wait for one another for; longer ones are looked at by doubling.
FIRST_GATE = 1024

if TYPE_CHECKING:
    from helix.executor.speculation.wiring import Speculation
    from helix.executor.store.known import KnownCalls

OpenEngine = Callable[[str | None], Engine]
# What is called in place of a tool, where nothing may be called.
StandIn = Callable[[Tool], RunTool]


class Equipment:
    """The engines and tools of one run, and the operators that call them.

    `open_engine` gives the engine at an address of the workflow (None: the run's own). `callables` are the functions of
    python tools by name, `folder` is where relative databases lie, `model` overrides the model of every step.
    With `stand_in` no tool is opened, and what it gives is called instead.
    """

    def __init__(
        self,
        settings: RunSettings,
        report: RunReport,
        limits: Limits,
        flow: Dataflow,
        *,
        open_engine: OpenEngine,
        callables: Mapping[str, Callable[..., Any]],
        folder: Path | None,
        model: str | None,
        known: KnownCalls | None = None,
        stand_in: StandIn | None = None,
    ) -> None:
        self._known = known
        self._stand_in = stand_in
        self._settings = settings
        self._report = report
        self._limits = limits
        self._flow = flow
        self._open_engine = open_engine
        self._callables = callables
        self._folder = folder
        self._model = model
        self._engines: dict[str | None, Engine] = {}
        self._capabilities: dict[int, Capabilities] = {}
        # By the engine's own name: two addresses that lead to one server share its overloads and its lane.
        self._overloads: dict[str, Overload] = {}
        self._outages: dict[str, Outage] = {}
        self._guesses = settings.speculate != "off"
        self.tool_calls = ToolCalls(self._limited if self._guesses else None)
        self.speculation: Speculation | None = None
        self._gates: dict[tuple[str, str | None, str], Gate] = {}
        self._opener = ToolOpener(callables, folder, _access(settings))
        self._policy = choose_policy(settings.policy)
        self._phases: dict[str, int] = {}
        # By node and row the place of a call, where the schedule orders a small table call by call.
        self._turns: dict[str, dict[int, int]] = {}
        self._block = 1
        self.rows_at_once = 0
        self.dispatcher = Dispatcher(
            {ENGINE_LANE: settings.calls_at_once, TOOL_LANE: TOOLS_AT_ONCE}, merge=settings.merge, known=known
        )

    async def open(self, plan: LogicalPlan) -> None:
        """Opens all that the plan calls. Raises OptionError or EngineError for what is missing."""
        for node in every_node(plan.sink):
            if isinstance(node, Generate | Invoke | Fetch):
                self._report.steps.setdefault(static_name(node.step), StepReport())
            if isinstance(node, Generate) and node.model.engine not in self._engines:
                await self._open(node.model.engine)
            elif isinstance(node, Invoke):
                await self._open_tool(node.tool)
            if isinstance(node, Agent):
                for tool in node.tools:
                    await self._open_tool(tool)
                await self._choose_calling(node)
        for engine in self._engines.values():
            if isinstance(engine, ScriptedEngine):
                engine.look_for(plan.steps)
        self._lay_lanes()

    def speculate(self) -> None:
        """Sets up what guesses at calls of tools, where the run wants that. Raises InputError for bad patterns."""
        if not self._guesses:
            return
        from helix.executor.speculation.wiring import Speculation

        self.speculation = Speculation(
            self._settings,
            self.tool_calls,
            self._opener,
            engines=self.engines,
            limits=self._limits,
            slots=self.dispatcher.slots,
            timeout=lambda tool: tool.timeout or self._settings.call_timeout,
            folder=None if self._known is None else self._known.settings.folder,
            callables=self._callables,
        )

    async def end_speculation(self) -> None:
        """Ends all guesses, and books what they have saved; safe to call twice."""
        found, self.speculation = self.speculation, None
        if found is not None:
            note = await found.close()
            self._report.speculation = found.figures()
            if note is not None:
                self._report.notes.append(note)

    async def _limited(self, tool: Tool, work: Awaitable[str]) -> str:
        text: str = await self._limits.timed(work, tool.timeout or self._settings.call_timeout, "result")
        return text

    def _time_of(self, tool: Tool) -> float | None:
        """How long a call of a tool may take with all that belongs to it; None where only what is made is timed."""
        return None if self._guesses else tool.timeout or self._settings.call_timeout

    async def _open_tool(self, tool: Tool) -> None:
        if tool not in self.tool_calls:
            made = await self._opener.open(tool) if self._stand_in is None else self._stand_in(tool)
            self.tool_calls.add(tool, made)

    async def _open(self, address: str | None) -> None:
        engine = self._open_engine(address)
        # Kept before it is opened, so that one that failed to open is closed again.
        self._engines[address] = engine
        self._overloads.setdefault(engine.name, Overload())
        self._outages.setdefault(engine.name, Outage(engine, self._limits, self._report))
        if id(engine) not in self._capabilities:
            self._capabilities[id(engine)] = await engine.open(concurrency=self._settings.calls_at_once)

    async def _choose_calling(self, node: Agent) -> None:
        """Finds out whether an engine has tool calls of its own, where an agent leaves that open."""
        engine = self._engines[node.model.engine]
        known = self._capabilities[id(engine)]
        if node.tool_calls == "native" and known.tool_calls is False:
            what = f"agent `{node.step}` asks for native tool calls, which {engine.name} has not"
            raise OptionError(f"{what}; leave out `tool_calls native`")
        if node.tool_calls == "auto" and known.tool_calls is None:
            able = await cast(ProbingEngine, engine).calls_tools()
            self._capabilities[id(engine)] = replace(known, tool_calls=able)

    def _lay_lanes(self) -> None:
        """Gives each engine its lane: how many calls at once, and in which order."""
        self._report.policy = self._policy.name
        for lane, size in lane_sizes(self.tool_calls.tools, self._settings.lanes or {}).items():
            self.dispatcher.use(lane, size, OrderedQueue())
        slots = 0
        for engine in {engine.name: engine for engine in self._engines.values()}.values():
            capabilities = self._capabilities[id(engine)]
            warmer, load = None, None
            if capabilities.warms:
                overload, timeout = self._overloads[engine.name], self._settings.call_timeout
                warming = cast(WarmingEngine, engine)
                warmer, load = Warmer(warming, overload, self._limits, self._report, timeout), warming.load
            place = EnginePlace(
                name=engine.name,
                capabilities=capabilities,
                slots=self._slots(capabilities),
                warm=warmer,
                load=load,
                hints=cast(HintedEngine, engine) if hasattr(engine, "take_hints") else None,
            )
            self.dispatcher.use(self._lane(engine), place.slots, self._policy.queue(place), warmer)
            slots += place.slots
        self.rows_at_once = self._policy.rows(2 * (slots or self._settings.calls_at_once) + 16)

    def scheduled_for(self) -> Capabilities | None:
        """The engine whose cache a schedule is worth while for; None where none has one, or where the policy wants no
        schedule.
        """
        found = [each for each in self._capabilities.values() if each.prefix_cache and each.warms]
        wanted = self._policy.planner is not None and len(found) == len(self._capabilities) == 1
        return found[0] if wanted else None

    def follow(self, physical: PhysicalPlan) -> None:
        """Takes over the phases of a schedule, where the policy wants them."""
        if not self._policy.follow(physical, physical.max_running or self._settings.calls_at_once):
            return
        self._phases = {step.node: step.phase for step in physical.steps}
        self._block = max(1, physical.block)
        for turn, (row, node) in enumerate(physical.calls):
            self._turns.setdefault(node, {})[row] = turn
            self._block = max(self._block, row + 1)
        self.rows_at_once = max(self.rows_at_once, self._block)

    def _slots(self, capabilities: Capabilities) -> int:
        """How many calls an engine gets at once."""
        if self._settings.concurrency is not None or capabilities.max_running is None:
            return self._settings.calls_at_once
        usual = capabilities.ranks * min(AHEAD * capabilities.max_running, MOST_AT_ONCE)
        return self._policy.slots(capabilities, usual)

    def _lane(self, engine: Engine) -> str:
        return ENGINE_LANE if len(self._overloads) == 1 else f"engine {engine.name}"

    def asking(self, node: Generate, prompt: Prompt) -> Asking | None:
        """What an llm step asks, as results are known by; None where the run keeps and knows nothing."""
        if self._known is None:
            return None
        engine = self._engines[node.model.engine]
        return self._known.llm(node, prompt, engine, self._capabilities[id(engine)], self._settings)

    @property
    def paused(self) -> float:
        """The seconds that overloaded engines still want to be left alone."""
        return max((pause.left for pause in self._overloads.values()), default=0.0)

    @property
    def engines(self) -> tuple[tuple[Engine, Capabilities], ...]:
        """The engines that are open, with what they can do."""
        engines = {id(engine): engine for engine in self._engines.values()}
        return tuple((engine, self._capabilities[key]) for key, engine in engines.items() if key in self._capabilities)

    async def close(self) -> None:
        """Closes engines and tools; safe to call at any time."""
        self.tool_calls.close()
        await self._opener.close()
        engines = {id(engine): engine for engine in self._engines.values()}
        self._engines = {}
        for engine in engines.values():
            # What an engine found out on the way, such as a schema that it refused.
            notes = self._report.notes
            notes += [note for note in getattr(engine, "notes", ()) if note not in notes]
            await engine.close()

    def operator(
        self, node: Node, index: int, place: Place, slots: Mapping[str, int], operators: list[Operator]
    ) -> Operator:
        """The operator of a node that calls. `operators` are those of its program so far."""
        if isinstance(node, Invoke):
            return self._invoke(node, index, place, slots)
        if isinstance(node, Agent):
            return self._agent(node, index, place, slots)
        assert isinstance(node, Generate)
        engine = self._engines[node.model.engine]
        report = self._report.steps[static_name(node.step)]
        prompt = Prompt(node, slots, self._model)
        caller = self._caller(node, engine, report, reask=node.reask, returns=node.returns, coerce=node.coerce)
        return GenerateStep(
            index,
            place,
            node,
            flow=self._flow,
            dispatcher=self.dispatcher,
            capabilities=self._capabilities[id(engine)],
            lane=self._lane(engine),
            prompt=prompt,
            caller=caller,
            report=report,
            shorten=_shortener(node, slots, operators),
            gates=self._gates_of(node, engine) if node.lead else (),
            phase=self._phases.get(node.id, 0),
            block=self._block,
            turns=self._turns.get(node.id),
            asking=self.asking(node, prompt),
        )

    def _caller(self, node: Generate, engine: Engine, report: StepReport, **reading: Any) -> EngineCaller:
        """What makes the calls of a step; `reading` says how its replies are read."""
        return EngineCaller(
            engine,
            self._overloads[engine.name],
            self._outages[engine.name],
            self._limits,
            report,
            attempts=node.attempts or self._settings.attempts,
            timeout=node.timeout or self._settings.call_timeout,
            **reading,
        )

    def _agent(self, node: Agent, index: int, place: Place, slots: Mapping[str, int]) -> Operator:
        engine = self._engines[node.model.engine]
        capabilities = self._capabilities[id(engine)]
        report = self._report.steps[static_name(node.step)]
        native = node.tool_calls == "native" or (node.tool_calls == "auto" and capabilities.tool_calls is True)
        prompt = AgentPrompt(node, slots, self._model, native=native, functions=self._callables)
        # What a reply asks for, or whether it is the answer, is the dialogue's to read; it tells the model of mistakes.
        caller = self._caller(node, engine, report, reask=0, returns=TEXT, coerce=False, pack=pack)
        tools = {tool: self._tool_asking(tool, node.step) for tool in node.tools}
        return AgentStep(
            index,
            place,
            node,
            flow=self._flow,
            dispatcher=self.dispatcher,
            capabilities=capabilities,
            engine=engine.name,
            lane=self._lane(engine),
            prompt=prompt,
            caller=caller,
            tool_calls=self.tool_calls,
            limits=self._limits,
            report=report,
            lanes={tool: self._tool_lane(tool) for tool in node.tools},
            timeouts={tool: self._time_of(tool) for tool in node.tools},
            askings={tool: asking for tool, asking in tools.items() if asking is not None},
            asking=self.asking(node, prompt),
            gates=self._gates_of(node, engine) if node.lead else (),
            phase=self._phases.get(node.id, 0),
            block=self._block,
            turns=self._turns.get(node.id),
        )

    def _tool_asking(self, tool: Tool, step: str) -> Asking | None:
        """What the calls of a tool ask that a step makes; None where the run keeps and knows nothing."""
        if self._known is None:
            return None
        return self._known.tool(tool, step, self._callables, self._folder, self._settings)

    @staticmethod
    def _tool_lane(tool: Tool) -> str:
        return lane_of(tool)

    def _gates_of(self, node: Generate, engine: Engine) -> tuple[Gate, ...]:
        """The gates of a step: one for each beginning that its prompts may share with other steps, and its own."""
        prefix = static_prefix(node)
        lengths = [FIRST_GATE << number for number in range(40) if FIRST_GATE << number < len(prefix)]
        model = self._model or node.model.name
        keys = [(engine.name, model, prefix[:length]) for length in (*lengths, len(prefix))]
        return tuple(self._gates.setdefault(key, Gate()) for key in keys)

    def _invoke(self, node: Invoke, index: int, place: Place, slots: Mapping[str, int]) -> Operator:
        report = self._report.steps[static_name(node.step)]
        tool = node.tool
        run, timeout = self.tool_calls.runner(tool), self._time_of(tool)
        many = getattr(self.tool_calls.opened(tool), "many", None)
        caller = ToolCaller(run, self._limits, report, timeout)
        if many is not None and tool.batch is not None and self._settings.merge:
            # The query for several calls is no guess's to answer: it has the time of one call.
            limit = tool.timeout or self._settings.call_timeout
            caller = BatchCaller(run, many, self._limits, report, limit, size=tool.batch)
        return InvokeStep(
            index,
            place,
            node,
            args=tuple(slots[arg.id] for arg in node.args),
            flow=self._flow,
            dispatcher=self.dispatcher,
            lane=self._tool_lane(tool),
            caller=caller,
            report=report,
            tool_calls=self.tool_calls,
            asking=self._tool_asking(tool, node.step),
        )


def _access(settings: RunSettings) -> ToolAccess:
    """What the tools of a run may reach."""
    return ToolAccess(
        hosts=None if settings.allow_hosts is None else tuple(settings.allow_hosts),
        private=tuple(settings.allow_private),
        files=tuple(settings.allow_files),
        servers=None if settings.mcp_config is None else Path(settings.mcp_config),
        trusted=tuple(settings.trust_servers),
        environment=with_secrets(settings.secrets),
    )


def _shortener(node: Generate, slots: Mapping[str, int], operators: list[Operator]) -> Shortener | None:
    """What cuts the prompts of a step that has `on_overflow`."""
    if node.on_overflow is None:
        return None
    value = node.on_overflow.value
    contents = [content for part in node.prompt for content in part.content]
    shown = [content for content in contents if isinstance(content, Render) and value in content.args]
    renders = {slots[content.id]: operators[slots[content.id]] for content in shown}
    return Shortener(slots[value.id], node.on_overflow.keep, renders)
