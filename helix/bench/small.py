"""Cases small enough for the exact optimum: 2 to 4 llm steps over 2 to 4 rows, shaped like W1 to W5.

Each is a workflow with a table, whose lengths are drawn around those of the benchmark's workloads: a token is a
character. It is planned like any other, and its calls are bound like those of any table, so that the orders that are
compared come from the schedulers themselves. Of replies only the mean length of their step is known, as a planner knows
it.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import Generate, LogicalPlan
from helix.optimizer.driver import optimize
from helix.optimizer.lengths import Lengths
from helix.optimizer.lowering.few import FewCalls
from helix.optimizer.lowering.recurrence import Call
from helix.optimizer.rule import RuleContext
from helix.optimizer.sizes import estimate_sizes
from helix.optimizer.stats import table_stats
from helix.optimizer.tokens import Tokenizer, from_ids
from helix.optimizer.tree import build_tree, resolve_plan
from helix.optimizer.tree.bind import Binder
from helix.optimizer.tree.trie import Paths

# The tokens that a worker holds in all cases (Helium, arXiv 2603.16104).
CAPACITY = 8192
# More calls than that are not drawn: beyond, the optimum is out of reach.
MOST_CALLS = 12
_LETTERS = string.ascii_lowercase + "      "
CHARACTERS: Tokenizer = from_ids("characters", lambda text: [ord(letter) for letter in text], turn=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case: its plan and table, the lengths of replies by step, and its calls.

    `ops` and `rows` say of each call which llm step (numbered in the order of the plan) and which row it is.
    """

    name: str
    seed: int
    plan: LogicalPlan
    table: tuple[Mapping[str, Any], ...]
    lengths: Mapping[str, int]
    calls: tuple[Call, ...]
    ops: tuple[int, ...]
    rows: tuple[int, ...]
    nodes: tuple[str, ...]

    @property
    def title(self) -> str:
        """The case in a few words."""
        return f"{self.name}, seed {self.seed}: {len(self.nodes)} steps x {len(self.table)} rows"


Draw = Callable[[Random], tuple[str, Mapping[str, int], Callable[[int], Mapping[str, Any]]]]


def _text(dice: Random, mean: float, spread: float = 0.25) -> str:
    """A text of about so many tokens."""
    count = max(4, round(dice.uniform(1 - spread, 1 + spread) * mean))
    return "".join(dice.choice(_LETTERS) for _ in range(count - 1)).strip().ljust(count, "e")


def _step(name: str, system: str, user: Sequence[str]) -> str:
    lines = "\\n".join(user)
    return f'{name} = llm {{ system "{system}" user "{lines}" }}\n'


def _workflow(columns: Sequence[str], steps: Sequence[str], last: str) -> str:
    inputs = ", ".join(f"{column}: text" for column in columns)
    return f"workflow small({inputs})\n{''.join(steps)}output {last}\n"


def _map_reduce(context: float, question: float, outputs: tuple[int, int], summary: int) -> Draw:
    def draw(dice: Random) -> tuple[str, Mapping[str, int], Callable[[int], Mapping[str, Any]]]:
        experts = dice.randint(1, 3)
        system = _text(dice, 20)
        shared = ["{{ context }}"] if context else []
        steps = [_step(f"view{at}", system, [*shared, "{{ question }}", _text(dice, 40)]) for at in range(experts)]
        views = [f"{{{{ view{at} }}}}" for at in range(experts)]
        steps.append(_step("summary", system, [*shared, "{{ question }}", *views, _text(dice, 30)]))
        lengths = {f"view{at}": dice.randint(*outputs) for at in range(experts)} | {"summary": summary}
        columns = ["context", "question"] if context else ["question"]
        return _workflow(columns, steps, "summary"), lengths, _questions(dice, context, question)

    return draw


def _debate(context: float, question: float, outputs: tuple[int, int]) -> Draw:
    def draw(dice: Random) -> tuple[str, Mapping[str, int], Callable[[int], Mapping[str, Any]]]:
        system = _text(dice, 20)
        shared = ["{{ context }}"] if context else []
        people = [_text(dice, 40) for _ in range(2)]
        steps = [_step(f"first{at}", system, [*shared, "{{ question }}", person]) for at, person in enumerate(people)]
        said = ["{{ first0 }}", "{{ first1 }}"]
        steps += [
            _step(f"second{at}", system, [*shared, "{{ question }}", *said, person]) for at, person in enumerate(people)
        ]
        lengths = {f"{turn}{at}": dice.randint(*outputs) for turn in ("first", "second") for at in range(2)}
        columns = ["context", "question"] if context else ["question"]
        return _workflow(columns, steps, "second0, second1"), lengths, _questions(dice, context, question)

    return draw


def _reflection(dice: Random) -> tuple[str, Mapping[str, int], Callable[[int], Mapping[str, Any]]]:
    count = dice.randint(2, 4)
    drafter, first, second = (_text(dice, 170) for _ in range(3))
    asked = ["{{ context }}", "{{ question }}"]
    critics = ["first", "second"][: max(1, count - 2)]
    steps = [_step("draft", drafter, asked), _step("first", first, [*asked, "{{ draft }}"])]
    if "second" in critics:
        steps.append(_step("second", second, [*asked, "{{ draft }}", "{{ first }}"]))
    if count > 2:
        said = "\\n".join(f"{{{{ {critic} }}}}" for critic in critics)
        first_user = "\\n".join(asked)
        prompt = f'system "{drafter}" user "{first_user}" assistant "{{{{ draft }}}}" user "{said}"'
        steps.append(f"final = llm {{ {prompt} }}\n")
    lengths = {"draft": dice.randint(91, 160), "first": 250, "second": 512, "final": 140}
    last = "final" if count > 2 else "first"
    made = {step: length for step, length in lengths.items() if step in ("draft", last, *critics)}
    return _workflow(["context", "question"], steps, last), made, _questions(dice, 450, 30)


def _iterative(dice: Random) -> tuple[str, Mapping[str, int], Callable[[int], Mapping[str, Any]]]:
    count = dice.randint(2, 4)
    system = _text(dice, 100)
    steps, columns = [], []
    for at in range(count):
        before = [f"{{{{ sum{at - 1} }}}}"] if at else []
        steps.append(_step(f"sum{at}", system, [*before, f"{{{{ reviews{at} }}}}"]))
        columns.append(f"reviews{at}")
    lengths = {f"sum{at}": round(216 + (401 - 216) * at / max(1, count - 1)) for at in range(count)}
    tables = Random(dice.random())  # a seeded draw  # nosec B311
    return (
        _workflow(columns, steps, f"sum{count - 1}"),
        lengths,
        lambda row: {column: f"{row} {_text(tables, 950)}" for column in columns},
    )


def _parallel(dice: Random) -> tuple[str, Mapping[str, int], Callable[[int], Mapping[str, Any]]]:
    count = dice.randint(2, 4)
    house = _text(dice, 200)
    expert = [f"{house} {_text(dice, 100)}" for _ in range(3)]
    notes = 2 if count == 4 else 1
    steps = [
        _step(f"note{at}", expert[0] if count == 4 else expert[at], [f"{{{{ chunk{at} }}}}"]) for at in range(notes)
    ]
    if count > 2:
        steps.append(_step("summary", expert[0], [f"{{{{ note{at} }}}}" for at in range(notes)]))
    read = "summary" if count > 2 else "note0"
    steps.append(_step("report", f"{house} {_text(dice, 60)}", [f"{{{{ {read} }}}}"]))
    lengths = {f"note{at}": 430 for at in range(notes)} | {"report": 512}
    if count > 2:
        lengths["summary"] = 512
    columns = [f"chunk{at}" for at in range(notes)]
    tables = Random(dice.random())  # a seeded draw  # nosec B311
    return (
        _workflow(columns, steps, "report"),
        lengths,
        lambda row: {column: f"{row} {_text(tables, 1200)}" for column in columns},
    )


def _questions(dice: Random, context: float, question: float) -> Callable[[int], Mapping[str, Any]]:
    """Rows of questions, two on each context where there is one."""
    tables = Random(dice.random())  # a seeded draw  # nosec B311
    contexts: list[str] = []

    def row(number: int) -> Mapping[str, Any]:
        asked = f"{number} {_text(tables, question)}"
        if not context:
            return {"question": asked}
        if number // 2 >= len(contexts):
            contexts.append(f"{number} {_text(tables, context)}")
        return {"context": contexts[number // 2], "question": asked}

    return row


# Prompts and replies in tokens, after the lengths of the workloads for Qwen3-8B.
CELLS: Mapping[str, Draw] = {
    "W1 MMLU": _map_reduce(0, 105, (251, 336), 168),
    "W1 TAT-QA": _map_reduce(470, 30, (344, 437), 250),
    "W2 MMLU": _debate(0, 100, (244, 390)),
    "W2 TAT-QA": _debate(470, 30, (342, 444)),
    "W3 TAT-QA": _reflection,
    "W4": _iterative,
    "W5": _parallel,
}


def case(name: str, seed: int, *, most: int = MOST_CALLS) -> Case:
    """The case of a cell that a seed draws, of at most so many calls."""
    dice = Random(f"{name} {seed}")  # a seeded draw  # nosec B311
    text, lengths, row = CELLS[name](dice)
    steps = len(lengths)
    rows = dice.randint(2, max(2, min(4, most // steps)))
    return small_case(name, text, [row(number) for number in range(rows)], lengths, seed=seed)


def sample_of(lengths: Mapping[str, int]) -> Lengths:
    """What a planner knows of the replies."""
    return Lengths(sample={step: [length] for step, length in lengths.items()})


def small_case(
    name: str, text: str, table: Sequence[Mapping[str, Any]], lengths: Mapping[str, int], *, seed: int = 0
) -> Case:
    """The calls of a workflow without loops over a table. Raises ValueError where some are made in loops or arms."""
    stats = table_stats(table, CHARACTERS)
    plan = optimize(bind(parse(text)).plan, RuleContext(stats=stats)).plan
    if plan.scan.order:
        # The planners see the rows as they come: in the order that they are worked on.
        table = sorted(table, key=lambda row: tuple(str(row.get(column)) for column in plan.scan.order))
    found = resolve_plan(plan)
    tree = build_tree(plan, CHARACTERS, found)
    given = sample_of(lengths)
    known = {site.index: given.of(site, CHARACTERS) for site in found.calls}
    sizes = estimate_sizes(found, CHARACTERS, stats, known)
    paths = Paths(tree)
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    few = FewCalls(tree, paths, [float(lengths[site.node.step]) for site in sites], most=MOST_CALLS)
    for here in Binder(found, tree, sizes, CHARACTERS).run(table):
        few.take(here)
    if not few.whole:
        raise ValueError(f"a small case has no loops, no branches, and at most {MOST_CALLS} calls")
    return Case(
        name=name,
        seed=seed,
        plan=plan,
        table=tuple(table),
        lengths=lengths,
        calls=tuple(few.calls),
        ops=tuple(op for _, op in few.places),
        rows=tuple(row for row, _ in few.places),
        nodes=tuple(site.node.id for site in sites),
    )
