"""The order of the steps: by hand for small plans, and what must hold for any."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from lowering_support import CHARS, GOLDEN, ROUND, lowered, phases, questions
from planning import trading
from plans_support import plan_of
from random_workflows import case
from wellbound import WellBound

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import Generate, LogicalPlan
from helix.optimizer.driver import optimize
from helix.optimizer.engine_time import H100, EngineTime
from helix.optimizer.lengths import Lengths
from helix.optimizer.lowering.fixity import Fixity
from helix.optimizer.lowering.ops import list_ops
from helix.optimizer.lowering.order import Phase, phases_of
from helix.optimizer.lowering.recurrence import fresh_after
from helix.optimizer.lowering.search import OrderSearch
from helix.optimizer.rule import TableStats
from helix.optimizer.sizes import estimate_sizes
from helix.optimizer.stats import table_stats
from helix.optimizer.tally import tally_stats
from helix.optimizer.tokens import ESTIMATE
from helix.optimizer.tree import Tree, build_tree, resolve_plan
from helix.optimizer.tree.refs import Resolution
from helix.optimizer.tree.shape import bits
from helix.optimizer.tree.trie import Paths

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


def test_a_cache_that_keeps_the_last_prompt_alone_computes_no_token_twice() -> None:
    """In this order P_min = |S1| + |S2| + N (2 |Q| + suffixes + |answer|) needs no more cache than one prompt."""
    plan, rows = plan_of(GOLDEN), questions(6)
    found = resolve_plan(plan)
    sample = {step: [size] for step, size in LENGTHS.items()}
    search, found_phases = searched(found, build_tree(plan, CHARS, found), table_stats(rows, CHARS), sample)
    assert search.rows == 6
    p_min = 10 + 15 + 6 * (2 * 26 + len(" so: ") + 30)
    assert computed(search, found_phases) == p_min
    # Step by step the question is computed for op3 once more.
    assert computed(search, [Phase(0, (op,)) for phase in found_phases for op in phase.ops]) == p_min + 6 * 26


def computed(search: OrderSearch, phases: Sequence[Phase]) -> float:
    """The tokens that each call shares not with the one before it."""
    order = [None, *(search.calls[number] for number in search.order(phases))]
    return sum(fresh_after(call, before) for before, call in pairwise(order) if call is not None)


@pytest.mark.parametrize("lengths", [LENGTHS, {"op1": 5, "op2": 300, "op3": 5}, {"op1": 5, "op2": 5, "op3": 300}])
def test_a_branch_is_entered_once_it_can_be_gone_through(lengths: dict[str, int]) -> None:
    """However long op2 takes, its branch waits for op1, so that the question stands in the cache once."""
    assert phases(lowered(GOLDEN, questions(20), lengths=lengths)) == [["op1"], ["op2", "op3"]]


def test_ranks_are_seconds_to_the_end_of_the_longest_chain() -> None:
    made = lowered(GOLDEN, questions(20), lengths=LENGTHS)
    rank = {step.step: step.rank_up for step in made.steps}
    private = {step.step: step.private_tokens for step in made.steps}
    # The first token of a reply comes with the prompt's prefill.
    assert rank["op3"] == pytest.approx((private["op3"] + 10 * 4) / 1000)
    assert rank["op2"] == pytest.approx((private["op2"] + 10 * 4) / 1000)
    assert rank["op1"] == pytest.approx((private["op1"] + 10 * 29) / 1000 + rank["op3"])


def test_a_branch_that_waits_for_another_is_come_back_to() -> None:
    text = """
    workflow w(q: text)
    draft = llm { system "DDDDDDDDDD" user "{{ q }}" }
    critic = llm { system "CCCCC" user "{{ draft }}" }
    final = llm { system "DDDDDDDDDD" user "{{ q }} {{ critic }}" }
    output final
    """
    assert phases(lowered(text, questions(9))) == [["draft"], ["critic"], ["final"]]


def test_steps_that_wait_for_each_other_in_one_branch_stay_together() -> None:
    text = """
    workflow w(q: text)
    one = llm { user "{{ q }} First." }
    two = llm { user "{{ q }} Then {{ one }}." }
    three = llm { user "{{ q }} Then {{ two }}." }
    other = llm { system "Else." user "{{ q }}" }
    output three, other
    """
    made = lowered(text, questions(9))
    assert phases(made) == [["one", "two", "three"], ["other"]]
    assert made.held_tokens == 0


def test_the_longest_rest_comes_first() -> None:
    text = """
    workflow w(q: text)
    short = llm { system "AA" user "{{ q }}" }
    long = llm { system "BB" user "{{ q }}" }
    last = llm { system "CC" user "{{ long }}" }
    output short, last
    """
    assert phases(lowered(text, questions(9), lengths={"short": 9, "long": 5, "last": 5})) == [
        ["long"], ["short"], ["last"],
    ]  # fmt: skip
    assert phases(lowered(text, questions(9), lengths={"short": 300, "long": 5, "last": 5})) == [
        ["short"], ["long"], ["last"],
    ]  # fmt: skip


def test_tools_count_in_the_rest() -> None:
    text = """
    workflow w(q: text)
    tool look(q: text) -> text from python "t:look" effects read, cost 30s
    plain = llm { system "AA" user "{{ q }}" }
    asks = llm { system "BB" user "{{ q }}" }
    found = look(asks)
    says = llm { system "CC" user "{{ found }}" }
    output plain, says
    """
    made = lowered(text, questions(9), lengths={"plain": 900, "asks": 5, "says": 5})
    rank = {step.step: step.rank_up for step in made.steps}
    assert phases(made)[0] == ["asks"]
    assert rank["asks"] == pytest.approx((made.steps[0].private_tokens + 40) / 1000 + 30 + rank["says"])


def test_branches_and_loops_count_by_what_is_expected() -> None:
    text = """
    workflow w(q: text)
    kind = llm -> choice["a", "b", "c", "d"] { system "KK" user "{{ q }}" }
    if kind == "a" { reply = llm { system "AA" user "{{ q }}" } } else { reply = "" }
    said = reply
    repeat up to 3 { said = llm { system "LL" user "{{ said }}" } }
    output said
    """
    made = lowered(text, questions(9), lengths={"kind": 4, "reply": 100, "said": 10})
    rank = {step.step: step.rank_up for step in made.steps}
    private = {step.step: step.private_tokens for step in made.steps}
    assert rank["said"] == pytest.approx(3 * (private["said"] + 90) / 1000)
    assert rank["reply"] == pytest.approx((private["reply"] + 990) / 1000 + rank["said"])
    # One of four labels leads to the reply: a quarter of its rest, or all of what follows without it.
    alone = (private["kind"] + 30) / 1000
    assert rank["kind"] == pytest.approx(alone + max(rank["reply"] / 4, rank["said"]))
    calls = {step.step: step.calls for step in made.steps}
    assert calls == pytest.approx({"kind": 9, "reply": 9 / 4, "said": 27})


def test_a_step_in_two_branches_is_told_once() -> None:
    text = """
    workflow w(q: text, n: int)
    if n > 3 { r = llm { user "{{ q }}" } } else { r = llm { user "{{ q }}" } }
    output r
    """
    made = lowered(text, [{"q": f"a{number}", "n": number} for number in range(10)])
    assert len({step.node for step in made.steps}) == len(made.steps)
    assert sum(step.calls for step in made.steps) == pytest.approx(10)


@pytest.mark.parametrize("seed", range(60))
def test_random_workflows_are_scheduled_after_what_they_need(seed: int) -> None:
    drawn = case(seed)
    plan = bound(drawn.workflow)
    for subject in (plan, optimize(plan).plan):
        found = resolve_plan(subject)
        tree = build_tree(subject, CHARS, found)
        made = lowered(subject, drawn.rows or None, budget=seed % 2)
        assert {step.node for step in made.steps} == {op.id for op in nodes_of(found)}
        assert all(step.rank_up >= 0 and step.calls >= 0 for step in made.steps)
        assert [step.phase for step in made.steps] == sorted(step.phase for step in made.steps)
        assert made.block >= 1
        ordered = [op for phase in first_phases(found, tree) for op in phase.ops]
        assert sorted(ordered) == list(range(len(tree.ops)))
        place = {op: at for at, op in enumerate(ordered)}
        for op in tree.ops:
            assert all(place[other] < place[op.index] for other in bits(op.needs) if other != op.index)


def bound(subject: WellBound) -> LogicalPlan:
    modules = {path: parse(module, path) for path, module in subject.modules.items()}
    return bind(parse(subject.text, "w.helix"), modules=modules).plan


def nodes_of(found: Resolution) -> list[Generate]:
    return [site.node for site in found.calls if isinstance(site.node, Generate)]


def first_phases(found: Resolution, tree: Tree) -> tuple[Phase, ...]:
    """The phases of a plan of which nothing is known."""
    return searched(found, tree)[1]


def searched(
    found: Resolution, tree: Tree, stats: TableStats | None = None, sample: Mapping[str, Sequence[int]] | None = None
) -> tuple[OrderSearch, tuple[Phase, ...]]:
    """The calls of a few rows, and the phases of the plan."""
    paths = Paths(tree)
    known = Lengths(sample=sample or {})
    lengths = {site.index: known.of(site, CHARS) for site in found.calls if isinstance(site.node, Generate)}
    sizes = estimate_sizes(found, CHARS, stats, lengths)
    tally = tally_stats(found, tree, sizes, stats)
    ops = list_ops(
        found, tree, paths, ROUND, lengths,
        calls=tally.calls, prompts=tally.prompts, made_by_place=tally.made_by_place, often=[1.0] * len(found.places),
    )  # fmt: skip
    fixity = Fixity(found, tree, paths, (), stats)
    search = OrderSearch(paths, fixity, sizes, ops, rows=tally.rows, block=6, capacity=10_000)
    return search, phases_of(tree, fixity, ops)


# --- the search ---------------------------------------------------------------------------------------------------


def test_a_small_case_says_how_far_the_best_order_is() -> None:
    made = lowered(GOLDEN, questions(4), lengths=LENGTHS, budget=1)
    assert made.order is not None
    assert made.order.rows == 4
    assert made.order.proven
    assert made.order.exact is not None
    assert made.order.exact <= made.order.now <= made.order.first
    assert lowered(GOLDEN, questions(4), lengths=LENGTHS, budget=0).order is None


def test_a_budget_is_a_number_of_trials() -> None:
    text = trading(4)
    few = lowered(text, stats=TableStats(rows=64), budget=0.01, tokenizer=ESTIMATE, engine=H100)
    many = lowered(text, stats=TableStats(rows=64), budget=0.1, tokenizer=ESTIMATE, engine=H100)
    assert few.order is not None
    assert many.order is not None
    assert 0 < few.order.tried < many.order.tried
    assert many.order.now <= few.order.now <= few.order.first
    again = lowered(text, stats=TableStats(rows=64), budget=0.1, tokenizer=ESTIMATE, engine=H100)
    assert again == many


def test_the_search_takes_a_hundredth_of_the_run_at_most() -> None:
    """A run of a millisecond is not planned for a second: not even one trial is worth it."""
    quick = EngineTime(name="quick", a=0.0, b=1e-6, c=0.0, d=1e-6, e=0.0, f=0.0, batch=1, capacity=100_000, chunk=1000)
    made = lowered(GOLDEN, questions(40), lengths=LENGTHS, budget=100, engine=quick)
    assert made.order is not None
    assert made.order.tried == 0
