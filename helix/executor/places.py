"""The places of values, as the executor names them: see `helix.places`, which the optimizer reads too."""

from __future__ import annotations

from helix.places import NOWHERE, Place, Places, static_name

__all__ = ["NOWHERE", "Place", "Places", "static_name"]
