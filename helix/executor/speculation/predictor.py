"""What speculation asks of patterns. `helix.mining` keeps to it; tests have deterministic ones of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Candidate(Protocol):
    """A call that may come next: `p_low` bounds its probability from below, `chances` is what that rests on."""

    @property
    def tool(self) -> str: ...
    @property
    def args(self) -> Mapping[str, Any]: ...
    @property
    def p(self) -> float: ...
    @property
    def p_low(self) -> float: ...
    @property
    def chances(self) -> float: ...
    @property
    def pattern(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def stale(self) -> bool: ...


class History(Protocol):
    """A session so far."""

    def user(self, text: str) -> None:
        """The user said something."""

    def said(self, text: str | None) -> None:
        """The model said something."""

    def called(self, tool: str, args: Mapping[str, Any], result: Any, *, ok: bool = True) -> None:
        """A call has ended."""


class Predictor(Protocol):
    """Patterns: what will be asked for next. It changes nothing and reads no clock."""

    def predict(self, history: Any, *, most: int) -> Sequence[Candidate]:
        """The likeliest calls, best first."""


MakeHistory = Callable[[], History]
