"""Lower bounds of a rate."""

from __future__ import annotations

import random

import pytest

from helix.mining.confidence import beta_low, regularised_beta, wilson


def test_wilson_against_known_values():
    # Brown, Cai and DasGupta give the interval's formula; these were worked out by hand from it.
    assert wilson(0, 0) == 0.0
    assert wilson(0, 10) == pytest.approx(0.0)
    assert wilson(10, 10) == pytest.approx(10 / (10 + 1.64**2))
    assert wilson(5, 10, z=1.96) == pytest.approx(0.2366, abs=1e-4)
    assert wilson(81, 263, z=1.96) == pytest.approx(0.2553, abs=1e-4)


def test_the_beta_function_against_known_values():
    # I_x(1, 1) = x; I_x(2, 1) = x^2; I_x(1, b) = 1 - (1 - x)^b; I_0.5(a, a) = 1/2.
    for x in (0.01, 0.3, 0.5, 0.9):
        assert regularised_beta(x, 1, 1) == pytest.approx(x)
        assert regularised_beta(x, 2, 1) == pytest.approx(x * x)
        assert regularised_beta(x, 1, 7) == pytest.approx(1 - (1 - x) ** 7)
    assert regularised_beta(0.5, 30, 30) == pytest.approx(0.5)
    assert (regularised_beta(0, 2, 3), regularised_beta(1, 2, 3)) == (0.0, 1.0)


def test_a_posterior_lies_between_its_prior_and_what_was_seen():
    assert beta_low(0, 0, 0.5, 2) == pytest.approx(0.05)
    assert beta_low(95, 100, 0.5, 6) < 0.95
    assert beta_low(95, 100, 0.5, 6) > beta_low(9.5, 10, 0.5, 6) > beta_low(0, 0, 0.5, 6)
    assert beta_low(0, 50, 0.9, 6) < 0.2


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_bound_is_below_the_rate_about_19_times_in_20(rate):
    draw = random.Random(3)
    below = 0
    for _ in range(1000):
        hits = sum(draw.random() < rate for _ in range(60))
        below += wilson(hits, 60) <= rate
    assert below >= 920
