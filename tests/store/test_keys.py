"""Contract 5: what is in a key, and that it is the hash of one canonical encoding."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from store_support import MODEL, asked, asking

from helix.canonical import canonical_text
from helix.executor.engines.base import Capabilities
from helix.executor.prompts import Prompt
from helix.executor.store.keys import model_identity
from helix.logical import Generate, every_node

BASE: dict[str, Any] = {"content": [["user", "a"]], "sample": 0, "ordinal": 0, "parameters": {"temperature": 0.5}}


def key_of(**changes: Any) -> bytes:
    given = BASE | {"model": MODEL, "kind": "test", "label": "step", "shared": None} | changes
    place = {name: given[name] for name in ("row", "place", "turns") if name in given}
    ask = asking(
        given["parameters"], model=given["model"], kind=given["kind"], label=given["label"], tenant=given.get("tenant")
    )
    call = asked(given["content"], ask, sample=given["sample"], shared=given["shared"], **place)
    call.ordinal = given["ordinal"]
    return call.key


def test_a_key_is_the_sha256_of_the_canonical_encoding() -> None:
    whole = ["test", MODEL, BASE["parameters"], BASE["content"], 0, 0]
    assert key_of() == sha256(canonical_text(whole).encode()).digest()
    assert (
        key_of(tenant="x") == sha256(canonical_text([whole[0], MODEL | {"tenant": "x"}, *whole[2:]]).encode()).digest()
    )


@pytest.mark.parametrize(
    "change",
    [
        {"content": [["user", "b"]]},
        {"content": [["system", "a"]]},
        {"content": [["user", "a "]]},
        {"content": [["user", "a"], ["user", ""]]},
        {"content": [["user", "\ud800"]]},
        {"sample": 1},
        {"ordinal": 1},
        {"parameters": {"temperature": 0.6}},
        {"parameters": {"temperature": 0.5, "seed": 0}},
        {"parameters": {"temperature": 1}},
        {"model": {"name": "n", "revision": "1"}},
        {"model": {"name": "m", "revision": "2"}},
        {"tenant": "a"},
        {"kind": "other"},
    ],
)
def test_what_changes_a_key(change: dict[str, Any]) -> None:
    assert key_of(**change) != key_of()


@pytest.mark.parametrize(
    "change", [{"label": "other"}, {"row": 7}, {"place": "x[1]"}, {"turns": (2,)}, {"shared": b"x"}]
)
def test_where_a_call_stands_does_not_change_its_key(change: dict[str, Any]) -> None:
    assert key_of(**change) == key_of()


def test_where_a_call_stands_changes_its_key_in_the_run_unless_it_is_shared() -> None:
    one, other = asked("a", shared=None), asked("a", shared=None, place="x")
    assert one.in_run(b"row") != other.in_run(b"row")
    assert one.in_run(b"row") != one.in_run(b"other row")
    assert one.in_run(b"row") != asked("a", shared=None, turns=(1,)).in_run(b"row")
    assert asked("a").in_run(b"row") == asked("a", place="x", row=3).in_run(b"")
    assert asked("a").in_run(b"") != asked("b").in_run(b"")


def test_a_run_that_merges_nothing_shares_nothing() -> None:
    assert asked("a", asking(merge=False)).shared is None


@pytest.mark.parametrize(
    ("capabilities", "asked_name", "expected"),
    [
        (Capabilities(models=("m", "n")), "n", {"name": "n", "revision": None}),
        (Capabilities(models=("m",)), None, {"name": "m", "revision": None}),
        (Capabilities(models=("m", "n"), model="n"), None, {"name": "n", "revision": None}),
        (Capabilities(models=("m",), revision="r"), "x", {"name": "x", "revision": "r"}),
        # An engine that tells nothing of what it serves is known by its address.
        (Capabilities(), None, {"engine": "http://a", "models": []}),
        (Capabilities(models=("m", "n")), None, {"engine": "http://a", "models": ["m", "n"]}),
    ],
)
def test_which_model_answers(capabilities: Capabilities, asked_name: str | None, expected: dict[str, Any]) -> None:
    assert model_identity("http://a", capabilities, asked_name) == expected


def parameters(step: str) -> dict[str, Any]:
    import helix

    bound = helix.loads(f"workflow t(a: text)\nx = {step}\noutput x").check()
    (node,) = (node for node in every_node(bound.plan.sink) if isinstance(node, Generate))
    slots = {value.id: 0 for part in node.prompt for value in part.content}
    return Prompt(node, slots, None).parameters


PLAIN = 'llm { user "{{ a }}" }'


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ("temperature: 0.1", False),
        ("max_tokens: 5", False),
        ("top_p: 0.5", False),
        ("seed: 1", False),
        ('stop: "x"', False),
        ("coerce: on", False),
        ("attempts: 5", True),
        ('timeout: "5s"', True),
        ("reask: 0", True),
        ("sample: 3", True),
        ("on_error: null", True),
    ],
)
def test_which_options_of_a_step_are_parameters(options: str, same: bool) -> None:
    assert (parameters(PLAIN.replace("llm", f"llm({options})")) == parameters(PLAIN)) is same


def test_what_a_step_returns_is_a_parameter() -> None:
    one, other = (parameters(PLAIN.replace("llm", f"llm -> {kind}")) for kind in ("{ a: int }", "{ a: float }"))
    assert one != other != parameters(PLAIN)
