"""The documentation is true: what it shows is run, and its links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_blocks import Session
from docs_markdown import ROOT, Page, pages, rewrite

PAGES = pages()
LONGEST = 260


def by_name(page: Page) -> str:
    return page.name


def check(page: Page, session: Session, update: bool) -> None:
    """Runs the blocks of a page and fails with all that is wrong with it; `update` mends the outputs instead."""
    session.run()
    failures = list(session.failures)
    if update:
        rewrite(page, [(each.block, each.text) for each in session.corrections])
    else:
        failures += [f"{each.block.place}: {each.message}" for each in session.corrections]
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_page_does_what_it_shows(page: Page, tmp_path: Path, update_golden: bool) -> None:
    check(page, Session(page, tmp_path), update_golden)


@pytest.mark.embedded
@pytest.mark.parametrize("page", [p for p in PAGES if any("embedded" in b.flags for b in p.blocks)], ids=by_name)
def test_page_runs_on_the_embedded_engine(page: Page, tmp_path: Path, update_golden: bool) -> None:
    check(page, Session(page, tmp_path, embedded=True), update_golden)


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_links_lead_somewhere(page: Page) -> None:
    broken: list[str] = []
    for line, target in page.links:
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        known = next((each for each in PAGES if each.path == file), None)
        if not file.exists() or (anchor and (known is None or anchor not in known.anchors)):
            broken.append(f"{page.name}:{line}: {target}")
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.path.is_relative_to(ROOT / "docs")], ids=by_name)
def test_pages_are_short_and_can_be_reached(page: Page) -> None:
    # The pages of rules, of commands and of figures are looked things up in, not read.
    if page.path.name not in ("rules.md", "cli.md", "benchmark-tables.md"):
        assert len(page.path.read_text(encoding="utf-8").splitlines()) <= LONGEST
    index = ROOT / "docs" / "index.md"
    reached = {
        (other.path.parent / target.partition("#")[0]).resolve()
        for other in PAGES
        if other.path == index
        for _, target in other.links
    }
    assert page.path == index or page.path in reached


def test_few_blocks_are_not_run() -> None:
    left_out = [block.place for page in PAGES for block in page.blocks if "norun" in block.options]
    assert len(left_out) <= 9, left_out
