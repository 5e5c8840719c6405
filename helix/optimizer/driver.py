"""Applies rules to a plan until none of them changes it, and checks the plan after each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helix.errors import OptionError, PlanError, name_help
from helix.logical import LogicalPlan
from helix.optimizer.pins import pinned, unpinned
from helix.optimizer.rule import Rule, RuleContext, RuleFunction, describe
from helix.optimizer.rules import RULES
from helix.optimizer.scopes import blurred
from helix.verify import verify

# More rounds than any workflow needs: a set of rules that goes on longer does not end.
MAX_ROUNDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """One change: the rule, and the plan before and after it."""

    rule: Rule
    before: LogicalPlan
    after: LogicalPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """A plan after its rules, and how it came about."""

    plain: LogicalPlan
    plan: LogicalPlan
    fired: tuple[Fired, ...]


def optimize(
    plan: LogicalPlan, context: RuleContext | None = None, rules: Sequence[RuleFunction] | None = None
) -> Optimized:
    """Applies the rules in their order, again and again, until none changes the plan.

    Raises PlanError where a rule breaks the plan or its result's columns, or where the rules do not come to an end.
    """
    context = context or RuleContext()
    chosen = [describe(function) for function in (choose_rules() if rules is None else rules)]
    fired: list[Fired] = []
    current = pinned(plan)
    seen = {plan.id: "the plan itself"}
    idle: dict[str, LogicalPlan] = {}
    for _ in range(MAX_ROUNDS):
        before_round = current
        for rule in chosen:
            if idle.get(rule.name) is current:
                continue
            changed = rule.apply(current, context)
            if changed is current or changed.id == current.id:
                idle[rule.name] = current
                continue
            _check(rule, current, changed)
            if blurred(changed):
                # The plan would be right, but an error of a row would have another step's name.
                continue
            if changed.id in seen:
                raise PlanError(f"the rules do not converge: {rule.name} gives back {seen[changed.id]}")
            seen[changed.id] = f"the plan that {rule.name} made before"
            fired.append(Fired(rule=rule, before=current, after=changed))
            if rule.marks:
                # The others that had nothing to do have nothing to do after it.
                idle |= {name: changed for name, known in idle.items() if known is current}
            current = changed
        if current is before_round:
            return Optimized(plain=plan, plan=unpinned(current) if fired else plan, fired=tuple(fired))
    names = ", ".join(dict.fromkeys(each.rule.name for each in fired[-len(chosen) :]))
    raise PlanError(f"the rules do not converge: after {MAX_ROUNDS} rounds these still change the plan: {names}")


def _check(rule: Rule, before: LogicalPlan, after: LogicalPlan) -> None:
    """A changed plan is a plan, with the same columns of the same types in the same order."""
    try:
        verify(after)
    except PlanError as error:
        raise PlanError(f"rule {rule.name} broke the plan: {error}") from error
    old = [(name, value.type) for name, value in before.sink.columns]
    new = [(name, value.type) for name, value in after.sink.columns]
    if [name for name, _ in old] != [name for name, _ in new]:
        raise PlanError(f"rule {rule.name} changed the result's columns from {_names(old)} to {_names(new)}")
    for (name, kind), (_, changed) in zip(old, new, strict=True):
        if kind != changed:
            raise PlanError(f"rule {rule.name} changed the type of column `{name}` from {kind} to {changed}")


def _names(columns: Iterable[tuple[str, object]]) -> str:
    return ", ".join(name for name, _ in columns) or "none"


def choose_rules(only: Iterable[str] | None = None, without: Iterable[str] = ()) -> tuple[RuleFunction, ...]:
    """The rules by name: all exact ones, or `only` some (lossy ones among them), less those in `without`.

    They stay in the order of RULES. Raises OptionError for a name that is no rule.
    """
    known = {function.__name__: describe(function) for function in RULES}
    wanted = None if only is None else set(only)
    unwanted = set(without)
    for name in sorted((wanted or set()) | unwanted):
        if name not in known:
            raise OptionError(f"there is no rule `{name}`; {name_help(name, known, 'rules', most=len(known))}")
    return tuple(
        rule.apply
        for name, rule in known.items()
        if name not in unwanted and (name in wanted if wanted is not None else not rule.lossy)
    )
