"""How long replies were in earlier runs, on whichever engine these were: what is simulated has made none itself."""

from __future__ import annotations

import os
from pathlib import Path

from helix.errors import OptionError
from helix.executor.store.profiles import LengthProfiles


class AnyEngine:
    """The lengths in a store, as the cost model asks for them."""

    def __init__(self, folder: Path) -> None:
        self._profiles = LengthProfiles(folder)

    def lengths(self, signature: str, model: str | None, sampling: str) -> list[tuple[int, bool]]:
        """The lengths of replies of this model, as the workflow names it, at any engine."""
        return self._profiles.anywhere(signature, model, sampling)

    def close(self) -> None:
        """Closes the store."""
        self._profiles.close()


def any_engine(store: str | os.PathLike[str] | None) -> AnyEngine | None:
    """What a store tells; None without one. Raises OptionError for a folder that holds none."""
    if store is None:
        return None
    folder = Path(store)
    if not LengthProfiles.there(folder):
        raise OptionError(f"{folder} holds no results of earlier runs; leave out --store, or run with it first")
    return AnyEngine(folder)
