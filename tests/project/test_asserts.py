"""Asserts of the package tell types what is known by then. None checks what comes from outside: `python -O` drops them.

So bandit's B101 is off for the whole package. The caches of the simulated engines check their own books besides.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "helix"
BOOKS = PACKAGE / "executor" / "engines" / "sim"


def tells_types(test: ast.expr) -> bool:
    """Whether a condition is `x is not None`, `isinstance(x, T)`, or several of them."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(map(tells_types, test.values))
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot)
    return isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"


def others(text: str) -> list[str]:
    """The asserts of a text that do more than that."""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert))
    return [ast.unparse(node.test) for node in found if not tells_types(node.test)]


def test_asserts_tell_types_only() -> None:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if BOOKS not in path.parents]
    found = {path.relative_to(PACKAGE).as_posix(): others(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: each for path, each in found.items() if each} == {}


def test_others_are_found() -> None:
    assert others("assert a is not None and isinstance(b, str)\nassert path.is_file()\nassert a or b is not None") == [
        "path.is_file()",
        "a or b is not None",
    ]
