"""Lets others look on at the calls of a run: each is told of when it has ended, with all attempts that it took."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from helix.executor.engines.base import Reply, Request
from helix.executor.records import TOOL_LANE, OpenRecord, Recorder
from helix.executor.values import Failure
from helix.records import CallOutcome
from helix.results import RunReport

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One request of a call, or one call of a tool. Times are seconds of the run's clock; `error` is what it came to
    instead of a reply.
    """

    began: float
    ended: float | None = None
    request: Request | None = None
    reply: Reply | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """A call that has ended. `outcome` says whether it was made; one that was not, since its outcome was there, has no
    attempts. `step` has the positions of lists behind it. `text` is the reply that was taken, or a tool's result as
    JSON. Times are seconds of the run's clock; `queued` is the time between being ready and being made.
    """

    kind: str
    step: str
    row: int
    outcome: CallOutcome
    began: float
    ended: float
    queued: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    text: str | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run is. `rows` are those of its table."""

    workflow: str
    rows: int
    engines: tuple[str, ...]
    policy: str


class Observer(Protocol):
    """Looks on, on the loop's thread. It must neither raise nor wait."""

    def began(self, facts: RunFacts, now: float) -> None:
        """The run begins: engines are open, nothing is called yet."""

    def called(self, call: SeenCall) -> None:
        """A call has ended."""

    def ended(self, report: RunReport, now: float) -> None:
        """The run has ended, whether well or not."""


class ObservedRecord(OpenRecord):
    """The record of a call that is being made, with its attempts."""

    __slots__ = ("began", "seen")

    def __init__(self, recorder: ObservingRecorder) -> None:
        super().__init__(recorder)
        self.began = asyncio.get_running_loop().time()
        self.seen: list[Attempt] = []

    def attempt(self, began: float | None = None) -> None:
        super().attempt(began)
        self.seen.append(Attempt(began=asyncio.get_running_loop().time() if began is None else began))

    def reply(self, request: Request, reply: Reply) -> None:
        super().reply(request, reply)
        if self.seen:
            last = self.seen[-1]
            last.request, last.reply, last.ended = request, reply, asyncio.get_running_loop().time()

    def failed(self, error: BaseException, request: Request | None = None) -> None:
        super().failed(error, request)
        if self.seen:
            last = self.seen[-1]
            last.request, last.error, last.ended = request, error, asyncio.get_running_loop().time()


class ObservingRecorder(Recorder):
    """Tells observers of calls; keeps records of them only where these are wanted too."""

    def __init__(self, observers: Sequence[Observer], *, keeps: bool = False) -> None:
        super().__init__()
        self._observers = tuple(observers)
        self._keeps = keeps

    def begin(self, locked: float | None = None) -> OpenRecord:
        if self._keeps:
            # Notes how full the cache is.
            super().begin(locked)
        return ObservedRecord(self)

    def end(self, call: Call, outcome: Outcome) -> None:
        record = call.record
        if self._keeps:
            super().end(call, outcome)
        call.record = None
        seen = _seen(call, outcome, record if isinstance(record, ObservedRecord) else None)
        if seen is not None:
            for observer in self._observers:
                observer.called(seen)

    def sample(self, locked: float) -> None:
        if self._keeps:
            super().sample(locked)

    def sent(self, request: Request, reply: Reply) -> None:
        if self._keeps:
            super().sent(request, reply)


def _seen(call: Call, outcome: Outcome, record: ObservedRecord | None) -> SeenCall | None:
    """What is told of a call; None for one that never got as far as its engine, such as when the run had ended."""
    now = asyncio.get_running_loop().time()
    how: CallOutcome = "failed" if outcome.failure is not None else "made"
    if outcome.merged:
        how = "merged"
    elif outcome.fetched:
        how = "fetched"
    elif record is None or not record.seen:
        return None
    made = None if outcome.merged else record
    attempts = () if made is None else tuple(made.seen)
    for attempt in attempts:
        if attempt.ended is None:
            attempt.ended = now
    return SeenCall(
        kind="tool" if call.lane.startswith(TOOL_LANE) else "llm",
        step=call.step,
        row=call.row,
        outcome=how,
        began=now if made is None else made.began,
        ended=now,
        queued=0.0 if made is None else max(0.0, made.released - call.submitted),
        attempts=attempts,
        text=outcome.text,
        failure=outcome.failure,
    )
