"""The page: one file that needs nothing else, well formed, readable in light and dark."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from explain_support import EXAMPLES, ROWS, TWICE, explained

from helix import api

VOID = {"meta", "br", "hr", "img", "link", "input"}
NASTY = """
workflow nasty(text: text)

x = llm { user "<script>alert(1)</script> & </pre> \\u0007 {{ text }}" }

y = llm { user "<script>alert(1)</script> & </pre> \\u0007 {{ text }}" }

output x, y
"""


class Checker(HTMLParser):
    """Reads a page: tags that close in order, what each holds, where it would look for anything else."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.mistakes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "action", "data") or name.startswith("on"):
                self.links.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mistakes.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data


def read(page: str) -> Checker:
    """A page, checked as far as a parser can."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.mistakes == []
    assert checker.open == []
    return checker


@pytest.mark.parametrize("name", ["triage", "trading", "group_reduce", "debate"])
def test_a_page_is_whole_and_needs_nothing_else(name: str) -> None:
    page = api.load(EXAMPLES / name / f"{name}.helix").explain().to_html()
    found = read(page)
    assert page.startswith("<!doctype html>\n<html lang=")
    assert found.links == []
    assert not {"script", "link", "img", "iframe", "svg", "object"} & set(found.seen)
    for outside in ("http://", "https://", "@import", "url(", "//cdn"):
        assert outside not in page
    assert found.seen.count("h1") == 1
    assert found.seen.count("main") == 1
    assert "prefers-color-scheme: dark" in page


def test_it_says_what_the_text_says() -> None:
    made = explained(TWICE, ROWS, prices=(0.5, 2.0))
    text = " ".join(read(made.to_html()).text.split())
    for said in (
        "merges gist into short",
        "x = f(a), y = f(a) is x = f(a), y = x.",
        "only steps whose results depend on their inputs alone",
        "warning: step `spare` is never used",
        "As it is written",
        "After the rules",
        "estimated for 3 rows",
        "money, USD",
        "shared by 2",
        "By step",
        "Bounds",
    ):
        assert said in text, said


def test_what_changed_is_marked_line_by_line() -> None:
    page = explained(TWICE).to_html()
    assert len(re.findall('<pre class="plan"', page)) == 2
    gone = re.findall('<span class="gone">(.*?)</span></span>', page)
    assert any("spare" in line for line in gone)
    assert any("gist" in line for line in gone)
    new = re.findall('<span class="new">(.*?)(?:</span></span>|\\n)', page)
    assert new
    columns = re.findall('<pre class="plan".*?</pre>', page, re.DOTALL)
    heights = [len(re.findall(r"<span class=\"(?:gone|new|pad)\">|<span>", column)) for column in columns]
    assert heights[0] == heights[1]
    same = explained('workflow w(a: text)\n\nx = llm { user "{{ a }}" }\n\noutput x\n').to_html()
    assert len(re.findall('<pre class="plan"', same)) == 1
    assert "No rule applies" in same
    assert 'class="gone"' not in same


def test_texts_of_users_stay_text() -> None:
    made = explained(NASTY)
    found = read(made.to_html())
    assert "script" not in found.seen
    assert "<script>alert(1)</script> & </pre>" in found.text
    assert "\x07" not in made.to_html()


def test_it_can_be_used_with_the_keyboard() -> None:
    page = explained(TWICE).to_html()
    found = read(page)
    assert found.seen.count("details") == found.seen.count("summary") > 3
    for scrolled in re.findall(r'<(?:pre|div) class="(?:plan|tree|wide)"[^>]*>', page):
        assert 'tabindex="0"' in scrolled
    assert ":focus-visible" in page


def test_a_run_is_put_beside_the_estimates() -> None:
    made = explained(TWICE, ROWS, analyze=True, engine="scripted")
    text = " ".join(read(made.to_html()).text.split())
    assert "Measured" in text
    assert "Run on scripted, the optimized plan." in text
    assert text.count("estimated") >= 3
