"""The page of a run as a browser shows it: in light and dark, wide and narrow, clicked, by keyboard, to axe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from caching import CachingEngine
from running import Folder
from test_report_page import HOSTILE, ROWS, ran

# A row that fails, one whose prompt and reply would rather be elements.
MIXED = [*ROWS, {"a": HOSTILE, "doc": "d"}, {"a": None, "doc": "d"}]


def page_file(folder: Path, *, workflow: str = "t", earlier: Any = None) -> Path:
    """The page of a run that has everything: ranks, a failed row, an earlier run."""
    measures = replace(ran(rows=MIXED, engine=CachingEngine(HOSTILE, ranks=2)), workflow=workflow)
    file = folder / "page.html"
    file.write_text(measures.to_html(ran(rows=ROWS[:3]).to_json() if earlier is None else earlier), encoding="utf-8")
    return file


@in_browser
@in_light_and_dark
def test_nothing_keeps_anybody_from_using_it(dark: bool, tmp_path: Path) -> None:
    with opened(page_file(tmp_path), dark=dark) as page:
        assert barriers(page) == []
        assert open_all(page) > 8
        for width in (1280, 520):
            page.set_viewport_size({"width": width, "height": 900})
            assert barriers(page) == []
            assert wider_than_window(page) == []
            assert colours(page) > 60
        drawn = page.eval_on_selector_all("svg", "all => all.map(e => e.getBoundingClientRect().height)")
        assert len(drawn) == 2
        assert min(drawn) > 50


@in_browser
def test_rows_open_on_demand(tmp_path: Path) -> None:
    with opened(page_file(tmp_path)) as page:
        failed = page.locator("section", has=page.get_by_role("heading", name="Rows that failed"))
        slow = page.locator("section", has=page.get_by_role("heading", name="Slowest rows"))
        assert failed.locator("details").count() == 1
        assert slow.locator("details").count() == 7
        message = failed.locator(".bad")
        assert not message.is_visible()
        failed.locator("summary").click()
        assert message.inner_text() == "input.null: column `a` is null; text is needed"
        # A click opens one row and no other; its prompts and replies are all there.
        first, second = slow.locator("details").nth(0), slow.locator("details").nth(1)
        first.locator("summary").click()
        assert first.locator("pre").count() == 6
        assert first.locator("pre").first.inner_text() == "be brief and kind"
        assert first.locator("pre").last.is_visible()
        assert not second.locator("pre").first.is_visible()
        first.locator("summary").click()
        assert not first.locator("pre").first.is_visible()
        # The data of a plot is a table of as many rows as it has ranks.
        plot = page.locator("figure").first
        plot.locator("summary").click()
        assert plot.locator("tbody tr").count() == 2


@in_browser
def test_the_keyboard_comes_to_everything_in_order(tmp_path: Path) -> None:
    with opened(page_file(tmp_path)) as page:
        expected = stops(page)
        assert len(expected) > 15
        assert reached(page) == expected
        failed = page.locator("section", has=page.get_by_role("heading", name="Rows that failed"))
        for key in ("Enter", "Space"):
            failed.locator("summary").focus()
            page.keyboard.press(key)
            assert failed.locator(".bad").is_visible()
            page.keyboard.press(key)
            assert not failed.locator(".bad").is_visible()
        # What opens gives the keyboard more to come to: each text scrolls by itself.
        open_all(page)
        more = stops(page)
        assert len(more) > len(expected) + 20
        assert reached(page, 500) == more


@in_browser
def test_no_text_of_anybody_becomes_an_element(tmp_path: Path) -> None:
    earlier = ran(rows=ROWS[:3]).to_json() | {"workflow": HOSTILE, "engine": HOSTILE, "policy": HOSTILE}
    earlier["steps"] = [{"step": HOSTILE, "calls": 1}, *earlier["steps"]]
    with opened(page_file(tmp_path, workflow=HOSTILE, earlier=earlier)) as page:
        open_all(page)
        assert page.locator("img, iframe, object, embed, link, base, form, a").count() == 0
        assert page.eval_on_selector_all("script", "all => all.map(e => e.type)") == ["application/json"]
        odd = page.evaluate(
            "() => [...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).map(a => a.name)"
            ".filter(name => name.startsWith('on') || name === 'src' || name === 'href')"
        )
        assert odd == []
        assert "<img src=x onerror=alert(2)>" in page.locator("h1").inner_text()


@in_browser
def test_a_run_is_compared_with_the_one_before(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.workflow('workflow t(a: text)\nx = llm { user "say {{ a }}" }\noutput a, x')
    folder.rows(*({"a": f"v{number}"} for number in range(3)))
    assert folder.run("-o", "out.jsonl", "--report", "one.html").returncode == 0
    folder.rows(*({"a": f"w{number}"} for number in range(5)))
    assert folder.run("-o", "out.jsonl", "--report", "two.html", "--compare", "one.html").returncode == 0
    with opened(tmp_path / "two.html") as page:
        assert barriers(page) == []
        compared = page.locator("section", has=page.get_by_role("heading", name="Compared with an earlier run"))
        row = compared.locator("tr", has=page.get_by_role("rowheader", name="llm calls"))
        assert row.locator("td").all_inner_texts() == ["5", "3", "+2 (+66.7%)"]
        data = json.loads(page.locator("#helix-report").text_content())
        assert data["calls"]["llm"] == 5
