"""The page of a simulation in a browser: its plots, in light and dark, wide and narrow, by keyboard, to axe."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import (
    barriers,
    colours,
    in_browser,
    in_light_and_dark,
    open_all,
    opened,
    reached,
    stops,
    wider_than_window,
)
from test_simulate_command import ROWS, TEXT

import helix


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all that there can be on one."""
    made = helix.loads(TEXT).simulate(ROWS, model="llama-3.1-8b", gpu="h100", ranks=2, price=2.5)
    file = tmp_path_factory.mktemp("simulated") / "page.html"
    file.write_text(made.to_html(), encoding="utf-8")
    return file


@in_browser
@in_light_and_dark
def test_nothing_keeps_anybody_from_using_it(dark: bool, page_file: Path) -> None:
    with opened(page_file, dark=dark) as page:
        assert barriers(page) == []
        assert open_all(page) == 5
        for width in (1280, 520):
            page.set_viewport_size({"width": width, "height": 900})
            assert barriers(page) == []
            assert wider_than_window(page) == []
            assert colours(page) > 60


@in_browser
@in_light_and_dark
def test_plots_are_drawn_and_their_data_can_be_read(dark: bool, page_file: Path) -> None:
    with opened(page_file, dark=dark, width=700) as page:
        ground, fills = page.evaluate(
            """() => [
              [...new Set([...document.querySelectorAll('svg')].map(e => getComputedStyle(e).backgroundColor))],
              new Set([...document.querySelectorAll('svg .fill, svg .area')].map(e => getComputedStyle(e).fill)).size,
            ]"""
        )
        assert ground == ["rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)"]
        assert fills >= 4
        plots = page.locator("figure")
        assert plots.count() == 5
        for number in range(5):
            plot = plots.nth(number)
            assert len(plot.locator("svg").get_attribute("aria-label")) > 40
            assert not plot.locator("table").is_visible()
            plot.locator("summary").click()
            assert plot.locator("tbody tr").count() > 1
            assert plot.locator("table").is_visible()


@in_browser
def test_the_keyboard_comes_to_everything_in_order(page_file: Path) -> None:
    with opened(page_file) as page:
        assert len(stops(page)) > 10
        assert reached(page) == stops(page)
