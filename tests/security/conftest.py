"""What hostile files must never come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def quick(quick: Callable[..., Any]) -> Callable[..., Any]:
    """Runs the command in the folder, inside the test; it ends with a message, not with a fault of its own."""

    def run(*more: str | Path, **where: Any) -> Any:
        done = quick(*more, **where)
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        return done

    return run
