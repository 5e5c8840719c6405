"""What is kept of each call of a run where a report is wanted: when it was made, what it took, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CallKind = Literal["llm", "tool"]
# `made` gave a value, `failed` was made and gave none, `merged` took over an equal call's outcome, `fetched` was known
# from before the run.
CallOutcome = Literal["made", "failed", "merged", "fetched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call. Times are in seconds on the loop's clock; of calls that were not made all four are the same.

    `submitted` is when all that the call needs was there, `released` when it was let go to its engine or tool,
    `started` when its first attempt was sent (after pauses that a server asked for), `ended` when its outcome was
    known. Tokens are summed over its replies, as the engine tells them; None where it does not. `queue_seconds` is how
    long it waited in the engine, `rank` the worker that answered, `attempts` how many requests it took. Of calls that
    were merged the tokens are those of the equal call.
    """

    step: str
    row: int
    kind: CallKind
    lane: str
    outcome: CallOutcome
    submitted: float
    released: float
    started: float
    ended: float
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    rank: int | None = None
    queue_seconds: float | None = None
    attempts: int = 0

    @property
    def sent(self) -> bool:
        """Whether the call was made in this run."""
        return self.outcome in ("made", "failed")

    @property
    def prefilled_tokens(self) -> int | None:
        """The prompt tokens that the engine had to compute; None where it does not tell."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return max(0, self.prompt_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPrompt:
    """A prompt that was answered, and its reply: what distinct prefixes are counted from. `messages` are (role, text).

    `name` is the step with the positions of items. Tokens as the engine tells them.
    """

    row: int
    step: str
    model: str | None
    messages: tuple[tuple[str, str], ...]
    reply: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    name: str = ""
