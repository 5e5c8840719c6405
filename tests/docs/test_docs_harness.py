"""What the tests of the documentation notice: each kind of wrong block on a page of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_blocks import Session, wrong_options
from docs_markdown import alike, masked, read_page, rewrite

HELLO = 'workflow hello(name: text)\n\ngreeting = llm { user "Hello {{ name }}" }\n\noutput greeting\n'
ROW = '{"name": "Ada"}\n'
RESULT = '{"_row": 0, "greeting": "scripted 2985cb44d39f", "_error": null}\n'


def fence(info: str, text: str) -> str:
    return f"```{info}\n{text}```\n"


RUN = "helix run hello.helix -i rows.jsonl"
ON_SERVERS = (fence('helix title="hello.helix"', HELLO), fence('jsonl title="rows.jsonl"', ROW + '{"name": "Bob"}\n'))


def wrongs(tmp_path: Path, *blocks: str) -> list[str]:
    """What is wrong with a page of these blocks."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n" + "\n".join(blocks), encoding="utf-8")
    (tmp_path / "run").mkdir()
    session = Session(read_page(page), tmp_path / "run")
    session.run()
    return session.failures + [each.message for each in session.corrections]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([fence("helix", HELLO.replace("{{ name", "{{ nam"))], "error: unknown name `nam`"),
        ([fence("helix", HELLO.replace("name: text", "name: text, age: int"))], "warning: input `age` is never used"),
        ([fence("helix", HELLO), fence("jsonl", '{"name": ""}\n')], "a row failed"),
        ([fence("helix", HELLO), fence("jsonl", ROW), fence("output", "{}\n")], "the output is not as shown"),
        ([fence("helix wrong", HELLO)], "no mistake was found"),
        ([fence("helix wrong", "workflow\n")], "a wrong workflow needs an output block"),
        ([fence("helix wrong", "workflow\n"), fence("output", "error: x\n")], "the output is not as shown"),
        ([fence("python", "print(1)\n")], "it prints what is not shown"),
        ([fence("python", "print(1)\n"), fence("output", "2\n")], "the output is not as shown"),
        ([fence("python", "import helix as hx\nhx.loads('x')\n")], "Traceback"),
        ([fence("python wrong", "x = 1\n")], "no error was raised"),
        ([fence("console", "$ echo one\ntwo\n")], "`echo one` prints otherwise"),
        ([fence("console", "echo one\n")], "no command"),
        ([fence("console", "$ helix check nothing.helix\n")], "error: the workflow nothing.helix does not exist"),
        ([fence('console norun="a server"', "$ helix run x.helix --outputs y\n")], "No such option"),
        ([fence("console embedded", "$ helix ruin x.helix\n")], "there is no command `ruin`"),
        ([*ON_SERVERS, fence("console servers", f"$ {RUN} -e sglang://a:1\nno rows\n")], "prints otherwise than shown"),
        ([*ON_SERVERS, fence("console servers", f"$ {RUN} -e sglang://a:1 -m x; false\n")], "ends with 1"),
        ([*ON_SERVERS, fence("console servers", f"$ {RUN} -e http://a:1/v1 --max-calls 1\n")], "ends with 3"),
        ([fence("jsonl", "{\n")], "JSONDecodeError"),
        ([fence("toml", "a = \n")], "TOMLDecodeError"),
        ([fence("output", "1\n")], "an output without a block before it"),
    ],
)
def test_wrong_blocks_are_noticed(blocks: list[str], message: str, tmp_path: Path) -> None:
    assert any(message in found for found in wrongs(tmp_path, *blocks))


def test_right_blocks_pass(tmp_path: Path) -> None:
    blocks = [
        fence('helix title="hello.helix"', HELLO),
        fence("jsonl", ROW),
        fence("output", RESULT),
        fence('jsonl title="rows.jsonl"', ROW),
        fence(
            "console servers",
            f"$ {RUN} -o out.csv -e sglang://a:1,b:2 -m tiny\n"
            "...\n"
            f"$ KEY=1 {RUN} -q --fresh -e https://api.example.com/v1\n...\n",
        ),
        fence(
            "console", f"$ helix run hello.helix -i rows.jsonl -e scripted -q\n{RESULT}$ cd ..; false\n$ echo $?\n1\n"
        ),
        fence("console", "$ ls page/*.helix\npage/hello.helix\n"),
        fence("python", "import asyncio\nawait asyncio.sleep(0)\nnumber = 1\n"),
        fence("python", "print(number)\n"),
        fence("output", "1\n"),
    ]
    assert wrongs(tmp_path, *blocks) == []


@pytest.mark.parametrize("info", ["", "rust", "helix titel=x", "helix norun=x", "console wrong", 'console norun=""'])
def test_unknown_info_strings_are_refused(info: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{fence(info, '')}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md:1"):
        read_page(page)


def test_links_and_anchors(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "# One `two`\n\n## A - b\n\nA [link\nover lines](x.md#y) and `[no](link)`.\n\n```text\n[no](link)\n```\n"
    page.write_text(text, encoding="utf-8")
    found = read_page(page)
    assert found.anchors == ("one-two",)
    assert found.links == ((5, "x.md#y"),)


def test_outputs_are_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(fence("python", "print(1)\n") + fence("output", "") + "end\n", encoding="utf-8")
    found = read_page(page)
    rewrite(found, [(found.blocks[1], "1\n2\n")])
    assert page.read_text(encoding="utf-8") == fence("python", "print(1)\n") + fence("output", "1\n2\n") + "end\n"


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("...\n", "", True),
        ("a\n...\n", "b\n", False),
        ("...\nd\n", "d\nc\n", False),
        ("2 rows in 0.1 s\n", "2 rows in 12 s\n", True),
        ("2 rows in 0.1 s\n", "3 rows in 0.1 s\n", False),
        ("call at 0.1 s: x\n", "call at 2 s: x\n", True),
    ],
)
def test_comparison(expected: str, found: str, same: bool) -> None:
    assert alike(masked(expected), masked(found)) is same


def test_options_of_commands_are_read_without_running_them() -> None:
    assert wrong_options("KEY=1 helix run x.helix -i y.jsonl -c 4 | head") is None
    assert wrong_options("ls --nonsense") is None
    assert wrong_options("helix --version") is None
    assert "--versoin" in (wrong_options("helix --versoin") or "")
    assert "--concurrency" in (wrong_options("helix run x.helix -c many") or "")
