"""How long replies are: from runs before, from a sample, from what the workflow declares, else a number that is named.

The mean is for work, the 90th percentile for memory that has to be kept free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from helix.logical import Generate, Model
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.refs import CallSite
from helix.optimizer.tree.texts import digest
from helix.types import BOOL, Choice, Optional

LengthSource = Literal["measured", "profile", "sample", "declared", "assumed", "given"]

MIN_RUNS = 30
ASSUMED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """The length of a step's replies in tokens: mean, 90th percentile, and where they are from (`given`: by a person,
    for a simulation).
    """

    mean: float
    p90: float
    source: LengthSource
    runs: int = 0


class Profile(Protocol):
    """What is known of the replies of earlier runs, by what a step asks for, of which model, sampled how."""

    def lengths(self, signature: str, model: str | None, sampling: str) -> Sequence[tuple[int, bool]]:
        """The lengths in tokens, each with whether the limit cut it off. Failed calls are not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Where lengths are taken from, in this order: `measured` replies of this very run by step, a `profile` of at
    least MIN_RUNS earlier ones, a `sample` by step, what the step declares, ASSUMED.

    Steps are named without positions of items.
    """

    measured: Mapping[str, Sequence[int]] = field(default_factory=dict)
    profile: Profile | None = None
    sample: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def of(self, site: CallSite, tokenizer: Tokenizer) -> Length:
        """The length of an llm step's replies."""
        node = site.node
        assert isinstance(node, Generate)
        if self.measured.get(node.step):
            return length_of([(tokens, False) for tokens in self.measured[node.step]], "measured")
        if self.profile is not None:
            runs = self.profile.lengths(signature(site), node.model.name, sampling(node.model))
            if len(runs) >= MIN_RUNS:
                return length_of(runs, "profile")
        if self.sample.get(node.step):
            limit = node.model.max_tokens
            found = [(tokens, limit is not None and tokens >= limit) for tokens in self.sample[node.step]]
            return length_of(found, "sample")
        return _declared(node, tokenizer)


def _declared(node: Generate, tokenizer: Tokenizer) -> Length:
    kind = node.returns.inner if isinstance(node.returns, Optional) else node.returns
    limit = node.model.max_tokens
    if isinstance(kind, Choice) or kind == BOOL:
        labels = kind.labels if isinstance(kind, Choice) else ("true", "false")
        counts = [tokenizer.count(f'"{label}"' if isinstance(kind, Choice) else label) + 1 for label in labels]
        counts = [min(count, limit) if limit else count for count in counts]
        return Length(mean=sum(counts) / len(counts), p90=float(max(counts)), source="declared")
    if limit is not None:
        return Length(mean=limit / 2, p90=float(limit), source="declared")
    return Length(mean=float(ASSUMED), p90=float(2 * ASSUMED), source="assumed")


def length_of(runs: Sequence[tuple[int, bool]], source: LengthSource) -> Length:
    """Mean and 90th percentile of lengths, some of which were cut off by a limit.

    A reply that was cut off is known to be at least so long: both come from the product-limit estimate (Kaplan and
    Meier, 1958), up to the longest length seen.
    """
    if not runs:
        raise ValueError("no lengths to take the mean of")
    ordered = sorted(runs)
    alive, mean, before, ninth = 1.0, 0.0, 0, float(ordered[-1][0])
    at, left = 0, len(ordered)
    while at < len(ordered):
        length = ordered[at][0]
        mean += alive * (length - before)
        same = at
        ended = 0
        while same < len(ordered) and ordered[same][0] == length:
            ended += not ordered[same][1]
            same += 1
        alive *= 1 - ended / left
        if alive <= 0.1 + 1e-12 and ninth == ordered[-1][0]:
            ninth = float(length)
        left -= same - at
        before, at = length, same
    return Length(mean=mean, p90=ninth, source=source, runs=len(runs))


def signature(site: CallSite) -> str:
    """What an llm step asks for: its prompt's template and what it returns. Names of steps take no part."""
    node = site.node
    assert isinstance(node, Generate)
    pieces: list[str] = []
    for piece in site.prompt:
        if isinstance(piece, str):
            pieces.append(piece)
        else:
            pieces.append(piece[0] if isinstance(piece, tuple) else f"{piece.key:x}")
    return digest("prompt", *pieces, str(node.returns))


def sampling(model: Model) -> str:
    """How a model samples, as text: what decides the length of a reply besides the prompt."""
    return digest(repr((model.temperature, model.max_tokens, model.top_p, model.seed, model.stop, model.extra)))
