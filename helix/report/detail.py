"""What the page of a run draws and shows besides its measures: bounded in size, whatever the run was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from helix.records import CallRecord, SentPrompt
from helix.results import RunReport

# Calls that are drawn, points of the curve of hit rates, and rows that are shown with their prompts.
MOST_SPANS = 3_000
POINTS = 60
ROWS_SHOWN = 20
# Prompts of one row.
MOST_EXCHANGES = 10
TOOLS = "tools"
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpan:
    """A call that was made: in which lane of the drawing, of which step, and when, in seconds since the first call."""

    lane: str
    step: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShown:
    """A row with what its calls took. `seconds` are those of its calls added up, `span` goes from when the first could
    be made to the end of the last. `exchanges` are its prompts as far as they were kept, `more` how many are left out.
    Of a row that failed `step`, `kind` and `message` are of its error.
    """

    row: int
    calls: int
    seconds: float
    span: float
    exchanges: tuple[SentPrompt, ...]
    more: int = 0
    step: str = ""
    kind: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """All of it. Times are in seconds since the first call was sent.

    `spans` are one of every `stride` of `calls`, by their beginnings, `busy` the summed seconds of all of them by lane
    and step. `rates` are (time, hit rate) of calls taken together, `llm_began` is when the first llm call began,
    `locked` are (time, share of the KV cache in use). `plan` is the plan that ran as text, `compared` a table of what
    was estimated of each step and what was measured, heads first. `rows_called` have calls; `slow` are those whose
    calls took longest, `failed` the first that failed. Texts were kept of `kept` prompts of `replies`.
    """

    calls: int
    stride: int
    spans: tuple[CallSpan, ...]
    busy: Mapping[str, Mapping[str, float]]
    ends: float
    llm_began: float
    rates: tuple[tuple[float, float], ...]
    locked: tuple[tuple[float, float], ...]
    plan: str
    compared: tuple[tuple[str, ...], ...]
    rows_called: int
    slow: tuple[RowShown, ...]
    failed: tuple[RowShown, ...]
    kept: int
    replies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a recorder kept besides its records: texts, and how full the cache was, on the clock of the records."""

    prompts: Sequence[SentPrompt]
    failures: Sequence[SentPrompt]
    replies: int
    locked: Sequence[tuple[float, float]]


def detail_of(
    report: RunReport, records: Iterable[CallRecord], kept: Kept, plan: str, compared: Sequence[Sequence[str]]
) -> Detail:
    """The detail of a run that has ended. Equal records give equal details."""
    sent = sorted((each for each in records if each.sent), key=lambda each: (each.started, each.ended, each.row))
    zero = sent[0].started if sent else 0.0
    llm = [each for each in sent if each.kind == "llm"]
    stride = -(-len(sent) // MOST_SPANS) or 1
    busy: dict[str, dict[str, float]] = {}
    for each in sent:
        own = busy.setdefault(_lane(each), {})
        own[each.step] = own.get(each.step, 0.0) + each.ended - each.started
    slow, failed, called = _rows(report, sent, kept)
    return Detail(
        calls=len(sent),
        stride=stride,
        spans=tuple(
            CallSpan(lane=_lane(each), step=each.step, begin=each.started - zero, end=each.ended - zero)
            for each in _sampled(sent, stride)
        ),
        busy={lane: busy[lane] for lane in sorted(busy, key=_lane_order)},
        ends=max((each.ended for each in sent), default=zero) - zero,
        llm_began=llm[0].started - zero if llm else 0.0,
        rates=_rates(llm, zero),
        locked=tuple((max(0.0, time - zero), share) for time, share in kept.locked),
        plan=plan,
        compared=tuple(tuple(row) for row in compared),
        rows_called=called,
        slow=slow,
        failed=failed,
        kept=len(kept.prompts),
        replies=kept.replies,
    )


def _sampled(calls: Sequence[CallRecord], stride: int) -> Iterator[CallRecord]:
    """One of every `stride` calls. Which one goes from place to place, by the golden ratio: always the same place would
    draw some ranks alone, where calls go to ranks in turn.
    """
    for block, first in enumerate(range(0, len(calls), stride)):
        at = first + int((block * GOLDEN) % 1.0 * stride)
        if at < len(calls):
            yield calls[at]


def _lane(call: CallRecord) -> str:
    if call.kind == "tool":
        return TOOLS
    return "llm" if call.rank is None else f"rank {call.rank}"


def _lane_order(name: str) -> tuple[int, int]:
    """Ranks by number, then llm calls of which none is told, then tools."""
    number = name.removeprefix("rank ")
    return (0, int(number)) if number != name else (1, 0) if name != TOOLS else (2, 0)


def _rates(llm: Sequence[CallRecord], zero: float) -> tuple[tuple[float, float], ...]:
    """The hit rate of calls that began one after another, taken together until they hold a part of all prompt tokens:
    the rates of single calls say little. Calls whose replies do not tell it are left out.
    """
    told = [
        (each.started - zero, each.prompt_tokens, each.cached_tokens)
        for each in llm
        if each.prompt_tokens and each.cached_tokens is not None
    ]
    least = max(1.0, sum(prompt for _, prompt, _ in told) / POINTS)
    points: list[tuple[float, float]] = []
    times: list[float] = []
    prompts = cached = 0
    for at, (time, prompt, found) in enumerate(told):
        times.append(time)
        prompts += prompt
        cached += found
        if prompts >= least or at == len(told) - 1:
            points.append(((times[0] + times[-1]) / 2, cached / prompts))
            times, prompts, cached = [], 0, 0
    return tuple(points)


def _rows(
    report: RunReport, sent: Sequence[CallRecord], kept: Kept
) -> tuple[tuple[RowShown, ...], tuple[RowShown, ...], int]:
    """The slowest rows, the first that failed, and how many rows have calls."""
    # Of each row: calls, their seconds, when the first could be made, when the last ended.
    took: dict[int, tuple[int, float, float, float]] = {}
    for each in sent:
        calls, seconds, first, last = took.get(each.row, (0, 0.0, each.submitted, each.ended))
        took[each.row] = (
            calls + 1,
            seconds + each.ended - each.started,
            min(first, each.submitted),
            max(last, each.ended),
        )
    slowest = nlargest(ROWS_SHOWN, took, key=lambda row: (took[row][1], -row))
    errors = report.errors[:ROWS_SHOWN]
    texts: dict[int, dict[SentPrompt, None]] = {row: {} for row in [*slowest, *(error[0] for error in errors)]}
    for prompt in kept.prompts:
        if prompt.row in texts:
            texts[prompt.row][prompt] = None
    for prompt in kept.failures:
        # A reply that does not parse is among those that were answered, with its tokens.
        known = texts.get(prompt.row)
        if known is not None and not any(_same(prompt, each) for each in known):
            known[prompt] = None

    def shown(row: int, step: str = "", kind: str = "", message: str = "") -> RowShown:
        calls, seconds, first, last = took.get(row, (0, 0.0, 0.0, 0.0))
        found = list(texts[row])
        # The last prompt of a row that failed says most.
        some = found[-MOST_EXCHANGES:] if kind else found[:MOST_EXCHANGES]
        return RowShown(
            row=row,
            calls=calls,
            seconds=seconds,
            span=last - first,
            exchanges=tuple(some),
            more=len(found) - len(some),
            step=step,
            kind=kind,
            message=message,
        )

    return tuple(shown(row) for row in slowest), tuple(shown(*error) for error in errors), len(took)


def _same(one: SentPrompt, other: SentPrompt) -> bool:
    return (one.step, one.messages, one.reply) == (other.step, other.messages, other.reply)
