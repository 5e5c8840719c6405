"""The documentation as a site: MkDocs builds it without a warning, whole, and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from docs_markdown import ROOT, pages
from site_hooks import on_page_markdown

DOCS = ROOT / "docs"
# What a browser fetches by itself; a link is followed by people only.
LOADING = {"script", "img", "iframe", "source", "video", "audio", "embed", "object", "link", "use"}


class Loaded(HTMLParser):
    """`found` is what a page makes a browser fetch, `code` the texts of its code blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.code: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in LOADING:
            self.found += [value for name, value in attrs if name in ("src", "href", "data", "srcset") and value]
        elif tag == "code":
            self.code.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "code":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.code[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": ""}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stderr
    return folder


def read(path: Path) -> Loaded:
    page = Loaded()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@pytest.mark.slow
def test_each_page_is_on_the_site_with_all_its_code(site: Path) -> None:
    for page in pages():
        if not page.path.is_relative_to(DOCS):
            continue
        built = site / page.path.relative_to(DOCS).with_suffix(".html")
        code = {"".join(text.split()) for text in read(built).code}
        missing = [block.place for block in page.blocks if "".join(block.text.split()) not in code]
        assert missing == []
        assert "```" not in built.read_text(encoding="utf-8")


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    built = sorted(site.rglob("*.html"))
    assert len(built) > 30
    for path in built:
        elsewhere = [each for each in read(path).found if re.match(r"(https?:)?//", each)]
        assert elsewhere == [], path.name
        # What the theme's script would fetch for: figures of a repository, and diagrams.
        text = path.read_text(encoding="utf-8")
        assert 'data-md-component="source"' not in text
        assert 'class="mermaid"' not in text
    for path in sorted(site.rglob("*.css")):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text(encoding="utf-8")) == [], (
            path.name
        )


@pytest.mark.parametrize(
    ("info", "shown"),
    [
        ("console", "console"),
        ('console norun="needs a server"', "console"),
        ('helix title="a.helix" replies="b.toml"', 'text title="a.helix"'),
        ('python wrong title="slip.py"', 'python title="slip.py"'),
        ("jsonl", "json"),
    ],
)
def test_words_for_the_tests_are_not_on_the_site(info: str, shown: str) -> None:
    body = 'x\n```python norun="inside"\n'
    assert on_page_markdown(f"a\n````{info}\n{body}````\nb\n```output\n```\n") == (
        f"a\n````{shown}\n{body}````\nb\n```text\n```\n"
    )
