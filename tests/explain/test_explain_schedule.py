"""How `helix explain` shows a schedule: the tree of each rank, the short form, JSON, graphs and the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from explain_support import explained, workflow_of
from running import command

from helix.errors import OptionError
from helix.executor.engines.base import Capabilities
from helix.executor.engines.scripted import ScriptedEngine
from helix.show import cells

NO_CALLS = "workflow w(n: int)\n\noutput n + 1 as m\n"
SUPPORT = """
workflow support(policy: text, question: text)

model main { max_tokens: 40 }

wants = llm main {
  system "RULES You say what a customer wants."
  user "{{ question }}"
}

answer = llm main {
  system "RULES You answer by this policy: {{ policy }}"
  user "{{ question }}"
}

letter = llm main {
  system "RULES You answer by this policy: {{ policy }}"
  user "{{ question }} Wanted: {{ wants }}"
}

output answer, letter
""".replace("RULES", "Mind the rules of the house. " * 60)


def rows(policies: int, each: int) -> list[dict[str, str]]:
    return [
        {"policy": f"Policy {number % policies}: {'things come back within some days, without reasons. ' * 20}",
         "question": f"May I send lamp {number} back?"}
        for number in range(policies * each)
    ]  # fmt: skip


def made(policies: int = 3, each: int = 4, **options: Any) -> Any:
    return explained(SUPPORT, rows(policies, each), rules=None, **options)


def test_the_tree_of_each_rank() -> None:
    text = made(ranks=2, kv_tokens=8192).text(stage="physical", width=110)
    tree, wanted = text.split("\n\n")
    lines = tree.splitlines()
    assert lines[0] == "Physical plan (12 rows on 2 ranks of 8,192 tokens)"
    assert [line.split("  ")[0] for line in lines if line.startswith("rank")] == ["rank 0", "rank 1"]
    # What is computed ahead, the groups, then the steps in their order.
    order = [text.index(part) for part in ("ahead: [system] Mind", "policy = ", "all rows", "wants", "row by row")]
    assert order == sorted(order)
    inside = text[text.index("row by row") :]
    assert inside.index("answer") < inside.index("letter")
    assert "computes ahead and releases steps as rank 0" in tree
    assert "the cache of a rank should hold" in tree
    assert wanted.startswith("Wanted of an SGLang server\n  --schedule-policy lpm\n    calls whose")


def test_all_rows_and_groups_are_told_once() -> None:
    found = made(5, 7, ranks=2, kv_tokens=8192)
    text = found.text(stage="physical", width=200, verbose=True)
    told = [int(count) for count in re.findall(r"policy = .*?  (\d+) rows?,", text)]
    assert sum(told) == 35
    heads = [int(count) for count in re.findall(r"^rank \d  \d+ groups?, (\d+) rows?", text, re.MULTILINE)]
    assert sum(heads) == 35


@pytest.mark.parametrize("width", [40, 57, 100, 180])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, color: bool) -> None:
    found = made(13, 2, ranks=3, kv_tokens=4096)
    for stage in ("physical", "all"):
        text = found.text(stage=stage, width=width, color=color, verbose=color)
        plain = re.sub(r"\x1b\[\d+m", "", text)
        assert max(cells(line) for line in plain.splitlines()) <= width
        assert (plain != text) == color


def test_many_groups_are_cut_unless_asked_for() -> None:
    found = made(30, 2)
    short, long = (found.text(stage="physical", width=100, verbose=verbose) for verbose in (False, True))
    assert short.count("policy = ") == 8
    assert "22 more groups" in short
    assert long.count("policy = ") == 30


def test_the_short_form_stands_in_the_whole() -> None:
    text = made(ranks=2).text(width=100)
    (section,) = re.findall(r"^Schedule .*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    assert section.startswith("Schedule (12 rows on 2 ranks)\n  wants, then (answer + letter)\n")
    assert "computed ahead: " in section
    assert "rank 1: " in section
    # One step alone is in no order.
    assert "Schedule" not in explained('workflow w(q: text)\na = llm { user "{{ q }}" }\noutput a').text()


def test_without_steps_there_is_nothing_to_schedule() -> None:
    text = explained(NO_CALLS).text(stage="physical")
    assert "no llm steps" in text
    assert "Wanted" not in text


def test_json_holds_the_plan() -> None:
    shown = made(ranks=2, kv_tokens=8192).to_json(stage="physical")["physical"]
    assert json.loads(json.dumps(shown)) == shown
    assert shown["ranks"] == 2
    assert shown["kv_tokens"] == 8192
    assert [step["step"] for step in shown["steps"]] == ["wants", "answer", "letter"]
    assert [step["phase"] for step in shown["steps"]] == [0, 1, 1]
    assert sum(group["rows"] for group in shown["groups"]) == 12
    assert shown["warm"][0]["messages"][0][0] == "system"
    assert shown["warm"][0]["after"] is None
    assert {each["flag"] for each in shown["advice"]} >= {"--schedule-policy", "--dp-size"}


def test_graphs_and_the_page_show_it() -> None:
    found = made(ranks=2)
    mermaid, dot, page = found.to_mermaid(stage="physical"), found.to_dot(stage="physical"), found.to_html()
    for graph in (mermaid, dot):
        assert graph.index("phase 1") < graph.index("phase 2")
        assert graph.index("wants") < graph.index("answer") < graph.index("letter")
        assert "rank 1" in graph
        assert "ahead" in graph
    assert "<h2>Schedule</h2>" in page
    assert "Wanted of an SGLang server" in page
    assert "<h2>Schedule</h2>" not in explained(NO_CALLS).to_html()


class Ranked(ScriptedEngine):
    """A scripted engine of three workers."""

    async def open(self, *, concurrency: int) -> Capabilities:
        opened = await super().open(concurrency=concurrency)
        return replace(opened, ranks=3, kv_tokens=6000, max_running=7)


def test_an_engines_workers_are_scheduled_for() -> None:
    plan = made(engine=Ranked()).report.physical
    assert (plan.ranks, plan.kv_tokens, plan.max_running) == (3, 6000, 7)
    asked = made(engine=Ranked(), ranks=2, kv_tokens=9000).report.physical
    assert (asked.ranks, asked.kv_tokens, asked.max_running) == (2, 9000, 7)


@pytest.mark.parametrize(("name", "value"), [("ranks", 0), ("kv_tokens", -1), ("plan_budget", -1.0)])
def test_what_no_deployment_has_is_refused(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name} is . or more, found {value}"):
        explained(SUPPORT, **{name: value})


def test_from_the_command_line(tmp_path: Any) -> None:
    (tmp_path / "s.helix").write_text(SUPPORT.strip() + "\n", encoding="utf-8")
    table = "".join(json.dumps(row) + "\n" for row in rows(4, 3))
    (tmp_path / "rows.jsonl").write_text(table, encoding="utf-8")
    options = ("--stage", "physical", "--ranks", "4", "--kv-tokens", "5000", "--plan-budget", "0", "--width", "80")
    done = command("explain", tmp_path / "s.helix", "-i", tmp_path / "rows.jsonl", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Physical plan (12 rows on 4 ranks of 5,000 tokens)\nrank 0")
    assert done.stdout.count("\nrank ") == 4
    assert max(map(len, done.stdout.splitlines())) <= 80
    wrong = command("explain", tmp_path / "s.helix", "--ranks", "0")
    assert wrong.returncode == 2
    assert "0 is not in the range x>=1" in wrong.stderr


def test_workflow_objects_take_the_options() -> None:
    assert workflow_of(SUPPORT).explain(ranks=5).report.physical.ranks == 5
