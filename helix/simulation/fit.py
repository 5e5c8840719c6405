"""Least squares in three coefficients, none below zero: small enough to need no library."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

Sample = tuple[tuple[float, float, float], float]


def fit_three(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Coefficients x >= 0 with the least sum of ((features . x - value) / value)^2.

    With three coefficients every subset of them can be tried: the best one whose solution is nowhere negative is the
    answer (the optimum is the plain solution on the coefficients that it does not put at zero).
    """
    best: tuple[float, tuple[float, float, float]] | None = None
    for size in (3, 2, 1):
        for chosen in combinations(range(3), size):
            found = _solve(samples, chosen)
            if found is None or min(found) < 0:
                continue
            error = sum((_dot(features, found) / value - 1) ** 2 for features, value in samples)
            if best is None or error < best[0]:
                best = error, found
    assert best is not None, "one positive feature alone always has a positive coefficient"
    return best[1]


def _dot(features: tuple[float, float, float], x: tuple[float, float, float]) -> float:
    return features[0] * x[0] + features[1] * x[1] + features[2] * x[2]


def _solve(samples: Sequence[Sample], chosen: tuple[int, ...]) -> tuple[float, float, float] | None:
    """The normal equations of the chosen coefficients by elimination; None where they do not tell them apart."""
    rows = [[each[0][index] / each[1] for index in chosen] for each in samples]
    # Columns differ by many orders of magnitude; scaled to length 1 they do not.
    scales = [sum(row[at] ** 2 for row in rows) ** 0.5 or 1.0 for at in range(len(chosen))]
    rows = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    size = len(chosen)
    matrix = [[sum(r[i] * r[j] for r in rows) for j in range(size)] + [sum(r[i] for r in rows)] for i in range(size)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(matrix[row][at]))
        if abs(matrix[pivot][at]) < 1e-10:
            return None
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        for row in range(size):
            if row != at:
                factor = matrix[row][at] / matrix[at][at]
                matrix[row] = [x - factor * y for x, y in zip(matrix[row], matrix[at], strict=True)]
    made = [0.0, 0.0, 0.0]
    for at, index in enumerate(chosen):
        made[index] = matrix[at][size] / matrix[at][at] / scales[at]
    return made[0], made[1], made[2]
