"""What a workload is: a workflow over a table, and how long the replies of its steps are in the mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from helix.bench.texts import Texts
from helix.executor.engines.base import Request

Row = dict[str, Any]
# The rows of one group, on one day, and the tools of a workflow by name.
MakeRows = Callable[[Texts, int, int], list[Row]]
Tools = Mapping[str, Callable[..., Any]]
# What a reply is where it is not any text: of the length of the text that was drawn.
Says = Callable[[Request, str], str]
# Hears how long a tool takes: the row, the step, seconds.
Told = Callable[[int, str, float], None]
# Replies are joined by a token.
JOIN = '" -- "'


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`helix` is the workflow's text, `rows` makes the rows of a group (those that share texts), `groups` is how many
    the published batch has, `calls` how many llm calls a group takes.

    `means` are the mean tokens of replies by step, with their deviation where they are normal: else a reply is drawn
    evenly between as much below its mean as above. `cap` is the most, `says` puts replies into the form that a step
    asks for. `redundant` is a workflow of the same results as somebody writes it who thinks of one branch at a time
    (None: the same), `redundant_rows` are its rows. `days`: the rows of a first day are run before, on the same engine.
    `tools` makes the tools for a seed, who tell how long they take, and `lanes` says how many of each lane run at once.
    `kv_tokens` and `ranks` are those of the workload where it has its own. `published` says what of the shape differs
    from the published one.
    """

    name: str
    title: str
    helix: str
    rows: MakeRows
    groups: int
    calls: int
    means: Mapping[str, int | tuple[int, int]]
    cap: int = 512
    says: Says | None = None
    redundant: str | None = None
    redundant_rows: MakeRows | None = None
    days: bool = False
    kv_tokens: int | None = None
    ranks: int | None = None
    tools: Callable[[int, Told], Tools] | None = None
    lanes: Mapping[str, int] | None = None
    published: str = ""


def constant(text: str) -> str:
    """A text as a literal of the language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def names(made: list[str]) -> str:
    """Literals as a list of the language."""
    return "[\n" + "".join(f"  {constant(each)}\n" for each in made) + "]"
