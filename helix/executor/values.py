"""What a slot of a frame can hold besides a value: a failure, a dropped row's mark, the mark of what is pending."""

from __future__ import annotations

from typing import Any, Final

Order = tuple[int, ...]

# Kinds of what was not done rather than failed.
CUT_SHORT: Final = ("not_started", "limit")


class Failure:
    """Why a value is not there. It travels from the step that failed to all that depend on it.

    `order` places the failing step in the plan, loops and list items included: of several failures of a row the first
    in this order is the row's error, whatever the timing. `passing` says that the end of the run was the cause: a run
    that is resumed makes the call again. `own` says that a limit of the step itself was reached, not one of the run.
    """

    __slots__ = ("attempts", "kind", "message", "order", "own", "passing", "raw", "step", "traceback")

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        step: str,
        order: Order = (),
        attempts: int = 0,
        raw: str | None = None,
        traceback: str = "",
        passing: bool = False,
        own: bool = False,
    ) -> None:
        self.passing = passing
        self.own = own
        self.kind = kind
        self.message = message
        self.step = step
        self.order = order
        self.attempts = attempts
        self.raw = raw
        self.traceback = traceback

    def at(self, step: str, order: Order) -> Failure:
        """The same failure at another place: where an equal call was to be made."""
        return Failure(
            self.kind,
            self.message,
            step=step,
            order=order,
            attempts=self.attempts,
            raw=self.raw,
            traceback=self.traceback,
            own=self.own,
        )

    @property
    def cut_short(self) -> bool:
        """Whether the step did not fail but was not begun or not ended, since the run stopped before."""
        return self.kind in CUT_SHORT and not self.own

    def parts(self) -> list[Any]:
        """The failure as JSON, for `of_parts`."""
        own = [True] if self.own else []
        return [self.kind, self.message, self.step, list(self.order), self.attempts, self.raw, self.traceback, *own]

    @classmethod
    def of_parts(cls, parts: list[Any]) -> Failure:
        """The failure that `parts` described."""
        kind, message, step, order, attempts, raw, traceback, *own = parts
        return cls(
            kind,
            message,
            step=step,
            order=tuple(order),
            attempts=attempts,
            raw=raw,
            traceback=traceback,
            own=bool(own),
        )

    def __repr__(self) -> str:
        return f"Failure({self.kind!r}, {self.message!r}, step={self.step!r})"


class _Pending:
    """The mark of a value that is not there yet."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final[Any] = _Pending()

# A filter's condition did not hold: nothing after it runs, and the row leaves no trace. Its order is below all others,
# so that it wins over failures of steps that ran before the filter.
DROPPED: Final = Failure("dropped", "the row was filtered out", step="", order=(-1,))
