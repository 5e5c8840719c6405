"""What a plan wants of the engine's settings, in SGLang's words, each with a reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from helix.optimizer.lowering.context import LowerContext
from helix.optimizer.lowering.ops import Op
from helix.optimizer.lowering.room import FULL, Room
from helix.physical import EngineAdvice, WarmPrefix

# The requests that a rank may hold back before `lpm` becomes first come, first served.
QUEUE = 128
# Rows whose beginnings are asked to be kept between phases: enough to keep any engine busy.
MOST_KEPT = 256
_PAGES = 1024
_LEAST_CHUNK, _MOST_CHUNK = 512, 8192


def advice_of(
    context: LowerContext, ops: Sequence[Op], room: Room, warm: Sequence[WarmPrefix], *, tight: bool, grouped: bool
) -> tuple[EngineAdvice, ...]:  # fmt: skip
    """The settings wanted, in a fixed order; none without llm steps. `tight`: the cache does not hold all that is to be
    kept at once.
    """
    if not ops:
        return ()
    return tuple(_advice(context, ops, room, warm, tight, grouped))


def _advice(
    context: LowerContext, ops: Sequence[Op], room: Room, warm: Sequence[WarmPrefix], tight: bool, grouped: bool
) -> Iterator[EngineAdvice]:  # fmt: skip
    yield EngineAdvice(
        flag="--schedule-policy",
        value="lpm",
        why=f"calls whose beginning is cached go first; at most {QUEUE} wait on a rank, beyond which the server would "
        "fall back to first come, first served",
    )
    shares = bool(warm) or grouped or room.held > 0
    if shares and (tight or context.kv_tokens is None):
        yield EngineAdvice(
            flag="--radix-eviction-policy",
            value="priority",
            why="what rows share, and what a row keeps between phases, outlives the rest when the cache is full",
        )
    else:
        fits = "all that the plan keeps fits into the cache" if shares else "no beginning has to outlive its calls"
        yield EngineAdvice(flag="--radix-eviction-policy", value="lru", why=fits)
    fresh = max(op.private for op in ops)
    chunk = min(_MOST_CHUNK, max(_LEAST_CHUNK, 2 ** math.ceil(math.log2(max(1.0, 4 * fresh)))))
    yield EngineAdvice(
        flag="--chunked-prefill-size",
        value=str(chunk),
        why=f"a call adds up to {fresh:,.0f} tokens of its own: a pass takes some calls, and decoding goes on between",
    )
    yield EngineAdvice(
        flag="--enable-mixed-chunk",
        value="",
        why="a pass that computes prompts decodes too: replies do not wait for it (models with attention in all "
        "layers)",
    )
    if context.kv_tokens is not None:
        yield EngineAdvice(
            flag="--max-running-requests",
            value=str(running_wanted(context, room)),
            why=f"so many calls fit beside what all rows share, each with up to {room.call:,.0f} tokens of its own",
        )
    if context.ranks > 1:
        yield EngineAdvice(
            flag="--dp-size",
            value=str(context.ranks),
            why="each rank keeps the beginnings of its own groups of rows" if grouped else "rows are shared out",
        )
    yield EngineAdvice(flag="--page-size", value="1", why="cached beginnings count to the token")
    yield EngineAdvice(
        flag="--enable-cache-report",
        value="",
        why="replies say how much of their prompt was cached, which a run steers by",
    )


def running_wanted(context: LowerContext, room: Room) -> int:
    """The calls that run on a rank at once: as many as it has room for, no more than it takes."""
    fitting = (FULL * context.capacity - room.fixed) / room.call if room.call else context.running
    return max(1, int(min(fitting, context.running)))


def kv_wanted(context: LowerContext, ops: Sequence[Op], room: Room, *, rows: float, block: int) -> int:
    """The tokens that a rank's cache should hold for the plan, rounded up to whole thousands (of 1,024).

    Room for what all rows share, for the calls that can be made at once, and for what rows keep between phases.
    """
    beside = sum(max(1.0, op.often * op.node.sample) for op in ops)
    calls = min(max(1.0, rows * beside / context.ranks), context.running)
    need = room.fixed + calls * room.call + min(block / context.ranks, MOST_KEPT) * room.held
    return _PAGES * math.ceil(max(1.0, need / FULL) / _PAGES)
