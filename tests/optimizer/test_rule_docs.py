"""The examples in the rules' docstrings are true, and each rule says what it must."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import pytest

from helix.optimizer.rule import RuleFunction
from helix.optimizer.rules import RULES

sys.path.insert(0, str(Path(__file__).parent))
from rules_support import knowing, seen, show


def quiet_show(*args: object, **kwargs: object) -> None:
    show(*args, **kwargs)  # type: ignore[arg-type]


# What examples may say besides the rule's own names.
GIVEN = {"show": quiet_show, "knowing": knowing, "seen": seen}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_example(rule: RuleFunction) -> None:
    module = importlib.import_module(f"helix.optimizer.rules.{rule.__name__}")
    examples = doctest.DocTestFinder(recurse=False).find(rule, rule.__name__, globs=vars(module) | GIVEN)
    assert [example for test in examples for example in test.examples], f"{rule.__name__} shows no example"
    for test in examples:
        result = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(test)
        assert result.failed == 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_docstring_says_law_soundness_and_benefit(rule: RuleFunction) -> None:
    text = rule.__doc__ or ""
    assert text.splitlines()[0].strip()
    assert "\n    Sound: " in text
    assert "\n    Pays: " in text
