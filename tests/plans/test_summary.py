"""What is read off a plan before it runs: calls, the longest chain, equal steps; and plans as graphs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.graph import dominators, graph_of, longest_chain, needs, order, readers
from helix.logical import Body, Generate, LogicalPlan, Map, Node, every_node, topological
from helix.summary import Calls, plan_summary, summarize


def plan_of(text: str) -> LogicalPlan:
    """The plan of a workflow over `a: text, n: int, items: list[text]`."""
    return bind(parse(f"workflow w(a: text, n: int, items: list[text])\n{text}\n")).plan


def step(plan: LogicalPlan, name: str) -> Node:
    """The operator of a step."""
    return next(node for node in every_node(plan.sink) if getattr(node, "step", None) == name)


TRIAGE = """
model main { name: "m" }
tool find(key: text) -> json from python "lib:find" effects read
tool save(key: text) -> json from python "lib:save" effects write
kind = llm main -> choice["x", "y"] { user "{{ a }}" }
found = find(a) when kind == "x"
drafts = llm main(sample: 4, temperature: 0.9) { user "{{ found }}" }
views = for role in ["p", "q", "r"] { view = llm { user "{{ role }} {{ drafts }}" }  yield view }
repeat up to 3 until ok {
  ok = llm main -> bool { user "Good? {{ views }}" }
  better = llm main { user "{{ ok }}" }
}
saved = save(better)
output kind, better
"""


def test_the_summary_of_a_plan_as_text() -> None:
    expected = """\
operators: 1 Apply, 1 Choose, 2 Const, 5 Generate, 2 Invoke, 1 Map, 7 Project, 5 Render, 1 Repeat, 1 Scan, 1 Sink
calls per row: 11 to 16
longest chain of calls: 11: kind, found, drafts, views.view, 3 x (ok, better), saved
model: m: kind, drafts, views.view, ok, better
tool: find (read): found
tool: save (write): saved
equal calls are made once: kind, found, views.view, ok, better
"""
    assert plan_summary(plan_of(TRIAGE)) == expected


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("output a", "0"),
        ('b = llm { user "{{ a }}" }\noutput b', "1"),
        ('b = llm(sample: 3, temperature: 1) { user "{{ a }}" }\noutput b', "3"),
        ('b = llm { user "{{ a }}" } when n > 1\noutput b', "0 to 1"),
        ('if n > 1 { b = llm { user "x" } } else { b = llm { user "y" } }\noutput b', "1"),
        (
            'if n > 1 { b = llm { user "x" }\nc = llm { user "{{ b }}" } } else { b = llm { user "y" } }\noutput b',
            "1 to 2",
        ),
        ('b = for i in [1, 2, 3] { c = llm { user "{{ i }}" }  yield c }\noutput b', "3"),
        ('b = for i in [a, "x"] { c = llm { user "{{ i }}" }  yield c }\noutput b', "2"),
        ('b = for i in items { c = llm { user "{{ i }}" }  yield c }\noutput b', "0 or more"),
        ("b = for i in items { yield i }\noutput b", "0"),
        ('repeat up to 4 { b = llm { user "{{ a }}" } }\noutput b', "4"),
        ('repeat up to 4 until b == "" { b = llm { user "{{ a }}" } }\noutput b', "1 to 4"),
        ('keep when n > 1\nb = llm { user "{{ a }}" }\noutput b', "0 to 1"),
        ('b = llm { user "{{ a }}" }\nkeep when n > 1\noutput b', "1"),
        ('b = llm { user "{{ a }}" }\nspread items as i\nc = llm { user "{{ i }}" }\noutput b, c', "1 or more"),
        ('group by a { b = llm { user "{{ rows }}" } }\noutput b', "0 to 1"),
        (
            'b = for i in [1, 2] { repeat up to 3 { c = llm { user "{{ i }}" } }  yield c } when n > 1\noutput b',
            "0 to 6",
        ),
    ],
)
def test_calls_for_one_row(text: str, calls: str) -> None:
    assert str(summarize(plan_of(text)).calls) == calls


def test_calls_add_and_multiply() -> None:
    many, two = Calls(low=1, high=None), Calls(low=2, high=2)
    assert two.plus(many) == Calls(low=3, high=None)
    assert two.times(many) == Calls(low=2, high=None)
    assert many.times(Calls()) == Calls()


@pytest.mark.parametrize(
    ("text", "calls", "steps"),
    [
        ("output a", 0, ()),
        ('b = llm { user "{{ a }}" }\nc = llm { user "{{ a }}{{ a }}" }\noutput b, c', 1, ("b",)),
        ('b = llm { user "{{ a }}" }\nc = llm { user "{{ b }}" }\noutput b, c', 2, ("b", "c")),
        ('b = for i in items { c = llm { user "{{ i }}" }  yield c }\noutput b', 1, ("b.c",)),
        (
            'if n > 1 { b = llm { user "x" }\nc = llm { user "{{ b }}" } } else { d = llm { user "y" } }\noutput b',
            2,
            ("b", "c"),
        ),
        ('repeat up to 2 { b = llm { user "{{ a }}" } }\nc = llm { user "{{ b }}" }\noutput c', 3, ("2 x (b)", "c")),
        ('b = llm -> bool { user "{{ a }}" }\nkeep when b\nc = llm { user "{{ a }}" }\noutput c', 2, ("b", "c")),
    ],
)
def test_the_longest_chain_of_calls(text: str, calls: int, steps: tuple[str, ...]) -> None:
    chain = longest_chain(plan_of(text))
    assert (chain.calls, chain.steps) == (calls, steps)


EQUAL = """
b = llm { user "{{ a }}" }
c = llm { user "{{ a }}" }
d = llm { user "{{ b }}" }
e = llm { user "{{ c }}" }
f = llm(temperature: 1) { user "{{ a }}" }
g = llm(temperature: 1) { user "{{ a }}" }
h = llm(cache: off) { user "{{ a }}" }
x = for i in items {
  p = llm { user "{{ i }}" }
  q = llm { user "{{ i }}" }
  yield [p, q]
}
y = for i in [a] { r = llm { user "{{ i }}" }  yield r }
output b, c, d, e, f, g, h, x, y
"""


def test_steps_that_are_equal_but_for_their_names() -> None:
    """Sampled and uncached steps never share; steps of two loops run over different items."""
    assert summarize(plan_of(EQUAL)).equal == (("x.p", "x.q"), ("b", "c"), ("d", "e"))
    assert plan_summary(plan_of(EQUAL)).endswith("equal steps: x.p = x.q\nequal steps: b = c\nequal steps: d = e\n")


# --- graphs -------------------------------------------------------------------------------------------------------

DIAMOND = """
b = llm { user "{{ a }}" }
c = llm { user "c {{ b }}" }
d = llm { user "d {{ b }}" }
e = llm { user "{{ c }} {{ d }}" }
f = llm { user "{{ a }} alone" }
output e, f
"""


def test_the_graph_of_a_plan() -> None:
    plan = plan_of(DIAMOND)
    graph = graph_of(plan)
    nodes = topological(plan.sink)
    assert {graph.nodes[each]["node"] for each in graph} == set(nodes)
    assert set(graph.edges) == {(read.id, node.id) for node in nodes for read in node.inputs}
    assert order(graph) == nodes


def test_who_needs_whom() -> None:
    plan = plan_of(DIAMOND)
    graph = graph_of(plan)
    steps = {name: step(plan, name).id for name in "bcdef"}
    assert readers(graph, step(plan, "c")) & set(steps.values()) == {steps["e"]}
    assert needs(graph, step(plan, "e")) & set(steps.values()) == {steps["b"], steps["c"], steps["d"]}
    assert needs(graph, plan.sink) | {plan.sink.id} == set(graph)


def test_dominators() -> None:
    """What c and d read is needed for the prompt of e alone; the input is needed for the sink as a whole."""
    plan = plan_of(DIAMOND)
    nearest = dominators(graph_of(plan), plan.sink)
    prompt = nearest[step(plan, "b").id]
    assert prompt in {read.id for read in step(plan, "e").inputs}
    assert nearest[prompt] == step(plan, "e").id
    assert nearest[step(plan, "e").id] == plan.sink.id
    assert nearest[plan.scan.id] == plan.sink.id
    assert plan.sink.id not in nearest


def test_the_graph_of_a_sub_plan() -> None:
    plan = plan_of('b = for i in items { c = llm { user "{{ i }}" }  yield c }\noutput b')
    loop = step(plan, "b")
    assert isinstance(loop, Map)
    body: Body = loop.body
    graph = graph_of(body)
    assert [type(node).__name__ for node in order(graph)] == ["Parameters", "Project", "Render", "Generate"]
    assert longest_chain(body).steps == ("b.c",)
    assert isinstance(body.result("yield"), Generate)


def test_networkx_is_loaded_when_it_is_used() -> None:
    code = "import sys, helix.graph, helix.summary, helix.show; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
