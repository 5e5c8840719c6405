"""W2, debate: three speakers answer a question about a report, then each again, having heard all."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, TypedDict

from compare.calls import Ask
from compare.data import Topic, reports
from compare.graphs import merged
from compare.workload import Row, Workload

SYSTEM = "You debate annual reports. Be brief."
SPEAKERS = [
    "You are careful and doubt every figure. What is the answer?",
    "You are bold and trust the management. What is the answer?",
    "You are fair and weigh both sides. What is the answer?",
]
TOKENS = 6
AGAIN = "Having heard this, what is your answer now?"

HELIX = '''
workflow debate(report: text, question: text)

let speakers = SPEAKERS

model main { temperature: 0, max_tokens: TOKENS }

first = for speaker in speakers {
  said = llm main {
    system "SYSTEM"
    user "{{ report }}\\n\\nQuestion: {{ question }}\\n\\n{{ speaker }}"
  }
  yield said
}
second = for speaker in speakers {
  said = llm main {
    system "SYSTEM"
    user """
      {{ report }}

      Question: {{ question }}

      {{ speaker }}

      Said so far:
      {{ first | join("\\n") }}

      AGAIN
    """
  }
  yield said
}

output first, second
'''
HELIX = HELIX.replace("SPEAKERS", json.dumps(SPEAKERS)).replace("SYSTEM", SYSTEM)
HELIX = HELIX.replace("TOKENS", str(TOKENS)).replace("AGAIN", AGAIN)


def first_prompt(report: str, question: str, speaker: str) -> list[tuple[str, str]]:
    """What a speaker is asked in the first round."""
    return [("system", SYSTEM), ("user", f"{report}\n\nQuestion: {question}\n\n{speaker}")]


def second_prompt(report: str, question: str, speaker: str, said: list[str]) -> list[tuple[str, str]]:
    """What a speaker is asked in the second round."""
    heard = "\n".join(said)
    text = f"{report}\n\nQuestion: {question}\n\n{speaker}\n\nSaid so far:\n{heard}\n\n{AGAIN}"
    return [("system", SYSTEM), ("user", text)]


async def program(row: Row, ask: Ask) -> dict[str, Any]:
    """One row with asyncio."""
    report, question, speakers = row["report"], row["question"], list(enumerate(SPEAKERS))
    first = await asyncio.gather(
        *(ask(row["id"], f"first.{n}", first_prompt(report, question, speaker), TOKENS) for n, speaker in speakers)
    )
    second = await asyncio.gather(
        *(
            ask(row["id"], f"second.{n}", second_prompt(report, question, speaker, list(first)), TOKENS)
            for n, speaker in speakers
        )
    )
    return {"first": list(first), "second": list(second)}


class State(TypedDict, total=False):
    """What the graph's nodes pass on."""

    id: int
    report: str
    question: str
    first: Annotated[dict[int, str], merged]
    second: Annotated[dict[int, str], merged]


def graph(ask: Ask) -> Any:
    """One row with LangGraph: the speakers of a round side by side, the second after the whole first."""
    from langgraph.graph import END, START, StateGraph

    builder = StateGraph(State)
    numbers = range(len(SPEAKERS))

    def opening(number: int) -> Any:
        async def node(state: State) -> State:
            prompt = first_prompt(state["report"], state["question"], SPEAKERS[number])
            return {"first": {number: await ask(state["id"], f"first.{number}", prompt, TOKENS)}}

        return node

    def closing(number: int) -> Any:
        async def node(state: State) -> State:
            said = [state["first"][each] for each in numbers]
            prompt = second_prompt(state["report"], state["question"], SPEAKERS[number], said)
            return {"second": {number: await ask(state["id"], f"second.{number}", prompt, TOKENS)}}

        return node

    for number in numbers:
        builder.add_node(f"first_{number}", opening(number))
        builder.add_node(f"second_{number}", closing(number))
        builder.add_edge(START, f"first_{number}")
        builder.add_edge(f"second_{number}", END)
    for number in numbers:
        builder.add_edge([f"first_{each}" for each in numbers], f"second_{number}")
    return builder.compile()


def row(topic: Topic, question: str) -> Row:
    """A row of the table."""
    return {"report": topic.parts[0], "question": question}


W2 = Workload(
    name="W2",
    title="debate",
    helix=HELIX,
    program=program,
    graph=graph,
    topics=reports,
    row=row,
    sizes={"ample": (9, 4), "pressure": (24, 6), "redundant": (9, 4)},
)
