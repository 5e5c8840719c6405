"""What a run keeps for later ones, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helix.errors import OptionError
from helix.executor.store.results import DEFAULT_BYTES

FOLDER = Path(".helix")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where results are kept, and what is taken from there.

    `named` says that the folder was asked for: then it is an error where it cannot be written. `resume` keeps a
    journal, so that the same run goes on where it ended. `fresh` makes every call again, `retry_failed` those that
    failed. `most` bounds the bytes of the values of the store.
    """

    folder: Path = FOLDER
    named: bool = False
    resume: bool = True
    fresh: bool = False
    retry_failed: bool = False
    most: int = DEFAULT_BYTES

    def __post_init__(self) -> None:
        if self.most < 0:
            raise OptionError(f"the size of the store must be at least 0 bytes, found {self.most}")
        if self.retry_failed and not self.resume:
            raise OptionError("failed calls can be made again only where a run is resumed")
