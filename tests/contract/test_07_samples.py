"""Contract 7: more samples make the missing calls only, and the first values stay."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion
from running import Folder, said_calls

TEXT = """workflow t(a: text)
drafts = llm(sample: {n}, temperature: 0.8) {{ user "A title for {{{{ a }}}}" }}
best = llm {{ user "The best of {{{{ drafts }}}}" }}
output drafts, best
"""
ROWS = [{"a": "tea"}, {"a": "mugs"}, {"a": "tea"}]


def numbering() -> Any:
    """Answers each request with a number of its own."""
    seen: Counter[str] = Counter()

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        said = call.json["messages"][-1]["content"]
        seen[said] += 1
        return completion(
            f"{said.split()[-1]} {seen[said]}" if "title" in said else f"best of {len(json.loads(said[12:]))}"
        )

    return respond


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.rows(*ROWS)
    return folder


def drafts(folder: Folder) -> list[list[str]]:
    return [row["drafts"] for row in folder.read()]


def test_07_from_four_to_six_makes_two_more_calls_a_row_and_keeps_the_first_four(ready: Folder, quick: Any) -> None:
    with FakeServer(numbering()) as server:
        ready.workflow(TEXT.format(n=4))
        assert quick("-o", "out.jsonl", engine=server.url).returncode == 0
        four = drafts(ready)
        assert len({text for row in four for text in row}) == 12
        assert len(server.chats()) == 12 + 3
        ready.workflow(TEXT.format(n=6))
        done = quick("-o", "out.jsonl", engine=server.url)
        # Two more for each row, and what is made of six instead of four.
        assert said_calls(done.stderr) == 6 + 3
        assert len(server.chats()) == 15 + 9
        six = drafts(ready)
        assert [row[:4] for row in six] == four
        assert len({text for row in six for text in row}) == 18
        # Fewer again are the first ones.
        ready.workflow(TEXT.format(n=4))
        assert said_calls(quick("-o", "out.jsonl", engine=server.url).stderr) == 0
        assert drafts(ready) == four
        ready.workflow(TEXT.format(n=2))
        assert said_calls(quick("-o", "out.jsonl", engine=server.url).stderr) == 3
        assert drafts(ready) == [row[:2] for row in four]


def test_07_equal_rows_have_samples_of_their_own_that_stay_apart(ready: Folder, quick: Any) -> None:
    """Rows 0 and 2 are equal: their prompts are told apart by the ordinal."""
    with FakeServer(numbering()) as server:
        ready.workflow(TEXT.format(n=2))
        assert quick("-o", "out.jsonl", engine=server.url).returncode == 0
        before = drafts(ready)
        assert not set(before[0]) & set(before[2])
        made = len(server.chats())
        for more in (["-c", "1"], ["--rules", "none"], ["-o", "again.jsonl"]):
            assert quick("-o", "out.jsonl", *more, engine=server.url).returncode == 0
            assert drafts(ready) == before
        assert len(server.chats()) == made
        # A third equal row gets new ones, and the others keep theirs.
        ready.rows(*ROWS, {"a": "tea"})
        assert quick("-o", "out.jsonl", engine=server.url).returncode == 0
        assert drafts(ready)[:3] == before
        assert not set(drafts(ready)[3]) & set(before[0] + before[2])
        assert len([call for call in server.chats()[made:] if "title" in call.json["messages"][-1]["content"]]) == 2


def test_07_the_one_reply_of_a_step_without_samples_is_the_first_of_three(ready: Folder, quick: Any) -> None:
    with FakeServer(numbering()) as server:
        ready.workflow(TEXT.format(n=1))
        quick("-o", "out.jsonl", engine=server.url)
        one = drafts(ready)
        ready.workflow(TEXT.format(n=3))
        quick("-o", "out.jsonl", engine=server.url)
        assert [row[0] for row in drafts(ready)] == one


def test_07_in_a_loop_the_samples_of_each_item_stay(ready: Folder, quick: Any) -> None:
    text = """workflow t(a: text)
all = for tone in ["dry", "warm"] {{
  some = llm(sample: {n}, temperature: 1) {{ user "A {{{{ tone }}}} title for {{{{ a }}}}" }}
  yield some
}}
output all as drafts
"""
    with FakeServer(numbering()) as server:
        ready.workflow(text.format(n=2))
        quick("-o", "out.jsonl", engine=server.url)
        before = drafts(ready)
        ready.workflow(text.format(n=3))
        done = quick("-o", "out.jsonl", engine=server.url)
        assert said_calls(done.stderr) == 3 * 2
        assert [[item[:2] for item in row] for row in drafts(ready)] == before
