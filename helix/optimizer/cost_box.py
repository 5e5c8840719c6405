"""The cost box of `helix explain`: a plan as it is written beside the plan after the rules."""

from __future__ import annotations

from collections.abc import Callable

from helix.optimizer.cost import Comparison, Cost
from helix.optimizer.tree.show import take_cells, text_width

_NARROWEST = 48
_WIDEST = 100


def cost_box(comparison: Comparison, width: int = 80, *, color: bool = False) -> str:
    """A text box, ending in a line break; no line is wider than `width` terminal cells (48 at least)."""
    width = min(max(width, _NARROWEST), _WIDEST)
    plain, better = comparison.plain, comparison.optimized
    rows = [("", "plain", "optimized", "saved"), *_figures(plain, better)]
    columns = [max(text_width(row[at]) for row in rows) for at in (1, 2, 3)]
    inner = width - 4
    first = inner - sum(columns) - 6
    lines: list[str] = []
    for name, *values in rows:
        cells = [f"{value:>{size}}" for value, size in zip(values, columns, strict=True)]
        shown = take_cells(name, first)
        lines.append("  ".join((shown + " " * (first - text_width(shown)), *cells)))
    lines.append("")
    for note in _notes(plain, better):
        lines.extend(_wrapped(note, inner))
    title = f" cost for {_number(better.rows)} {'row' if better.rows == 1 else 'rows'} "
    top = f"╭─{title}{'─' * (width - 3 - text_width(title))}╮"
    bottom = f"╰{'─' * (width - 2)}╯"
    body = [f"│ {line}{' ' * (inner - text_width(line))} │" for line in lines]
    made = [top, *body, bottom]
    if color:
        made[0], made[-1] = _quiet(made[0]), _quiet(made[-1])
        made[1] = f"\x1b[1m{made[1]}\x1b[0m"
    return "".join(f"{line}\n" for line in made)


def _figures(plain: Cost, better: Cost) -> list[tuple[str, str, str, str]]:
    about = "" if better.exact and plain.exact else " (estimate)"
    rows: list[tuple[str, Callable[[Cost], float], Callable[[float], str]]] = [
        ("llm calls", lambda cost: cost.calls, _number),
        ("equal calls made once", lambda cost: cost.merged, _number),
        ("tool calls", lambda cost: cost.tool_calls, _number),
        ("prompt tokens", lambda cost: cost.prompt_tokens, _number),
        (f"distinct prefixes, P_min{about}", lambda cost: cost.p_min, _number),
        ("cached at best", lambda cost: cost.cached_tokens, _number),
        ("reply tokens", lambda cost: cost.output_tokens, _number),
        ("seconds", lambda cost: cost.seconds, _seconds),
    ]
    made = []
    for name, read, show in rows:
        before, after = read(plain), read(better)
        if name in ("tool calls", "equal calls made once") and not before and not after:
            continue
        saved = "" if name in ("cached at best", "equal calls made once") else _saved(before, after)
        made.append((name, show(before), show(after), saved))
    made.insert(
        next(at for at, row in enumerate(made) if row[0] == "reply tokens"),
        ("cached share at best", f"{plain.cached_share:.0%}", f"{better.cached_share:.0%}", ""),
    )
    if better.money is not None and plain.money is not None:
        name = f"money, {better.currency}"
        made.append((name, _money(plain.money), _money(better.money), _saved(plain.money, better.money)))
    return made


def _notes(plain: Cost, better: Cost) -> list[str]:
    """What the figures rest on, and what bounds the time."""
    bounds = better.bounds
    kind = "estimated lower bounds" if bounds.estimated else "lower bounds"
    shown = ", ".join(f"{name} {_seconds(seconds)} s" for name, seconds in bounds.all)
    notes = [f"{kind}: {shown}; {bounds.binder} binds"]
    ways = {
        "tokens": "P_min compares prompts token by token",
        "values": "P_min compares values as wholes",
        "statistics": "P_min is taken from distinct values and mean lengths",
    }
    notes.append(ways[better.p_min_kind])
    notes.extend(dict.fromkeys((*better.notes, *plain.notes)))
    return notes


def _saved(before: float, after: float) -> str:
    if not before or abs(before - after) < 1e-9 * before:
        return "-"
    return f"{(before - after) / before:.0%}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:,.1f}"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2g}" if value < 1 else f"{value:,.1f}"


def _money(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"


def _wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most so many cells, the later ones indented; a word that is wider is cut."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        candidate = f"{line} {word}" if line.strip() else f"{line}{word}"
        if text_width(candidate) <= width:
            line = candidate
            continue
        if line.strip():
            lines.append(line)
        line = "  " if lines else ""
        while text_width(line + word) > width:
            part = take_cells(word, width - text_width(line))
            lines.append(line + part)
            word, line = word[len(part) :], "  "
        line += word
    return [*lines, line] if line.strip() else lines


def _quiet(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m"
