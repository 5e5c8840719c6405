"""What tests of lowering share: physical plans of workflow texts, whose tokens are the characters of their prompts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from plans_support import plan_of

from helix.logical import LogicalPlan
from helix.optimizer.driver import optimize
from helix.optimizer.engine_time import EngineTime
from helix.optimizer.lengths import Lengths
from helix.optimizer.lowering import LowerContext, lower
from helix.optimizer.rule import RuleContext, TableStats
from helix.optimizer.stats import table_stats
from helix.optimizer.tokens import from_ids
from helix.physical import PhysicalPlan

Rows = Sequence[Mapping[str, Any]]
# A token for each character and none for turns: tokens can be counted in the text.
CHARS = from_ids("characters", lambda text: [ord(char) for char in text], turn=0)
# A millisecond for a token of prefill, ten for one of a reply, whatever runs beside it.
ROUND = EngineTime(name="round", a=0.0, b=1.0, c=0.0, d=10.0, e=0.0, f=0.0, batch=1, capacity=100_000, chunk=1000)

GOLDEN = """
    workflow w(q: text)
    op1 = llm { system "SSSSSSSSSS" user "{{ q }}" }
    op2 = llm { system "TTTTTTTTTTTTTTT" user "{{ q }}" }
    op3 = llm { system "TTTTTTTTTTTTTTT" user "{{ q }} so: {{ op1 }}" }
    output op1, op2, op3
"""


def questions(count: int, length: int = 26) -> list[dict[str, Any]]:
    """Rows whose questions have so many characters and differ in their first one."""
    return [{"q": f"{chr(0x4E00 + number)}{'.' * (length - 1)}"} for number in range(count)]


def lowered(
    text: str | LogicalPlan, rows: Rows | None = None, *, lengths: Mapping[str, int] | None = None,
    stats: TableStats | None = None, rules: bool = False, **options: Any,
) -> PhysicalPlan:  # fmt: skip
    """The physical plan of a workflow; `lengths` are those of replies by step, `rules` puts the rules before it."""
    plan = plan_of(text) if isinstance(text, str) else text
    options.setdefault("tokenizer", CHARS)
    options.setdefault("engine", ROUND)
    options.setdefault("budget", 0)
    if rows is not None and stats is None:
        stats = table_stats(rows, options["tokenizer"])
    if rules:
        plan = optimize(plan, RuleContext(stats=stats)).plan
    sample = Lengths(sample={step: [size] for step, size in (lengths or {}).items()})
    return lower(plan, LowerContext(stats=stats, rows=rows, lengths=sample, **options))


def phases(made: PhysicalPlan) -> list[list[str]]:
    """The names of the steps, phase by phase."""
    found: dict[int, list[str]] = {}
    for step in made.steps:
        found.setdefault(step.phase, []).append(step.step)
    return [found[number] for number in sorted(found)]
