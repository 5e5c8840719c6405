"""What tests of `helix explain` share: workflows, plans of texts, and the rules that golden texts are made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from running import ROOT

import helix
from helix import api
from helix.explain.explanation import Explanation
from helix.logical import LogicalPlan

EXAMPLES = ROOT / "examples"
# Golden texts and counts are of these, so that a new rule changes none of them.
RULES = ("fold_constants", "merge_equal_steps", "drop_dead_steps")

TWICE = """
workflow twice(text: text)

model main { max_tokens: 60 }

short = llm main { user "Sum up: {{ text }}" }

gist = llm main { user "Sum up: {{ text }}" }

title = llm main { user "Give this a title: {{ gist }}" }

spare = llm main { user "Nobody reads this: {{ text }}" }

output short, title
"""
ROWS = [{"text": "It broke on the first day"}, {"text": "It is fine"}, {"text": "It is fine"}, {"text": None}]


def workflow_of(text: str) -> Any:
    """A workflow from its text."""
    return helix.loads(text.strip() + "\n", name="test.helix")


def plan_of(text: str) -> LogicalPlan:
    """The bound plan of a workflow's text."""
    return api.check(workflow_of(text)).plan


def explained(text: str, rows: Any = None, **options: Any) -> Explanation:
    """The explanation of a workflow's text by the rules of golden texts."""
    return workflow_of(text).explain(rows, **{"rules": RULES, **options})


def example(name: str, rows: str | None = None, **options: Any) -> Explanation:
    """The explanation of an example by the rules of golden texts."""
    folder: Path = EXAMPLES / name
    source = None if rows is None else folder / rows
    return api.explain(api.load(folder / f"{name}.helix"), source, **{"rules": RULES, **options})
