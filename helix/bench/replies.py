"""The replies of a workload: drawn from the seed and the prompt alone, never from when or where a call ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b, shake_128
from random import Random

from helix.bench.texts import WIDTH
from helix.executor.engines.base import Request
from helix.executor.engines.sim.prompts import prompt_text
from helix.places import static_name

Means = Mapping[str, int | tuple[int, int]]
LEAST = 20


def prompt_digest(request: Request) -> bytes:
    """What a prompt is known by."""
    return blake2b(prompt_text(request.messages).encode("latin-1"), digest_size=16).digest()


class Replies:
    """Replies of a run, by (seed, prompt). `means` are by step, in tokens, with a deviation where they are normal;
    `says` puts a text into the form of a reply.
    """

    def __init__(self, seed: int, means: Means, cap: int, says: Callable[[Request, str], str] | None = None) -> None:
        self._seed = seed.to_bytes(8, "big", signed=True)
        self._means = means
        self._cap = cap
        self._says = says

    def __call__(self, request: Request) -> str:
        """Hexadecimal digits, two tokens' worth for each eight of them."""
        digest = blake2b(prompt_digest(request), digest_size=16, key=self._seed).digest()
        text = shake_128(digest).hexdigest(self._length(static_name(request.step), digest) * WIDTH // 2)
        return text if self._says is None else self._says(request, text)

    def _length(self, step: str, digest: bytes) -> int:
        mean = self._means[step]
        chance = Random(digest)  # a seeded draw  # nosec B311
        if isinstance(mean, tuple):
            return min(self._cap, max(LEAST, round(chance.gauss(*mean))))
        # The mean is kept where the cap is near.
        half = max(0, min(mean // 2, self._cap - mean))
        return chance.randint(mean - half, mean + half)
