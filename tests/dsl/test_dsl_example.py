"""The example of the language, written in Python: its tree is that of the text, and `fmt` prints it as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import helix.dsl as hx
from helix.grammar.bind import bind
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse

main = hx.model("SmolLM2-135M-Instruct", temperature=0, max_tokens=128)


@hx.tool(effects="read", cost="300ms")
def orders(customer: str) -> list[dict]:
    return [{"customer": customer, "total": 3}]


@dataclass
class Review:
    ok: bool
    note: str


@hx.workflow
def support(ticket: str, policy: str, customer: str | None = None, urgent: bool = False):
    tone = hx.let("plain")
    category = main(
        system=f"You sort support tickets by this policy. Be {tone}.\n{policy}",
        user=ticket,
        returns=Literal["billing", "bug", "other"],
    )
    history = orders(customer).when(category == "billing")

    def opinion(role):
        view = main(system=f"You are a {role}. {policy}", user=ticket)
        return view

    opinions = hx.map(opinion, ["lawyer", "engineer", "support lead"])
    text = hx.join(opinions, "\n")
    drafts = main(user=text, temperature=0.9, sample=4, cache=False)
    answer = hx.choose(
        category == "bug",
        then=lambda: main(user=f"Ask for a log: {ticket}"),
        otherwise=lambda: main(user=f"Answer: {drafts[0]} {hx.default(history, 'none', True)}"),
    )

    @hx.repeat(up_to=3, until=lambda now: now.review.ok, reply=answer)
    def done(reply):
        review = main(user=f"Judge: {reply}", returns=Review)
        return {"review": review, "reply": main(user=f"Improve {reply} by {review.note}")}

    return hx.output(ticket, category, reply=done.reply, note=done.review.note)


TEXT = '''
workflow support(ticket: text, policy: text, customer: text?, urgent: bool = false)

let tone = "plain"

model main {
  name: "SmolLM2-135M-Instruct"
  temperature: 0
  max_tokens: 128
}

tool orders(customer: text) -> table from python "MODULE:orders" effects read, cost 300ms

category = llm main -> choice["billing", "bug", "other"] {
  system """
    You sort support tickets by this policy. Be {{ tone }}.
    {{ policy }}
  """
  user "{{ ticket }}"
}

history = orders(customer) when category == "billing"

opinions = for role in ["lawyer", "engineer", "support lead"] {
  view = llm main {
    system "You are a {{ role }}. {{ policy }}"
    user   "{{ ticket }}"
  }
  yield view
}

drafts = llm main(temperature: 0.9, sample: 4, cache: off) { user "{{ opinions | join("\\n") }}" }

if category == "bug" {
  reply = llm main { user "Ask for a log: {{ ticket }}" }
} else {
  reply = llm main { user "Answer: {{ drafts[0] }} {{ history | default("none", true) }}" }
}

repeat up to 3 until review.ok {
  review = llm main -> { ok: bool, note: text } { user "Judge: {{ reply }}" }
  reply  = llm main { user "Improve {{ reply }} by {{ review.note }}" }
}

output ticket, category, reply, review.note as note
'''.replace("MODULE", __name__)


def test_the_tree_is_that_of_the_text():
    assert support.syntax == parse(TEXT)


def test_it_prints_as_text_that_reads_back_as_the_same_tree():
    printed = format_workflow(support.syntax)
    assert parse(printed) == support.syntax
    assert format_workflow(parse(printed)) == printed


def test_it_binds_to_the_plan_of_the_text():
    assert bind(support.syntax).plan == bind(parse(TEXT)).plan


def test_its_tool_is_at_hand():
    assert support.callables["orders"]("Ann") == [{"customer": "Ann", "total": 3}]
    assert orders("Ann") == [{"customer": "Ann", "total": 3}]
