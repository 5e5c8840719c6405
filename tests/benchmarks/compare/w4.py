"""W4, iterative: reviews in six batches are summed up one batch after the other, by one aspect each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from compare.calls import Ask
from compare.data import Topic, reviews
from compare.workload import Row, Workload

SYSTEM = "You sum up what customers say. One sentence."
BATCHES, BATCH = 6, 2
TOKENS = 8
NOTHING = "nothing yet"

HELIX = """
workflow iterative(batches: list[text], aspect: text)

model main { temperature: 0, max_tokens: TOKENS }

s0 = "NOTHING"
STEPS
output NAMES
"""
_STEP = '''
s{new} = llm main {{
  system "{system}"
  user """
    {{{{ batches[{old}] }}}}

    So far, on {{{{ aspect }}}}: {{{{ s{old} }}}}

    What do they say on {{{{ aspect }}}}?
  """
}}
'''
_STEPS = "".join(_STEP.format(new=number + 1, old=number, system=SYSTEM) for number in range(BATCHES))
HELIX = HELIX.replace("TOKENS", str(TOKENS)).replace("NOTHING", NOTHING).replace("STEPS", _STEPS)
HELIX = HELIX.replace("NAMES", ", ".join(f"s{number + 1}" for number in range(BATCHES)))


def prompt(batch: str, aspect: str, so_far: str) -> list[tuple[str, str]]:
    """What is asked of a batch."""
    text = f"{batch}\n\nSo far, on {aspect}: {so_far}\n\nWhat do they say on {aspect}?"
    return [("system", SYSTEM), ("user", text)]


async def program(row: Row, ask: Ask) -> dict[str, Any]:
    """One row with asyncio."""
    found: dict[str, Any] = {}
    summary = NOTHING
    for number, batch in enumerate(row["batches"]):
        step = f"s{number + 1}"
        summary = found[step] = await ask(row["id"], step, prompt(batch, row["aspect"], summary), TOKENS)
    return found


class State(TypedDict, total=False):
    """What the graph's nodes pass on."""

    id: int
    batches: list[str]
    aspect: str
    s1: str
    s2: str
    s3: str
    s4: str
    s5: str
    s6: str


def graph(ask: Ask) -> Any:
    """One row with LangGraph: a node for each batch, in a line."""
    from langgraph.graph import END, START, StateGraph

    def step(number: int) -> Any:
        async def node(state: Any) -> Any:
            summary = state[f"s{number}"] if number else NOTHING
            name = f"s{number + 1}"
            return {
                name: await ask(state["id"], name, prompt(state["batches"][number], state["aspect"], summary), TOKENS)
            }

        return node

    builder = StateGraph(State)
    before = START
    for number in range(BATCHES):
        builder.add_node(f"batch_{number}", step(number))
        builder.add_edge(before, f"batch_{number}")
        before = f"batch_{number}"
    builder.add_edge(before, END)
    return builder.compile()


def topics(folder: Path) -> list[Topic]:
    """Reviews in batches."""
    return reviews(folder, BATCHES, BATCH)


def row(topic: Topic, question: str) -> Row:
    """A row of the table."""
    return {"batches": list(topic.parts), "aspect": question}


W4 = Workload(
    name="W4",
    title="iterative",
    helix=HELIX,
    program=program,
    graph=graph,
    topics=topics,
    row=row,
    sizes={"ample": (5, 7), "pressure": (20, 6), "redundant": (5, 7)},
    tight=8192,
)
