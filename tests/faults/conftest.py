"""Short waits between attempts, and what a test says of the rows that it put through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_figures import Figure, noted

from helix.executor import attempts


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly any back-off in runs inside the test."""
    monkeypatch.setattr(attempts, "FIRST_BACKOFF", 0.01)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[Figure], None]:
    """Notes what became of the rows, for the table at the end; no row may be lost, come twice, or in another order."""

    def note(found: Figure) -> None:
        request.node.user_properties.append(noted(found))
        assert found.whole, found

    return note
