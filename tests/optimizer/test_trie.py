"""The tries of calls: what meets, what is counted, what goes when its last call goes."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from plans_support import plan_of

from helix.optimizer.tokens import from_ids
from helix.optimizer.tree import CallTrie, TokenTrie, Tree, build_tree
from helix.optimizer.tree.trie import Paths, unknown_number, value_number

CHARS = from_ids("characters", lambda text: [ord(char) for char in text], turn=1)

WORKFLOW = """
    workflow w(doc: text, q: text)
    a = llm { system "Rules." user "{{ doc }} First {{ q }}" }
    b = llm { system "Rules." user "{{ doc }} Second {{ q }}" }
    c = llm { system "Rules." user "{{ doc }} First {{ q }}" assistant "{{ a }}" user "Sure?" }
    d = llm { user "{{ q }}" }
    output a, b, c, d
"""


def trie_of() -> tuple[Tree, Paths, CallTrie]:
    tree = build_tree(plan_of(WORKFLOW), CHARS)
    paths = Paths(tree)
    return tree, paths, CallTrie(paths)


def values(tree: Tree, paths: Paths, **texts: str) -> tuple[list[int], list[float]]:
    """Numbers and tokens of holes by the name of what they show."""
    numbers, tokens = [0] * len(paths.keys), [0.0] * len(paths.keys)
    for hole in tree.holes:
        numbers[paths.keys[hole.key]] = value_number(texts[hole.text])
        tokens[paths.keys[hole.key]] = len(texts[hole.text])
    return numbers, tokens


def test_equal_values_of_rows_meet_and_go_with_the_last_call() -> None:
    tree, paths, trie = trie_of()
    first = trie.bind(0, *values(tree, paths, doc="D" * 100, q="one", a="x"))
    edges, made = len(trie), trie.made_tokens
    assert made == trie.prompt_tokens(first) == 1 + 6 + 1 + 100 + 7 + 3 + 1
    second = trie.bind(0, *values(tree, paths, doc="D" * 100, q="two", a="x"))
    # Only the question and the reply's turn are new.
    assert trie.made_tokens - made == 3 + 1
    assert len(trie) == edges + 1
    third = trie.bind(0, *values(tree, paths, doc="D" * 100, q="two", a="x"))
    assert third == second
    assert trie.users(third) == 2
    for handle in (first, second, third):
        trie.release(handle)
    assert len(trie) == 0
    assert trie.live_tokens == 0
    with pytest.raises(ValueError, match="live call"):
        trie.release(second)


def test_a_reply_decoded_in_place_is_not_prefilled() -> None:
    tree, paths, trie = trie_of()
    given_ = values(tree, paths, doc="D" * 10, q="q", a="r" * 50)
    trie.bind(0, *given_)
    before = trie.made_tokens
    handle = trie.bind(2, *given_)
    assert trie.made_tokens - before == len("Sure?") + 1 + 1
    assert trie.prompt_tokens(handle) == before + 50 + len("Sure?") + 1 + 1


def test_weights_add_up_like_chances() -> None:
    tree, paths, trie = trie_of()
    given_ = values(tree, paths, doc="D" * 96, q="q", a="r")
    handle = trie.bind(0, *given_, 0.5)
    whole = trie.prompt_tokens(handle)
    assert trie.made_tokens == pytest.approx(whole * 0.5)
    trie.bind(0, *given_, 0.5)
    assert trie.made_tokens == pytest.approx(whole * 0.75)
    trie.bind(0, *given_, 1.0)
    assert trie.made_tokens == pytest.approx(whole)
    assert sum(trie.made_by_place) == pytest.approx(whole)


def test_unknown_values_are_equal_only_to_themselves() -> None:
    assert unknown_number(3) != value_number("3")
    assert unknown_number(3) != unknown_number(4)
    assert unknown_number(0) > value_number("anything")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=30), st.integers(0, 99))
def test_random_calls_bound_and_released(calls: list[tuple[int, int, int]], seed: int) -> None:
    tree, paths, trie = trie_of()
    live: list[int] = []
    for op, doc, question in calls:
        live.append(trie.bind(op, *values(tree, paths, doc=f"doc {doc}", q=f"q {question}", a=f"{doc}{question}")))
    # A fresh trie of the same calls, bound all at once row by row, holds the same.
    other = CallTrie(paths)
    for op, doc, question in calls:
        other.bind_all(
            paths.order([op]), *values(tree, paths, doc=f"doc {doc}", q=f"q {question}", a=f"{doc}{question}")
        )
    assert (len(other), other.live_tokens) == (len(trie), trie.live_tokens)
    random = Random(seed)
    random.shuffle(live)
    half = len(live) // 2
    for handle in live[:half]:
        trie.release(handle)
    rest = sum(trie.prompt_tokens(handle) for handle in set(live[half:]))
    assert trie.live_tokens <= rest
    for handle in live[half:]:
        trie.release(handle)
    assert (len(trie), trie.live_tokens) == (0, 0)


def test_bind_all_walks_what_ops_share_once() -> None:
    tree, paths, trie = trie_of()
    given_ = values(tree, paths, doc="D", q="q", a="r")
    order = paths.order(range(4))
    handles = trie.bind_all(order, *given_)
    single = CallTrie(paths)
    assert [trie.prompt_tokens(handle) for handle in handles] == [
        single.prompt_tokens(single.bind(op, *given_)) for op, _ in order
    ]
    assert trie.made_tokens == single.made_tokens
    assert sum(common for _, common in order) > 0


# --- by tokens ----------------------------------------------------------------------------------------------------


def brute_force(prompts: list[list[int]]) -> int:
    """The number of distinct beginnings: each is one token on the trie."""
    return len({tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)})


tokens = st.lists(st.integers(0, 3), max_size=12)


@given(st.lists(tokens, max_size=12))
def test_distinct_tokens_are_those_of_a_brute_force_trie(prompts: list[list[int]]) -> None:
    trie = TokenTrie()
    handles = [trie.insert(array("I", prompt)) for prompt in prompts]
    assert trie.distinct_tokens == brute_force(prompts)
    for place, handle in enumerate(handles):
        others = [prompt for number, prompt in enumerate(prompts) if number != place]
        own = prompts[place]
        shared = max(
            (end for end in range(len(own) + 1) if any(other[:end] == own[:end] for other in others)), default=0
        )
        assert trie.private_tokens(handle) == len(own) - shared


@given(st.lists(st.tuples(tokens, tokens), max_size=8))
def test_decoded_tokens_are_not_prefilled(calls: list[tuple[list[int], list[int]]]) -> None:
    trie = TokenTrie()
    for prompt, output in calls:
        trie.insert(array("I", prompt), array("I", output))
    prefixes = {tuple(prompt[:end]) for prompt, _ in calls for end in range(1, len(prompt) + 1)}
    decoded = {
        tuple((prompt + output)[:end])
        for prompt, output in calls
        for end in range(len(prompt) + 1, len(prompt) + len(output) + 1)
    }
    assert trie.distinct_tokens == len(prefixes - decoded)


@given(
    st.lists(st.tuples(tokens.filter(bool), tokens), min_size=1, max_size=8),
    st.lists(st.integers(1, 9), min_size=8, max_size=8),
)
def test_the_area_of_what_is_private_to_no_prompt(calls: list[tuple[list[int], list[int]]], passes: list[int]) -> None:
    trie = TokenTrie()
    handles = [trie.insert(array("I", prompt), array("I", output)) for prompt, output in calls]
    users: dict[tuple[int, ...], list[int]] = {}
    decoded: set[tuple[int, ...]] = set()
    for number, (prompt, output) in enumerate(calls):
        for end in range(1, len(prompt) + 1):
            users.setdefault(tuple(prompt[:end]), []).append(number)
        for end in range(len(prompt) + 1, len(prompt) + len(output) + 1):
            decoded.add(tuple((prompt + output)[:end]))

    # The longest of the calls with even numbers, and all of those with odd ones.
    def together(numbers: Sequence[int]) -> float:
        even = [passes[number] for number in numbers if number % 2 == 0]
        return float(max(even, default=0) + sum(passes[number] for number in numbers if number % 2))

    expected = sum(together(found) for key, found in users.items() if len(found) > 1 or key in decoded)
    assert trie.held_area(handles, together) == expected


def test_weights_of_token_tries_add_up_like_chances() -> None:
    trie = TokenTrie()
    trie.insert(array("I", [1, 2, 3]), weight=0.5)
    trie.insert(array("I", [1, 2, 4]), weight=0.5)
    # The beginning is there unless both calls are not made, each end as often as its call.
    assert trie.distinct_tokens == pytest.approx(2 * 0.75 + 0.5 + 0.5)
    trie.insert(array("I", [1]))
    assert trie.distinct_tokens == pytest.approx(1 + 0.75 + 0.5 + 0.5)


def test_handles_outlive_splits() -> None:
    trie = TokenTrie()
    long = trie.insert(array("I", [1, 2, 3, 4, 5]))
    short = trie.insert(array("I", [1, 2]))
    trie.insert(array("I", [1, 2, 3, 9]))
    assert trie.private_tokens(long) == 2
    assert trie.private_tokens(short) == 0
    assert trie.distinct_tokens == 6
