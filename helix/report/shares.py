"""Where the time of a run went: prefill and decoding, queues, tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helix.optimizer.engine_time import EngineTime
from helix.records import CallRecord
from helix.report.measures import Shares
from helix.report.tallies import covered, covered_alone

# Calls that a fit needs, and the part of the spread of their times that it has to explain.
FITTED = 30
EXPLAINED = 0.5


def shares_of(llm: Sequence[CallRecord], tools: Sequence[CallRecord], makespan: float, engine: EngineTime) -> Shares:
    """The shares of a run. `llm` and `tools` are the calls that were made."""
    prefill, basis = prefill_share(llm, engine)
    spent = sum(call.ended - call.submitted for call in llm)
    held = sum(call.started - call.submitted for call in llm)
    queues = [call.queue_seconds for call in llm if call.queue_seconds is not None]
    running = [(call.started, call.ended) for call in tools]
    alone = covered_alone(running, ((call.started, call.ended) for call in llm))
    return Shares(
        prefill=prefill,
        prefill_basis=basis,
        held=held / spent if spent else None,
        queued=sum(queues) / spent if queues and spent else None,
        tools=covered(running) / makespan if makespan else 0.0,
        exposed_tools=alone / makespan if makespan else 0.0,
    )


def prefill_share(calls: Iterable[CallRecord], engine: EngineTime) -> tuple[float | None, str]:
    """The part of the engine's work that is prefill, and what that rests on.

    By the calls' own times where these tell it: they are fitted as a * prefilled + b * generated tokens, neither below
    0, by least squares. Else by the model of an engine's time.
    """
    told = [
        (float(call.prefilled_tokens), float(call.completion_tokens), call.ended - call.started, call)
        for call in calls
        if call.outcome == "made" and call.prefilled_tokens is not None and call.completion_tokens is not None
    ]
    if not told:
        return None, "the engine does not tell its tokens"
    fresh = sum(each[0] for each in told)
    written = sum(each[1] for each in told)
    points = [(each[0], each[1], each[2] - (each[3].queue_seconds or 0.0)) for each in told if each[3].attempts == 1]
    rates = fit(points) if len(points) >= FITTED else None
    if rates is not None:
        parts, basis = (rates[0] * fresh, rates[1] * written), f"fitted to the times of {len(points):,} calls"
    else:
        steps = sum(engine.steps(each[1]) for each in told)
        decoding = engine.e * steps + engine.f * sum(engine.contexts(_prompt(each[3]), each[1]) for each in told)
        decoding += engine.d * steps / min(engine.batch, max(1, len(told)))
        parts = (engine.b * fresh + engine.c * sum(_attention(each[3], each[0]) for each in told), decoding)
        basis = engine.name
    total = sum(parts)
    return (parts[0] / total if total else None), basis


def _prompt(call: CallRecord) -> float:
    return float(call.prompt_tokens or 0)


def _attention(call: CallRecord, fresh: float) -> float:
    return fresh * (fresh + 2 * (call.cached_tokens or 0))


def fit(points: Sequence[tuple[float, float, float]]) -> tuple[float, float] | None:
    """The a and b, neither below 0, by which a x + b y is nearest to z; None where that explains too little."""
    xx = sum(x * x for x, _, _ in points)
    yy = sum(y * y for _, y, _ in points)
    xy = sum(x * y for x, y, _ in points)
    xz = sum(x * z for x, _, z in points)
    yz = sum(y * z for _, y, z in points)
    determinant = xx * yy - xy * xy
    # Where one number of tokens tells the other, their parts cannot be told apart.
    if not xx or not yy or determinant <= 1e-6 * xx * yy:
        return None
    a, b = (xz * yy - yz * xy) / determinant, (yz * xx - xz * xy) / determinant
    if a < 0 or b < 0:
        a, b = (0.0, yz / yy) if a < 0 else (xz / xx, 0.0)
    mean = sum(z for _, _, z in points) / len(points)
    spread = sum((z - mean) ** 2 for _, _, z in points)
    left = sum((z - a * x - b * y) ** 2 for x, y, z in points)
    if a < 0 or b < 0 or not spread or 1 - left / spread < EXPLAINED:
        return None
    return a, b
