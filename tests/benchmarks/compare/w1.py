"""W1, map and reduce: seven experts answer a question about a report, one sums up."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, TypedDict

from compare.calls import Ask
from compare.data import Topic, reports
from compare.graphs import merged
from compare.workload import Row, Workload

SYSTEM = "You read annual reports and answer briefly."
ROLES = [
    "As an accountant, give the figure asked for.",
    "As an auditor, say what the report leaves open.",
    "As an investor, say if the answer is good news.",
    "As a lawyer, name the words that matter.",
    "As a banker, name the main risk.",
    "As a journalist, write a headline.",
    "As a teacher, explain it to a pupil.",
]
EXPERT_TOKENS, SUMMARY_TOKENS = 4, 8
SUM_UP = "Answer the question from these opinions."

HELIX = """
workflow map_reduce(report: text, question: text)

let roles = ROLES

model main { temperature: 0 }

views = for role in roles {
  view = llm main(max_tokens: EXPERT_TOKENS) {
    system "SYSTEM"
    user "{{ report }}\\n\\nQuestion: {{ question }}\\n\\n{{ role }}"
  }
  yield view
}
summary = llm main(max_tokens: SUMMARY_TOKENS) {
  system "SYSTEM"
  user "Question: {{ question }}\\n\\nOpinions:\\n{{ views | join("\\n") }}\\n\\nSUM_UP"
}

output views, summary
"""
HELIX = HELIX.replace("ROLES", json.dumps(ROLES)).replace("SYSTEM", SYSTEM).replace("SUM_UP", SUM_UP)
HELIX = HELIX.replace("EXPERT_TOKENS", str(EXPERT_TOKENS)).replace("SUMMARY_TOKENS", str(SUMMARY_TOKENS))


def expert_prompt(report: str, question: str, role: str) -> list[tuple[str, str]]:
    """What an expert is asked."""
    return [("system", SYSTEM), ("user", f"{report}\n\nQuestion: {question}\n\n{role}")]


def summary_prompt(question: str, views: list[str]) -> list[tuple[str, str]]:
    """What the one who sums up is asked."""
    opinions = "\n".join(views)
    return [("system", SYSTEM), ("user", f"Question: {question}\n\nOpinions:\n{opinions}\n\n{SUM_UP}")]


async def program(row: Row, ask: Ask) -> dict[str, Any]:
    """One row with asyncio."""
    report, question = row["report"], row["question"]
    views = await asyncio.gather(
        *(
            ask(row["id"], f"views.{number}", expert_prompt(report, question, role), EXPERT_TOKENS)
            for number, role in enumerate(ROLES)
        )
    )
    summary = await ask(row["id"], "summary", summary_prompt(question, list(views)), SUMMARY_TOKENS)
    return {"views": list(views), "summary": summary}


class State(TypedDict, total=False):
    """What the graph's nodes pass on."""

    id: int
    report: str
    question: str
    views: Annotated[dict[int, str], merged]
    summary: str


def graph(ask: Ask) -> Any:
    """One row with LangGraph: a node for each expert, side by side, and one that waits for all."""
    from langgraph.graph import END, START, StateGraph

    builder = StateGraph(State)

    def expert(number: int) -> Any:
        async def node(state: State) -> State:
            prompt = expert_prompt(state["report"], state["question"], ROLES[number])
            return {"views": {number: await ask(state["id"], f"views.{number}", prompt, EXPERT_TOKENS)}}

        return node

    async def summarise(state: State) -> State:
        views = [state["views"][number] for number in range(len(ROLES))]
        return {"summary": await ask(state["id"], "summary", summary_prompt(state["question"], views), SUMMARY_TOKENS)}

    experts = [f"expert_{number}" for number in range(len(ROLES))]
    for number, name in enumerate(experts):
        builder.add_node(name, expert(number))
        builder.add_edge(START, name)
    builder.add_node("summarise", summarise)
    builder.add_edge(experts, "summarise")
    builder.add_edge("summarise", END)
    return builder.compile()


def row(topic: Topic, question: str) -> Row:
    """A row of the table."""
    return {"report": topic.parts[0], "question": question}


W1 = Workload(
    name="W1",
    title="map and reduce",
    helix=HELIX,
    program=program,
    graph=graph,
    topics=reports,
    row=row,
    sizes={"ample": (8, 3), "pressure": (24, 6), "redundant": (8, 3)},
)
