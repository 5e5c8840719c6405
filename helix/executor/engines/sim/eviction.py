"""Which leaf of a radix tree goes first, as the key that is evicted smallest first: SGLang's eviction policies, and one
that clients give hints to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from helix.errors import OptionError, name_help

if TYPE_CHECKING:
    from helix.executor.engines.sim.radix import Node

Key = tuple[int, int]
# Hits from which slru protects a node.
PROTECTED = 2


def lru(node: Node) -> Key:
    """Least recently used."""
    return node.used, 0


def lfu(node: Node) -> Key:
    """Least often used, then least recently."""
    return node.hits, node.used


def fifo(node: Node) -> Key:
    """First made."""
    return node.made, 0


def mru(node: Node) -> Key:
    """Most recently used."""
    return -node.used, 0


def filo(node: Node) -> Key:
    """Last made."""
    return -node.made, 0


def slru(node: Node) -> Key:
    """Least recently used among those with few hits; the others only after them."""
    return int(node.hits >= PROTECTED), node.used


def priority(node: Node) -> Key:
    """Lowest priority, then least recently used."""
    return node.priority, node.used


def steps(node: Node) -> Key:
    """Most steps until its next use by a client's hints (KVFlow, arXiv 2507.07400), then least recently used."""
    return -node.steps, node.used


EVICTION: dict[str, Callable[[Node], Key]] = {
    each.__name__: each for each in (lru, lfu, fifo, mru, filo, slru, priority, steps)
}


def eviction(name: str) -> Callable[[Node], Key]:
    """The key of a policy. Raises OptionError."""
    if name not in EVICTION:
        raise OptionError(f"unknown eviction policy `{name}`; {name_help(name, EVICTION, 'policies')}")
    return EVICTION[name]
