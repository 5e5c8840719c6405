"""One data-parallel worker: SGLang's scheduler loop over a KV cache of its own.

A pass orders the waiting requests, admits what fits, and computes prompts if any were admitted; else it generates a
token for each running one. Passes of decoding in which nothing can happen are taken together; a request that comes in
the middle cuts them at the end of the pass that is under way, so the times are those of single passes.
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random

from helix.executor.engines.sim.admission import Admission, Part, left
from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.host import HostTier
from helix.executor.engines.sim.log import EventLog, Figures
from helix.executor.engines.sim.order import ordered, rank_of
from helix.executor.engines.sim.pool import Pool
from helix.executor.engines.sim.settings import SimSettings
from helix.executor.engines.sim.timeline import STEP_END, STEP_START, Timeline
from helix.executor.engines.sim.watch import Watcher
from helix.simulation.cost import CostModel

# Passes of decoding that are looked ahead at most.
TOGETHER = 32
NS_PER_MS = 1_000_000


class Worker:
    """`number` is its rank, `figures` what it did. `together=1` takes every pass by itself, with equal results."""

    def __init__(
        self,
        number: int,
        settings: SimSettings,
        cost: CostModel,
        timeline: Timeline,
        log: EventLog,
        width: int,
        *,
        together: int = TOGETHER,
        watcher: Watcher | None = None,
    ) -> None:
        self.number = number
        self.settings = settings
        self.pool = Pool(settings, width)
        self.waiting: list[SimCall] = []
        self.running: list[SimCall] = []
        self.figures = Figures()
        self._chunked: SimCall | None = None
        self._cost = cost
        self._timeline = timeline
        self._log = log
        self._together = together
        self._watcher = watcher
        self._dice = Random(f"{settings.seed} order {number}")  # a seeded draw  # nosec B311
        self._ratio = settings.ratio
        self._decay = (settings.ratio - settings.least_ratio) / settings.ratio_steps
        # Nobody more fits until something ends.
        self._full = False
        self._gap = round(settings.step_gap_us * 1000)
        # The pass under way: what it computes, the ends of its passes of decoding, and whether it decodes at all. Older
        # ends that fire do nothing.
        self._parts: list[Part] = []
        self._ends: list[int] = []
        self._decodes = False
        self._pass = 0
        self._started = 0
        self._busy = False
        # What the running requests hold at the start of the pass; and whether one of them is given up.
        self._context = 0
        self._aborting = False
        # Who is done and has its place yet, and how many of them the next pass of decoding takes along.
        self._ending: list[SimCall] = []
        self._beside = 0
        # Who has come back from a load: had it not been for that, it would have been admitted by now.
        self._back: set[int] = set()
        self.host: HostTier | None = None
        if settings.host:
            self.host = HostTier(
                settings, self.pool, width, number, timeline, log, self.figures, self.catch_up, self._came
            )

    @property
    def load(self) -> int:
        """Requests that run or wait."""
        computed = len(self._parts)
        if self._chunked is not None and all(part.call is not self._chunked for part in self._parts):
            computed += 1
        loading = self.host.waiting if self.host is not None else 0
        return len(self.running) + len(self._ending) + len(self.waiting) + computed + loading

    @property
    def transfers(self) -> int:
        """Transfers under way that hold pages: when one ends, there may be room."""
        return self.host.under_way if self.host is not None else 0

    # --- requests in ---

    def arrive(self, call: SimCall, now: int) -> None:
        """Takes a request into the queue."""
        call.rank, call.arrived = self.number, now
        self.waiting.append(call)
        self._log.add(now, self.number, "arrive", call.serial, call.prompt, call.target)
        if not self._busy:
            self._start_later(now)
        elif not self._full or self.settings.priority_scheduling:
            self._cut(now)

    def abort(self, call: SimCall, now: int) -> None:
        """Gives a request up: at once where it waits, at the end of the pass where it runs."""
        call.aborted = True
        if call in self.waiting:
            self.waiting.remove(call)
            self._end(call, now)
        elif self.host is not None and self.host.drop(call):
            self._end(call, now)
        else:
            self._aborting = True
            self._cut(now)

    def prefetch(self, text: str, space: str, now: int) -> int:
        """Has the host tier load what it holds of a text, if there is room; gives the tokens on their way then."""
        if self.host is None:
            return 0
        self.catch_up(now)
        self._cut(now)
        # Pages that the passes under way will take at their end.
        growth = sum(self.pool.growth(call, call.kv + len(self._ends)) for call in self.running)
        room = Admission(self.pool, self.settings, self.running, self._ratio, 0).total() - growth * self.pool.page
        return self.host.prefetch(text, space, room, now)

    def _came(self, calls: list[SimCall], now: int) -> None:
        """A transfer has ended: those that waited for it have their turn, whether others found room or not."""
        self.waiting[:0] = calls
        self._back.update(call.serial for call in calls)
        if not self.running:
            # What was locked so long may have been all that was missing.
            self._full = False
        if not self._busy:
            self._start_later(now)
        elif calls:
            self._cut(now)

    def _again(self, now: int) -> None:
        """Somebody may find room now."""
        self._full = False
        if not self._busy:
            self._start_later(now)
        elif self.waiting:
            self._cut(now)

    def catch_up(self, now: int) -> None:
        """Takes what passes have generated that have ended into the pool. Whoever changes the pool from outside calls
        it first: passes that were taken together are in there at the end of the last one only.
        """
        ended = min(bisect_left(self._ends, now), len(self._ends) - 1)
        if ended > 0:
            del self._ends[:ended]
            self._generate(ended)

    def _cut(self, now: int) -> None:
        """Ends passes of decoding that were taken together after the one that is under way."""
        if len(self._ends) > 1:
            at = bisect_left(self._ends, now)
            if at < len(self._ends) - 1:
                del self._ends[at + 1 :]
                self._end_at(self._ends[-1])

    # --- passes ---

    def _start_later(self, now: int) -> None:
        self._busy = True
        self._timeline.at(now + self._gap, STEP_START, self._step, self.number)

    def _end_at(self, time: int) -> None:
        self._pass += 1
        number = self._pass

        def finish(now: int) -> None:
            if number == self._pass:
                self._finish(now)

        self._timeline.at(time, STEP_END, finish, self.number)

    def _step(self, now: int) -> None:
        """Starts a pass, or rests."""
        self._started = now
        self._ends = []
        parts = self._admit(now)
        if parts:
            self._prefill(parts, now)
        elif self.running or self._beside:
            self._decode(now)
        else:
            self._rest()

    def _rest(self) -> None:
        """Does nothing until something comes."""
        if (self.waiting or self._chunked is not None or self.running) and not self.transfers:
            # A request takes no more than the cache holds, so alone it always fits.
            raise AssertionError("requests wait, and nothing runs")
        self._busy = False
        if not self.running:
            self._ratio = self.settings.ratio

    def _begin(self, now: int) -> int:
        """When a pass begins that has its pages: once what was evicted for it is on the host."""
        if self.host is None:
            return now
        self.host.settle(now)
        return max(now, self.host.free_at)

    def _admit(self, now: int) -> list[Part]:
        """The parts of prompts that a pass computes; none where there is nothing to compute or no room."""
        settings = self.settings
        open_ = not self._full or settings.priority_scheduling or self._back
        come = self._come() if self.waiting and open_ else []
        if not come and self._chunked is None:
            return []
        decoding = len(self.running) if settings.mixed_chunk else 0
        admission = Admission(self.pool, settings, [*self.running, *self._ending], self._ratio, decoding)
        if self._chunked is not None and not admission.resume(self._chunked):
            return admission.parts
        if not come:
            return admission.parts
        taken: set[int] = set()
        candidates = come
        alone = self._full and not settings.priority_scheduling
        if alone:
            candidates = [call for call in candidates if call.serial in self._back]
            self._full = False
        for call in self._in_order(candidates):
            if not admission.open():
                break
            if len(self.running) + len(self._ending) + len(admission.parts) >= settings.max_running:
                self._full = True
            elif self.host is not None and self.host.wait_for(call, admission.total(), now):
                taken.add(call.serial)
                continue
            verdict = "full" if self._full else admission.add(call)
            if verdict == "full" and self._preempt(call, now):
                admission.recount(self.running, self._ratio)
                verdict = admission.add(call)
            if verdict != "taken":
                # A request that does not fit ends the pass: none behind it is looked at.
                self._full = verdict == "full"
                break
            taken.add(call.serial)
            part = admission.parts[-1]
            if call.cached is None:
                call.admitted, call.cached = now, part.before
                if self._watcher is not None:
                    self._watcher.admitted(self, call, now)
            if not part.last:
                break
        self._back = set() if self._full else self._back - taken
        self._full |= alone
        if taken:
            self.waiting = [call for call in self.waiting if call.serial not in taken]
        return admission.parts

    def _come(self) -> list[SimCall]:
        """Those of the queue that a pass may take."""
        return self.waiting

    def _in_order(self, candidates: list[SimCall]) -> list[SimCall]:
        """The order in which a pass looks at requests. The queue stays so: later passes break ties by it."""
        found = ordered(candidates, self.running, self.pool.tree, self.settings, self._dice)
        if len(found) == len(self.waiting):
            self.waiting = found
        elif found is not candidates:
            places = {call.serial for call in found}
            self.waiting = [*found, *(call for call in self.waiting if call.serial not in places)]
        return found

    def _preempt(self, call: SimCall, now: int) -> bool:
        """Takes running requests of much lower priority back into the queue, worst first; whether any went."""
        settings = self.settings
        if not (settings.priority_scheduling and settings.preemption):
            return False
        lower = [each for each in self.running if rank_of(call) - rank_of(each) > settings.preemption_gap]
        if not lower:
            return False
        needed = call.fill + left(call, settings) + settings.page
        freed = 0
        for each in sorted(lower, key=lambda one: (rank_of(one), -one.arrived, -one.serial)):
            freed += each.private * settings.page + left(each, settings)
            self._retract(each, now, "preempt")
            if freed >= needed:
                break
        self._full = False
        return True

    # --- prefill ---

    def _prefill(self, parts: list[Part], now: int) -> None:
        self._parts = parts
        tokens = sum(part.new for part in parts)
        pairs = sum(part.new * (part.new + 2 * part.before) for part in parts)
        # Where its prompts leave no room for their tokens, those that decode sit a mixed pass out.
        self._decodes = self.settings.mixed_chunk and bool(self.running) and self._room(1)
        figures = self.figures
        figures.prefill_passes += 1
        figures.prefilled += tokens
        figures.outside += not self._cost.knows_prefill(tokens, len(parts))
        if self._decodes:
            self._context = sum(call.kv for call in self.running)
            context = self._context + len(self.running)
            took = self._cost.mixed(tokens, pairs, len(self.running), context)
        else:
            took = self._cost.prefill(tokens, pairs)
        self._log.add(now, self.number, "prefill", tokens, pairs, *(part.call.serial for part in parts))
        self._ends = [self._begin(now) + max(1, round(took * NS_PER_MS))]
        self._end_at(self._ends[0])

    # --- decoding ---

    def _decode(self, now: int) -> None:
        """Takes passes together up to the first that ends a request or finds no page."""
        if not self._room(1):
            self._make_room(now)
            if self._chunked is not None and not self._room(1) and not self.transfers:
                self._give_up_chunk(now)
            if not self._room(1):
                self._rest()
                return
        self._decodes = True
        batch = len(self.running)
        most, context = self._together, 0
        for call in self.running:
            more = call.target - call.done
            if more < most:
                most = more
            context += call.kv
        self._context = context
        if self._single():
            most = 1
        while most > 1 and not self._room(most):
            most //= 2
        if self.host is not None and self.host.takes_evicted and most > 1 and not self._grows_free(most):
            # A pass that evicts waits for it.
            most = 1
        time = self._begin(now)
        batch += self._beside
        for _ in range(max(1, most)):
            context += batch
            time += max(1, round(self._cost.decode(batch, context) * NS_PER_MS))
            self._ends.append(time)
            time += self._gap
        self._end_at(self._ends[-1])

    def _single(self) -> bool:
        """Whether the pass after the next may be another one than of decoding."""
        return bool(self._aborting or self._back or (self.waiting and not self._full))

    def _room(self, passes: int) -> bool:
        """Whether so many passes of decoding find their pages."""
        if self.pool.page == 1:
            return len(self.running) * passes <= self.pool.available
        growth = self.pool.growth
        return sum(growth(call, call.kv + passes) for call in self.running) <= self.pool.available

    def _grows_free(self, passes: int) -> bool:
        """Whether so many passes of decoding find their pages without an eviction."""
        growth = self.pool.growth
        return sum(growth(call, call.kv + passes) for call in self.running) <= self.pool.free

    def _give_up_chunk(self, now: int) -> None:
        """Takes a prompt that is computed in part back into the queue."""
        call, self._chunked = self._chunked, None
        if call is not None:
            self.pool.release(call)
            self.waiting.append(call)
            self._log.add(now, self.number, "retract", call.serial, call.done)

    def _make_room(self, now: int) -> None:
        """Retracts the requests with the fewest tokens generated, of equal ones that with the longest prompt, until
        some passes fit; one stays.
        """
        settings = self.settings
        order = sorted(self.running, key=lambda call: (-call.done, call.prompt, call.serial))
        while len(order) > 1:
            self._retract(order.pop(), now, "retract")
            self.figures.retractions += 1
            if self._room(settings.retract_steps):
                break
        done = sum(call.done for call in self.running)
        most = sum(call.most_new for call in self.running)
        self._ratio = min(1.0, (done + settings.retract_steps * len(self.running)) / (most + 1))
        self._full = False

    def _retract(self, call: SimCall, now: int, why: str) -> None:
        self.running.remove(call)
        self.pool.release(call)
        call.retractions += 1
        self.waiting.append(call)
        self._log.add(now, self.number, why, call.serial, call.done)

    # --- the end of a pass ---

    def _finish(self, now: int) -> None:
        parts, self._parts = self._parts, []
        self.figures.busy += now - self._started
        if self._decodes:
            self._generate(1 if parts else len(self._ends))
        self._ends = []
        for part in parts:
            self._keep(part.call, now)
            self._go_on(part)
            if part.last and part.call.first is None:
                part.call.first = now
            self._computed(part, now)
        self._drop_chunk(now)
        if self._watcher is not None:
            self._watcher.passed(self, self._started, now, prefill=bool(parts))
        self._sort_out(now)
        self._start_later(now)

    def _go_on(self, part: Part) -> None:
        """Where a prompt stands of which a part is computed."""
        if part.last:
            self._chunked = None if self._chunked is part.call else self._chunked
            # The pass that computes the last token of a prompt gives the first one of its reply.
            part.call.done += 1 if part.call.target else 0
        else:
            self._chunked = part.call

    def _drop_chunk(self, now: int) -> None:
        """Lets go of a prompt that is computed in part, where it is given up."""
        if self._chunked is not None and self._chunked.aborted:
            self._leave(self._chunked, now)
            self._chunked = None

    def _sort_out(self, now: int) -> None:
        """Lets go of the running requests that are done."""
        ended = [call for call in self.running if call.done >= call.target or call.aborted]
        if ended:
            self.running = [call for call in self.running if call.done < call.target and not call.aborted]
            self._full = self._aborting = False
            for call in ended:
                self._leave(call, now)

    def _computed(self, part: Part, now: int) -> None:
        """A part of a prompt is there."""
        if part.last:
            self.running.append(part.call)

    def _keep(self, call: SimCall, now: int) -> None:
        """Puts what is computed of a request into the tree."""
        self.pool.keep(call)
        if self.host is not None and call.node is not None:
            self.host.put_in(call.node, now)

    def _generate(self, passes: int) -> None:
        """Has each running request generate so many tokens."""
        running = self.running
        if not running:
            return
        figures = self.figures
        figures.decode_passes += passes
        figures.generated += passes * len(running)
        figures.outside += passes * (not self._cost.knows_decode(len(running), self._context + len(running)))
        self.pool.grow_all(running, passes)
        for call in running:
            call.done += passes
        for _ in range(passes):
            self._ratio = max(self.settings.least_ratio, self._ratio - self._decay)

    def _leave(self, call: SimCall, now: int) -> None:
        """A request is done: all but its last token stays in the tree."""
        self._keep(call, now)
        self.pool.release(call)
        self._end(call, now)

    def _end(self, call: SimCall, now: int) -> None:
        call.ended = now
        what = "abort" if call.aborted else "end"
        self.figures.ended += 1
        if not call.aborted:
            self.figures.asked += call.prompt
            self.figures.cached += call.cached or 0
        self._log.add(now, self.number, what, call.serial, call.done, call.cached or 0)
        call.on_end(call)
