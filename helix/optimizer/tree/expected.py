"""How often things happen, as far as the plan tells: items of lists, arms of branches. What it does not tell is assumed
by the numbers here, and whoever uses them says so.
"""

from __future__ import annotations

import json

from helix.expr import Arg, Binary, ListExpr, Literal
from helix.logical import Choose, Const, Project, Value
from helix.optimizer.tree.refs import Ref, Resolution
from helix.types import Choice

ITEMS = 5.0
SELECTIVITY = 0.5
GROUPS = 0.2


def list_length(ref: Ref) -> tuple[float, str]:
    """How many items a list has, and whether the plan says so (`plan`) or it is `assumed`."""
    if ref.kind == "const" and isinstance(ref.node, Const):
        value = json.loads(ref.node.json)
        return (float(len(value)), "plan") if isinstance(value, list) else (0.0, "plan")
    if ref.kind == "apply" and isinstance(ref.expr, ListExpr):
        return float(len(ref.expr.items)), "plan"
    return ITEMS, "assumed"


def branch_share(found: Resolution, node: Choose, condition: int, frame: int) -> tuple[float, str]:
    """How often a branch's first arm is taken when the branch is come to.

    Evenly over the labels of a choice that a chain of conditions asks for (`type`), else over the arms of the chain
    (`assumed`). `frame` is where the branch stands.
    """
    asked = _asked(found, condition)
    if asked is not None:
        labels = asked[1]
        place = found.places[frame]
        while place.kind == "otherwise" and place.value is not None and _asked(found, place.value) == asked:
            labels -= 1
            place = found.places[place.parent]
        return 1 / max(2, labels), "type"
    arms, body = 1, node.otherwise
    while chain := [inner for _, value in body.results for inner in _branches(value)]:
        arms += 1
        body = chain[0].otherwise
    return 1 / (arms + 1), "assumed"


def _asked(found: Resolution, condition: int) -> tuple[int, int] | None:
    """The choice that a condition compares with one of its labels, and how many labels it has."""
    ref = found.refs[condition]
    if not isinstance(ref.expr, Binary) or ref.expr.op != "==":
        return None
    for side, other in ((ref.expr.left, ref.expr.right), (ref.expr.right, ref.expr.left)):
        if isinstance(side, Arg) and isinstance(other, Literal):
            subject = ref.args[side.index]
            kind = found.refs[subject].type
            return (subject, len(kind.labels)) if isinstance(kind, Choice) else None
    return None


def _branches(value: Value) -> list[Choose]:
    return [value.source] if isinstance(value, Project) and isinstance(value.source, Choose) else []
