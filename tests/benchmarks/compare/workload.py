"""What a workload is: a Helix workflow, the same as two hand-written programs, and its rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare.calls import Ask
from compare.data import Topic

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`helix` is the workflow's text, `program` does one row with asyncio, `graph` is a compiled LangGraph of one row.

    All three send the same prompts: their texts come from one place. `topics` reads what rows are about, `row` makes
    one of a topic's question, `sizes` are topics and questions of each by regime. `tight` are the tokens that the
    server's cache holds under pressure, a quarter of what the rows have in common or less.
    """

    name: str
    title: str
    helix: str
    program: Callable[[Row, Ask], Awaitable[dict[str, Any]]]
    graph: Callable[[Ask], Any]
    topics: Callable[[Path], Sequence[Topic]]
    row: Callable[[Topic, str], Row]
    sizes: dict[str, tuple[int, int]]
    tight: int = 4096

    def rows(self, folder: Path, topics: int, questions: int, *, after: int = 0) -> list[Row]:
        """Rows grouped by topic; `after` so many topics are left out. Raises ValueError where the data has too few."""
        found = [topic for topic in self.topics(folder) if len(topic.questions) >= questions][after : after + topics]
        if len(found) < topics:
            raise ValueError(f"{self.name}: {len(found)} topics with {questions} questions, {topics} are needed")
        return [self.row(topic, question) for topic in found for question in topic.questions[:questions]]
