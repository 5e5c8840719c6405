"""Effect classes: their order, what MCP hints are worth, which state domains have anything in common."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.tools.effects import (
    HARMLESS,
    ORDER,
    Effect,
    effects_of_hints,
    join,
    join_domains,
    open_world_of_hints,
    overlap,
)

CLASSES = st.sampled_from(ORDER)


@given(CLASSES, CLASSES, CLASSES)
def test_join_is_a_semilattice(a: Any, b: Any, c: Any) -> None:
    assert join(a, join(b, c)) == join(join(a, b), c)
    assert join(a, b) == join(b, a)
    assert join(a, a) == a
    assert join(a, "unknown") == "unknown"
    assert join(a, "pure") == a
    assert join() == "pure"


def test_only_pure_and_read_are_harmless() -> None:
    assert {name for name in ORDER if Effect(effects=name).harmless} == {"pure", "read"} == HARMLESS
    assert not Effect(effects="read", volatile=True).harmless


HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def test_every_combination_of_hints() -> None:
    for values in product((True, False, None), repeat=4):
        given_hints = {name: value for name, value in zip(HINTS, values, strict=True) if value is not None}
        found = effects_of_hints(given_hints, allowed=True)
        read_only, destructive, idempotent, _ = values
        if not given_hints:
            assert found == "unknown"
        elif read_only:
            assert found == ("destructive" if destructive else "read")
        elif destructive is not False:
            assert found == "destructive"
        else:
            assert found == ("idempotent_write" if idempotent else "write")
        # A server that nobody vouches for is not believed, whatever it says.
        assert effects_of_hints(given_hints, allowed=False) == "unknown"


@pytest.mark.parametrize("value", ["true", 1, "yes", [True], {"value": True}, 1.0])
def test_a_hint_is_a_boolean(value: Any) -> None:
    assert effects_of_hints({"readOnlyHint": value}, allowed=True) == "destructive"


def test_open_world_is_the_default() -> None:
    assert open_world_of_hints(None)
    assert open_world_of_hints({})
    assert open_world_of_hints({"openWorldHint": "false"})
    assert not open_world_of_hints({"openWorldHint": False})


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("sales",), ("sales",), True),
        (("sales",), ("sales.orders",), True),
        (("sales.orders",), ("sales",), True),
        (("sales.orders",), ("sales.customers",), False),
        (("sales",), ("salesmen",), False),
        ((), ("sales",), False),
        (None, ("sales",), True),
        (("sales",), None, True),
        (None, None, True),
        (None, (), False),
        ((), None, False),
    ],
)
def test_overlap(one: Any, other: Any, shared: bool) -> None:
    assert overlap(one, other) is shared


def test_domains_join() -> None:
    assert join_domains(("b", "a"), ("a", "c")) == ("a", "b", "c")
    assert join_domains(("a",), None) is None
    assert join_domains() == ()
