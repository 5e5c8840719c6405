"""Texts that prompts are made of, in exact numbers of tokens.

On the simulated engine four bytes are a token, and so is each word here: three letters and a space. A text depends on
its name alone, so the same workload comes out the same everywhere, and two texts of different names share no beginning
but by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b, shake_128
from random import Random

# Bytes of a token on the simulated engine.
WIDTH = 4
# 256 words, so that a byte of a digest is a word.
_WORDS = [f"{a}{b}{c} " for a in "bdfglmnp" for b in "aeio" for c in "klmnprst"]

# The text of a group of rows (a report, a product, a company) and of an item in it.
Find = Callable[[int, int], str]


def words(name: str, tokens: int) -> str:
    """A text of so many tokens, decided by its name."""
    return "".join(map(_WORDS.__getitem__, shake_128(name.encode()).digest(max(0, tokens))))


def dice(*names: object) -> Random:
    """A stream of chance of its own for a name."""
    return Random(blake2b(repr(names).encode(), digest_size=8).hexdigest())  # a seeded draw  # nosec B311


def whole(text: str) -> str:
    """A real text as whole tokens: plain ASCII, padded with spaces."""
    plain = " ".join(text.split()).encode("ascii", "replace").decode()
    return plain + " " * (-len(plain) % WIDTH)


class Texts:
    """The texts of one workload. `seed` draws others; those of equal seeds are equal.

    `real` finds real texts of some kinds, which keep their own lengths; other kinds are made up.
    """

    def __init__(self, seed: int, real: Mapping[str, Find] | None = None) -> None:
        self.seed = seed
        self._real = dict(real or {})

    def of(self, kind: str, group: int, item: int, tokens: int) -> str:
        """The text of a kind for an item of a group, of so many tokens."""
        find = self._real.get(kind)
        return whole(find(group, item)) if find else words(f"{self.seed} {kind} {group} {item}", tokens)

    def about(self, kind: str, group: int, item: int, tokens: int, spread: float = 0.3) -> str:
        """The same with a length drawn about `tokens`, between a `spread` less and more."""
        low, high = round(tokens * (1 - spread)), round(tokens * (1 + spread))
        return self.of(kind, group, item, dice(self.seed, "length", kind, group, item).randint(low, high))
