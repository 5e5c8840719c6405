"""`docs/reference/rules.md` is made of the rules' docstrings; `--update-golden` writes it anew."""

from __future__ import annotations

import doctest
import inspect
import textwrap
from pathlib import Path

from helix.optimizer.rule import RuleFunction, describe
from helix.optimizer.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
HEAD = """\
# Rules

The rules of the optimizer, in the order in which they are applied, again and again until none of them changes the plan.
Each is exact: the same rows in the same order, the same values, the same errors in place;
[the optimizer](../explanation/optimizer.md) says what that rests on. `helix explain` shows which rules change a
workflow and what they save; `--rules A,B` and `--without A,B` choose among them, for `helix run` too.

This page is made of the docstrings of `helix/optimizer/rules/`.
"""


def page() -> str:
    """The text that the page has to be."""
    parts = [HEAD]
    parts += [_section(function) for function in RULES]
    return "\n".join(parts)


def _section(function: RuleFunction) -> str:
    rule = describe(function)
    lines = [f"## {rule.name}", "", f"**{rule.law}**", ""]
    prose, example = _split(inspect.getdoc(function) or "")
    lines += [*prose, ""]
    if rule.lossy:
        lines += ["It may change an answer and runs only where it is asked for by name.", ""]
    source, shown = example
    lines += ["The plan of", "", "```text", *source, "```", "", "becomes", "", "```text", *shown, "```", ""]
    return "\n".join(lines)


def _split(text: str) -> tuple[list[str], tuple[list[str], list[str]]]:
    """The prose of a docstring after its first line, and its example: a workflow, and the plan after the rule."""
    example = doctest.DocTestParser().get_examples(text)[0]
    prose = text[: text.index(">>>")].strip().split("\n")[1:]
    while prose and not prose[0].strip():
        prose.pop(0)
    paragraphs: list[str] = []
    for line in prose:
        if line.startswith(("Sound:", "Pays:")):
            word, _, rest = line.partition(":")
            paragraphs += ["", f"*{word}:*{rest}"] if paragraphs else [f"*{word}:*{rest}"]
        else:
            paragraphs.append(line.rstrip())
    source = textwrap.dedent(example.source.split("'''")[1]).strip().split("\n")
    return paragraphs, (source, example.want.rstrip("\n").split("\n"))


def test_the_page_says_what_the_rules_say(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
