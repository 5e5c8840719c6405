"""The tree of what an engine's cache holds: against plain sets of texts, whatever the order of what happens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helix.executor.engines.base import Message
from helix.executor.policies.prefix_cache import Node, PrefixCache, messages_of, prompt_text

TEXTS = st.text(alphabet="ab", min_size=1, max_size=8)


def prefixes(texts: list[str]) -> set[str]:
    return {text[:length] for text in texts for length in range(1, len(text) + 1)}


@settings(max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=12), TEXTS)
def test_what_was_computed_is_found(texts: list[str], asked: str) -> None:
    cache = PrefixCache()
    for text in texts:
        node = cache.add(text)
        cache.computed(node)
        cache.drop(node)
    there = prefixes(texts)
    assert cache.resident == len(there)
    assert cache.matched(asked) == max((len(each) for each in there if asked.startswith(each)), default=0)


@settings(max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_nothing_stays_of_what_nobody_needs(texts: list[str], dice: object) -> None:
    cache = PrefixCache()
    nodes = [cache.add(text) for text in texts]
    assert [node.prompt() for node in nodes] == texts
    for node in nodes:
        cache.pin(node)
    assert cache.pinned == len(prefixes(texts))
    order = list(nodes)
    dice.shuffle(order)  # type: ignore[attr-defined]
    for node in order:
        cache.unpin(node)
        cache.drop(node)
    assert len(cache) == 0
    assert cache.pinned == cache.resident == 0


@settings(max_examples=300)
@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=20), st.integers(4, 20))
def test_the_cache_is_never_overfilled_by_what_may_go(uses: list[tuple[str, bool]], capacity: int) -> None:
    cache = PrefixCache(capacity)
    held: list[Node] = []
    for text, stays in uses:
        node = cache.add(text)
        cache.pin(node)
        cache.computed(node)
        assert cache.matched(text) == len(text)
        if stays and cache.pinned <= capacity:
            held.append(node)
        else:
            cache.unpin(node)
            cache.drop(node)
        assert cache.resident <= max(capacity, cache.pinned + len(text))
    for node in held:
        assert cache.matched(node.prompt()) == len(node.prompt())
    assert cache.resident == sum(len(each.text) for each in cache.nodes() if each.resident)


def test_the_least_recently_used_goes_first_and_leaves_before_what_they_stand_on() -> None:
    cache = PrefixCache(10)
    for text in ("aaaa1", "aaaa2", "bbbb"):
        node = cache.add(text)
        cache.computed(node)
        cache.drop(node)
    assert cache.resident == 10
    node = cache.add("cc")
    cache.computed(node)
    # Both leaves under `aaaa` are the oldest; what they share stays while there is room.
    assert (cache.matched("aaaa1"), cache.matched("aaaa2"), cache.matched("bbbb")) == (4, 4, 4)
    assert cache.resident == 10


def test_a_part_that_is_split_keeps_what_holds_it() -> None:
    cache = PrefixCache(6)
    first = cache.add("abcdef")
    cache.pin(first)
    cache.computed(first)
    second = cache.add("abcxyz")
    assert cache.pinned == 6
    assert cache.unpinned(second) == 3
    assert [node.users for node in second.path()] == [2, 1]
    cache.computed(second)
    # What is held cannot go, so that the other part does at once.
    assert cache.matched("abcdef") == 6
    assert cache.matched("abcxyz") == 3


def test_expected_texts_count_where_they_are_asked_for() -> None:
    cache = PrefixCache()
    cache.add("abcdef")
    assert cache.matched("abcx") == 0
    assert cache.matched("abcx", expected=True) == 3


def test_a_reply_lies_behind_its_prompt() -> None:
    cache = PrefixCache()
    node = cache.add("prompt")
    cache.computed(node)
    cache.extend(node, " reply")
    assert cache.matched("prompt reply and more") == len("prompt reply")


def test_what_was_evicted_over_there_is_forgotten() -> None:
    cache = PrefixCache()
    node = cache.add("abcdef")
    cache.computed(node)
    other = cache.add("abcxyz")
    cache.computed(other)
    cache.forget(node, 3)
    assert (cache.matched("abcdef"), cache.matched("abcxyz")) == (3, 6)
    cache.clear()
    assert (cache.matched("abcdef"), cache.resident) == (0, 0)


def test_many_uses_take_no_more_memory_than_few() -> None:
    cache = PrefixCache(1000)
    for number in range(20_000):
        node = cache.add(f"{number % 7}{number}")
        cache.computed(node)
        cache.drop(node)
    assert cache.resident <= 1000
    assert len(cache._oldest) < 20_000


def test_prompts_and_their_texts() -> None:
    messages = (Message(role="system", content="Be kind."), Message(role="user", content="Hello"))
    text = prompt_text("m", messages)
    assert text is not None
    assert messages_of(text) == messages
    assert messages_of(text[:-3]) == (messages[0], Message(role="user", content="He"))
    # A beginning that ends within a role's name ends before that message.
    assert messages_of(text[: text.index("user") + 2]) == (messages[0],)
    assert prompt_text("m", (Message(role="user", content="a\x1eb"),)) is None
