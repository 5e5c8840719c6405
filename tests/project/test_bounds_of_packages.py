"""Each package that is wanted has a lowest version, which tests/project/lowest.py tries, and one that is too new."""

from __future__ import annotations

import tomllib
from pathlib import Path

from lowest import EXTRAS, ROOT, TESTS
from packaging.requirements import Requirement

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GROUPS = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}


def unbound(requirement: Requirement) -> bool:
    """Whether a version could be too old, or too new, without the requirement saying so."""
    signs = {each.operator for each in requirement.specifier}
    return signs != {"=="} and not (signs & {">=", "~="} and signs & {"<", "~="})


def test_packages_are_bound_at_both_ends() -> None:
    found = [text for group in GROUPS.values() for text in group if unbound(Requirement(text))]
    assert found == []


def test_what_is_unbound_is_found() -> None:
    assert [text for text in ("a", "a>=1", "a<2", "a==1", "a>=1,<2", "a~=1.2") if unbound(Requirement(text))] == [
        "a",
        "a>=1",
        "a<2",
    ]


def test_a_package_has_the_same_bounds_wherever_it_is_wanted() -> None:
    found: dict[str, set[str]] = {}
    for text in (text for group in GROUPS.values() for text in group):
        found.setdefault(Requirement(text).name, set()).add(str(Requirement(text).specifier))
    assert {name: each for name, each in found.items() if len(each) > 1} == {}


def test_the_lowest_versions_are_tried_of_all_but_a_few() -> None:
    # A server for GPUs and its estimates, an embedded model, and the site's builder.
    assert set(GROUPS) - set(EXTRAS) == {"", "aiconfigurator", "docs", "local", "sglang"}
    assert [test for test in TESTS if not Path(ROOT, test).exists()] == []
