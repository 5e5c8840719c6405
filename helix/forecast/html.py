"""A forecast as a page: HTML, its style and its plots in one file, without scripts and without anything from elsewhere.

`forecast_page` is a whole document, `forecast_fragment` the part of it that a notebook shows in a cell.
"""

from __future__ import annotations

from helix.forecast import words
from helix.forecast.measures import Forecast
from helix.forecast.pictures import plots, texts
from helix.page import document, facts, listed, section, table, text
from helix.page import style as page_style
from helix.plots import style as plot_style


def forecast_page(forecast: Forecast) -> str:
    """The page, ending in a line break."""
    return document(f"{forecast.workflow}: simulated", forecast_fragment(forecast))


def forecast_fragment(forecast: Forecast) -> str:
    """The forecast as an element with its style."""
    trial = forecast.optimized
    parts = [
        f"<style>{page_style()}{plot_style()}</style>",
        _header(forecast),
        section("The batch", facts(list(words.facts(forecast))[1:])),
    ]
    if trial.steps:
        parts.append(section("Steps", table(words.STEP_HEADS, words.step_rows(trial))))
    pictures = list(plots(forecast))
    if trial.calls:
        parts.append(section("Over time", texts(pictures[:3])))
    if forecast.plain is not None:
        about = "The plan as it is written, each call sent as soon as it can be, and the optimized plan."
        parts.append(section("Plain and optimized", table(words.PLAN_HEADS, words.plan_rows(forecast), about)))
    if forecast.cases:
        about = "The optimized plan on other GPUs. Speed-ups are over the first row of the same GPU."
        shown = table(words.CASE_HEADS, words.case_rows(forecast), about)
        parts.append(section("What if", shown + texts(pictures[3 if trial.calls else 0 :])))
    log = f"log {trial.digest} ({words.count(trial.events, 'event')})"
    parts.append(section("Notes", listed([*words.notes(forecast), log], "notes")))
    return f'<div class="hx">{"".join(parts)}</div>'


def _header(forecast: Forecast) -> str:
    trial = forecast.optimized
    tiles = [
        ("makespan", words.seconds(trial.makespan)),
        ("over the lower bound", words.times(trial.over_bound)),
        ("hit rate", words.percent(trial.hit_rate)),
        ("GPU time", words.hours(trial.gpu_hours)),
        ("cost", words.money(forecast.money(trial), forecast.currency)),
    ]
    shown = "".join(f"<li><span>{text(name)}</span><b>{text(value)}</b></li>" for name, value in tiles if value != "-")
    return (
        f'<header><h1>{text(forecast.workflow)}</h1><p class="quiet">{text(words.title(forecast))}; '
        f"{text(words.settings(trial.deployment))}</p><ul class=tiles>{shown}</ul></header>"
    )
