"""What a plan will cost before it runs: calls, tokens, time, money, from a table or from what is known of one.

With rows the prompts that hang on the input alone are made as a run would make them, and only replies are estimated;
with statistics the same is estimated from distinct values and mean lengths; with neither it is the cost of one row.
Every figure that is not counted says in `notes` what it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Any

from helix.evaluate import Callables
from helix.logical import Generate, Invoke, LogicalPlan
from helix.optimizer.bounds import Bounds, Work
from helix.optimizer.chains import all_before
from helix.optimizer.engine_time import H100, EngineTime
from helix.optimizer.lengths import Length, Lengths
from helix.optimizer.rule import TableStats
from helix.optimizer.sizes import Sizes, estimate_sizes
from helix.optimizer.stats import table_stats
from helix.optimizer.tally import EXACT_CALLS, Tally, tally_rows, tally_stats
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.refs import CallSite, Resolution
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.shape import Tree, bits
from helix.optimizer.tree.trie import Paths
from helix.optimizer.turns import TURNS, add_turns, agents, costless_tools, tool_seconds, turns

Row = Mapping[str, Any]
# Rows whose statistics stand for the table's where none are given.
_LOOK = 4096
# Calls that are bound one by one; what a table makes beyond that is scaled up from them.
MOST_CALLS = 1_200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices for a million tokens. `cached` is that of prompt tokens that were in the cache (None: the full one)."""

    prompt: float
    output: float
    cached: float | None = None
    currency: str = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """An llm step's part. `merged` calls are made once with an equal one and cost nothing; token counts are of the
    calls that are made. `cached` are prompt tokens that the best order finds in the cache. `output` is the mean.
    """

    step: str
    calls: float
    merged: float
    prompt_tokens: float
    cached_tokens: float
    output_tokens: float
    output: float
    output_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCost:
    """A tool step's part: its calls, and the seconds that its tool declares for them."""

    step: str
    calls: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a plan costs. Seconds are of the model `engine`; `money` is None without prices.

    `p_min` are the tokens that have to be prefilled at least once, `p_min_kind` says how they were found: `tokens` of
    whole prompts, `values` taken as wholes, `statistics`. `exact`: no hole of any prompt was estimated.
    """

    rows: float
    calls: float
    merged: float
    tool_calls: float
    prompt_tokens: float
    output_tokens: float
    p_min: float
    p_min_kind: str
    cached_tokens: float
    seconds: float
    money: float | None
    currency: str
    bounds: Bounds
    steps: tuple[StepCost, ...]
    tokenizer: str
    engine: str
    exact: bool
    notes: tuple[str, ...] = ()
    tools: tuple[ToolCost, ...] = ()

    @property
    def cached_share(self) -> float:
        """The part of the prompt tokens that the best order finds in the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def as_json(self) -> dict[str, Any]:
        """The cost as JSON values."""
        shown = asdict(self)
        shown["steps"] = [asdict(step) for step in self.steps]
        shown["tools"] = [asdict(tool) for tool in self.tools]
        shown["bounds"] |= {"lower_bound": self.bounds.lower_bound, "binder": self.bounds.binder}
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A plan as it is written, and after the rules."""

    plain: Cost
    optimized: Cost

    def as_json(self) -> dict[str, Any]:
        """Both costs as JSON values."""
        return {"plain": self.plain.as_json(), "optimized": self.optimized.as_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettings:
    """What costs rest on besides the plan. `slots` are the calls that a lane of tools makes at once."""

    lengths: Lengths = field(default_factory=Lengths)
    prices: Prices | None = None
    engine: EngineTime = H100
    slots: Mapping[str, int] = field(default_factory=dict)
    exact_calls: int = EXACT_CALLS
    most_calls: int = MOST_CALLS


def estimate(
    plan: LogicalPlan,
    tree: Tree,
    tokenizer: Tokenizer,
    *,
    stats: TableStats | None = None,
    rows: Iterable[Row] | None = None,
    settings: CostSettings | None = None,
    callables: Callables | None = None,
) -> Cost:
    """The cost of a plan. `tree` is the plan's, built with the same tokenizer.

    `rows` are the table, values as the input declares them; they are read once. `stats` are the table's where it was
    looked at before. `callables` are declared functions by name; where they are not given what they compute is
    estimated.
    """
    settings = settings or CostSettings()
    found = resolve_plan(plan, callables or ())
    source: Iterator[Row] | None = None
    if rows is not None:
        source = iter(rows)
        if stats is None:
            head = list(islice(source, _LOOK))
            names = [column.name for column in plan.scan.columns]
            stats = table_stats(head, tokenizer, names)
            source = chain(head, source)
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    lengths = {site.index: settings.lengths.of(site, tokenizer) for site in sites}
    sizes = estimate_sizes(found, tokenizer, stats, lengths)
    if source is not None:
        # Comparing by tokens is not begun where the rows that were looked at make too many calls already.
        few = stats is None or stats.rows * len(sites) <= settings.exact_calls
        tally = tally_rows(
            found, tree, sizes, tokenizer, source,
            callables=callables, exact_calls=settings.exact_calls if few else 0, most_calls=settings.most_calls,
        )  # fmt: skip
    else:
        tally = tally_stats(found, tree, sizes, stats)
    return _cost(found, tree, tally, sizes, lengths, tokenizer, settings)


def _cost(
    found: Resolution,
    tree: Tree,
    tally: Tally,
    sizes: Sizes,
    lengths: Mapping[int, Length],
    tokenizer: Tokenizer,
    settings: CostSettings,
) -> Cost:
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    outputs = [lengths[site.index] for site in sites]
    fresh, asked = add_turns(
        found, tally.paths, outputs,
        calls=tally.calls, prompts=tally.prompts, made_by_place=tally.made_by_place, merged=tally.merged,
    )  # fmt: skip
    tally.p_min += fresh
    steps = _steps(sites, tally, outputs)
    prompt = sum(step.prompt_tokens for step in steps)
    output = sum(step.output_tokens for step in steps)
    p_min = min(tally.p_min, prompt)
    cached = max(0.0, prompt - p_min)
    work = _work(found, tree, tally, outputs, settings)
    for agent in agents(found).values():
        for tool in agent.tools:
            lane, share = tool.lane or tool.name, asked.get(agent.step, 0.0) / len(agent.tools)
            work.tools[lane] = work.tools.get(lane, 0.0) + (tool.cost or 0.0) * share
    bounds = work.bounds(settings.engine, settings.slots, estimated=True)
    money = None
    if settings.prices is not None:
        prices = settings.prices
        reused = prices.prompt if prices.cached is None else prices.cached
        money = ((prompt - cached) * prices.prompt + cached * reused + output * prices.output) / 1_000_000
    return Cost(
        rows=tally.rows,
        calls=sum(step.calls for step in steps),
        merged=sum(step.merged for step in steps),
        tool_calls=sum(tally.tool_calls) + sum(asked.values()),
        prompt_tokens=prompt,
        output_tokens=output,
        p_min=p_min,
        p_min_kind=tally.kind,
        cached_tokens=cached,
        seconds=_seconds(tally, outputs, p_min, prompt, bounds, settings.engine),
        money=money,
        currency=settings.prices.currency if settings.prices is not None else "",
        bounds=bounds,
        steps=steps,
        tools=_tools(found, tally, asked),
        tokenizer=tokenizer.name,
        engine=settings.engine.name,
        exact=tokenizer.exact and tally.exact and not asked,
        notes=_notes(found, tally, outputs, tokenizer, settings),
    )


def _tools(found: Resolution, tally: Tally, asked: Mapping[str, float]) -> tuple[ToolCost, ...]:
    """The calls of tools by step; `asked` are those of agents."""
    made: dict[str, ToolCost] = {}
    for agent in agents(found).values():
        spent = tool_seconds(agent) / (turns(agent) - 1.0) * asked[agent.step] if agent.step in asked else 0.0
        made[agent.step] = ToolCost(step=agent.step, calls=asked.get(agent.step, 0.0), seconds=spent)
    sites = [site for site in found.calls if isinstance(site.node, Invoke)]
    for site, calls in zip(sites, tally.tool_calls, strict=True):
        assert isinstance(site.node, Invoke)
        step, spent = site.node.step, (site.node.tool.cost or 0.0) * calls
        before = made.get(step, ToolCost(step=step, calls=0.0, seconds=0.0))
        made[step] = ToolCost(step=step, calls=before.calls + calls, seconds=before.seconds + spent)
    return tuple(made.values())


def _steps(sites: list[CallSite], tally: Tally, outputs: list[Length]) -> tuple[StepCost, ...]:
    """The ops by step: one that stands in two branches is told together. What is cached is shared out by tokens."""
    prompt = sum(tally.prompts)
    cached = max(0.0, 1 - min(tally.p_min, prompt) / prompt) if prompt else 0.0
    own = tally.own_shares(cached)
    made: dict[str, StepCost] = {}
    for op, site in enumerate(sites):
        calls, length = tally.calls[op], outputs[op]
        before = made.get(site.node.step)
        made[site.node.step] = StepCost(
            step=site.node.step,
            calls=calls + (before.calls if before else 0.0),
            merged=tally.merged[op] + (before.merged if before else 0.0),
            prompt_tokens=tally.prompts[op] + (before.prompt_tokens if before else 0.0),
            cached_tokens=own[op] + (before.cached_tokens if before else 0.0),
            output_tokens=calls * length.mean + (before.output_tokens if before else 0.0),
            output=length.mean,
            output_source=length.source,
        )
    return tuple(made.values())


def _work(found: Resolution, tree: Tree, tally: Tally, outputs: list[Length], settings: CostSettings) -> Work:
    """The sums of the bounds, over means: a place of the tree that one op alone uses is private to its calls."""
    work = Work(p_min=tally.p_min)
    users: dict[int, list[int]] = {}
    paths = Paths(tree).paths
    for op, path in enumerate(paths):
        for place in path:
            users.setdefault(place, []).append(op)
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    before = all_before(found)
    private = [0.0] * len(paths)
    for place, ops in users.items():
        if len(ops) == 1:
            private[ops[0]] += tally.made_by_place[place]
        else:
            held = {sites[op].index: EngineTime.steps(outputs[op].mean) for op in ops}
            work.shared_area += tally.made_by_place[place] * _in_turn(before, held)
    engine = settings.engine
    alone: dict[int, float] = {}
    steps: dict[int, float] = {}
    for op, site in enumerate(sites):
        calls = tally.calls[op]
        prompt = tally.prompts[op] / calls if calls else 0.0
        own = min(prompt, private[op] / calls) if calls else 0.0
        work.call(prompt, own, outputs[op].mean, calls)
        if calls:
            once = engine.prefill(own, prompt - own) + engine.decode(prompt, outputs[op].mean)
            alone[site.index] = turns(site.node) * once + 1000 * tool_seconds(site.node)
            steps[site.index] = turns(site.node) * EngineTime.steps(outputs[op].mean)
    tools = [site for site in found.calls if isinstance(site.node, Invoke)]
    for site, calls in zip(tools, tally.tool_calls, strict=True):
        assert isinstance(site.node, Invoke)
        cost = site.node.tool.cost or 0.0
        lane = site.node.tool.lane or site.node.tool.name
        work.tools[lane] = work.tools.get(lane, 0.0) + cost * calls
        alone[site.index] = cost * 1000 if calls else 0.0
    work.longest, work.chain = _longest(found, alone), _longest(found, steps)
    return work


def _longest(found: Resolution, alone: Mapping[int, float]) -> float:
    """The longest chain, from what each call takes by itself."""
    ended = [0.0] * len(found.calls)
    for site in found.calls:
        before = max((ended[other] for other in bits(site.needs & ((1 << site.index) - 1))), default=0.0)
        ended[site.index] = before + alone.get(site.index, 0.0) * _rounds(found, site)
    return max(ended, default=0.0)


def _in_turn(before: list[int], steps: Mapping[int, float]) -> float:
    """The most decode steps of calls that follow on one another, of these sites."""
    ended: dict[int, float] = {}
    for site in sorted(steps):
        ended[site] = steps[site] + max((end for other, end in ended.items() if before[site] >> other & 1), default=0.0)
    return max(ended.values())


def _rounds(found: Resolution, site: CallSite) -> float:
    """How often a call is made one after the other for one row: the rounds of the loops around it."""
    rounds, frame = 1.0, site.frame
    while frame >= 0:
        place = found.places[frame]
        rounds *= place.expected if place.kind == "rounds" else 1.0
        frame = place.parent
    return rounds


def _seconds(
    tally: Tally, outputs: list[Length], p_min: float, prompt: float, bounds: Bounds, engine: EngineTime
) -> float:
    """A run in the best order: prefill passes of whole chunks, decoding in batches as large as the cache allows."""
    calls = sum(tally.calls)
    if not calls:
        return max(bounds.lower_bound, bounds.tools)
    output = sum(count * length.mean for count, length in zip(tally.calls, outputs, strict=True))
    steps = sum(count * engine.steps(length.mean) for count, length in zip(tally.calls, outputs, strict=True))
    context = (prompt + output) / calls
    batch = max(1.0, min(float(engine.batch), calls / engine.workers, engine.capacity / context if context else calls))
    fresh = p_min / calls
    prefill = engine.a * max(1.0, p_min / engine.chunk) + engine.b * p_min
    prefill += calls * engine.c * fresh * (fresh + 2 * (prompt / calls - fresh))
    decode = engine.d * steps / batch + engine.e * steps
    for op, length in enumerate(outputs):
        count = tally.calls[op]
        if count:
            decode += engine.f * count * EngineTime.contexts(tally.prompts[op] / count, length.mean)
    return max((prefill + decode) / engine.workers / 1000, bounds.critical_path, bounds.tools)


def _notes(
    found: Resolution, tally: Tally, outputs: list[Length], tokenizer: Tokenizer, settings: CostSettings
) -> tuple[str, ...]:
    """What the figures rest on, most important first."""
    made = list(tally.notes)
    if not tokenizer.exact:
        made.append("tokens are estimated from characters")
    sources = sorted({length.source for length in outputs})
    names = {
        "measured": "measured",
        "profile": "from earlier runs",
        "sample": "from a sample of rows",
        "declared": "half of what the steps declare",
        "assumed": "assumed to be 256 tokens",
    }
    if sources:
        made.append(f"lengths of replies are {' and '.join(names[source] for source in sources)}")
    assumed = {
        "filter": "filters keep half of the rows",
        "group": "groups are a fifth of the rows",
        "items": "lists of unknown length have 5 items",
        "spread": "lists of unknown length have 5 items",
        "then": "branches are taken evenly",
        "rounds": "loops that may stop early end evenly over their rounds",
    }
    for kind, text in assumed.items():
        if (
            any(
                place.kind == kind and place.source == "assumed" and index in tally.assumed
                for index, place in enumerate(found.places)
            )
            and f"assumed: {text}" not in made
        ):
            made.append(f"assumed: {text}")
    if agents(found):
        made.append(f"assumed: agents take {TURNS:g} turns, or as many as they may, with a call of a tool in each")
    costless = costless_tools(found)
    if costless:
        made.append(f"tools that declare no cost take no time here: {', '.join(costless)}")
    if outputs:
        made.append(f"seconds are those of {settings.engine.name}")
    return tuple(made)
