"""The order of the steps: by hand for small plans, and what must hold for any."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lowering_support import GOLDEN, lowered, phases, questions

LENGTHS = {"op1": 30, "op2": 5, "op3": 5}


@pytest.mark.parametrize("budget", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 20, 300])
def test_the_golden_workload(count: int, budget: float) -> None:
    """op1 for all rows, then row by row op2 and op3, which share the question behind their system prompt."""
    made = lowered(GOLDEN, questions(count), lengths=LENGTHS, budget=budget)
    assert phases(made) == [["op1"], ["op2", "op3"]]
    assert made.block == count
    tokens = {step.step: step for step in made.steps}
    # op2 shares all of its prompt with op3; op1 its question with nobody, its system prompt with its other calls.
    assert tokens["op2"].prompt_tokens == 15 + 26
    assert tokens["op3"].private_tokens == pytest.approx(5 + 30)
    assert tokens["op1"].private_tokens == pytest.approx(26 + 10 / count)
    # The second phase is the larger one: the question once, op3's own end, both replies.
    assert made.row_tokens == pytest.approx(26 + 5 + 30 + 5 + 5)
    assert made.fixed_tokens == 10 + 15
    assert made.held_tokens == 0


@pytest.mark.parametrize("lengths", [LENGTHS, {"op1": 5, "op2": 300, "op3": 5}, {"op1": 5, "op2": 5, "op3": 300}])
def test_a_branch_is_entered_once_it_can_be_gone_through(lengths: dict[str, int]) -> None:
    """However long op2 takes, its branch waits for op1, so that the question stands in the cache once."""
    assert phases(lowered(GOLDEN, questions(20), lengths=lengths)) == [["op1"], ["op2", "op3"]]


def test_ranks_are_seconds_to_the_end_of_the_longest_chain() -> None:
    made = lowered(GOLDEN, questions(20), lengths=LENGTHS)
    rank = {step.step: step.rank_up for step in made.steps}
    private = {step.step: step.private_tokens for step in made.steps}
    assert rank["op3"] == pytest.approx((private["op3"] + 10 * 5) / 1000)
    assert rank["op2"] == pytest.approx((private["op2"] + 10 * 5) / 1000)
    assert rank["op1"] == pytest.approx((private["op1"] + 10 * 30) / 1000 + rank["op3"])
