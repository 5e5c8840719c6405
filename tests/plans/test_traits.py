"""What a rule may assume of an operator."""

from __future__ import annotations

import pytest

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import Choose, Generate, Invoke, Node, Relation, Repeat, Scan, every_node
from helix.traits import Traits, reads, traits, writes

TEXT = """workflow w(a: text, b: text, n: int, items: list[text])
tool look(x: text) -> json from python "lib:look" effects read
tool save(x: text) -> json from python "lib:save" effects write
tool any(x: text) -> json from python "lib:any"
plain = llm { user "{{ a }} {{ upper(b) }}" }
sampled = llm(temperature: 0.7) { user "{{ a }}" }
seeded = llm(temperature: 0.7, seed: 3) { user "{{ a }}" }
fresh = llm(cache: off) { user "{{ a }}" }
looked = look(plain)
saved = save(a)
other = any(a)
loop = for i in items { x = llm { user "{{ i }}" }  yield x }
if n > 1 { y = save(a) } else { z = llm(temperature: 1) { user "{{ b }}" } }
repeat up to 2 { k = look(a) }
keep when n > 2
spread items as item
sort by n
limit 3
group by a { all = rows }
output a, all
"""
PLAN = bind(parse(TEXT)).plan


def node(name: str) -> Node:
    """The step of a name, or the only operator of a class."""
    for each in every_node(PLAN.sink):
        if getattr(each, "step", None) == name or type(each).__name__ == name:
            return each
    raise KeyError(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Scan", Traits()),
        ("Filter", Traits()),
        ("Unnest", Traits()),
        ("Sort", Traits(row_local=False, preserves_order=False)),
        ("Limit", Traits(row_local=False)),
        ("GroupReduce", Traits(row_local=False)),
        ("plain", Traits(is_call=True)),
        ("sampled", Traits(is_call=True, deterministic=False)),
        ("seeded", Traits(is_call=True)),
        ("fresh", Traits(is_call=True, deterministic=False)),
        ("looked", Traits(is_call=True, effects="read")),
        ("saved", Traits(is_call=True, deterministic=False, effects="write")),
        ("other", Traits(is_call=True, deterministic=False, effects="unknown")),
        ("loop", Traits(is_call=True)),
        ("Choose", Traits(is_call=True, deterministic=False, effects="write")),
        ("Repeat", Traits(is_call=True, effects="read")),
    ],
)
def test_traits(name: str, expected: Traits) -> None:
    assert traits(node(name)) == expected


def test_reads_and_writes() -> None:
    assert reads(node("plain")) == ("a", "b")
    assert reads(node("looked")) == ()
    assert reads(node("Filter")) == ("n",)
    assert reads(node("loop")) == ("items",)
    assert reads(node("Choose")) == ("n", "a", "b")
    assert writes(node("plain")) == ("plain",)
    assert writes(node("loop")) == ("loop",)
    assert writes(node("Choose")) == ("y", "z")
    assert writes(node("Repeat")) == ("k",)
    assert writes(node("Scan")) == ("a", "b", "n", "items")
    assert writes(node("Unnest")) == ("item",)
    assert writes(node("GroupReduce")) == ("a", "rows")
    assert writes(node("Limit")) == ()


def test_every_operator_that_calls_names_its_step() -> None:
    calling = [each for each in every_node(PLAN.sink) if traits(each).is_call]
    assert all(isinstance(each, Generate | Invoke | Choose | Repeat) or hasattr(each, "step") for each in calling)
    assert not any(isinstance(each, Relation | Scan) for each in calling)
