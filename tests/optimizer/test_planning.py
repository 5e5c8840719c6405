"""What planning may cost: the tree of the trading workflow, and the bound of real tables against brute force."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from planning import ROLES, chain_of, deep_size, plan_of, table, tatqa_rows, tatqa_workflow, trading

from helix.optimizer.cost import CostSettings, estimate
from helix.optimizer.prompts import bind_prompts
from helix.optimizer.tokens import Tokenizer, from_ids
from helix.optimizer.tokens import estimate as estimated
from helix.optimizer.tree import build_tree

CHARS = from_ids("characters", lambda text: [ord(char) for char in text], turn=1)


@pytest.mark.parametrize(("branches", "ops"), [(4, 56), (8, 88), (16, 152)])
def test_the_trading_tree_is_small(branches: int, ops: int) -> None:
    tree = build_tree(plan_of(trading(branches)), estimated())
    assert len(tree.ops) == ops
    assert deep_size(tree) < 100 * 1024
    # The branches' risk personas share their role, the summaries and the plan that they are told of.
    personas = [op for op in tree.ops if op.step.startswith("neutral_")]
    shared = set.intersection(*(set(tree.path_nodes(op.end)) for op in personas))
    assert sum(tree.tokens(node) for node in shared) > 150


def test_a_row_is_bound_in_bytes_not_objects() -> None:
    """Edges of rows that differ are new, those of equal values are not: twice the rows, twice the edges, no more."""
    plan = plan_of(chain_of(10))
    tree = build_tree(plan, estimated())
    settings = CostSettings(exact_calls=0)
    small = estimate(plan, tree, estimated(), rows=table(100), settings=settings)
    large = estimate(plan, tree, estimated(), rows=table(200), settings=settings)
    assert (small.calls, large.calls) == (1000, 2000)
    assert large.p_min == pytest.approx(2 * small.p_min, rel=0.1)


def brute_force(rows: list[dict[str, str]], tokenizer: Tokenizer) -> int:
    """The distinct beginnings of all prompts of the TAT-QA workflow, written out by hand."""
    found: set[tuple[object, ...]] = set()
    for row in rows:
        for role in ROLES:
            user = f"{row['context']}\nQuestion: {row['question']}\nYou answer as {role}."
            system = "You answer questions on a company's accounts."
            turns = {name: tuple((name, n) for n in range(tokenizer.turn)) for name in ("system", "user", "assistant")}
            prompt = (
                *turns["system"], *(tokenizer.ids(system) or ()),
                *turns["user"], *(tokenizer.ids(user) or ()), *turns["assistant"],
            )  # fmt: skip
            found.update(prompt[:end] for end in range(1, len(prompt) + 1))
    return len(found)


def check_rows(file: Path, tokenizer: Tokenizer, places: tuple[int, ...]) -> None:
    """The bound of some rows of the table is what brute force counts."""
    every = tatqa_rows(file)
    rows = [every[place] for place in places]
    plan = plan_of(tatqa_workflow())
    cost = estimate(plan, build_tree(plan, tokenizer), tokenizer, rows=rows)
    assert (cost.calls, cost.p_min_kind, cost.exact) == (len(rows) * len(ROLES), "tokens", True)
    assert cost.p_min == brute_force(rows, tokenizer)
    assert all(prompt.known for prompt in bind_prompts(plan, rows))


@pytest.mark.shared
def test_three_rows_of_tatqa_by_hand(shared_data: Path) -> None:
    file = shared_data / "text" / "tatqa_dev_100ctx.json"
    # Two questions on one context and one on another.
    check_rows(file, CHARS, (0, 1, 7))
    every = tatqa_rows(file)
    first, second = every[0], every[1]
    assert first["context"] == second["context"]
    # By hand, in characters: the system prompt and the context once, then what the two questions share, their rests,
    # and for each of them the six roles, which begin alike by twos at most ("a bank", "a tax adviser", ...).
    plan = plan_of(tatqa_workflow())
    cost = estimate(plan, build_tree(plan, CHARS), CHARS, rows=[first, second])
    asked = [row["question"] for row in (first, second)]
    common = next(n for n, (one, other) in enumerate(zip(*asked, strict=False)) if one != other)
    once = (
        len("You answer questions on a company's accounts.") + 2 + len(first["context"]) + len("\nQuestion: ") + common
    )
    roles = len({role[:end] for role in ROLES for end in range(1, len(role) + 1)}) + len(ROLES) * len(". ")
    rests = sum(len(question) - common + len("\nYou answer as ") + roles for question in asked)
    assert cost.p_min == once + rests


@pytest.mark.shared
@pytest.mark.embedded
def test_tatqa_by_the_embedded_models_tokens(shared_data: Path) -> None:
    from helix.executor.engines.embedded.weights import ensure
    from helix.optimizer.tokens import from_file

    file = shared_data / "text" / "tatqa_dev_100ctx.json"
    tokenizer = from_file(ensure(quiet=True, stop=threading.Event()))
    check_rows(file, tokenizer, (0, 1, 7))
    plan = plan_of(tatqa_workflow())
    cost = estimate(plan, build_tree(plan, tokenizer), tokenizer, rows=tatqa_rows(file))
    assert (cost.rows, cost.calls) == (600, 3600)
    # Each context is prefilled once for its six questions and six roles.
    assert 90_000 < cost.p_min < 110_000
    assert cost.cached_share > 0.95
