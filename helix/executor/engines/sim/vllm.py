"""vLLM's scheduler (V1, as of 0.19) over the same cache: one kind of pass, in a budget of tokens.

Running requests go first, each with what it lacks: a token to decode, or more of its prompt. Where there is no page,
the newest running one is preempted: it loses all it has and is computed again. What is left of the budget goes to
waiting requests, of which one is taken only if its whole prompt fits.
"""

from __future__ import annotations

from helix.executor.engines.sim.admission import Part
from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.worker import NS_PER_MS, Worker


class VllmWorker(Worker):
    """See the module. `running` are the admitted requests in their order, also those whose prompt is not whole yet."""

    _mixed = False

    def _step(self, now: int) -> None:
        self._started = now
        self._ends = []
        self._mixed = False
        if self.running and self._only_decodes():
            self._decode(now)
            return
        parts = self._schedule(now)
        if parts:
            self._compute(parts, now)
        else:
            self._rest()

    def _only_decodes(self) -> bool:
        """Whether a pass can do nothing but generate a token for each running request, and finds the pages."""
        return (
            (not self.waiting or self._full)
            and len(self.running) <= self.settings.budget
            and all(call.fill - call.kv == 1 for call in self.running)
            and self._room(1)
        )

    def _schedule(self, now: int) -> list[Part]:
        """What a pass computes: parts of one token decode."""
        settings, pool = self.settings, self.pool
        budget = settings.budget
        parts: list[Part] = []
        preempted = False
        at = 0
        while at < len(self.running) and budget > 0:
            call = self.running[at]
            new = min(call.fill - call.kv, budget)
            while at < len(self.running) and pool.growth(call, call.kv + new) > pool.available:
                preempted = True
                self._preempt_newest(now)
            if at == len(self.running):
                break
            parts.append(self._part(call, new, now))
            budget -= new
            at += 1
        while self.waiting and budget > 0 and not preempted:
            if len(self.running) >= settings.max_running:
                self._full = True
                break
            call = self.waiting[0]
            pool.attach(call)
            if pool.growth(call, call.fill) > pool.available:
                pool.release(call)
                self._full = True
                break
            del self.waiting[0]
            if call.cached is None:
                call.admitted, call.cached = now, call.kv
                if self._watcher is not None:
                    self._watcher.admitted(self, call, now)
            new = min(call.fill - call.kv, budget)
            self.running.append(call)
            parts.append(self._part(call, new, now))
            budget -= new
        return parts

    def _part(self, call: SimCall, new: int, now: int) -> Part:
        before = call.kv
        self.pool.grow(call, before + new)
        part = Part(call=call, before=before, new=new, last=call.kv == call.fill)
        if not _decodes(part):
            # A block can be found from the pass on that computes it, by requests of the same pass too.
            self._keep(call, now)
        return part

    def _preempt_newest(self, now: int) -> None:
        call = self.running[-1]
        self._retract(call, now, "preempt")
        self.figures.retractions += 1
        # It is the first one that is looked at again.
        self.waiting.insert(0, self.waiting.pop())
        self._full = False

    def _compute(self, parts: list[Part], now: int) -> None:
        self._parts = parts
        self._mixed = True
        figures = self.figures
        prompts = [part for part in parts if not _decodes(part)]
        tokens = sum(part.new for part in prompts)
        pairs = sum(part.new * (part.new + 2 * part.before) for part in prompts)
        batch = len(parts) - len(prompts)
        context = sum(part.before + 1 for part in parts if _decodes(part))
        if prompts:
            figures.prefill_passes += 1
            figures.prefilled += tokens
            figures.outside += not self._cost.knows_prefill(tokens, len(prompts))
            self._log.add(now, self.number, "prefill", tokens, pairs, *(part.call.serial for part in prompts))
        if batch:
            figures.decode_passes += 1
            figures.generated += batch
            figures.outside += not self._cost.knows_decode(batch, context)
        if prompts and batch:
            took = self._cost.mixed(tokens, pairs, batch, context)
        elif prompts:
            took = self._cost.prefill(tokens, pairs)
        else:
            took = self._cost.decode(batch, context)
        self._ends = [now + max(1, round(took * NS_PER_MS))]
        self._end_at(self._ends[0])

    def _finish(self, now: int) -> None:
        if not self._mixed:
            super()._finish(now)
            return
        parts, self._parts = self._parts, []
        self.figures.busy += now - self._started
        for part in parts:
            if part.last:
                part.call.done += 1 if part.call.target else 0
                if part.call.first is None:
                    part.call.first = now
        if self._watcher is not None:
            self._watcher.passed(self, self._started, now, prefill=any(not _decodes(part) for part in parts))
        self._sort_out(now)
        self._start_later(now)

    def _sort_out(self, now: int) -> None:
        ended = [call for call in self.running if call.aborted or (call.done >= call.target and call.kv >= call.prompt)]
        if ended:
            self.running = [call for call in self.running if call not in ended]
            self._full = self._aborting = False
            for call in ended:
                self._leave(call, now)

    @property
    def load(self) -> int:
        return len(self.running) + len(self.waiting)


def _decodes(part: Part) -> bool:
    """Whether a part is a token that follows on what was generated last."""
    return part.new == 1 and part.last and part.before >= part.call.prompt
