"""Whatever a model says, an agent ends within its limits, and its prompt only grows."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from agents_support import TOOLS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import run

import helix
from helix.executor.engines.base import Reply, Request, ToolUse
from helix.types import INT, Choice, Optional, Record, mismatch

TURNS = 4
RETURNS = Record((("n", INT), ("kind", Optional(Choice(("a", "b"))))))
WORKFLOW = f"""workflow w(ticket: text)
tool orders(customer: text) -> json from python "shop:orders" effects read
tool long(size: int) -> text from python "shop:long" effects pure
answer = agent -> {RETURNS} {{ tools [orders, long] max_turns {TURNS} user "{{{{ ticket }}}}" }}
output answer
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(("orders", "long", "oders", "", "answer"))
ARGS = st.fixed_dictionaries({"customer": st.text(max_size=5)}) | st.fixed_dictionaries({"size": JSON}) | JSON
CALL = st.fixed_dictionaries({"tool": NAMES, "args": ARGS})
ANSWER = st.fixed_dictionaries({"n": st.integers(0, 3) | JSON, "kind": st.sampled_from(("a", "b", "c", None))})
SAID = (
    CALL.map(json.dumps)
    | st.fixed_dictionaries({"calls": st.lists(CALL, max_size=3)}).map(json.dumps)
    | st.fixed_dictionaries({"answer": ANSWER | JSON}).map(json.dumps)
    | JSON.map(json.dumps)
    | st.text(max_size=20)
)
USES = st.lists(
    st.builds(ToolUse, id=st.text(max_size=3), name=NAMES, arguments=ARGS.map(json.dumps) | st.text(max_size=8)),
    max_size=3,
).map(tuple)
REPLY = st.builds(
    Reply, text=SAID, calls=USES | st.just(()), finish=st.sampled_from(("stop", "stop", "tool", "length"))
)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(TOOLS)
    return helix.loads(WORKFLOW, folder=folder)


@pytest.mark.parametrize("native", [False, True], ids=["schema", "native"])
@given(said=st.lists(REPLY, min_size=1, max_size=TURNS))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_replies_come_to_an_end(subject: Any, native: bool, said: list[Reply]) -> None:
    asked: dict[int, list[Request]] = defaultdict(list)

    def reply(request: Request) -> Reply:
        asked[request.row].append(request)
        return said[(len(asked[request.row]) - 1) % len(said)]

    rows = [{"ticket": "one"}]
    ran = run(subject, rows, reply=reply, settings={"tool_calls": native})
    (requests,) = asked.values()
    assert len(requests) <= TURNS
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages
        assert len(after.messages) > len(before.messages)
    (row,) = ran.rows
    if row["_error"] is None:
        assert mismatch(row["answer"], RETURNS) is None
    else:
        assert row["_error"]["kind"] in ("schema", "empty", "truncated", "limit")
        assert row["_error"]["attempts"] == len(requests)
    # The same replies in the same places give the same dialogue.
    first = [request.messages for request in requests]
    asked.clear()
    again = run(subject, rows, reply=reply, settings={"tool_calls": native})
    assert again.rows == ran.rows
    assert [request.messages for request in asked[0]] == first
