"""Traces as files: what is written is read again, and what is no event is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.errors import InputError
from helix.traces import EFFECTS, Effects, LlmEvent, ToolEvent, read_events, sessions_of, write_events
from helix.traces.events import STATUSES
from helix.traces.files import MOST_LINE, event_json

TOOL = ToolEvent(session="s", id="0.0", step=0, tool="find", args={"b": 1, "a": [None, 1.5]}, result={"x": "y"})
LLM = LlmEvent(session="s", id="0", step=0, user=("hello",), text="one moment", calls=("0.0",), start=0.0, end=1.5)

texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
times = st.none() | st.floats(min_value=0, max_value=1e6).map(abs)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
effects = st.builds(
    Effects,
    cls=st.sampled_from(EFFECTS),
    reads=st.lists(names, max_size=2).map(tuple),
    writes=st.lists(names, max_size=2).map(tuple),
    epochs=st.dictionaries(names, st.integers(0, 9), max_size=2),
)
shared: dict[str, Any] = {
    "session": names,
    "group": texts,
    "step": st.integers(0, 9),
    "status": st.sampled_from(STATUSES),
    "start": st.none(),
    "end": times,
}
events = st.builds(
    LlmEvent,
    id=names,
    user=st.lists(texts, max_size=2).map(tuple),
    text=st.none() | texts,
    calls=st.lists(names, max_size=2).map(tuple),
    **shared,
) | st.builds(
    ToolEvent,
    id=names,
    tool=names,
    args=st.dictionaries(texts, values, max_size=3),
    result=values,
    effects=effects,
    **shared,
)


def written(path: Path, *lines: Any) -> Path:
    """A file of these lines; what is no text is written as JSON."""
    data = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    path.write_bytes(data.encode("utf-8", "surrogatepass"))
    return path


def changed(event: Any, **fields: Any) -> dict[str, Any]:
    """An event as JSON with other fields; None takes one away."""
    held = {**event_json(event), **fields}
    return {name: value for name, value in held.items() if value != "-"}


@given(st.lists(events, max_size=4, unique_by=lambda event: (event.session, event.id)))
def test_what_is_written_is_read_again(tmp_path_factory, held):
    path = tmp_path_factory.mktemp("t") / "a.jsonl"
    assert write_events(path, held) == len(held)
    assert read_events(path) == held
    assert [each.name for each in path.parent.iterdir()] == ["a.jsonl"]


def test_a_byte_order_mark_and_blank_lines_are_no_event(tmp_path):
    path = written(tmp_path / "t.jsonl", "\ufeff" + json.dumps(event_json(LLM)), "", event_json(TOOL))
    assert read_events(path) == [LLM, TOOL]


WRONG = [
    ("{", "not JSON"),
    ("[1]", "an event is a JSON object, found [1]"),
    ('{"v": 1, "v": 1}', "`v` stands twice"),
    (changed(LLM, v="-"), "this line has none"),
    (changed(LLM, v=2), "version 2 of the trace format is not known; this Helix reads version 1"),
    (changed(LLM, v=True), "version true"),
    (changed(LLM, kind="model"), "`kind` is one of `llm`, `tool`, found \"model\""),
    (changed(LLM, kind=["llm"]), "`kind` is one of"),
    (changed(LLM, step=-1), "`step` is a whole number from 0 on, found -1"),
    (changed(LLM, step=True), "`step` is a whole number"),
    (changed(LLM, step=1.0), "`step` is a whole number"),
    (changed(LLM, step=2**60), "`step` is a whole number"),
    (changed(LLM, session="-"), "has `session`"),
    (changed(LLM, session=""), "found an empty one"),
    (changed(LLM, session=7), "`session` is a text, found 7"),
    (changed(LLM, usr=[]), "no field `usr`; did you mean `user`?"),
    (changed(LLM, user="hello"), "`user` is a list of texts"),
    (changed(LLM, calls=[1]), "`calls` is a list of texts"),
    (changed(LLM, text=1), "`text` is a text or null"),
    (changed(LLM, start=2.0), "`end` (1.5) is before `start` (2)"),
    (changed(LLM, start=-1), "`start` is seconds from the start"),
    (changed(LLM, status="good"), "`status` is one of"),
    (json.dumps(event_json(LLM)).replace("1.5", "NaN"), "NaN is not JSON"),
    (json.dumps(event_json(LLM)).replace("1.5", "1e999"), "a number is too large"),
    (changed(TOOL, args=[]), "`args` is a JSON object, found []"),
    (changed(TOOL, args="-"), "has `args`"),
    (changed(TOOL, tool=""), "`tool` is a name"),
    (changed(TOOL, effects={"class": "harmless"}), "`class` is one of `pure`"),
    (changed(TOOL, effects={"writs": []}), "`effects` has no field `writs`; did you mean `writes`?"),
    (changed(TOOL, effects={"epochs": {"db": -1}}), "`epochs.db` is a whole number"),
    (changed(TOOL, effects={"epochs": []}), "`epochs` is a JSON object"),
    (changed(TOOL, effects=7), "`effects` is a JSON object"),
    (json.dumps(changed(TOOL)).replace('{"x": "y"}', "[" * 2000 + "]" * 2000), "nested deeper than 100 levels"),
    (json.dumps(changed(TOOL)).replace('{"x": "y"}', "[" * 200000), "nested deeper than 100 levels"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_event_is_refused_with_its_line(tmp_path, line, message):
    path = written(tmp_path / "t.jsonl", event_json(TOOL), "", line)
    with pytest.raises(InputError) as caught:
        read_events(path)
    told = caught.value.render()
    assert message in told
    assert f"{path}:3" in told


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"v": 1, "session": "\xff"}\n')
    with pytest.raises(InputError, match="not UTF-8 at byte"):
        read_events(path)


def test_an_endless_line_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "t.jsonl"
    with path.open("wb") as file:
        file.truncate(MOST_LINE + 10)
    with pytest.raises(InputError, match="longer than 64 MiB"):
        read_events(path)


def test_two_events_of_one_name_are_refused(tmp_path):
    path = written(tmp_path / "t.jsonl", event_json(LLM), event_json(TOOL), event_json(LLM))
    with pytest.raises(InputError, match="two events with id `0`; the first is in line 1"):
        read_events(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_events(tmp_path / "none.jsonl")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_events(tmp_path / "none" / "t.jsonl", [LLM])

    def broken():
        yield LLM
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        write_events(tmp_path / "t.jsonl", broken())
    assert list(tmp_path.iterdir()) == []


def test_sessions_stand_in_the_order_of_decisions():
    first = LlmEvent(session="s", id="0", step=0, calls=("b", "a"), group="g")
    second = LlmEvent(session="s", id="1", step=1)
    calls = [ToolEvent(session="s", id=id, step=0, tool=id, args={}) for id in ("a", "b", "plan.0")]
    other = LlmEvent(session="t", id="0", step=0)
    # Written as they end: calls in any order, and before what issued them.
    found = sessions_of([calls[0], second, calls[2], other, calls[1], first])
    assert [session.id for session in found] == ["s", "t"]
    assert [event.id for event in found[0].events] == ["0", "b", "a", "plan.0", "1"]
    assert (found[0].group, found[1].group) == ("g", "t")
    assert (found[0].decisions, len(found[0].calls)) == (2, 3)


def test_a_decision_that_failed_is_none():
    held = [LlmEvent(session="s", id="0", step=0, status="error"), LlmEvent(session="s", id="1", step=1)]
    assert sessions_of(held)[0].decisions == 1
