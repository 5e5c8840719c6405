"""What a call may do to the world: effect classes from harmless to unknown, and which of them may run on a guess.

`pure` depends on its arguments alone; `read` looks at named state domains; the others change something. A guess may
only cost time: so only what neither changes nor ages may be made before anybody asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from helix.services import Effects

# From the weakest to the strongest: two effects together are the later one.
ORDER: Final[tuple[Effects, ...]] = ("pure", "read", "idempotent_write", "write", "destructive", "unknown")
HARMLESS: Final[frozenset[Effects]] = frozenset(("pure", "read"))

# A set of state domains. None stands for all of them: what is not declared may touch anything.
Domains = tuple[str, ...] | None


def join(*effects: Effects) -> Effects:
    """The effect of several together: the strongest of them, `pure` where there are none."""
    return max(effects, key=ORDER.index, default="pure")


def join_domains(*domains: Domains) -> Domains:
    """All state domains of several sets, in order of their names; None (all there are) where one of them is."""
    found: set[str] = set()
    for each in domains:
        if each is None:
            return None
        found.update(each)
    return tuple(sorted(found))


def overlap(one: Domains, other: Domains) -> bool:
    """Whether two sets of state domains have anything in common. A domain `a` holds all domains `a.b`."""
    if one is None or other is None:
        return one != () and other != ()
    return any(_inside(a, b) or _inside(b, a) for a in one for b in other)


def _inside(part: str, whole: str) -> bool:
    return part == whole or part.startswith(f"{whole}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one call does: its class, the state domains that it reads and writes, and why it is classed so.

    `volatile` calls give another result each time they are made (clock, chance); `reads` and `writes` are None where
    nobody knows: then any state counts.
    """

    effects: Effects
    reads: Domains = None
    writes: Domains = None
    volatile: bool = False
    reason: str = ""

    @property
    def harmless(self) -> bool:
        """Whether a call may be made though nobody asked for it: it changes nothing, and its result does not age."""
        return self.effects in HARMLESS and not self.volatile


def effects_of_hints(annotations: Mapping[str, Any] | None, *, allowed: bool) -> Effects:
    """The class of a tool of an MCP server, by the annotations of the server's own (MCP 2025-06-18, ToolAnnotations).

    The hints count only where the server is `allowed`: a server may lie. `readOnlyHint` true is `read`; else the tool
    is `destructive`, unless `destructiveHint` is false: then `idempotent_write` where `idempotentHint` is true, else
    `write`. Without annotations nothing is known. Hints that are no booleans count as the protocol's defaults.
    """
    if not allowed or not annotations or not any(annotations.get(name) is not None for name in _HINTS):
        return "unknown"
    if annotations.get("readOnlyHint") is True:
        # A tool that says both is believed in what is worse.
        return "destructive" if annotations.get("destructiveHint") is True else "read"
    if annotations.get("destructiveHint") is not False:
        return "destructive"
    return "idempotent_write" if annotations.get("idempotentHint") is True else "write"


def open_world_of_hints(annotations: Mapping[str, Any] | None) -> bool:
    """Whether a tool of an MCP server reaches beyond it; true unless the server says otherwise."""
    return not annotations or annotations.get("openWorldHint") is not False


_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
