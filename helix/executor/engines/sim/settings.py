"""What a simulated engine is: its size, and SGLang's settings with SGLang's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from helix.errors import OptionError, name_help
from helix.executor.engines.sim.eviction import eviction

ORDERS = ("fcfs", "lpm", "dfs-weight", "lof", "random", "routing-key")
ROUTERS = ("round-robin", "least-queue", "prefix-aware")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSettings:
    """Sizes are in tokens unless they say otherwise; those of the cache and of running requests are of each rank.

    `policy` orders the waiting requests, `eviction` the leaves of the cache, `router` sends requests that name no rank.
    `chunk` are the tokens of a pass of prefill (None: prompts are not cut), `mixed_chunk` has such a pass decode too.
    With `priority_scheduling` the priority of requests orders them (fcfs and lof only), and one that is above a running
    one by more than `preemption_gap` takes its place unless `preemption` is off. `clip` bounds what a request is
    expected to generate; of that the share `ratio` is kept free for each running one, less with each pass of decoding
    down to `least_ratio` after `ratio_steps`. When decoding runs out of pages, requests are retracted until
    `retract_steps` more passes fit.

    `reply_tokens` is the mean length of replies, `step_tokens` that of single steps; a reply has between half and one
    and a half of it. `request_ms` is the time from a call to its place in the queue, `step_gap_us` that between passes.
    `seed` decides replies and everything drawn.
    """

    kv_tokens: int
    page: int = 1
    max_context: int = 131_072
    max_running: int = 256
    ranks: int = 1
    router: str = "round-robin"
    policy: str = "fcfs"
    eviction: str = "lru"
    prefix_cache: bool = True
    max_prefill: int = 16_384
    chunk: int | None = 8192
    mixed_chunk: bool = False
    priority_scheduling: bool = False
    preemption: bool = True
    preemption_gap: int = 10
    clip: int = 4096
    ratio: float = 0.7
    least_ratio: float = 0.098
    ratio_steps: int = 600
    retract_steps: int = 20
    matched_most: int = 128
    deferred_least: int = 32
    request_ms: float = 3.0
    step_gap_us: float = 1.0
    reply_tokens: int = 256
    step_tokens: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("page", "max_running", "ranks", "max_prefill", "clip", "reply_tokens", "retract_steps"):
            if getattr(self, name) < 1:
                raise OptionError(f"simulated engine: {name} must be at least 1, found {getattr(self, name)}")
        if self.chunk is not None and self.chunk < self.page:
            raise OptionError(f"simulated engine: chunk must hold a page ({self.page} tokens), found {self.chunk}")
        if self.kv_tokens < 8 * self.page:
            raise OptionError(
                f"simulated engine: kv_tokens must be at least 8 pages of {self.page}, found {self.kv_tokens}"
            )
        for what, found, known in (("policy", self.policy, ORDERS), ("router", self.router, ROUTERS)):
            if found not in known:
                raise OptionError(f"simulated engine: unknown {what} `{found}`; {name_help(found, known)}")
        eviction(self.eviction)
        if self.priority_scheduling and self.policy not in ("fcfs", "lof"):
            raise OptionError(f"priority_scheduling is for the policies fcfs and lof, found `{self.policy}`")
        for name in ("request_ms", "step_gap_us"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"simulated engine: {name} must be at least 0, found {getattr(self, name)}")
        if not 0 <= self.least_ratio <= self.ratio <= 1:
            raise OptionError(f"ratios are 0 <= least_ratio <= ratio <= 1, found {self.least_ratio}, {self.ratio}")

    @property
    def longest(self) -> int:
        """The most tokens of a request, prompt and reply together. Two pages are what admission keeps beside them."""
        return min(self.max_context, self.kv_tokens // self.page * self.page - 2 * self.page)
