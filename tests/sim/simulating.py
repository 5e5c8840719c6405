"""What tests of the simulated engine have in common: requests, an engine that keeps its calls, and a run of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from helix.executor.engines.base import Message, Reply, Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.executor.engines.sim.call import SimCall
from helix.simulation.cost import LinearCost

# A token of a prompt takes 1 ms, a pass of decoding 10 ms, whatever its size.
PLAIN = LinearCost(name="plain", a=0.0, b=1.0, c=0.0, d=10.0, e=0.0, f=0.0)
# The headers of `user` and `assistant`, four bytes a token.
HEADERS = 2 + 3


def ask(text: str, reply: int = 1, **more: Any) -> Request:
    """A request with a prompt of so many tokens as the text has, and a reply of at most `reply`."""
    return Request(**{"model": None, "messages": (Message(role="user", content=text),), "max_tokens": reply, **more})


def tokens(letter: str, count: int) -> str:
    return letter * 4 * (count - HEADERS)


class Recorder(SimEngine):
    """Keeps its calls, in the order in which they came."""

    def __init__(self, **changes: Any) -> None:
        self.calls: list[SimCall] = []
        plain = {"request_ms": 0.0, "step_gap_us": 0.0, "reply_tokens": 10_000, "overlap": "off"}
        given = {"kv_tokens": 10_000, **plain, **changes}
        together = given.pop("together", 32)
        super().__init__(SimSettings(**given), PLAIN, keep_events=True, together=together)

    def _call(self, *given: Any) -> SimCall:
        call = super()._call(*given)
        self.calls.append(call)
        return call

    def events(self, *kinds: str) -> list[str]:
        return [event for event in self.log.events or () if event.split()[2] in kinds]

    @property
    def order(self) -> list[int]:
        """The calls in the order of their first prefill."""
        parts = [number for event in self.events("prefill") for number in event.split()[5:]]
        return [int(number) for number in dict.fromkeys(parts)]


def simulate(
    engine: SimEngine, *requests: Request, at: tuple[float, ...] = (), aborts: Sequence[float] = ()
) -> list[Any]:
    """The replies to requests, each made at its second (all at 0 by default). The first ones are given up so many
    seconds later as `aborts` says, unless they have ended by then: their reply is None.
    """

    async def one(request: Request, when: float, until: float | None) -> Reply | None:
        await asyncio.sleep(when)
        try:
            async with asyncio.timeout(until):
                return await engine.generate(request)
        except TimeoutError:
            return None

    async def work() -> list[Reply | None]:
        await engine.open(concurrency=1)
        when = at or (0.0,) * len(requests)
        until = [*aborts, *(None,) * len(requests)]
        replies = await asyncio.gather(*(one(*each) for each in zip(requests, when, until, strict=False)))
        if aborts:
            # What was given up ends with its pass.
            await asyncio.sleep(3600)
        return list(replies)

    return run_virtual(work())


def ended(engine: Recorder) -> list[float]:
    """When each call ended, in milliseconds."""
    return [(call.ended or 0) / 1e6 for call in engine.calls]
