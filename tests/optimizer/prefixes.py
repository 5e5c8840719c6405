"""How much of prompts a cache of prefixes would hold: a radix tree over characters with room for so many of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

BLOCK = 16


def cached_share(prompts: Iterable[str], room: int) -> float:
    """The share of all characters that a cache finds, when prompts come in this order.

    The cache holds beginnings of prompts in blocks, as engines do, and lets go of those that were used longest ago;
    `room` is how many characters it holds.
    """
    held: OrderedDict[str, None] = OrderedDict()
    found = total = 0
    for prompt in prompts:
        total += len(prompt)
        ends = range(BLOCK, len(prompt) + 1, BLOCK)
        hit = 0
        for end in ends:
            if prompt[:end] not in held:
                break
            hit = end
        found += hit
        # The ends of a beginning are used before its root, so that the root goes last.
        for end in reversed(ends):
            held[prompt[:end]] = None
            held.move_to_end(prompt[:end])
        while len(held) * BLOCK > room:
            held.popitem(last=False)
    return found / total
