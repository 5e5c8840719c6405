"""Progress as a line now and then, for logs and for terminals that cannot move their cursor."""

from __future__ import annotations

from helix.progress.facts import money, step_facts, token_facts, waiting
from helix.progress.measures import Measures
from helix.progress.words import clean, clock, count, say

# Where nobody watches a live view, a line after so many seconds is enough.
LINE_EVERY = 15.0


class PlainView:
    """Says a line after every `LINE_EVERY` seconds; with `steps` one more for each step."""

    every = LINE_EVERY

    def __init__(self, *, steps: bool = False) -> None:
        self._steps = steps

    def start(self, measures: Measures) -> None:
        """The run begins."""

    def show(self, measures: Measures) -> None:
        """Says how far it is."""
        for line in plain_lines(measures, steps=self._steps):
            say(line)

    def tell(self, text: str) -> None:
        """One message."""
        say(text)

    def stop(self) -> None:
        """Nothing more is said."""


def plain_lines(measures: Measures, *, steps: bool) -> list[str]:
    """How far a run is, as a line; with `steps` one more for each step."""
    of = "" if measures.rows is None else f" of {count(measures.rows, 'row')}"
    facts = [f"{measures.done:,}{of}", count(measures.calls, "call")]
    for number, what in (
        (measures.merged, "merged"),
        (measures.fetched, "fetched"),
        (measures.failed, "failed"),
    ):
        if number:
            facts.append(f"{number:,} {what}")
    facts.append(f"{measures.seconds:.0f} s")
    if measures.phase > 1:
        all = "" if measures.phase_rows is None else f" of {measures.phase_rows:,}"
        facts.append(f"phase {measures.phase} of {measures.phases}: {measures.phase_done:,}{all}")
    if measures.left:
        facts.append(f"about {clock(measures.left)} left{' of this phase' if measures.phases > 1 else ''}")
    facts += token_facts(measures)
    if measures.cost is not None:
        facts.append(money(measures.cost, measures.currency))
    reason = waiting(measures)
    lines = [", ".join(facts) + (f"; {reason}" if reason else "")]
    if steps:
        lines += [f"  {clean(name)}: {', '.join(step_facts(step))}" for name, step in measures.steps.items()]
    return lines
