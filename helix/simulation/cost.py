"""How long one pass of an engine takes, in milliseconds: the protocol, and the linear model.

Notation: `tokens` is the sum of the new tokens n of a pass of prefill, `pairs` the sum of n * (n + 2 * p) over its
requests, p being the tokens before them that are cached or were computed in earlier chunks (twice the pairs of tokens
that attention looks at); `batch` are the requests of a pass of decoding, `context` the sum of their lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from helix.errors import OptionError, name_help


class CostModel(Protocol):
    """Times of passes in milliseconds."""

    @property
    def name(self) -> str:
        """What it is made of, for reports."""

    def prefill(self, tokens: int, pairs: int) -> float:
        """A pass that computes prompts."""

    def decode(self, batch: int, context: int) -> float:
        """A pass that generates one token for each of `batch` requests."""

    def mixed(self, tokens: int, pairs: int, batch: int, context: int) -> float:
        """A pass that does both."""

    def knows_prefill(self, tokens: int, requests: int) -> bool:
        """Whether it was fitted to passes of this size."""

    def knows_decode(self, batch: int, context: int) -> bool:
        """Whether it was fitted to passes of this size."""

    @property
    def pass_tokens(self) -> float | None:
        """What a pass of prefill costs beside its tokens, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What a model was fitted to: the least and the most of each size, both included."""

    prefill: tuple[int, int]
    requests: int
    batch: tuple[int, int]
    context: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost:
    """prefill = a + b * tokens + c * pairs; decode = d + e * batch + f * context; mixed = both less a.

    A chunk of a prompt costs what the whole would, but for one more `a`. `fitted` is the range of the data (None: not
    known; then nothing is flagged).
    """

    name: str
    a: float
    b: float
    c: float
    d: float
    e: float
    f: float
    fitted: Range | None = None

    def prefill(self, tokens: int, pairs: int) -> float:
        return self.a + self.b * tokens + self.c * pairs

    def decode(self, batch: int, context: int) -> float:
        return self.d + self.e * batch + self.f * context

    def mixed(self, tokens: int, pairs: int, batch: int, context: int) -> float:
        return self.decode(batch, context) + self.prefill(tokens, pairs) - self.a

    def knows_prefill(self, tokens: int, requests: int) -> bool:
        known = self.fitted
        return known is None or (known.prefill[0] <= tokens <= known.prefill[1] and requests <= known.requests)

    def knows_decode(self, batch: int, context: int) -> bool:
        return self.fitted is None or in_range(self.fitted, batch, context)

    @property
    def pass_tokens(self) -> float | None:
        return self.a / self.b if self.b > 0 else None


def in_range(fitted: Range, batch: int, context: int) -> bool:
    """Whether a batch, and its mean context, lie in a range."""
    mean = context / batch if batch else 0.0
    return fitted.batch[0] <= batch <= fitted.batch[1] and fitted.context[0] <= mean <= fitted.context[1]


# Llama-3.1-8B in bf16 on one GPU, fitted to estimates of aiconfigurator 0.12.0 for SGLang (Apache-2.0); no measured run
# of SGLang backs them. Prompts of one request at a time, and batches of equal contexts.
_FITTED = Range(prefill=(128, 16384), requests=1, batch=(1, 256), context=(256, 8192))
PUBLISHED = {
    "h100": LinearCost(
        name="linear:h100", a=4.794, b=0.01752, c=7.385e-7, d=6.502, e=0.00826, f=4.168e-5, fitted=_FITTED
    ),
    "a100": LinearCost(
        name="linear:a100", a=6.550, b=0.05908, c=1.334e-6, d=11.644, e=0.02764, f=1.081e-4, fitted=_FITTED
    ),
    "h200": LinearCost(
        name="linear:h200", a=3.557, b=0.01873, c=6.582e-7, d=4.722, e=0.01191, f=2.910e-5, fitted=_FITTED
    ),
}


def published_cost(gpu: str) -> LinearCost:
    """The fit for a GPU: h100, a100 or h200. Raises OptionError."""
    found = PUBLISHED.get(gpu.lower())
    if found is None:
        raise OptionError(f"no cost model for GPU `{gpu}`; {name_help(gpu.lower(), PUBLISHED, 'GPUs')}")
    return found
