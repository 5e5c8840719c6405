"""The figures of a cost as text, for the box of the terminal and the table of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor, log10

from helix.explain.report import ExplainReport, Totals
from helix.optimizer.cost import Comparison, Cost

ARROW = "→"


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


def cost_title(report: ExplainReport) -> str:
    """What the costs are of."""
    rows = report.costs.optimized.rows
    if report.table is None:
        return "Cost, estimated for one row"
    return f"Cost, estimated for {number(rows)} {'row' if rows == 1 else 'rows'} of {report.table.name}"


def figures(costs: Comparison) -> tuple[Figure, ...]:
    """The lines of a cost. What no estimate exists of is left out."""
    return tuple(line for line in _lines(costs) if not line.nothing or line.name == "llm calls")


def _lines(costs: Comparison) -> Iterator[Figure]:
    plain, better = costs.plain, costs.optimized
    exact = " (exact)" if plain.exact and better.exact else ""
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
    told = saves and before and show(before) != show(after)
    saving = f"{(before - after) / before:.0%}" if told else ""
    return Figure(name=name, plain=show(before), optimized=show(after), saving=saving)


def notes(costs: Comparison) -> tuple[str, ...]:
    """What the figures rest on."""
    ways = {
        "tokens": "prefixes are compared token by token",
        "values": "prefixes are compared value by value",
        "statistics": "",
    }
    made = [ways[costs.optimized.p_min_kind], *costs.optimized.notes, *costs.plain.notes]
    return tuple(dict.fromkeys(note for note in made if note))


_TOTALS = (
    ("llm_calls", "llm calls"),
    ("tool_calls", "tool calls"),
    ("prompt_tokens", "prompt tokens"),
    ("distinct_tokens", "distinct prefixes"),
    ("output_tokens", "generated tokens"),
)


def savings(before: Totals, after: Totals) -> tuple[str, ...]:
    """The figures that differ, as `llm calls 3 → 2`."""
    made: list[str] = []
    for name, said in _TOTALS:
        old, new = getattr(before, name), getattr(after, name)
        if abs(old - new) > max(0.05, 1e-6 * old):
            made.append(f"{said} {number(old)} {ARROW} {number(new)}")
    return tuple(made)
