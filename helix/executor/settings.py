"""The settings of a run, as the command line and Python give them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from helix.errors import OptionError
from helix.executor.speculation.settings import SpeculationSettings, mode_of

# What is asked at once of an engine that does not tell how much it runs.
CALLS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run behaves. Times are in seconds; None is no limit.

    `concurrency` are the calls in flight at once (None: what the engine runs at once, else 16), `policy` is how they
    are released. `max_failed` is a number of rows, or with `max_failed_percent` a share of all rows. `attempts` bounds
    each call, `wait_limit` the time that a call waits for an overloaded server, and all calls for one that has gone
    away. `merge` lets equal deterministic calls share one. Runs of different `tenant`s share no cached prefix in the
    engine.

    `lanes` are the calls that lanes of tools make at once, by name (`tools` is that of tools without one).
    `allow_hosts` are all hosts that tools may ask over HTTP (None: those that the workflow names), `allow_private`
    those that may lie at private, loopback and link-local addresses, `allow_files` are databases, or folders of such,
    that SQL tools may read outside of the workflow's folder. `mcp_config` is the file that names the MCP servers (None:
    `mcp.json` beside the workflow), `trust_servers` are those of them whose hints on effects count. `secrets` is a TOML
    file with values of `${NAME}` in tools, before those of the environment.

    `speculate` makes reads ready that will probably be asked for: `off`, `shadow` (counts what that would save) or
    `on`; `patterns` is a file of mined patterns, or a `helix.mining.Miner`, `speculation` how it is bounded.
    """

    concurrency: int | None = None
    policy: str = "helix"
    call_timeout: float | None = None
    run_timeout: float | None = None
    attempts: int = 3
    wait_limit: float = 600.0
    max_failed: float | None = None
    max_failed_percent: bool = False
    max_calls: int | None = None
    max_tokens: int | None = None
    merge: bool = True
    on_bad_row: Literal["stop", "keep"] = "stop"
    limit: int | None = None
    tenant: str | None = None
    lanes: Mapping[str, int] | None = None
    allow_hosts: Sequence[str] | None = None
    allow_private: Sequence[str] = ()
    allow_files: Sequence[str | os.PathLike[str]] = ()
    mcp_config: str | os.PathLike[str] | None = None
    trust_servers: Sequence[str] = ()
    secrets: str | os.PathLike[str] | None = None
    speculate: str = "off"
    patterns: str | os.PathLike[str] | object | None = None
    speculation: SpeculationSettings | None = None

    def __post_init__(self) -> None:
        _at_least(1, concurrency=self.concurrency, attempts=self.attempts)
        _at_least(0, max_failed=self.max_failed, max_calls=self.max_calls, max_tokens=self.max_tokens, limit=self.limit)
        _at_least(0, wait_limit=self.wait_limit)
        for name, value in (("call_timeout", self.call_timeout), ("run_timeout", self.run_timeout)):
            if value is not None and not 0 < value < float("inf"):
                raise OptionError(f"{name} must be more than 0 seconds, found {value}")
        if self.max_failed_percent and self.max_failed is not None and self.max_failed > 100:
            raise OptionError(f"max_failed is at most 100%, found {self.max_failed:g}%")
        if self.tenant is not None and not self.tenant.strip():
            raise OptionError("tenant is a name, found a blank one")
        for name, size in (self.lanes or {}).items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise OptionError(f"lanes are numbers of at least 1, found {size} for `{name}`")
        for option in ("allow_hosts", "allow_private", "allow_files", "trust_servers"):
            if isinstance(getattr(self, option), str):
                raise OptionError(f"{option} is a list, found one text")
        if mode_of(self.speculate) == "off" and self.patterns is not None:
            raise OptionError("patterns are for runs with speculate `shadow` or `on`")
        if self.on_bad_row not in ("stop", "keep"):
            raise OptionError(f"on_bad_row is `stop` or `keep`, found `{self.on_bad_row}`")

    @property
    def calls_at_once(self) -> int:
        """The calls in flight at once on an engine that does not tell how many it runs."""
        return self.concurrency or CALLS_AT_ONCE

    @property
    def may_end_early(self) -> bool:
        """Whether the run may end by itself before its last row: then rows are worked on in the order of the input."""
        return any(limit is not None for limit in (self.run_timeout, self.max_failed, self.max_calls, self.max_tokens))


def _at_least(least: int, **given: float | None) -> None:
    for name, value in given.items():
        # Written so that NaN, which is neither below nor above, is refused too.
        if value is not None and not value >= least:
            raise OptionError(f"{name} must be at least {least}, found {value}")
