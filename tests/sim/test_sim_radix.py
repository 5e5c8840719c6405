"""The radix tree of the simulated engine: what is found, what goes first, what never goes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix.errors import OptionError
from helix.executor.engines.sim.eviction import EVICTION, eviction
from helix.executor.engines.sim.radix import Node, RadixTree

PAGES_3M = 3_000_000 // 512


def held(tree: RadixTree, *keys: str) -> list[int]:
    return [tree.peek(key) for key in keys]


def test_matches_are_floored_to_pages_and_split() -> None:
    tree = RadixTree(4)
    assert tree.insert("aaaabbbbcccc")[0] == 0
    assert tree.match("aaaabbbbxxxx")[0] == 2
    assert tree.match("aaaabbxx")[0] == 1
    assert tree.match("aaaabbbbccc")[0] == 2
    assert tree.match("bbbb")[0] == 0
    assert sorted(node.key for node in tree.nodes()) == ["aaaa", "bbbb", "cccc"]
    assert tree.size == 3
    tree.check()


def test_namespaces_share_nothing() -> None:
    tree = RadixTree(1)
    tree.insert("abc", "one")
    assert tree.match("abc", "two")[0] == 0
    assert tree.match("abc", "one")[0] == 3


def test_locked_nodes_and_what_is_above_them_stay() -> None:
    tree = RadixTree(1)
    tree.insert("abcdef")
    _, node = tree.match("abc")
    tree.lock(node)
    assert (tree.locked, tree.evictable) == (3, 3)
    assert tree.evict(100) == 3
    assert held(tree, "abcdef") == [3]
    tree.unlock(node)
    assert tree.evict(100) == 3
    assert tree.size == 0
    with pytest.raises(AssertionError):
        tree.unlock(Node("x", 1, tree.root(""), 0, 0))


@pytest.mark.parametrize(
    ("policy", "first", "last"),
    [
        # a is used again, c is the newest, b has the highest priority.
        ("lru", "b", "a"),
        ("mru", "a", "b"),
        ("fifo", "a", "c"),
        ("filo", "c", "a"),
        ("lfu", "b", "a"),
        ("slru", "b", "a"),
        ("priority", "c", "b"),
    ],
)
def test_which_leaf_goes_first(policy: str, first: str, last: str) -> None:
    tree = RadixTree(1, eviction(policy))
    tree.insert("a")
    tree.insert("b", priority=5)
    tree.insert("c")
    tree.insert("a")
    gone: list[str] = []
    while tree.size:
        assert tree.evict(1) == 1
        gone += [key for key in "abc" if key not in gone and not tree.peek(key)]
    assert (gone[0], gone[-1]) == (first, last)


def test_a_leaf_goes_whole_or_page_by_page() -> None:
    whole, pages = RadixTree(1), RadixTree(1, leaf_pages=True)
    for tree in (whole, pages):
        tree.insert("abcdef")
        assert tree.evict(2) == (6 if tree is whole else 2)
    assert held(pages, "abcdef") == [4]


def test_priority_rises_only_and_a_split_inherits_it() -> None:
    tree = RadixTree(1, eviction("priority"))
    tree.insert("abcd", priority=7)
    tree.insert("abcd", priority=3)
    tree.insert("abxy", priority=1)
    assert {node.key: node.priority for node in tree.nodes()} == {"ab": 7, "cd": 7, "xy": 1}


def test_a_growing_request_is_no_hit_of_its_own() -> None:
    tree = RadixTree(1)
    tree.insert("ab")
    tree.insert("abcd", known=2)
    assert {node.key: node.hits for node in tree.nodes()} == {"ab": 1, "cd": 1}
    tree.insert("abcd")
    assert {node.key: node.hits for node in tree.nodes()} == {"ab": 2, "cd": 2}


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(OptionError, match="did you mean `lru`"):
        eviction("lrru")


class Plain:
    """The same tree as a set of pages: the beginnings that are there, with what holds them."""

    def __init__(self) -> None:
        self.pages: set[str] = set()

    def match(self, key: str) -> int:
        return next((at for at in range(len(key), 0, -1) if key[:at] in self.pages), 0)


@settings(max_examples=150, deadline=None)
@given(
    policy=st.sampled_from(sorted(EVICTION)),
    acts=st.lists(
        st.tuples(
            st.sampled_from(["insert", "match", "lock", "unlock", "evict"]), st.text("ab", min_size=1, max_size=7)
        ),
        max_size=40,
    ),
)
def test_it_is_a_tree_of_beginnings_whatever_is_done(policy: str, acts: list[tuple[str, str]]) -> None:
    tree, plain = RadixTree(1, eviction(policy)), Plain()
    locked: list[tuple[Node, str]] = []
    for number, (act, key) in enumerate(acts):
        if act == "insert":
            found, _ = tree.insert(key, priority=number % 3)
            assert found == plain.match(key)
            plain.pages.update(key[:at] for at in range(1, len(key) + 1))
        elif act == "match":
            assert tree.match(key)[0] == plain.match(key) == tree.peek(key)
        elif act == "lock":
            found, node = tree.match(key)
            tree.lock(node)
            locked.append((node, key[:found]))
        elif act == "unlock" and locked:
            tree.unlock(locked.pop()[0])
        elif act == "evict":
            evictable, size = tree.evictable, tree.size
            gone = tree.evict(len(key))
            assert gone >= min(len(key), evictable)
            assert tree.size == size - gone
            # What is gone is gone with all behind it.
            plain.pages = {page for page in plain.pages if tree.peek(page) == len(page)}
            assert len(plain.pages) == tree.size
        for _, text in locked:
            assert tree.peek(text) == len(text), "evicted what was locked"
        tree.check()


def requests_of(path: Path) -> list[str]:
    """Each request as a text of its block ids, a character each."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return ["".join(map(chr, json.loads(line)["hash_ids"])) for line in lines]


def hits_of(requests: list[str], capacity: int | None, *, leaf_pages: bool) -> tuple[int, RadixTree]:
    """Blocks that were found: in the order of the file, each put in at once, the matched path locked meanwhile."""
    tree = RadixTree(1, leaf_pages=leaf_pages)
    hits = 0
    for key in requests:
        found, node = tree.match(key)
        hits += found
        tree.lock(node)
        if capacity is not None:
            tree.evict(len(key) - found - (capacity - tree.size))
        tree.insert(key)
        tree.unlock(node)
        assert capacity is None or tree.size <= capacity
    return hits, tree


@pytest.mark.shared
@pytest.mark.parametrize(
    ("trace", "counts", "unbounded", "pagewise", "whole"),
    [
        ("conversation", (12_031, 288_500, 182_790), 105_710, 39_258, 39_101),
        ("synthetic", (3_993, 121_877, 43_924), 77_953, 37_703, 37_703),
    ],
)
def test_the_mooncake_traces_hit_as_counted(
    shared_data: Path, trace: str, counts: tuple[int, int, int], unbounded: int, pagewise: int, whole: int
) -> None:
    requests = requests_of(shared_data / "traces" / f"mooncake_{trace}_trace.jsonl.gz")
    hits, tree = hits_of(requests, None, leaf_pages=False)
    tree.check()
    assert (len(requests), sum(map(len, requests)), tree.size) == counts
    assert hits == unbounded
    assert hits_of(requests, PAGES_3M, leaf_pages=True)[0] == pagewise
    assert hits_of(requests, PAGES_3M, leaf_pages=False)[0] == whole
