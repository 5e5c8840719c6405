"""Keeps a record of each call of a run, in columns: about 100 bytes a call, 200 where equal calls may be merged.

Nothing is kept unless a report is wanted.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from helix.executor.engines.base import Reply, Request
from helix.places import static_name
from helix.records import CallOutcome, CallRecord, SentPrompt

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

# Prompts whose texts are kept to count distinct prefixes: the first ones, up to so many and so many characters.
MOST_PROMPTS = 5_000
MOST_CHARACTERS = 64_000_000
# Calls that failed, whose last prompts are kept besides; and times at which it is kept how full the cache was.
MOST_FAILURES = 100
MOST_SAMPLES = 1_024
TOOL_LANE = "tools"
FULL = 0.8
_OUTCOMES: tuple[CallOutcome, ...] = ("made", "failed", "merged", "fetched")
_UNTOLD = -1


class OpenRecord:
    """The record of a call that is being made."""

    __slots__ = (
        "attempts",
        "cached",
        "completion",
        "prompt",
        "queue",
        "rank",
        "recorder",
        "released",
        "request",
        "started",
        "text",
    )

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.released = self.started = _now()
        self.attempts = 0
        self.prompt = self.cached = self.completion = _UNTOLD
        self.rank = _UNTOLD
        self.queue = float(_UNTOLD)
        # The last request that was answered or failed, and its reply.
        self.request: Request | None = None
        self.text = ""

    def attempt(self, began: float | None = None) -> None:
        """Hears that a request is sent, or was at that time."""
        if self.attempts == 0:
            self.started = _now() if began is None else began
        self.attempts += 1

    def failed(self, error: BaseException, request: Request | None = None) -> None:
        """Hears of an attempt that came to an error."""
        if request is not None:
            self.request, self.text = request, ""

    def reply(self, request: Request, reply: Reply) -> None:
        """Hears of a reply, also of one that does not parse."""
        self.request, self.text = request, reply.text
        self.prompt = _sum(self.prompt, reply.prompt_tokens)
        self.cached = _sum(self.cached, reply.cached_tokens)
        self.completion = _sum(self.completion, reply.completion_tokens)
        rank = request.rank if reply.rank is None else reply.rank
        if rank is not None:
            self.rank = rank
        if reply.queue_seconds is not None:
            self.queue = max(0.0, self.queue) + reply.queue_seconds
        self.recorder.sent(request, reply)


class Recorder:
    """The records of a run, in the order in which calls ended.

    `prompts` are the first ones that were answered, for their texts; `replies` counts all. `failures` are the last
    prompts of the first calls that failed, with the reply where there was one. `full` is the first and the last time
    that the KV cache was locked to .8 of its size, `locked` how full it was, at up to MOST_SAMPLES times.
    """

    def __init__(self, *, most_prompts: int = MOST_PROMPTS, most_characters: int = MOST_CHARACTERS) -> None:
        self.prompts: list[SentPrompt] = []
        self.failures: list[SentPrompt] = []
        self.replies = 0
        self.locked: list[tuple[float, float]] = []
        self._seen = 0
        self._stride = 1
        self.full: tuple[float, float] | None = None
        self._room = most_characters
        self._most = most_prompts
        self._texts: dict[str, str] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._known: dict[bytes, int] = {}
        self._step = array("L")
        self._outcome = array("B")
        self._attempts = array("H")
        self._counts = array("q")
        self._times = array("d")

    def __len__(self) -> int:
        return len(self._step)

    def begin(self, locked: float | None = None) -> OpenRecord:
        """Opens the record of a call that is let go now. `locked` is the share of the KV cache that is in use."""
        record = OpenRecord(self)
        if locked is not None and locked >= FULL:
            self.full = (record.released if self.full is None else self.full[0], record.released)
        if locked is not None:
            self.sample(locked)
        return record

    def sample(self, locked: float) -> None:
        """Notes how full the cache is now. Of a long run every second sample is dropped again and again."""
        self._seen += 1
        if (self._seen - 1) % self._stride:
            return
        self.locked.append((_now(), locked))
        if len(self.locked) >= MOST_SAMPLES:
            del self.locked[1::2]
            self._stride *= 2

    def end(self, call: Call, outcome: Outcome) -> None:
        """Closes the record of a call, or notes one that was not made since its outcome was there."""
        record = call.record
        if record is not None:
            call.record = None
            number = 0 if outcome.failure is None else 1
            if record.attempts == 0 and not outcome.merged:
                # It never got as far as its engine: the run had ended, or its prompt is too long.
                return
            if not outcome.merged:
                if number:
                    self._failed(record)
                if call.key is not None:
                    self._known[call.key] = len(self)
                counts = (call.row, record.prompt, record.cached, record.completion, record.rank)
                times = (call.submitted, record.released, record.started, _now(), record.queue)
                self._add(call, number, record.attempts, counts, times)
                return
        if outcome.merged:
            self._spared(call, 2)
        elif outcome.fetched:
            self._spared(call, 3)

    def sent(self, request: Request, reply: Reply) -> None:
        """Keeps the texts of a prompt and its reply, while there is room for them."""
        self.replies += 1
        if len(self.prompts) >= self._most or self._room < 0:
            return
        messages = tuple((message.role, self._kept(message.shown)) for message in request.messages)
        self._room -= len(reply.text)
        self.prompts.append(
            SentPrompt(
                row=request.row,
                step=request.step,
                name=request.name,
                model=request.model,
                messages=messages,
                reply=reply.text,
                prompt_tokens=reply.prompt_tokens,
                cached_tokens=reply.cached_tokens,
                completion_tokens=reply.completion_tokens,
            )
        )

    def _failed(self, record: OpenRecord) -> None:
        """Keeps the last prompt of a call that failed, while there is room."""
        request = record.request
        if request is None or len(self.failures) >= MOST_FAILURES or self._room < 0:
            return
        self._room -= len(record.text)
        messages = tuple((message.role, self._kept(message.shown)) for message in request.messages)
        self.failures.append(
            SentPrompt(row=request.row, step=request.step, model=request.model, messages=messages, reply=record.text)
        )

    def _kept(self, text: str) -> str:
        """One copy of a text that many prompts hold."""
        known = self._texts.setdefault(text, text)
        if known is text:
            self._room -= len(text)
        return known

    def _spared(self, call: Call, number: int) -> None:
        """Notes a call that was not made. Its tokens are those of the equal call, where that is one of this run."""
        same = None if call.key is None else self._known.get(call.key)
        prompt = cached = completion = _UNTOLD
        if same is not None:
            _, prompt, cached, completion, _ = self._counts[5 * same : 5 * same + 5]
        now = _now()
        self._add(
            call, number, 0, (call.row, prompt, cached, completion, _UNTOLD), (now, now, now, now, float(_UNTOLD))
        )

    def _add(self, call: Call, outcome: int, attempts: int, counts: tuple[int, ...], times: tuple[float, ...]) -> None:
        self._step.append(self._names.setdefault((static_name(call.step), call.lane), len(self._names)))
        self._outcome.append(outcome)
        self._attempts.append(min(attempts, 0xFFFF))
        self._counts.extend(counts)
        self._times.extend(times)

    def __iter__(self) -> Iterator[CallRecord]:
        """The records one by one."""
        names = list(self._names)
        for at in range(len(self)):
            step, lane = names[self._step[at]]
            row, prompt, cached, completion, rank = self._counts[5 * at : 5 * at + 5]
            submitted, released, started, ended, queue = self._times[5 * at : 5 * at + 5]
            yield CallRecord(
                step=step,
                row=row,
                kind="tool" if lane.startswith(TOOL_LANE) else "llm",
                lane=lane,
                outcome=_OUTCOMES[self._outcome[at]],
                submitted=submitted,
                released=released,
                started=started,
                ended=ended,
                prompt_tokens=_told(prompt),
                cached_tokens=_told(cached),
                completion_tokens=_told(completion),
                rank=_told(rank),
                queue_seconds=None if queue < 0 else queue,
                attempts=self._attempts[at],
            )


def _now() -> float:
    """The loop's time: a simulated engine runs in virtual time."""
    return asyncio.get_running_loop().time()


def _sum(before: int, more: int | None) -> int:
    return before if more is None else max(0, before) + more


def _told(count: int) -> int | None:
    return None if count < 0 else count
