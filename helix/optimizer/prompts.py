"""The prompts that a plan will send for the rows of a table, as far as the table alone decides them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from helix.evaluate import Callables
from helix.logical import Generate, LogicalPlan
from helix.optimizer.lengths import Lengths
from helix.optimizer.rule import TableStats
from helix.optimizer.sizes import estimate_sizes
from helix.optimizer.tokens import ESTIMATE, Tokenizer
from helix.optimizer.tree.bind import Binder, Instance
from helix.optimizer.tree.build import build_tree
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.shape import Hole, Static, Tree, Turn

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only a call will give: which, about how many tokens it takes, and a number that two such values
    share where they are bound to be equal. `messages`: it is a list of whole messages.
    """

    name: str
    tokens: float
    number: int
    messages: bool = False


Part = str | Unknown


@dataclass(frozen=True, slots=True)
class BoundPrompt:
    """A prompt of one row: its messages, each a role and parts. `weight` is the chance that it is sent.

    The rows are those of the table: a prompt over groups has the number of the group's first row.
    """

    row: int
    op: int
    step: str
    weight: float
    messages: tuple[tuple[str, tuple[Part, ...]], ...]

    @property
    def known(self) -> bool:
        """Whether the table alone decides the whole prompt."""
        return all(isinstance(part, str) for _, parts in self.messages for part in parts)

    def texts(self) -> tuple[tuple[str, str], ...]:
        """The messages as (role, text). Raises ValueError where a part is not known."""
        if not self.known:
            raise ValueError(f"the prompt of `{self.step}` shows a value that only a call gives")
        return tuple((role, "".join(str(part) for part in parts)) for role, parts in self.messages)


def bind_prompts(
    plan: LogicalPlan,
    rows: Iterable[Row],
    tokenizer: Tokenizer = ESTIMATE,
    *,
    stats: TableStats | None = None,
    lengths: Lengths | None = None,
    callables: Callables | None = None,
) -> Iterator[BoundPrompt]:
    """The prompts of a plan over the rows of a table, row by row, those over groups at the end.

    `rows` hold values as the input declares them. `stats`, `lengths` and the tokenizer decide how large values are
    taken to be that are not known; `callables` are declared functions by name. Messages of a `history` that is not
    written out in the workflow are one unknown part.
    """
    found = resolve_plan(plan, callables or ())
    tree = build_tree(plan, tokenizer, found)
    given = lengths or Lengths()
    known = {site.index: given.of(site, tokenizer) for site in found.calls if isinstance(site.node, Generate)}
    binder = Binder(found, tree, estimate_sizes(found, tokenizer, stats, known), tokenizer, callables)
    for here in binder.run(rows):
        for op, _ in here.order:
            made = _messages(tree, op, here, binder)
            yield BoundPrompt(here.row, op, tree.ops[op].step, here.weight, made)


def _messages(tree: Tree, op: int, here: Instance, binder: Binder) -> tuple[tuple[str, tuple[Part, ...]], ...]:
    made: list[tuple[str, list[Part]]] = []
    for segment in tree.path(op)[:-1]:
        match segment:
            case Turn(role=role):
                made.append((role, []))
            case Static(text=text):
                made[-1][1].append(text)
            case Hole():
                number = binder.paths.keys[segment.key]
                text_ = here.texts[number]
                unknown = Unknown(segment.text, here.tokens[number], here.numbers[number], segment.messages)
                if segment.messages:
                    made.append(("history", [unknown if text_ is None else text_]))
                else:
                    made[-1][1].append(unknown if text_ is None else text_)
    return tuple((role, _merged(parts)) for role, parts in made)


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """Parts with neighbouring texts put together; an empty message is one empty text."""
    made: list[Part] = []
    for part in parts:
        if isinstance(part, str) and made and isinstance(made[-1], str):
            made[-1] += part
        else:
            made.append(part)
    return tuple(made) or ("",)
