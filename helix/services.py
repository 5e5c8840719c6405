"""What the steps of a plan call: models and tools, as the plan knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from helix.durations import duration
from helix.schema import Column
from helix.types import Type

Effects = Literal["pure", "read", "idempotent_write", "write", "destructive", "unknown"]
Origin = Literal["python", "sql", "http", "mcp"]


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
    """A tool as the plan knows it. `cost` and `timeout` are in seconds, `fee` is money for a call.

    `target` is `module:function`, a database, `METHOD url`, or `server:tool` of an MCP server. `query` is the fixed
    statement of a SQL tool, `headers` are those of an HTTP tool, `name: value` with `${NAME}` for what the environment
    holds, `hosts` the hosts beside its own that redirects may lead to.

    `freshness` says how long a result holds: a duration, `NOT_FRESH` where equal calls may give different ones at any
    time, `UNTIL_WRITE` where it holds until a call writes a state domain that the tool reads; None: for what is being
    done with it. `reads` and `writes` are the state domains, names with dots, `a` standing for all `a.b`; None where
    that is not declared, so that any state counts.

    `lane` is whose places its calls take, `concurrency` how many of the lane's calls are made at once, `rate_group`
    whose rate limit they count for. `cancellable` says that a call given up stops working, `open_world` that its
    arguments leave for a world nobody here controls, `speculate` whether it may be called on a guess; None leaves that
    to its effects, which is no for an open world. `hinted` leaves its effects to what a trusted server says.

    `version` stands for the source of a Python function. `max_rows` and `max_bytes` bound a result. `batch` is how many
    waiting calls one query may answer, where the query is a lookup by one key.
    """

    NOT_FRESH: ClassVar[str] = "0"
    UNTIL_WRITE: ClassVar[str] = "until_write"

    name: str
    origin: Origin
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
    description: str | None = None
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    concurrency: int | None = None
    rate_group: str | None = None
    fee: float | None = None
    cancellable: bool = False
    open_world: bool = False
    speculate: bool | None = None
    hinted: bool = False
    max_bytes: int | None = None
    headers: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def is_sqlite(self) -> bool:
        """Whether it reads a SQLite database, the one whose statements are known in full."""
        return self.origin == "sql" and self.target.startswith("sqlite:")

    @property
    def is_settled(self) -> bool:
        """Whether what it runs is known before the run: not a statement that a row or a model writes, which may ask for
        the time or for chance.
        """
        return self.origin != "sql" or self.query is not None or self.freshness is not None

    @property
    def holds(self) -> float | None:
        """For how many seconds a result holds; None where `freshness` tells no time."""
        return duration(self.freshness)

    @property
    def deterministic(self) -> bool:
        """Whether equal calls may share one result: the tool only reads, and what it read does not change meanwhile."""
        return self.effects in ("pure", "read") and self.freshness != self.NOT_FRESH

    @property
    def may_be_guessed(self) -> bool:
        """Whether it may be called before anybody asked for it, as far as declared: it only reads, the result does not
        age at once, and arguments leave for an open world only where `speculate` says that they may.
        """
        return self.deterministic and (self.speculate is True or (self.speculate is None and not self.open_world))
