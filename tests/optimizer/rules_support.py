"""What tests of rules share: a workflow's plan before and after one rule, as text."""

from __future__ import annotations

from pathlib import Path

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import LogicalPlan
from helix.optimizer.driver import optimize
from helix.optimizer.rule import RuleContext, RuleFunction
from helix.show import plan_text


def plan_of(text: str, folder: Path | None = None) -> LogicalPlan:
    """The bound plan of a workflow's text."""
    return bind(parse(text.strip() + "\n"), folder=folder).plan


def show(text: str, *rules: RuleFunction, context: RuleContext | None = None) -> str:
    """Prints the plan of a workflow after these rules alone, as the doctests of rules do."""
    plan = optimize(plan_of(text), context, rules).plan
    shown = plan_text(plan).rstrip("\n")
    print(shown)
    return shown
