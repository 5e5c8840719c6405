"""Lower bounds of a probability, from what happened."""

from __future__ import annotations

import math

# A one-sided bound at 95 %.
Z = 1.64


def wilson(hits: float, chances: float, z: float = Z) -> float:
    """The lower end of Wilson's score interval (1927) for `hits` in `chances`; 0 without a chance."""
    if chances <= 0:
        return 0.0
    p = min(1.0, max(0.0, hits / chances))
    square = z * z
    middle = p + square / (2 * chances)
    spread = z * math.sqrt(p * (1 - p) / chances + square / (4 * chances * chances))
    return max(0.0, (middle - spread) / (1 + square / chances))


def beta_low(hits: float, chances: float, prior: float, strength: float, quantile: float = 0.05) -> float:
    """The lower quantile of the posterior of a rate: Beta(hits + strength*prior, misses + strength*(1 - prior))."""
    a = max(1e-3, hits + strength * prior)
    b = max(1e-3, chances - hits + strength * (1.0 - prior))
    low, high = 0.0, a / (a + b)
    if regularised_beta(high, a, b) < quantile:
        high = 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if regularised_beta(middle, a, b) < quantile:
            low = middle
        else:
            high = middle
    return low


def regularised_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz; Press et al., 6.4)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - front * _fraction(1.0 - x, b, a) / b
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 300):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            step = c * d
            value *= step
        if abs(step - 1.0) < 1e-10:
            break
    return value
