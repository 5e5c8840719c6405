"""The tree as text: what a line says, and how wide it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from plans_support import plan_of

from helix.optimizer.tokens import estimate
from helix.optimizer.tree import build_tree, tree_text
from helix.optimizer.tree.show import text_width

WORKFLOW = """
    workflow w(policy: text, ticket: text, parts: list[text])
    model main { name: "SmolLM2" }
    kind = llm main -> choice["a", "b"] { system "Work by {{ policy }}." user "Kind of {{ ticket }}?" }
    if kind == "a" {
      reply = llm main { system "Work by {{ policy }}." user "Answer {{ ticket }}." }
    } else {
      reply = llm main(sample: 3, temperature: 0.5) { system "Work by {{ policy }}." user "ตอบ {{ ticket }}" }
    }
    each = for part in parts { v = llm main { system "Work by {{ policy }}." user "{{ part }}" } yield v }
    output reply, each
"""

EXPECTED = """\
SmolLM2  4 steps, 4 prompts, tokens estimated
└─ [system] Work by {policy}. [user]  13 tokens + 1 value, by row, shared by 4
   ├─ Kind of {ticket}? [assistant]  8 tokens + 1 value, by row -> kind
   ├─ Answer {ticket}. [assistant]  8 tokens + 1 value, by row -> reply x 0.5?
   ├─ ตอบ {ticket} [assistant]  8 tokens + 1 value, by row -> reply x 1.5?
   └─ {part} [assistant]  5 tokens + 1 value, by item -> each.v x 5?
"""


def test_whole_text() -> None:
    assert tree_text(build_tree(plan_of(WORKFLOW), estimate()), 100) == EXPECTED


def test_sizes_are_added_where_they_are_known() -> None:
    tree = build_tree(plan_of(WORKFLOW), estimate())
    sizes = {hole.key: 100.0 for hole in tree.holes}
    assert "Work by {policy}. [user]  113 tokens, by row, shared by 4" in tree_text(tree, 100, sizes=sizes)


@pytest.mark.parametrize("width", [1, 40, 55, 80, 200])
def test_no_line_is_too_wide(width: int) -> None:
    text = tree_text(build_tree(plan_of(WORKFLOW), estimate()), width)
    assert max(text_width(line) for line in text.splitlines()) <= max(width, 40)
    assert text.count("\n") == EXPECTED.count("\n")
    assert "-> kind" in text
    assert "shared by 4" in text


def test_colour_changes_nothing_else() -> None:
    import re

    tree = build_tree(plan_of(WORKFLOW), estimate())
    painted = tree_text(tree, 70, color=True)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[\d+m", "", painted) == tree_text(tree, 70)


def test_no_llm_steps() -> None:
    assert tree_text(build_tree(plan_of("workflow w(q: text)\noutput q"), estimate()), 80) == "no llm steps\n"
