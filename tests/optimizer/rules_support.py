"""What tests of rules share: a workflow's plan before and after one rule, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import Generate, LogicalPlan
from helix.optimizer.driver import optimize
from helix.optimizer.rule import ColumnStats, RuleContext, RuleFunction, TableStats
from helix.show import plan_text


def plan_of(text: str, folder: Path | None = None) -> LogicalPlan:
    """The bound plan of a workflow's text."""
    return bind(parse(text.strip() + "\n"), folder=folder).plan


@dataclass(frozen=True)
class Known:
    """A store that knows the reply to each step's prompt by the step's name, or one reply to all (`""`)."""

    replies: Mapping[str, str]

    def reply(self, step: Generate) -> str | None:
        return self.replies.get(step.step, self.replies.get(""))


def knowing(text: str | None = None, **replies: str) -> RuleContext:
    """A context whose store knows replies: one to every prompt that no row changes, or those of steps by name."""
    return RuleContext(known=Known(replies if text is None else {"": text}))


def seen(rows: int, determines: tuple[tuple[str, str], ...] = (), **columns: tuple[int, float]) -> RuleContext:
    """A context that has looked at the table: for each column its distinct values and its tokens."""
    found = {name: ColumnStats(distinct=distinct, tokens=tokens) for name, (distinct, tokens) in columns.items()}
    return RuleContext(stats=TableStats(rows=rows, columns=found, determines=determines))


def show(text: str, *rules: RuleFunction, context: RuleContext | None = None) -> str:
    """Prints the plan of a workflow after these rules alone, as the doctests of rules do."""
    plan = optimize(plan_of(text), context, rules).plan
    shown = plan_text(plan).rstrip("\n")
    print(shown)
    return shown
