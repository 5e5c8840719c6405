"""The embedded engine: a small model in a child process of its own, for runs without any server.

`EmbeddedEngine` is in `engine`; `python -m helix.executor.engines.embedded` is the child, which is why this file
imports nothing when it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helix.executor.engines.embedded.engine import EmbeddedEngine

__all__ = ["EmbeddedEngine"]


def __getattr__(name: str) -> Any:
    if name == "EmbeddedEngine":
        from helix.executor.engines.embedded.engine import EmbeddedEngine

        return EmbeddedEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
