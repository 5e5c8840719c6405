"""W3, reflection: a draft, two critics, the second of whom reads the first, and the drafter again with the history."""

from __future__ import annotations

from typing import Any, TypedDict

from compare.calls import Ask
from compare.data import Topic, reports
from compare.workload import Row, Workload

RULES = (
    " Work only from the report you are given. Quote figures as they stand there, with their units and their year."
    " Where the report gives thousands or millions, say so. Do not round, and do not add what is not asked for."
    " If the report does not hold the answer, say that it does not. Write plain English in short sentences,"
    " without headings, lists or greetings. Keep names as they are written. Say nothing of yourself."
)
DRAFTER = "You answer questions about annual reports." + RULES
FIRST_CRITIC = "You check the figures of an answer against the report it was made from." + RULES
SECOND_CRITIC = "You judge whether an answer says all that was asked, and only that." + RULES
DRAFT_TOKENS, CRITIC_TOKENS, FINAL_TOKENS = 8, 6, 8
CRITICISE, REVISE = "What is wrong with it?", "Write the answer again."

HELIX = """
workflow reflection(report: text, question: text)

model main { temperature: 0 }

draft = llm main(max_tokens: DRAFT_TOKENS) {
  system "DRAFTER"
  user "{{ report }}\\n\\nQuestion: {{ question }}"
}
first = llm main(max_tokens: CRITIC_TOKENS) {
  system "FIRST_CRITIC"
  user "{{ report }}\\n\\nQuestion: {{ question }}\\n\\nAnswer: {{ draft }}\\n\\nCRITICISE"
}
second = llm main(max_tokens: CRITIC_TOKENS) {
  system "SECOND_CRITIC"
  user "{{ report }}\\n\\nQuestion: {{ question }}\\n\\nAnswer: {{ draft }}\\n\\nCritic: {{ first }}\\n\\nCRITICISE"
}
final = llm main(max_tokens: FINAL_TOKENS) {
  system "DRAFTER"
  user "{{ report }}\\n\\nQuestion: {{ question }}"
  assistant "{{ draft }}"
  user "Critic: {{ first }}\\nCritic: {{ second }}\\n\\nREVISE"
}

output draft, first, second, final
"""
for _name in ("DRAFTER", "FIRST_CRITIC", "SECOND_CRITIC", "DRAFT_TOKENS", "CRITIC_TOKENS", "FINAL_TOKENS"):
    HELIX = HELIX.replace(f'"{_name}"', f'"{globals()[_name]}"').replace(f": {_name}", f": {globals()[_name]}")
HELIX = HELIX.replace("CRITICISE", CRITICISE).replace("REVISE", REVISE)


def draft_prompt(row: Row) -> list[tuple[str, str]]:
    """What the drafter is asked first."""
    return [("system", DRAFTER), ("user", f"{row['report']}\n\nQuestion: {row['question']}")]


def first_prompt(row: Row, draft: str) -> list[tuple[str, str]]:
    """What the first critic is asked."""
    text = f"{row['report']}\n\nQuestion: {row['question']}\n\nAnswer: {draft}\n\n{CRITICISE}"
    return [("system", FIRST_CRITIC), ("user", text)]


def second_prompt(row: Row, draft: str, first: str) -> list[tuple[str, str]]:
    """What the second critic is asked."""
    text = f"{row['report']}\n\nQuestion: {row['question']}\n\nAnswer: {draft}\n\nCritic: {first}\n\n{CRITICISE}"
    return [("system", SECOND_CRITIC), ("user", text)]


def final_prompt(row: Row, draft: str, first: str, second: str) -> list[tuple[str, str]]:
    """What the drafter is asked in the end, after its own draft."""
    return [*draft_prompt(row), ("assistant", draft), ("user", f"Critic: {first}\nCritic: {second}\n\n{REVISE}")]


async def program(row: Row, ask: Ask) -> dict[str, Any]:
    """One row with asyncio."""
    draft = await ask(row["id"], "draft", draft_prompt(row), DRAFT_TOKENS)
    first = await ask(row["id"], "first", first_prompt(row, draft), CRITIC_TOKENS)
    second = await ask(row["id"], "second", second_prompt(row, draft, first), CRITIC_TOKENS)
    final = await ask(row["id"], "final", final_prompt(row, draft, first, second), FINAL_TOKENS)
    return {"draft": draft, "first": first, "second": second, "final": final}


class State(TypedDict, total=False):
    """What the graph's nodes pass on."""

    id: int
    report: str
    question: str
    draft: str
    first: str
    second: str
    final: str


def graph(ask: Ask) -> Any:
    """One row with LangGraph: four nodes in a line."""
    from langgraph.graph import END, START, StateGraph

    async def write(state: State) -> State:
        return {"draft": await ask(state["id"], "draft", draft_prompt(dict(state)), DRAFT_TOKENS)}

    async def check(state: State) -> State:
        prompt = first_prompt(dict(state), state["draft"])
        return {"first": await ask(state["id"], "first", prompt, CRITIC_TOKENS)}

    async def judge(state: State) -> State:
        prompt = second_prompt(dict(state), state["draft"], state["first"])
        return {"second": await ask(state["id"], "second", prompt, CRITIC_TOKENS)}

    async def revise(state: State) -> State:
        prompt = final_prompt(dict(state), state["draft"], state["first"], state["second"])
        return {"final": await ask(state["id"], "final", prompt, FINAL_TOKENS)}

    builder = StateGraph(State)
    builder.add_node("write", write)
    builder.add_node("check", check)
    builder.add_node("judge", judge)
    builder.add_node("revise", revise)
    builder.add_edge(START, "write")
    builder.add_edge("write", "check")
    builder.add_edge("check", "judge")
    builder.add_edge("judge", "revise")
    builder.add_edge("revise", END)
    return builder.compile()


def row(topic: Topic, question: str) -> Row:
    """A row of the table."""
    return {"report": topic.parts[0], "question": question}


W3 = Workload(
    name="W3",
    title="reflection",
    helix=HELIX,
    program=program,
    graph=graph,
    topics=reports,
    row=row,
    sizes={"ample": (8, 6), "pressure": (24, 6), "redundant": (8, 6)},
    tight=8192,
)
