"""The tools of the helpdesk example: bookings and bikes of a hire shop, looked up in `bikes.json` beside this file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


def find_bookings(customer: str) -> list[dict]:
    """The bookings of a customer, by customer number."""
    return [booking for booking in _books()["bookings"] if booking["customer"] == customer]


def look_at_bike(bike: str) -> Any:
    """The state of a bike, and from when it is free; null for one that the shop does not have."""
    return _books()["bikes"].get(bike)


@cache
def _books() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("bikes.json").read_text(encoding="utf-8"))
