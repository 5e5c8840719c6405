"""Markdown as the tests of the documentation read it: code blocks with their info strings, headings and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]

LANGUAGES = frozenset({"console", "csv", "helix", "json", "jsonl", "output", "python", "text", "toml"})
# The words of an info string: each with the languages whose blocks may have it.
FLAGS = {"wrong": ("helix", "python"), "embedded": ("console",), "servers": ("console",)}
OPTIONS = {
    "title": ("csv", "helix", "json", "jsonl", "python", "text", "toml"),
    "replies": ("helix",),
    "norun": ("console", "python"),
}

_FENCE = re.compile(r"(?P<indent> {0,3})(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)")
_HEADING = re.compile(r"#{1,6} +(?P<text>.+?)(?: +#+)?\s*")
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced code block. `line` is the 1-based line of its fence; `text` ends with a line break or is empty."""

    page: str
    line: int
    language: str
    text: str
    flags: frozenset[str] = frozenset()
    options: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where the block is, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def title(self) -> str | None:
        """The file that the block is also written to."""
        return self.options.get("title")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A Markdown file. `anchors` are the ids of its headings, `links` the targets with their lines."""

    path: Path
    blocks: tuple[Block, ...]
    anchors: tuple[str, ...]
    links: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        """The path below the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()


def pages() -> list[Page]:
    """All pages that are tested: the documentation, README and CONTRIBUTING."""
    paths = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [read_page(path) for path in paths]


def read_page(path: Path) -> Page:
    """A page taken apart. Raises ValueError, with the place, for a block whose info string is not known."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    blocks: list[Block] = []
    prose: list[tuple[int, str]] = []
    lines = enumerate(text.split("\n"), 1)
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is None:
            prose.append((number, line))
        else:
            blocks.append(_block(name, number, fence, lines))
    headings = [_anchor(heading["text"]) for _, line in prose if (heading := _HEADING.fullmatch(line))]
    # A link may go on in the next line; the lines of code blocks are left empty, so that lines keep their numbers.
    written = dict(prose)
    whole = _CODE.sub("code", "\n".join(written.get(number, "") for number in range(1, text.count("\n") + 2)))
    links = [(whole.count("\n", 0, link.start()) + 1, link["target"]) for link in _LINK.finditer(whole)]
    return Page(path=path, blocks=tuple(blocks), anchors=tuple(filter(None, headings)), links=tuple(links))


def _block(page: str, number: int, fence: re.Match[str], lines: Iterator[tuple[int, str]]) -> Block:
    mark, indent = fence["mark"], len(fence["indent"])
    body: list[str] = []
    for _, line in lines:
        if line.strip() == mark:
            break
        body.append(line[min(indent, len(line) - len(line.lstrip())) :])
    else:
        raise ValueError(f"{page}:{number}: the code block is not closed")
    language, *words = shlex.split(fence["info"]) or [""]
    if language not in LANGUAGES:
        raise ValueError(f"{page}:{number}: a code block in `{language}`; known are {', '.join(sorted(LANGUAGES))}")
    flags, options = set(), {}
    for word in words:
        key, equals, value = word.partition("=")
        fits = language in (OPTIONS.get(key, ()) if equals else FLAGS.get(key, ()))
        if not fits or (equals and not value.strip()):
            raise ValueError(f"{page}:{number}: `{word}` cannot stand behind `{language}`")
        if equals:
            options[key] = value
        else:
            flags.add(key)
    text = "".join(f"{line}\n" for line in body)
    return Block(page=page, line=number, language=language, text=text, flags=frozenset(flags), options=options)


def _anchor(heading: str) -> str | None:
    """The id of a heading; None where GitHub and MkDocs make different ones of it, so that no link fits both."""
    plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip()
    on_github, on_the_site = plain.replace(" ", "-"), re.sub(r"[- ]+", "-", plain)
    return on_github if on_github == on_the_site else None


def rewrite(page: Page, texts: list[tuple[Block, str]]) -> None:
    """Puts other texts into blocks of a page."""
    lines = page.path.read_text(encoding="utf-8").split("\n")
    for block, text in sorted(texts, key=lambda each: each[0].line, reverse=True):
        lines[block.line : block.line + block.text.count("\n")] = [
            line.rstrip() for line in text.rstrip("\n").split("\n")
        ]
    page.path.write_text("\n".join(lines), encoding="utf-8")


def masked(text: str) -> list[str]:
    """The lines of an output without what differs from run to run: times, and white space at the end of a line."""
    timed = re.sub(r"\b(in|at) \d+(\.\d+)? s\b", r"\1 N s", text)
    return [line.rstrip() for line in timed.rstrip().split("\n")] if timed.strip() else []


def alike(expected: list[str], found: list[str]) -> bool:
    """Whether an output is what a page shows; a line `...` of the page stands for any number of lines."""
    if "..." not in expected:
        return expected == found
    cut = expected.index("...")
    head, rest = expected[:cut], expected[cut + 1 :]
    if found[:cut] != head:
        return False
    return any(alike(rest, found[start:]) for start in range(cut, len(found) + 1))
