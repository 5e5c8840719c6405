"""What a simulated engine is: its size, and SGLang's settings with SGLang's defaults (vLLM's for its dialect)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from helix.errors import OptionError, name_help
from helix.executor.engines.sim.eviction import eviction

ORDERS = ("fcfs", "lpm", "dfs-weight", "lof", "random", "routing-key")
ROUTERS = ("round-robin", "least-queue", "prefix-aware")
DIALECTS = ("sglang", "vllm")
OVERLAPS = ("off", "device", "host")
WRITES = ("write-through", "write-through-selective", "write-back")

_POSITIVE = (
    "page", "max_running", "ranks", "max_prefill", "clip", "reply_tokens", "retract_steps", "budget", "kv_bytes",
    "host_least",
)  # fmt: skip
_NOT_NEGATIVE = (
    "request_ms", "step_gap_us", "host", "host_latency_us", "decode_ranks", "pd_latency_us", "pd_reserve"
)  # fmt: skip


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

    `overlap` says whether a pass is chosen before the results of the one before are looked at, as SGLang does by
    default: `device`, where these are looked at while the pass runs; `host`, where the processor that schedules
    computes too, so that they wait for its end; `off`. Ranks that only prefill or decode do without.

    `dialect` is whose scheduler it is. That of vLLM has one kind of pass, of at most `budget` tokens: first those that
    running requests need, then prompts, whole or in part; it evicts a page at a time, and knows nothing of `policy`,
    `chunk`, `max_prefill`, `mixed_chunk`, `overlap`, priorities, `clip` and ratios.

    `host` is the size of a second tier of the cache in the memory of the host (0: none), of each rank; `host_write`
    says when something is copied there: when it is put into the cache, when it is used for the second time, or when it
    is evicted. Prompts of which at least `host_least` tokens are there and not on the GPU wait until these are loaded.
    A copy takes `host_latency_us` and its bytes by `host_load_gbs` or `host_write_gbs` (GB/s, to the GPU and from it).

    `decode_ranks` of the ranks, the last ones, only decode, and the others only prefill. The KV of a prompt goes over
    in `pd_latency_us` and its bytes by `pd_gbs`, into pages that were reserved before the prompt is computed; beside
    these `pd_reserve` tokens are kept free for each request that decodes. `kv_bytes` are those of a token.

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
    overlap: str = "device"
    dialect: str = "sglang"
    budget: int = 2048
    kv_bytes: int = 131_072
    host: int = 0
    host_write: str = "write-through"
    host_least: int = 10
    host_latency_us: float = 10.0
    host_load_gbs: float = 50.0
    host_write_gbs: float = 50.0
    decode_ranks: int = 0
    pd_latency_us: float = 10.0
    pd_gbs: float = 50.0
    pd_reserve: int = 512
    reply_tokens: int = 256
    step_tokens: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise OptionError(f"simulated engine: {name} must be at least 1, found {getattr(self, name)}")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise OptionError(f"simulated engine: {name} must be at least 0, found {getattr(self, name)}")
        for name in ("host_load_gbs", "host_write_gbs", "pd_gbs"):
            if not getattr(self, name) > 0:
                raise OptionError(f"simulated engine: {name} must be above 0 GB/s, found {getattr(self, name)}")
        if self.chunk is not None and self.chunk < self.page:
            raise OptionError(f"simulated engine: chunk must hold a page ({self.page} tokens), found {self.chunk}")
        for name, least in (("kv_tokens", 8 * self.page), ("host", self.page if self.host else 0)):
            if getattr(self, name) < least:
                raise OptionError(
                    f"simulated engine: {name} must be at least {least // self.page} pages of {self.page}, "
                    f"found {getattr(self, name)}"
                )
        for what, known in (
            ("policy", ORDERS), ("router", ROUTERS), ("dialect", DIALECTS), ("host_write", WRITES),
            ("overlap", OVERLAPS),
        ):  # fmt: skip
            found = getattr(self, what)
            if found not in known:
                raise OptionError(f"simulated engine: unknown {what} `{found}`; {name_help(found, known)}")
        eviction(self.eviction)
        if self.priority_scheduling and self.policy not in ("fcfs", "lof"):
            raise OptionError(f"priority_scheduling is for the policies fcfs and lof, found `{self.policy}`")
        if not 0 <= self.least_ratio <= self.ratio <= 1:
            raise OptionError(f"ratios are 0 <= least_ratio <= ratio <= 1, found {self.least_ratio}, {self.ratio}")
        self._check_tiers()

    def _check_tiers(self) -> None:
        """Raises OptionError for what does not go together."""
        if self.decode_ranks >= self.ranks:
            raise OptionError(
                f"simulated engine: of {self.ranks} ranks {self.decode_ranks} decode; at least one must prefill"
            )
        if self.host and not self.prefix_cache:
            raise OptionError("simulated engine: a host tier takes a prefix cache; leave out host, or prefix_cache=off")
        if self.decode_ranks and self.mixed_chunk:
            raise OptionError("simulated engine: ranks that only prefill mix nothing; leave out mixed_chunk")
        if self.dialect == "vllm":
            for name in ("host", "decode_ranks", "mixed_chunk", "priority_scheduling"):
                if getattr(self, name):
                    raise OptionError(f"simulated engine: {name} is for the dialect sglang, found it with vllm")
            if self.policy != "fcfs":
                raise OptionError(
                    f"simulated engine: the dialect vllm knows the policy fcfs only, found `{self.policy}`"
                )

    @property
    def prefill_ranks(self) -> int:
        """The ranks that requests are sent to: all, but those that only decode."""
        return self.ranks - self.decode_ranks

    @property
    def keeps(self) -> bool:
        """Whether priorities say how long prompts stay cached, and nothing else."""
        return self.eviction == "priority" and not self.priority_scheduling

    @property
    def mixes(self) -> bool:
        """Whether a pass of prefill decodes too."""
        return self.mixed_chunk or self.dialect == "vllm"

    @property
    def longest(self) -> int:
        """The most tokens of a request, prompt and reply together. Two pages are what admission keeps beside them."""
        return min(self.max_context, self.kv_tokens // self.page * self.page - 2 * self.page)
