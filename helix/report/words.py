"""Figures as a page says them."""

from __future__ import annotations

from helix.report.text import seconds as _seconds


def number(value: float, noun: str = "") -> str:
    """A count, with its noun where there is one: `1,200`, `1 row`, `2.4M`."""
    shown = f"{value / 1e6:,.4g}M" if value >= 10_000_000 and not noun else f"{value:,.0f}"
    return f"{shown} {noun}{'' if value == 1 else 's'}" if noun else shown


def money(value: float, currency: str) -> str:
    """An amount, with as many digits as it deserves."""
    shown = f"{value:,.2f}" if value >= 1 or not value else f"{value:.2g}" if value >= 1e-4 else f"{value:.1e}"
    return f"{shown} {currency}"


def seconds(value: float) -> str:
    """A time; short ones in milliseconds."""
    return f"{value * 1e3:.2g} ms" if 1e-6 <= value < 1e-3 else _seconds(value) if value >= 1e-3 else "0 s"
