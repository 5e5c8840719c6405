"""What is compared: a policy, the calls at once, the rules, and the engine's own settings, by one name.

A name is `METHOD` or `METHOD@N`, N calls at once on each rank (rows at once for those that count rows); `METHOD` is one
of those here or any policy of the executor, and `METHOD+mixed` is it on a server whose passes of prefill decode too, as
that of Helix does. All run on the same executor, with the same prompts and replies. What a method's users would tune is
tuned: `cap`, `row-cap` and `query-wise` stand for several numbers: the best one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from helix.errors import OptionError, name_help
from helix.executor.policies.choose import FORMS, choose_policy

# As many calls as an engine runs at once on a rank by default, and 128 that wait there: those that it orders.
AHEAD = 256 + 128
# The eviction that `helix serve` starts an engine with where rows keep something: what is wanted later goes last.
KEEPING = "priority"
_MIXED = "+mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to run a batch. `calls` are those in flight on a rank (None: the executor's own choice).

    `plain`: without rules and without merging equal calls. `order`, `router`, `eviction` and `mixed` (passes of prefill
    decode too) are the engine's. `tried` are the numbers that stand for it; `source` says who works so.
    """

    name: str
    policy: str
    calls: int | None = None
    plain: bool = True
    order: str = "lpm"
    router: str = "prefix-aware"
    eviction: str = "lru"
    mixed: bool = False
    prefix_cache: bool = True
    store: bool = False
    tried: tuple[int, ...] = ()
    source: str = ""


# The server that `helix serve` starts.
_SERVED: dict[str, Any] = {"eviction": KEEPING, "mixed": True}
_ALL = (
    Method(name="helix", policy="helix", plain=False, store=True, **_SERVED, source="the default"),
    Method(name="helix-unordered", policy="plan", plain=False, store=True, mixed=True, source="without its policy"),
    Method(name="helix-no-rules", policy="helix", store=True, **_SERVED, source="without rewriting and merging"),
    Method(
        name="helix-no-kv", policy="helix", plain=False, store=True, mixed=True, prefix_cache=False,
        source="no prefix cache at all",
    ),
    Method(name="helix-no-store", policy="helix", plain=False, **_SERVED, source="knows nothing of the day before"),
    Method(
        name="helix-apart", policy="helix", plain=False, store=True, eviction=KEEPING,
        source="on a server that computes prompts and decodes in passes apart, as it does by default",
    ),
    Method(
        name="query-wise",
        policy="query-wise",
        calls=AHEAD,
        order="fcfs",
        router="least-queue",
        tried=(1, 8, 32, 128),
        source="so many rows at once, each to its end (published with one)",
    ),
    Method(
        name="operator-wise",
        policy="operator-wise",
        calls=AHEAD,
        router="least-queue",
        source="one step for all rows, then the next one",
    ),
    Method(
        name="operator-wise:chain",
        policy="operator-wise:chain",
        calls=AHEAD,
        order="fcfs",
        router="least-queue",
        source="rows beside one another, one step of each at a time (AgentScope-like)",
    ),
    Method(
        name="ready-random",
        policy="ready-random",
        calls=AHEAD,
        order="fcfs",
        source="ready calls in no order, each to the shortest queue (LangGraph-like)",
    ),
    Method(name="lspf", policy="lspf", calls=AHEAD, source="longest prefix first (arXiv 2312.07104)"),
    Method(
        name="fcfs", policy="fcfs", calls=AHEAD, order="fcfs", router="least-queue", source="first come first served"
    ),
    Method(name="lpm", policy="lpm", source="all ready calls at once, ordered by the engine (longest match first)"),
    Method(
        name="cap", policy="fcfs", tried=(16, 32, 64, 128, 256), source="so many calls at once, ordered by the engine"
    ),
    Method(
        name="row-cap", policy="cap", tried=(16, 20, 24, 32, 48, 80, 96), source="so many rows at once, a static cap"
    ),
    Method(
        name="kvflow",
        policy="kvflow",
        calls=AHEAD,
        source="evicts what is used again last (arXiv 2507.07400)",
    ),
    Method(
        name="parrot", policy="parrot", calls=AHEAD, source="gangs, and workers by longest prefix (arXiv 2405.19888)"
    ),
    Method(name="thunder-agent", policy="thunder-agent", source="rows paused by room every 5 s (arXiv 2602.13692)"),
    Method(name="concur", policy="concur", source="a window of rows, by use and hits (arXiv 2601.22705)"),
    Method(name="helium:code", policy="helium:code", plain=False, source="Helium as released (arXiv 2603.16104)"),
    Method(name="helium:paper", policy="helium:paper", plain=False, source="Helium as in its paper (arXiv 2603.16104)"),
    Method(name="round-robin", policy="lpm", router="round-robin", source="router: taking turns"),
    Method(name="least-queue", policy="lpm", router="least-queue", source="router: shortest queue"),
    Method(name="cache-aware", policy="lpm", source="router: the worker that holds most of the prompt"),
)  # fmt: skip
# Those that Helix is compared with by default; policies of other systems come with the executor.
ABLATIONS = tuple(method.name for method in _ALL if method.name.startswith("helix-"))
ROUTERS = ("round-robin", "least-queue", "cache-aware")
METHODS = {method.name: method for method in _ALL}


def method_of(name: str) -> Method:
    """A method by its name. Raises OptionError."""
    plain, at, number = name.strip().partition("@")
    mixed = plain.endswith(_MIXED)
    plain = plain.removesuffix(_MIXED)
    found = METHODS.get(plain)
    if found is None:
        try:
            policy = choose_policy(plain)
        except OptionError:
            if plain.partition(":")[0] in METHODS:
                raise
            known = [*METHODS, *_policies()]
            raise OptionError(f"unknown method `{plain}`; {name_help(plain, known, 'methods')}") from None
        served = _SERVED if plain.startswith("helix:") else {}
        found = Method(name=plain, policy=plain, **served, source=policy.describe())
    if mixed:
        found = replace(found, name=plain + _MIXED, mixed=True)
    if not at:
        return found
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise OptionError(f"a method's number is at least 1, found `{name}`")
    if found.policy in ("query-wise", "cap"):
        return replace(found, name=name, policy=f"{found.policy}:{number}", tried=())
    return replace(found, name=name, calls=int(number), tried=())


def _policies() -> list[str]:
    return [re.split(r"[\[:]", form)[0] for form in FORMS]


def variants(name: str) -> tuple[str, ...]:
    """The names that a name stands for: itself, or one for each number to try."""
    found = method_of(name)
    return tuple(f"{name}@{number}" for number in found.tried) if found.tried else (name,)


def family(name: str) -> str:
    """The method that a name with a number belongs to, where several are tried; else the name itself."""
    plain = name.partition("@")[0]
    return plain if plain in METHODS and METHODS[plain].tried else name


def compared() -> tuple[str, ...]:
    """All methods but ablations, routers and caps of rows, and those policies of the executor that are not here."""
    own = [name for name in METHODS if name not in (*ABLATIONS, *ROUTERS, "row-cap")]
    known = {*METHODS, *(method.policy.partition(":")[0] for method in METHODS.values()), "random"}
    return (*own, *(name for name in _policies() if name not in known))
