"""W5, parallel: four experts read each chunk of a meeting with a query in mind, sum up their notes, and one writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any, TypedDict

from compare.calls import Ask
from compare.data import Topic, meetings
from compare.graphs import merged
from compare.workload import Row, Workload

CHUNKS = 3
RULES = (
    " You are given a part of the transcript of a meeting and a query. Say what this part holds on the query from"
    " where you stand, and leave out all else. Name who said it, by the name in the transcript. Keep figures, dates"
    " and places as they were said. Where people disagree, say who holds what, and do not take a side. What was"
    " decided comes before what was only talked about; what was put off is named as such. Where the part holds nothing"
    " on the query, write: nothing. Write plain English in short sentences, without headings, lists or greetings. Do"
    " not guess what comes before or after the part. Do not praise and do not blame. Say nothing of yourself or of"
    " these rules."
)
EXPERTS = [
    {"name": "planner", "system": "You plan projects and look for tasks, dates and who does what." + RULES},
    {"name": "lawyer", "system": "You are a lawyer and look for duties, rights and open questions of law." + RULES},
    {"name": "treasurer", "system": "You keep the books and look for money, prices and what things will cost." + RULES},
    {
        "name": "mediator",
        "system": "You settle quarrels and look for where people agree and where they do not." + RULES,
    },
]
WRITER = "You write the minutes of meetings from experts' summaries."
NOTE_TOKENS, SUMMARY_TOKENS, MINUTES_TOKENS = 6, 10, 20
SUM_UP = "Sum up these notes."

HELIX = """
workflow parallel(chunks: list[text], query: text)

let experts = EXPERTS

model main { temperature: 0 }

panel = for expert in experts {
  notes = for chunk in chunks {
    note = llm main(max_tokens: NOTE_TOKENS) {
      system "{{ expert.system }}"
      user "{{ chunk }}\\n\\nQuery: {{ query }}"
    }
    yield note
  }
  summary = llm main(max_tokens: SUMMARY_TOKENS) {
    system "{{ expert.system }}"
    user "Query: {{ query }}\\n\\nNotes:\\n{{ notes | join("\\n") }}\\n\\nSUM_UP"
  }
  yield { notes: notes, summary: summary }
}
summaries = for each in panel { yield each.summary }
minutes = llm main(max_tokens: MINUTES_TOKENS) {
  system "WRITER"
  user "Query: {{ query }}\\n\\n{{ summaries | join("\\n") }}"
}

output panel, minutes
"""
_LIST = ", ".join(f"{{ name: {json.dumps(each['name'])}, system: {json.dumps(each['system'])} }}" for each in EXPERTS)
HELIX = HELIX.replace("EXPERTS", f"[{_LIST}]").replace("WRITER", WRITER).replace("SUM_UP", SUM_UP)
HELIX = HELIX.replace("NOTE_TOKENS", str(NOTE_TOKENS)).replace("MINUTES_TOKENS", str(MINUTES_TOKENS))
HELIX = HELIX.replace("SUMMARY_TOKENS", str(SUMMARY_TOKENS))


def note_prompt(system: str, chunk: str, query: str) -> list[tuple[str, str]]:
    """What an expert is asked of a chunk."""
    return [("system", system), ("user", f"{chunk}\n\nQuery: {query}")]


def summary_prompt(system: str, query: str, notes: list[str]) -> list[tuple[str, str]]:
    """What an expert is asked of all its notes."""
    text = "\n".join(notes)
    return [("system", system), ("user", f"Query: {query}\n\nNotes:\n{text}\n\n{SUM_UP}")]


def minutes_prompt(query: str, summaries: list[str]) -> list[tuple[str, str]]:
    """What the writer is asked."""
    text = "\n".join(summaries)
    return [("system", WRITER), ("user", f"Query: {query}\n\n{text}")]


async def program(row: Row, ask: Ask) -> dict[str, Any]:
    """One row with asyncio."""

    async def expert(number: int, system: str) -> dict[str, Any]:
        notes = await asyncio.gather(
            *(
                ask(row["id"], f"panel.{number}.notes.{n}", note_prompt(system, chunk, row["query"]), NOTE_TOKENS)
                for n, chunk in enumerate(row["chunks"])
            )
        )
        prompt = summary_prompt(system, row["query"], list(notes))
        return {
            "notes": list(notes),
            "summary": await ask(row["id"], f"panel.{number}.summary", prompt, SUMMARY_TOKENS),
        }

    panel = await asyncio.gather(*(expert(number, each["system"]) for number, each in enumerate(EXPERTS)))
    prompt = minutes_prompt(row["query"], [each["summary"] for each in panel])
    return {"panel": list(panel), "minutes": await ask(row["id"], "minutes", prompt, MINUTES_TOKENS)}


class State(TypedDict, total=False):
    """What the graph's nodes pass on."""

    id: int
    chunks: list[str]
    query: str
    notes: Annotated[dict[tuple[int, int], str], merged]
    summaries: Annotated[dict[int, str], merged]
    minutes: str


def graph(ask: Ask) -> Any:
    """One row with LangGraph: a node for each expert and chunk, a summary for each expert, the minutes after all."""
    from langgraph.graph import END, START, StateGraph

    builder = StateGraph(State)

    def note(number: int, at: int) -> Any:
        async def node(state: State) -> State:
            prompt = note_prompt(EXPERTS[number]["system"], state["chunks"][at], state["query"])
            return {"notes": {(number, at): await ask(state["id"], f"panel.{number}.notes.{at}", prompt, NOTE_TOKENS)}}

        return node

    def summarise(number: int) -> Any:
        async def node(state: State) -> State:
            notes = [state["notes"][number, at] for at in range(CHUNKS)]
            prompt = summary_prompt(EXPERTS[number]["system"], state["query"], notes)
            return {"summaries": {number: await ask(state["id"], f"panel.{number}.summary", prompt, SUMMARY_TOKENS)}}

        return node

    async def write(state: State) -> State:
        prompt = minutes_prompt(state["query"], [state["summaries"][number] for number in range(len(EXPERTS))])
        return {"minutes": await ask(state["id"], "minutes", prompt, MINUTES_TOKENS)}

    for number in range(len(EXPERTS)):
        builder.add_node(f"summary_{number}", summarise(number))
        for at in range(CHUNKS):
            builder.add_node(f"note_{number}_{at}", note(number, at))
            builder.add_edge(START, f"note_{number}_{at}")
        builder.add_edge([f"note_{number}_{at}" for at in range(CHUNKS)], f"summary_{number}")
    builder.add_node("write", write)
    builder.add_edge([f"summary_{number}" for number in range(len(EXPERTS))], "write")
    builder.add_edge("write", END)
    return builder.compile()


def topics(folder: Path) -> list[Topic]:
    """Meetings in chunks."""
    return meetings(folder, CHUNKS)


def row(topic: Topic, question: str) -> Row:
    """A row of the table."""
    return {"chunks": list(topic.parts), "query": question}


W5 = Workload(
    name="W5",
    title="parallel",
    helix=HELIX,
    program=program,
    graph=graph,
    topics=topics,
    row=row,
    sizes={"ample": (3, 4), "pressure": (10, 6), "redundant": (3, 4)},
    tight=6144,
)
