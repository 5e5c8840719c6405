"""What `helix explain` has to say, before it is shown: plans, rules, prompts as a tree, costs, what a run measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helix.evaluate import Callables
from helix.explain.changes import COSMETIC, Change, changes, together
from helix.logical import Generate, LogicalPlan
from helix.optimizer.bounds import Bounds
from helix.optimizer.cost import Comparison, Cost, CostSettings, estimate
from helix.optimizer.driver import Fired, choose_rules, optimize
from helix.optimizer.lengths import Lengths
from helix.optimizer.lowering import LowerContext, lower
from helix.optimizer.pins import unpinned
from helix.optimizer.rule import KnownResults, Rule, RuleContext, RuleFunction, TableStats
from helix.optimizer.sizes import estimate_sizes
from helix.optimizer.tokens import ESTIMATE, Tokenizer
from helix.optimizer.tree import Tree, build_tree, resolve_plan
from helix.physical import PhysicalPlan
from helix.results import StepReport

# Rows up to which rules are weighed over the table itself.
_WEIGHED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The estimated figures of a plan that rules change, over all rows of the table, or for one row without one."""

    llm_calls: float
    tool_calls: float
    prompt_tokens: float
    distinct_tokens: float
    output_tokens: float

    @classmethod
    def of(cls, cost: Cost) -> Totals:
        """Those of a cost."""
        return cls(
            llm_calls=cost.calls,
            tool_calls=cost.tool_calls,
            prompt_tokens=cost.prompt_tokens,
            distinct_tokens=cost.p_min,
            output_tokens=cost.output_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFired:
    """A rule that changed the plan, once or more. `before` and `after` hold what it saved: all its changes together."""

    name: str
    law: str
    sound: str
    pays: str
    lossy: bool
    times: int
    changes: tuple[Change, ...]
    before: Totals
    after: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The table that the estimates are of. `rows` are all its rows, `failed` those by kind that cannot be used."""

    name: str
    rows: int
    stats: TableStats
    failed: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasured:
    """A step's figures in a run. `llm` is False for a tool."""

    step: str
    llm: bool
    report: StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run took. `cost` is the estimate of the plan that was run, `optimized` whether that is the optimized one.

    `bounds` are what no schedule could have beaten, made of the very calls; tools are not in them.
    """

    cost: Cost
    optimized: bool
    engine: str
    rows: int
    failed_rows: int
    seconds: float
    steps: tuple[StepMeasured, ...]
    bounds: Bounds | None = None
    stopped: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternShown:
    """A call that would be made ahead: what people read of its pattern, how often that was right, what it is worth.

    `hides` are seconds where it is right, `value` is the expected one of each launch, in seconds of waiting.
    """

    text: str
    tool: str
    chances: float
    p: float
    p_low: float
    hides: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPatterns:
    """What patterns would make ahead of the decisions of an agent; `notes` say what they would not, and why."""

    step: str
    shown: tuple[PatternShown, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainReport:
    """All of it. `idle` are the rules that were tried and changed nothing.

    `sizes` are the mean tokens of the values in prompts by their key, where a table was looked at. `token_ids`: the
    tokenizer gives tokens, so that prompts are compared by them. `exact_prefixes`: the tokens of distinct prefixes are
    counted, since all prompts hang on the input alone. `patterns` say what would be made ahead for each agent, where
    patterns were given.
    """

    name: str
    plain: LogicalPlan
    plan: LogicalPlan
    fired: tuple[RuleFired, ...]
    idle: tuple[str, ...]
    tree: Tree
    costs: Comparison
    physical: PhysicalPlan
    sizes: Mapping[int, float] | None = None
    token_ids: bool = False
    exact_prefixes: bool = False
    table: TableFacts | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    measured: Measured | None = None
    patterns: tuple[AgentPatterns, ...] | None = None

    @property
    def changed(self) -> bool:
        """Whether a rule changed the plan at all."""
        return bool(self.fired)

    @property
    def same_calls(self) -> bool:
        """Whether the rules changed no call, no prompt and no row: then both plans ask the same."""
        return all(change.kind in COSMETIC for rule in self.fired for change in rule.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What a plan is scheduled for: workers, the tokens that the cache of each holds, the requests that each runs at
    once (None: those of the engine's model), and the seconds that a search for a better order may take.
    """

    ranks: int = 1
    kv_tokens: int | None = None
    max_running: int | None = None
    budget: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What estimates rest on. `rows` are the usable rows of the table and are read several times.

    `known` are the replies that a store holds. `notes` are what a person should know of it besides what the costs say
    themselves.
    """

    tokenizer: Tokenizer = ESTIMATE
    table: TableFacts | None = None
    rows: Iterable[Mapping[str, Any]] | None = None
    callables: Callables = field(default_factory=dict)
    settings: CostSettings = field(default_factory=CostSettings)
    deployment: Deployment = field(default_factory=lambda: Deployment())
    known: KnownResults | None = None
    notes: tuple[str, ...] = ()

    @property
    def stats(self) -> TableStats | None:
        """The table's statistics."""
        return None if self.table is None else self.table.stats


def explain_plan(
    plan: LogicalPlan,
    basis: Basis | None = None,
    *,
    rules: Sequence[RuleFunction] | None = None,
    warnings: tuple[str, ...] = (),
) -> ExplainReport:
    """Optimizes a plan and estimates what it costs before and after. Raises PlanError where a rule is wrong."""
    basis = basis or Basis()
    chosen = choose_rules() if rules is None else tuple(rules)
    done = optimize(plan, RuleContext(stats=basis.stats, known=basis.known), chosen)
    fired = _fired(done.fired, basis)
    names = {each.name for each in fired}
    tree = build_tree(done.plan, basis.tokenizer)
    optimized = _cost(done.plan, basis, tree)
    plain = optimized if not done.fired else _cost(plan, basis)
    counted = all(cost.p_min_kind == "tokens" for cost in (plain, optimized))
    return ExplainReport(
        name=plan.name,
        plain=plan,
        plan=done.plan,
        fired=fired,
        idle=tuple(name for name in (function.__name__ for function in chosen) if name not in names),
        tree=tree,
        costs=Comparison(plain=plain, optimized=optimized),
        physical=_physical(done.plan, basis),
        sizes=_sizes(done.plan, basis),
        token_ids=basis.tokenizer.ids_of is not None,
        exact_prefixes=basis.tokenizer.ids_of is not None and counted and _known(done.plan, tree, basis),
        table=basis.table,
        warnings=warnings,
        notes=basis.notes,
    )


def _cost(plan: LogicalPlan, basis: Basis, tree: Tree | None = None) -> Cost:
    tree = tree or build_tree(plan, basis.tokenizer)
    return estimate(
        plan, tree, basis.tokenizer,
        stats=basis.stats, rows=basis.rows, settings=basis.settings, callables=basis.callables,
    )  # fmt: skip


def _physical(plan: LogicalPlan, basis: Basis) -> PhysicalPlan:
    wanted = basis.deployment
    context = LowerContext(
        stats=basis.stats,
        rows=basis.rows if basis.stats is not None and basis.stats.rows > 1 else None,
        tokenizer=basis.tokenizer,
        lengths=basis.settings.lengths,
        engine=basis.settings.engine,
        ranks=wanted.ranks,
        kv_tokens=wanted.kv_tokens,
        max_running=wanted.max_running,
        budget=wanted.budget,
        callables=basis.callables,
    )
    return lower(plan, context)


def _known(plan: LogicalPlan, tree: Tree, basis: Basis) -> bool:
    """Whether the input alone gives all that stands in the prompts of a plan."""
    found = resolve_plan(plan, basis.callables)
    return all(found.holes[hole.key].known for hole in tree.holes)


def _sizes(plan: LogicalPlan, basis: Basis) -> dict[int, float] | None:
    """The mean tokens of what stands in prompts, by key; only a table tells them."""
    if basis.stats is None:
        return None
    found = resolve_plan(plan, basis.callables)
    lengths: Lengths = basis.settings.lengths
    replies = {site.index: lengths.of(site, basis.tokenizer) for site in found.calls if isinstance(site.node, Generate)}
    sizes = estimate_sizes(found, basis.tokenizer, basis.stats, replies)
    return {key: sizes.mean(key) for key in sizes.holes}


# --- rules --------------------------------------------------------------------------------------------------------


def _fired(steps: Sequence[Fired], basis: Basis) -> tuple[RuleFired, ...]:
    """The rules in the order in which they first fired, the changes of each together."""
    told: dict[str, list[tuple[Fired, tuple[Change, ...], Totals, Totals]]] = {}
    known: dict[str, Totals] = {}
    # A large table is not read again for each change of the plan: its statistics tell nearly the same.
    basis = basis if basis.table is None or basis.table.rows <= _WEIGHED else replace(basis, rows=None)
    for step in steps:
        before, after = unpinned(step.before), unpinned(step.after)
        figures = []
        for plan in (before, after):
            if plan.id not in known:
                known[plan.id] = Totals.of(_cost(plan, basis))
            figures.append(known[plan.id])
        told.setdefault(step.rule.name, []).append((step, changes(before, after), figures[0], figures[1]))
    return tuple(_rule_fired(each) for each in told.values())


def _rule_fired(steps: list[tuple[Fired, tuple[Change, ...], Totals, Totals]]) -> RuleFired:
    rule = steps[0][0].rule
    paragraphs = rule_paragraphs(rule)
    # Between two firings other rules may have changed the figures: what this one saved is what each of its changes did.
    first, saved = steps[0][2], dict.fromkeys(Totals.__slots__, 0.0)
    for _, _, before, after in steps:
        for name in saved:
            saved[name] += getattr(before, name) - getattr(after, name)
    return RuleFired(
        name=rule.name,
        law=rule.law,
        sound=paragraphs.get("Sound", ""),
        pays=paragraphs.get("Pays", ""),
        lossy=rule.lossy,
        times=len(steps),
        changes=together(change for _, changed, _, _ in steps for change in changed),
        before=first,
        after=Totals(**{name: getattr(first, name) - value for name, value in saved.items()}),
    )


def rule_paragraphs(rule: Rule) -> dict[str, str]:
    """The named paragraphs of a rule's docstring, such as `Sound` and `Pays`, each on one line."""
    found: dict[str, str] = {}
    name = ""
    for line in (rule.apply.__doc__ or "").splitlines()[1:]:
        text = line.strip()
        head, colon, rest = text.partition(":")
        if text.startswith(">>>"):
            break
        if colon and head.isalpha() and head[0].isupper():
            name, text = head, rest.strip()
        elif not text:
            name = ""
        if name and text:
            found[name] = f"{found[name]} {text}" if name in found else text
    return found
