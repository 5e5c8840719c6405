"""What the steps of a plan call: models and tools, as the plan knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from helix.durations import duration
from helix.schema import Column
from helix.types import Type

Effects = Literal["pure", "read", "idempotent_write", "write", "destructive", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Which model a call asks, where, and how it samples. None leaves a choice to the command line or the engine.

    `temperature` 0 is Helix's default, since it makes runs repeatable; None leaves it to the engine. `extra` are
    further fields of the request as JSON text, passed through.
    """

    name: str | None = None
    engine: str | None = None
    temperature: float | None = 0.0
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as the plan knows it. `cost` and `timeout` in seconds; `query` is the fixed statement of a SQL tool.

    `freshness` says how long a result holds, `NOT_FRESH` that equal calls may give different ones at any time.
    `version` stands for the source of a Python function. `batch` is how many waiting calls one query may answer, where
    the query is a lookup by one key.
    """

    NOT_FRESH: ClassVar[str] = "0"

    name: str
    origin: Literal["python", "sql"]
    target: str
    params: tuple[Column, ...]
    returns: Type
    effects: Effects = "unknown"
    cost: float | None = None
    timeout: float | None = None
    lane: str | None = None
    freshness: str | None = None
    version: str | None = None
    query: str | None = None
    max_rows: int | None = None
    batch: int | None = None

    @property
    def holds(self) -> float | None:
        """For how many seconds a result holds; None where `freshness` tells no time."""
        return duration(self.freshness)

    @property
    def deterministic(self) -> bool:
        """Whether equal calls may share one result: the tool only reads, and what it read does not change meanwhile."""
        return self.effects in ("pure", "read") and self.freshness != self.NOT_FRESH
