"""The figures of a cost as text, for the box of the terminal and the table of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor, log10

from helix.explain.report import ExplainReport, Totals
from helix.optimizer.cost import Comparison, Cost
from helix.optimizer.tokens import ESTIMATE

ARROW = "→"
# What is saved, as a share, before it is worth saying.
_LEAST = 0.005
# What a table that is no file is called.
_NAMELESS = "the rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the cost: the figure before and after the rules, and the share that they save; empty for none."""

    name: str
    plain: str
    optimized: str
    saving: str = ""

    @property
    def nothing(self) -> bool:
        """Whether there is none of it, before or after."""
        return self.plain == self.optimized == "0"


def number(value: float) -> str:
    """A count as a person reads it: whole from 10 on, with one decimal below."""
    rounded = round(value, 1)
    return f"{value:,.0f}" if value >= 10 or rounded == round(rounded) else f"{rounded:,.1f}"


def seconds(value: float) -> str:
    """Seconds with two significant digits below 100, and none below a millisecond."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 1:
        return f"{value:.1f}"
    return f"{value:.2g}" if value >= 0.001 else "<0.001" if value > 0 else "0"


def money(value: float) -> str:
    """An amount of money; small ones keep two digits that say something."""
    if value >= 0.1 or value <= 0:
        return f"{value:,.2f}"
    return f"{value:.{1 - floor(log10(value))}f}"


def counted_rows(report: ExplainReport) -> str:
    """How many rows the costs are of, and of which table where it has a name."""
    rows = report.costs.optimized.rows
    shown = f"{number(rows)} row{'' if rows == 1 else 's'}"
    named = report.table is not None and report.table.name != _NAMELESS
    return f"{shown} of {report.table.name}" if named and report.table is not None else shown


def cost_title(report: ExplainReport) -> str:
    """What the costs are of."""
    if report.table is None:
        return "Cost, estimated for one row"
    return f"Cost, estimated for {counted_rows(report)}"


def figures(report: ExplainReport) -> tuple[Figure, ...]:
    """The lines of a cost. What no estimate exists of is left out."""
    return tuple(line for line in _lines(report) if not line.nothing or line.name == "llm calls")


def _lines(report: ExplainReport) -> Iterator[Figure]:
    costs = report.costs
    plain, better = costs.plain, costs.optimized
    exact = " (exact)" if report.exact_prefixes else ""
    yield _line("llm calls", costs, lambda cost: cost.calls, number)
    yield _line("equal calls made once", costs, lambda cost: cost.merged, number, saves=False)
    yield _line("tool calls", costs, lambda cost: cost.tool_calls, number)
    if not plain.calls and not better.calls:
        return
    yield _line("prompt tokens", costs, lambda cost: cost.prompt_tokens, number)
    yield _line(f"distinct prefixes{exact}", costs, lambda cost: cost.p_min, number)
    yield _line("cached at best", costs, lambda cost: cost.cached_tokens, number, saves=False)
    yield _line("generated tokens", costs, lambda cost: cost.output_tokens, number)
    yield _line("seconds", costs, lambda cost: cost.seconds, seconds)
    if plain.money is not None and better.money is not None:
        yield _line(f"money, {better.currency}", costs, lambda cost: cost.money or 0.0, money)


def _line(
    name: str, costs: Comparison, read: Callable[[Cost], float], show: Callable[[float], str], *, saves: bool = True
) -> Figure:
    before, after = read(costs.plain), read(costs.optimized)
    share = (before - after) / before if saves and before else 0.0
    saving = f"{share:.0%}" if abs(share) >= _LEAST else ""
    return Figure(name=name, plain=show(before), optimized=show(after), saving=saving)


def notes(report: ExplainReport) -> tuple[str, ...]:
    """What the figures rest on."""
    better, plain = report.costs.optimized, report.costs.plain
    ways = {
        "tokens": "prefixes are compared token by token" if report.token_ids else "prefixes are compared byte by byte",
        "values": "prefixes are compared value by value",
        "statistics": "",
    }
    counted = "" if better.tokenizer == ESTIMATE.name else f"tokens are counted by {better.tokenizer}"
    made = [ways[better.p_min_kind], counted, *report.notes, *better.notes, *plain.notes]
    return tuple(dict.fromkeys(note for note in made if note))


_TOTALS = (
    ("llm_calls", "llm calls"),
    ("tool_calls", "tool calls"),
    ("prompt_tokens", "prompt tokens"),
    ("distinct_tokens", "distinct prefixes"),
    ("output_tokens", "generated tokens"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A figure that a rule changed, as `llm calls 3 → 2`, and whether there is less of it."""

    text: str
    less: bool


def savings(before: Totals, after: Totals) -> tuple[Saving, ...]:
    """The figures that a rule changed. Tokens are estimates: they have to differ by more than one in a hundred."""
    made: list[Saving] = []
    for name, said in _TOTALS:
        old, new = getattr(before, name), getattr(after, name)
        least = 0.01 * old if name.endswith("tokens") else 1e-6 * old
        if abs(old - new) > max(0.05, least):
            made.append(Saving(text=f"{said} {number(old)} {ARROW} {number(new)}", less=new < old))
    return tuple(made)
