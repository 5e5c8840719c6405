"""Comments of a formatted workflow: none is lost, none doubled, wherever they stand."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import workflows

from helix.errors import SourceErrors
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse
from helix.grammar.strings import MESSAGE
from helix.syntax import Workflow

_TOKEN = re.compile(r'"""[\s\S]*?"""|"(?>\\[^\n]|[^"\\\n])*+"|\w+|\s+|.')


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position, previous = 0, ""
    while position < len(text):
        found = MESSAGE.match(text, position) if previous in ("system", "user", "assistant", "part") else None
        found = found or _TOKEN.match(text, position)
        assert found is not None
        tokens.append(found[0])
        position = found.end()
        previous = previous if found[0].isspace() else found[0]
    return tokens


def _commented(text: str, workflow: Workflow, chance: random.Random, share: float) -> str:
    """The text with comments and line breaks between some of its tokens, wherever that leaves its meaning alone."""
    tokens = _tokens(text)
    gaps = [""] * len(tokens)
    places = [place for place in range(len(tokens)) if chance.random() < share]
    for place in places[:12]:
        kind = chance.choice(["  # c{}\n", "\n# c{}\n", "\n\n   # c{}\n\n", "\n", "\n\n", "# c{}\n# d{}\n"])
        gaps[place] = kind.replace("{}", str(place))
        try:
            meaning = parse("".join(token + gap for token, gap in zip(tokens, gaps, strict=True)))
        except SourceErrors:
            meaning = None
        if meaning != workflow:
            gaps[place] = ""
    return "".join(token + gap for token, gap in zip(tokens, gaps, strict=True))


@given(workflows(), st.randoms(use_true_random=False), st.sampled_from([0.02, 0.1, 0.5]))
def test_comments_anywhere_are_kept(workflow: Workflow, chance: random.Random, share: float) -> None:
    text = _commented(format_workflow(workflow), workflow, chance, share)
    commented = parse(text)
    formatted = format_workflow(commented)
    again = parse(formatted)
    assert again == workflow
    assert sorted(comment.text for comment in again.comments) == sorted(comment.text for comment in commented.comments)
    assert format_workflow(again) == formatted


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("x = a  # behind", "x = a  # behind"),
        ("# before\nx = a", "# before\nx = a"),
        ("x = [a,  # one\n  b]  # two", "x = [\n  a  # one\n  b\n]  # two"),
        ("x = a and  # one\n  b  # two", "x = a  # one\n  and b  # two"),
        ("let  # odd\n  x = a", "# odd\nlet x = a"),
        ("x = f(  # call\n)", "# call\nx = f()"),
        ("output a,  # one\n  b,  # two\n  c  # three", "output a,  # one\n  b,  # two\n  c  # three"),
        ("#!shebang\n#no space\n#", "#!shebang\n#no space\n#"),
        ("x = a # trailing space   ", "x = a  # trailing space"),
        ("if a { b = 1 }  # behind", "if a {\n  b = 1\n}  # behind"),
    ],
)
def test_where_comments_go(line: str, kept: str) -> None:
    assert format_workflow(parse(f"workflow w()\n{line}\n")) == f"workflow w()\n{kept}\n"
