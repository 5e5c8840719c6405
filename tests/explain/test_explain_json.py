"""The JSON has the shape that the documentation gives, and holds real plans."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from explain_support import ROWS, TWICE, explained
from running import ROOT

from helix.optimizer.cost import Cost
from helix.plan_json import from_json

KEYS = [
    "format", "version", "workflow", "warnings", "logical", "rules", "idle", "optimized", "tree", "physical", "table",
    "cost", "measured",
]  # fmt: skip
RULE = ["name", "law", "sound", "pays", "lossy", "times", "changes", "before", "after", "saves"]
CHANGE = ["kind", "steps", "detail", "count", "text"]
TOTALS = ["llm_calls", "tool_calls", "prompt_tokens", "distinct_tokens", "output_tokens"]
MEASURED = ["optimized", "engine", "rows", "failed_rows", "seconds", "steps", "bounds", "stopped", "notes"]


def documented() -> dict[str, list[str]]:
    """The keys in the table of the reference, each with the names in its second cell."""
    text = (ROOT / "docs" / "reference" / "explain.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| key \| value \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    found: dict[str, list[str]] = {}
    for line in table.splitlines():
        keys, value = line.strip("|").split("|", 1)
        for key in re.findall(r"`(\w+)`", keys):
            found[key] = re.findall(r"`(\w+)`", value)
    return found


def test_keys_are_those_of_the_reference() -> None:
    made = explained(TWICE, ROWS, analyze=True, engine="scripted").to_json()
    assert list(made) == KEYS
    told = documented()
    assert set(told) == set(KEYS)
    rule = made["rules"][0]
    assert list(rule) == RULE
    assert list(rule["changes"][0]) == CHANGE
    assert list(rule["before"]) == list(rule["after"]) == TOTALS
    assert set(told["rules"]) == {*RULE, *CHANGE, *TOTALS}
    assert list(made["measured"]) == MEASURED == told["measured"]
    assert set(told["cost"]) == {"plain", "optimized", *made["cost"]["plain"]}
    assert set(made["cost"]["plain"]) == set(Cost.__slots__)
    assert set(told["table"]) == {*made["table"], *made["table"]["columns"]["text"]}
    assert set(told["physical"]) == set(made["physical"])
    assert set(told["tree"]) == {*made["tree"], *made["tree"]["nodes"][0]}


def test_it_is_json_and_its_plans_are_plans() -> None:
    explanation = explained(TWICE)
    text = json.dumps(explanation.to_json(), allow_nan=False)
    made = json.loads(text)
    assert (made["format"], made["version"], made["workflow"]) == ("helix-explain", 1, "twice")
    assert from_json(made["logical"]) == explanation.report.plain
    assert from_json(made["optimized"]) == explanation.plan
    assert made["table"] is None
    assert made["measured"] is None
    assert made["rules"][0]["changes"][0]["text"] == "merges gist into short"
    assert made["rules"][0]["before"]["llm_calls"] == 4
    assert made["rules"][0]["after"]["llm_calls"] == 3
    assert made["warnings"] == ["step `spare` is never used (test.helix:11:1)"]


@pytest.mark.parametrize(
    ("stage", "keys"),
    [
        ("all", KEYS),
        ("logical", ["warnings", "logical"]),
        ("optimized", ["rules", "idle", "optimized"]),
        ("tree", ["tree"]),
        ("physical", ["physical"]),
        ("cost", ["table", "cost", "measured"]),
    ],
)
def test_a_stage_leaves_the_others_out(stage: Any, keys: list[str]) -> None:
    made = explained(TWICE).to_json(stage=stage)
    assert [key for key in made if key not in ("format", "version", "workflow")] == [
        key for key in keys if key not in ("format", "version", "workflow")
    ]


def test_numbers_carry_no_noise() -> None:
    def floats(value: Any) -> list[float]:
        if isinstance(value, float):
            return [value]
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [each for item in items for each in floats(item)]

    found = floats(explained(TWICE, ROWS).to_json())
    assert found
    assert all(value == 0 or (abs(value) > 1e-12 and value == float(f"{value:.12g}")) for value in found)
