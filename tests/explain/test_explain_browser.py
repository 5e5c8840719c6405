"""The explanation as a page in a browser: light and dark, wide and narrow, clicked, by keyboard, to axe."""

from __future__ import annotations

from pathlib import Path

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
from explain_support import EXAMPLES, ROWS, TWICE, explained
from test_explain_html import NASTY

from helix import api


def page_file(folder: Path, page: str) -> Path:
    """A page as a file."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    return file


@in_browser
@in_light_and_dark
def test_nothing_keeps_anybody_from_using_it(dark: bool, tmp_path: Path) -> None:
    made = explained(TWICE, ROWS, analyze=True, engine="scripted", prices=(0.5, 2.0))
    with opened(page_file(tmp_path, made.to_html()), dark=dark) as page:
        assert barriers(page) == []
        assert open_all(page) > 5
        for width in (1280, 520):
            page.set_viewport_size({"width": width, "height": 900})
            assert barriers(page) == []
            assert wider_than_window(page) == []
            assert colours(page) > 60


@in_browser
def test_a_large_plan_is_no_harder_to_use(tmp_path: Path) -> None:
    made = api.load(EXAMPLES / "trading" / "trading.helix").explain()
    with opened(page_file(tmp_path, made.to_html()), width=700) as page:
        assert barriers(page) == []
        open_all(page)
        assert barriers(page) == []
        assert wider_than_window(page) == []


@in_browser
def test_rules_open_by_click_and_by_keyboard(tmp_path: Path) -> None:
    with opened(page_file(tmp_path, explained(TWICE, ROWS).to_html())) as page:
        rules = page.locator("section", has=page.get_by_role("heading", name="Rules", exact=True)).locator("details")
        names = rules.locator("summary code").all_inner_texts()
        assert names == ["merge_equal_steps", "drop_dead_steps"]
        law = rules.nth(1).get_by_text("A step that nobody reads is not there.")
        assert not law.is_visible()
        rules.nth(1).locator("summary").click()
        assert law.is_visible()
        for key in ("Enter", "Space"):
            rules.nth(1).locator("summary").focus()
            page.keyboard.press(key)
            assert law.is_visible() == (key == "Space")
        # Plans side by side have lines of one height, so that what was changed stands beside what it became.
        tops = page.eval_on_selector_all(
            "pre.plan", "all => all.map(e => [...e.children].map(line => line.getBoundingClientRect().top))"
        )
        assert len(tops) == 2
        assert tops[0] == tops[1]


@in_browser
def test_the_keyboard_comes_to_everything_in_order(tmp_path: Path) -> None:
    with opened(page_file(tmp_path, explained(TWICE, ROWS).to_html())) as page:
        assert len(stops(page)) > 8
        assert reached(page) == stops(page)


@in_browser
def test_no_text_of_the_workflow_becomes_an_element(tmp_path: Path) -> None:
    with opened(page_file(tmp_path, explained(NASTY).to_html())) as page:
        open_all(page)
        assert page.locator("script, img, iframe, object, embed, link, base, form, a").count() == 0
        assert "<script>alert(1)</script> & </pre>" in page.locator("main").inner_text()
