"""How far a run is, how fast it goes and when it will be done: what all views of it show."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from helix.progress.words import clock, count
from helix.results import Activity, RunReport, StepReport

if TYPE_CHECKING:
    from helix.optimizer.cost import Prices

State = Literal["starting", "known", "running", "tools", "memory", "paused", "outage", "stopping"]

# Rates of tokens are of the last so many looks: ten seconds, where a run is looked at twice a second.
LOOKS = 20
# Looks kept of a pace; beyond, every second one is let go.
KEPT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """A run at one moment. `rows` are those of the input, `known` of those that are `done` went through on results from
    before; all counts but those are as in `RunReport` and `Activity`.

    `seconds` have gone by since the first call could be made, `left` are those that the rows left will take at the pace
    of those that this run worked on itself. Rates are per second, of the last moments. What is not known is None.
    In a plan with groups, sorts or limits, `phase` of `phases` is the one at work, with `phase_done` rows of
    `phase_rows`, and `left` is for that one alone.
    """

    rows: int | None
    done: int
    failed: int
    known: int
    calls: int
    merged: int
    fetched: int
    retries: int
    in_flight: int
    queued: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    prompt_rate: float | None
    completion_rate: float | None
    hit_rate: float | None
    cost: float | None
    currency: str | None
    seconds: float
    left: float | None
    state: State
    why: str | None
    phase: int
    phases: int
    phase_done: int
    phase_rows: int | None
    steps: Mapping[str, StepReport]


class Pace:
    """How fast a count grows: over the later half of the time so far, so that it follows a change and does not jump."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._counts: list[int] = []

    def add(self, time: float, number: int) -> None:
        """The count at a time."""
        self._times.append(time)
        self._counts.append(number)
        if len(self._times) > KEPT:
            del self._times[1:-1:2], self._counts[1:-1:2]

    def rate(self) -> float | None:
        """The growth a second; None while there is none."""
        if not self._times:
            return None
        first, last = self._times[0], self._times[-1]
        for begin in (bisect_right(self._times, (first + last) / 2) - 1, 0):
            grown, took = self._counts[-1] - self._counts[begin], last - self._times[begin]
            if grown > 0 and took > 0:
                return grown / took
        return None


class Meter:
    """Measures a run. `rows` are those of its input (None: as the run tells), `prices` those of its tokens (None: no
    cost is told).
    """

    def __init__(self, rows: int | None, prices: Prices | None = None) -> None:
        self._rows = rows
        self._prices = prices
        self._began = self._last = 0.0
        self._active = 0.0
        self._phase = 0
        self._pace = Pace()
        self._tokens: deque[tuple[float, int, int]] = deque(maxlen=LOOKS + 1)

    def start(self, now: float) -> None:
        """The clock starts: calls can be made."""
        self._began = self._last = now

    def read(self, report: RunReport, now: float) -> Measures:
        """The run at a time of the clock, which must not go back."""
        doing = report.activity
        state, why = state_of(report)
        if state != "outage":
            # What waits for an engine that is away says nothing of the pace.
            self._active += now - self._last
        self._last = now
        phase, phases, done, known, rows = self._phase_of(report, doing)
        left = self._left(report, phase, done, known, rows)
        prompt, completion = report.total("prompt_tokens"), report.total("completion_tokens")
        cached = report.total("cached_tokens")
        self._tokens.append((report.seconds, prompt, completion))
        prompt_rate, completion_rate = self._rates()
        return Measures(
            rows=self._rows if self._rows is not None or doing is None else doing.phases[0].all,
            done=report.done_rows,
            failed=report.failed_rows if doing is None else doing.failed,
            known=0 if doing is None else doing.phases[0].known,
            calls=report.calls,
            merged=report.merged,
            fetched=report.fetched,
            retries=report.total("retries"),
            in_flight=0 if doing is None else doing.in_flight,
            queued=0 if doing is None else doing.queued,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
            prompt_rate=prompt_rate,
            completion_rate=completion_rate,
            hit_rate=cached / prompt if prompt and not report.total("untold") else None,
            cost=cost_of(report, self._prices),
            currency=None if self._prices is None else self._prices.currency,
            seconds=now - self._began,
            left=left,
            state=state,
            why=why,
            phase=phase,
            phases=phases,
            phase_done=done,
            phase_rows=rows,
            steps=report.steps,
        )

    def _phase_of(self, report: RunReport, doing: Activity | None) -> tuple[int, int, int, int, int | None]:
        """The phase at work, from 1, of how many; its rows done, of these known before, and all of them."""
        if doing is None:
            return 1, 1, report.done_rows, 0, self._rows
        number = next((at for at, each in enumerate(doing.phases) if not each.over), len(doing.phases) - 1)
        phase = doing.phases[number]
        rows = self._rows if number == 0 and phase.all is None else phase.all
        return number + 1, len(doing.phases), phase.done, phase.known, rows

    def _left(self, report: RunReport, phase: int, done: int, known: int, rows: int | None) -> float | None:
        if phase != self._phase or report.calls == 0:
            # What went by on results from before says nothing of what is left.
            self._phase, self._pace = phase, Pace()
        self._pace.add(self._active, done - known)
        pace = self._pace.rate()
        if rows is None or pace is None or report.stopped is not None:
            return None
        return max(0, rows - done) / pace

    def _rates(self) -> tuple[float | None, float | None]:
        (first, *before), (last, *now) = self._tokens[0], self._tokens[-1]
        if last <= first or not any(now):
            return None, None
        return (now[0] - before[0]) / (last - first), (now[1] - before[1]) / (last - first)


def cost_of(report: RunReport, prices: Prices | None) -> float | None:
    """What the tokens of a run cost; None without prices. Warm-ups are paid like prompts."""
    if prices is None:
        return None
    cached = report.total("cached_tokens")
    reused = prices.prompt if prices.cached is None else prices.cached
    fresh = report.total("prompt_tokens") - cached + report.warmup_tokens
    return (fresh * prices.prompt + cached * reused + report.total("completion_tokens") * prices.output) / 1e6


def state_of(report: RunReport) -> tuple[State, str | None]:
    """What a run does just now, and why where it waits."""
    if report.waiting is not None:
        return "outage", report.waiting
    doing = report.activity
    if doing is None:
        return ("running" if report.calls else "starting"), None
    if report.stopped is not None:
        return "stopping", f"{report.stopped}; {count(doing.in_flight, 'call')} in flight"
    if doing.paused > 0:
        return "paused", f"the engine is overloaded and asked to wait, {clock(doing.paused)} left"
    if report.calls == 0:
        known = sum(phase.known for phase in doing.phases)
        return ("known", f"{count(known, 'row')} known from before") if known else ("starting", None)
    if doing.tools and doing.tools == doing.in_flight:
        return "tools", f"for {count(doing.tools, 'call')} of tools"
    if doing.no_room:
        return "memory", f"{count(doing.queued, 'call')} in line for room in the cache of the engine"
    return "running", None
