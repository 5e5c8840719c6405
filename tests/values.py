"""Random JSON values of a type."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from helix.types import BOOL, FLOAT, INT, TEXT, Choice, ListOf, Optional, Record, Type


def values(kind: Type) -> st.SearchStrategy[Any]:
    """JSON values of a type; texts are never blank."""
    match kind:
        case Optional(inner):
            return st.none() | values(inner)
        case ListOf(item):
            return st.lists(values(item), max_size=3)
        case Choice(labels):
            return st.sampled_from(labels)
        case Record(fields):
            return st.fixed_dictionaries({name: values(each) for name, each in fields})
    scalars: dict[Type, st.SearchStrategy[Any]] = {
        TEXT: st.sampled_from(["red", "bug report", "a, b, c", "42", "{{ x }}", "ไทย", "long " * 5]),
        INT: st.integers(-3, 40),
        FLOAT: st.sampled_from([0.0, -1.5, 0.25, 1e9, 3.0]),
        BOOL: st.booleans(),
    }
    anything = st.one_of(st.none(), st.integers(-3, 3), st.just("x"), st.just([1, "a"]), st.just({"a": 1}))
    return scalars.get(kind, anything)
