"""The names that a template block takes from outside: read where the block itself has not surely set them."""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import nodes


def free_names(tree: nodes.Template) -> tuple[str, ...]:
    """The names that a template needs a value for, sorted.

    A name that only one branch of an `if` sets is needed too where it is read after it: the other branch leaves it to
    the outside.
    """
    free: set[str] = set()
    _statements(tree.body, frozenset(), free)
    return tuple(sorted(free))


def _statements(body: Iterable[nodes.Node], bound: frozenset[str], free: set[str]) -> frozenset[str]:
    """Adds the free names of some statements to `free`; returns the names that are set after them."""
    for node in body:
        match node:
            case nodes.If():
                free |= _read(node.test) - bound
                after = [_statements(node.body, bound, free)]
                for other in node.elif_:
                    free |= _read(other.test) - bound
                    after.append(_statements(other.body, bound, free))
                after.append(_statements(node.else_, bound, free))
                bound = frozenset.intersection(*after)
            case nodes.For():
                free |= _read(node.iter) - bound
                inner = bound | _set(node.target) | {"loop"}
                if node.test is not None:
                    free |= _read(node.test) - inner
                _statements(node.body, inner, free)
                _statements(node.else_, bound, free)
            case nodes.Assign():
                free |= _read(node.node) - bound
                bound |= _set(node.target)
            case _:
                free |= _read(node) - bound
    return bound


def _read(node: nodes.Node) -> set[str]:
    names = [node] if isinstance(node, nodes.Name) else node.find_all(nodes.Name)
    return {name.name for name in names if name.ctx == "load"}


def _set(target: nodes.Node) -> frozenset[str]:
    names = [target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name)
    return frozenset(name.name for name in names)
