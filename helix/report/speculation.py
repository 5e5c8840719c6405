"""What speculation did in a run, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def speculation_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """The lines for the end of a run. `figures` are those of `RunReport.speculation`."""
    shadow = figures["mode"] == "shadow"
    hits, hidden, limit = figures["hits"], figures["hidden_seconds"], figures["limit_seconds"]
    in_shadow = figures["shadow_guesses"], figures["shadow_hits"], figures["shadow_hidden_seconds"]
    of_limit = f" of at most {limit:,.1f} s" if limit else ""
    if shadow or in_shadow[0]:
        guesses = _count(in_shadow[0], "guess", "guesses")
        seconds = f"{in_shadow[2]:,.1f} s{of_limit if shadow else ''} would have been hidden"
        yield f"speculation (shadow): {guesses}, {in_shadow[1]:,} right; {seconds}"
    if not shadow and not figures["launched"] and not in_shadow[0]:
        yield "speculation: nothing was launched"
    elif not shadow and (figures["launched"] or hits):
        late = f" ({figures['late_hits']:,} of them late)" if figures["late_hits"] else ""
        launched = _count(figures["launched"], "call", "calls")
        served = f"{hits:,} served{late}, {figures['wasted']:,} wasted ({figures['wasted_seconds']:,.1f} s of work)"
        yield f"speculation: {launched} launched, {served}; {hidden:,.1f} s{of_limit} hidden"
        if figures["compared"]:
            differ = f"{figures['differences']:,} differed" if figures["differences"] else "none differed"
            yield f"speculation: {_count(figures['compared'], 'result', 'results')} compared with real ones, {differ}"
    told = [each for each in figures["calibration"] if each["predictions"] >= 50]
    if told:
        shown = ", ".join(f"{each['p_low']:.2f} -> {each['observed']:.2f}" for each in told)
        yield f"calibration (lower bound -> observed): {shown}"
    for group, reason in figures["breakers"].items():
        yield f"speculation: the breaker of {group} opened: {reason}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
