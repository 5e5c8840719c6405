"""Small helps for the LangGraph programs."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")


def merged(left: dict[Key, str] | None, right: dict[Key, str] | None) -> dict[Key, str]:
    """The reducer of a state field that several nodes of one step write to."""
    return {**(left or {}), **(right or {})}
