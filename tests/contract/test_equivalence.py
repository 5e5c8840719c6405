"""A run means the same whatever its timing: random workflows under random delays, concurrency, merging and failures.

The plainest run, one call at a time and none merged, says what the rows are. Every other must give the same.
"""

from __future__ import annotations

import asyncio
import json
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from running import Ran, run
from wellbound import TestTool, WellBound, rows_for, wellbound

from helix.dsl import Workflow
from helix.errors import EngineError
from helix.executor import operators, spool
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.schema_value import schema_value
from helix.executor.engines.scripted import ScriptedEngine
from helix.grammar.parse import parse
from helix.types import JSON, TEXT

TOOLS = (
    TestTool(
        name="look",
        declaration='tool look(x: text) -> json from python "lib:look"   effects read',
        params=(TEXT,),
        returns=JSON,
    ),
    TestTool(
        name="put",
        declaration='tool put(x: text) -> text from python "lib:put"   effects write',
        params=(TEXT,),
        returns=TEXT,
    ),
)


def drawn(*parts: Any) -> bytes:
    """Sixteen bytes that depend on the parts and nothing else."""
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def look(x: str) -> Any:
    if drawn("look", x)[0] < 25:
        raise LookupError(x)
    return {"found": x, "size": len(x)}


def put(x: str) -> str:
    if drawn("put", x)[0] < 25:
        raise OSError(x)
    return f"put {x}"


class Varied(ScriptedEngine):
    """Replies and failures that depend on the prompt alone, after delays that depend on the seed as well."""

    def __init__(self, seed: int | None, faults: int) -> None:
        super().__init__(keep_log=False, max_context=400)
        self._seed = seed
        self._faults = faults

    async def generate(self, request: Request) -> Reply:
        self.calls += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            if self._seed is not None:
                await asyncio.sleep(drawn(self._seed, self.calls)[0] % 4 * 0.001)
            return self._reply_to(request)
        finally:
            self.in_flight -= 1

    def _reply_to(self, request: Request) -> Reply:
        digest = drawn([(m.role, m.content) for m in request.messages], request.sample, request.model, request.schema)
        if digest[0] < self._faults:
            raise EngineError(f"refused {digest.hex()[:4]}", status=400)
        if digest[1] < self._faults:
            return Reply(text="not what was asked for", prompt_tokens=1, completion_tokens=1)
        if digest[2] < self._faults // 2:
            return Reply(text="", finish="length")
        if request.schema is None:
            texts = ("red", "a, b", "", "42", f"said {digest.hex()[:2]}", '["x", {"ok": true}]')
            return Reply(text=texts[digest[3] % len(texts)])
        return Reply(text=json.dumps(schema_value(request.schema, digest)))


def workflow(subject: WellBound) -> Workflow:
    uses = {path: Workflow(syntax=parse(text, path)) for path, text in subject.modules.items()}
    return Workflow(syntax=parse(subject.text), callables={"look": look, "put": put}, uses=uses)


def ran(subject: WellBound, rows: list[dict[str, Any]], faults: int, seed: int | None, **options: Any) -> Ran:
    engine = Varied(seed, faults)
    found = run(workflow(subject), rows, engine=engine, **options)
    assert engine.in_flight == 0
    assert engine.peak_in_flight <= options["concurrency"]
    assert found.report.stopped is None
    return found


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Any:
    """Long lists and many rows begin early, so that small tables go through them too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "ACTIVE_ITEMS", 2)
        patch.setattr(spool.Spool.__init__, "__defaults__", (3,))
        yield


@given(
    st.data(),
    wellbound(tools=TOOLS),
    st.sampled_from([0, 0, 20, 60]),
    st.integers(0, 1000),
    st.sampled_from([1, 2, 3, 8, 64]),
    st.booleans(),
)
def test_rows_never_depend_on_delays_concurrency_or_merging(
    data: st.DataObject, subject: WellBound, faults: int, seed: int, concurrency: int, merge: bool
) -> None:
    rows = data.draw(rows_for(subject, max_size=6))
    rows += rows[:2]
    note(subject.text)
    plain = ran(subject, rows, faults, None, concurrency=1, merge=False)
    other = ran(subject, rows, faults, seed, concurrency=concurrency, merge=merge)
    assert other.rows == plain.rows
    assert other.report.failed_rows == plain.report.failed_rows
    assert other.engine.calls <= plain.engine.calls
    if not merge and "limit" not in subject.text:
        assert other.engine.calls == plain.engine.calls


@given(st.data(), wellbound(tools=TOOLS), st.sampled_from([0, 40]), st.integers(0, 1000), st.integers(0, 12))
def test_a_run_that_is_cut_short_ends_and_keeps_what_was_done(
    data: st.DataObject, subject: WellBound, faults: int, seed: int, budget: int
) -> None:
    rows = data.draw(rows_for(subject, max_size=6))
    note(subject.text)
    engine = Varied(seed, faults)
    found = run(workflow(subject), rows, engine=engine, concurrency=3, max_calls=budget)
    assert engine.calls <= budget
    assert engine.in_flight == 0
    if found.report.stopped is not None:
        assert found.report.stopped == f"the budget of {budget} calls is used up"
    else:
        assert found.rows == ran(subject, rows, faults, None, concurrency=1).rows
