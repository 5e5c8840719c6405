"""Lengths of replies: which source applies, and what is made of lengths that a limit cut off."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from plans_support import plan_of

from helix.optimizer.lengths import Length, Lengths, length_of, signature
from helix.optimizer.tokens import estimate
from helix.optimizer.tree import resolve_plan
from helix.optimizer.tree.refs import CallSite


class Runs:
    """A profile with so many runs of 10 tokens."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[tuple[str, str | None]] = []

    def lengths(self, signature: str, model: str | None, sampling: str) -> Sequence[tuple[int, bool]]:
        self.asked.append((signature, model))
        return [(10, False)] * self.count


def site_of(step: str, model: str = "max_tokens: 80") -> CallSite:
    found = resolve_plan(plan_of(f"workflow w(q: text)\nmodel m {{ {model} }}\na = llm m {step}\noutput a"))
    return found.calls[0]


def source(lengths: Lengths, site: CallSite) -> tuple[str, float]:
    found = lengths.of(site, estimate())
    return found.source, found.mean


def test_the_first_source_that_applies() -> None:
    site = site_of('{ user "{{ q }}" }')
    profile, short = Runs(30), Runs(29)
    assert source(Lengths(measured={"a": [4, 6]}, profile=profile, sample={"a": [7]}), site) == ("measured", 5.0)
    assert source(Lengths(profile=profile, sample={"a": [7]}), site) == ("profile", 10.0)
    assert source(Lengths(profile=short, sample={"a": [7, 9]}), site) == ("sample", 8.0)
    assert source(Lengths(sample={"b": [7]}), site) == ("declared", 40.0)
    assert source(Lengths(), site_of('{ user "{{ q }}" }', 'name: "m"')) == ("assumed", 256.0)
    assert profile.asked == [(signature(site), None)]


def test_labels_are_declared_too() -> None:
    found = Lengths().of(site_of('-> choice["yes", "no"] { user "{{ q }}" }'), estimate())
    assert found.source == "declared"
    assert found.mean < 5
    assert found.p90 >= found.mean


def test_signatures_are_of_the_prompt_not_the_name() -> None:
    plan = plan_of("""
        workflow w(q: text)
        a = llm { user "Sort {{ q }}" }
        b = llm { user "Sort {{ q }}" }
        c = llm -> int { user "Sort {{ q }}" }
        output a, b, c
    """)
    one, other, third = (signature(site) for site in resolve_plan(plan).calls)
    assert one == other != third


def test_lengths_that_were_cut_off_are_longer() -> None:
    assert length_of([(10, False), (20, False), (30, False)], "profile") == Length(
        mean=20.0, p90=30.0, source="profile", runs=3
    )
    # Of four replies two reached the limit of 20: the mean up to the limit is 15, as far as it was seen.
    cut = length_of([(10, False), (10, False), (20, True), (20, True)], "profile")
    assert cut.mean == pytest.approx(15.0)
    assert cut.p90 == 20.0
    # One that was cut at 5 says nothing of what comes after 5.
    early = length_of([(5, True), (10, False), (20, False)], "profile")
    assert early.mean == pytest.approx(15.0)
    with pytest.raises(ValueError, match="no lengths"):
        length_of([], "profile")
