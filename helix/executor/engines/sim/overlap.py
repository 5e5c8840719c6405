"""SGLang's overlapped scheduler: a pass is chosen before the results of the one before it are looked at.

So a prompt can be found in the tree two passes after its own, and who is done gives its place up a pass late. Where a
device computes (`overlap=device`), results are looked at while the next pass runs, and that one was chosen when the
last one began: it takes nobody who came later. Where the processor that schedules computes too (`overlap=host`, SGLang
on a CPU), results wait until the next pass has ended, and those who came meanwhile are taken.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.worker import Worker


class OverlapWorker(Worker):
    """See the module."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._ahead = self.settings.overlap == "device"
        if self._ahead:
            # Scheduling costs no time between passes.
            self._gap = 0
        # What the last pass has brought that nobody has looked at: whole prompts, and whether anything else.
        self._prompts: list[SimCall] = []
        self._unread = False
        # When the pass under way began, and the last time that requests may have come for the one to be chosen.
        self._since = 0
        self._horizon: int | None = None

    def _finish(self, now: int) -> None:
        began = self._ends[-2] + self._gap if len(self._ends) > 1 else self._since
        passes, self._ends = len(self._ends), []
        parts, self._parts = self._parts, []
        self.figures.busy += now - self._started
        if not self._ahead:
            self._read(now)
        if self._decodes:
            self._generate(1 if parts else passes)
        for part in parts:
            self._go_on(part)
            if part.last:
                self._prompts.append(part.call)
                self._computed(part, now)
            else:
                # A prompt that goes on is put into the tree before the next pass is chosen.
                self._keep(part.call, now)
        self._drop_chunk(now)
        over = [call for call in self.running if call.done >= call.target or call.aborted]
        if over:
            self.running = [call for call in self.running if call.done < call.target and not call.aborted]
            self._ending = over
        self._unread = True
        if self._watcher is not None:
            self._watcher.passed(self, self._started, now, prefill=bool(parts))
        if not self._ahead:
            self._start_later(now)
            return
        self._horizon = began
        self._step(now)
        self._horizon = None
        self._read(now)

    def _read(self, now: int) -> None:
        """Looks at the results of the last pass."""
        if not self._unread:
            return
        self._unread = False
        prompts, self._prompts = self._prompts, []
        for call in prompts:
            if call.first is None:
                call.first = now
            # One that was retracted meanwhile holds nothing any more.
            if call.kv:
                self._keep(call, now)
        over, self._ending = self._ending, []
        if over:
            self._full = self._aborting = False
            for call in over:
                self._leave(call, now)

    def _step(self, now: int) -> None:
        self._since = now
        # Who has ended by a token of its own decodes once more.
        self._beside = sum(call.target < call.most_new for call in self._ending)
        super()._step(now)

    def _decode(self, now: int) -> None:
        if self._ending and not self._room(1):
            # Who is done gives pages back before anybody is retracted.
            self._rest()
            return
        super()._decode(now)

    def _rest(self) -> None:
        if self._unread:
            # With nothing to run, results are looked at right away.
            self._read(self._started)
            self._start_later(self._started)
            return
        super()._rest()

    def _come(self) -> list[SimCall]:
        if self._horizon is None:
            return self.waiting
        return [call for call in self.waiting if call.arrived <= self._horizon]

    def _single(self) -> bool:
        return self._unread or super()._single()

    def catch_up(self, now: int) -> None:
        ended = min(bisect_left(self._ends, now), len(self._ends) - 1)
        if ended > 0:
            self._since = self._ends[ended - 1] + self._gap
        super().catch_up(now)
