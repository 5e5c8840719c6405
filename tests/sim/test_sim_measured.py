"""The simulator against measured runs: the time for each token on an H100, at several loads."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from typing import Any

import pytest

from helix.executor.engines.base import Message, Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.executor.engines.sim.call import SimCall
from helix.simulation.cost import published_cost

COST = published_cost("h100")
# Calls that each client makes, one after the other.
ROUNDS = 4
HEADERS = 2 + 3


class Timed(SimEngine):
    """Keeps its calls."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls: list[SimCall] = []

    def _call(self, *given: Any) -> SimCall:
        call = super()._call(*given)
        self.calls.append(call)
        return call


def token_ms(clients: int, prompt: int, reply: int) -> float:
    """The mean time for a token after the first, with so many clients that began one after the other."""
    settings = SimSettings(kv_tokens=10_000_000, max_running=clients, reply_tokens=1_000_000, mixed_chunk=True)
    engine = Timed(settings, COST)
    # About how long a call takes: the clients begin spread over it, so that they are never in step.
    whole = (
        COST.prefill(prompt, prompt**2) * clients + reply * COST.decode(clients, clients * (prompt + reply // 2))
    ) / 1e3

    async def client(number: int) -> None:
        await asyncio.sleep(whole * number / clients)
        for turn in range(ROUNDS):
            own = f"{number:04}{turn:04}"
            text = own + "x" * (4 * (prompt - HEADERS) - len(own))
            await engine.generate(Request(model=None, messages=(Message(role="user", content=text),), max_tokens=reply))

    async def work() -> None:
        await engine.open(concurrency=clients)
        await asyncio.gather(*(client(number) for number in range(clients)))

    run_virtual(work())
    # Without the first and the last turns, when not all clients are at work.
    steady = sorted(engine.calls, key=lambda call: (call.arrived, call.serial))[clients : clients * (ROUNDS - 1)]
    assert all(call.prompt == prompt and call.target == reply for call in steady)
    return sum(((call.ended or 0) - (call.first or 0)) / 1e6 / (reply - 1) for call in steady) / len(steady)


@pytest.mark.shared
def test_the_time_for_a_token_is_that_of_measured_runs(shared_data: Path) -> None:
    errors: list[float] = []
    with (shared_data / "sim" / "aiconfigurator_silicon_llama31_8b.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["system"] == "h100_sxm" and row["tp_size"] == "1":
                found = token_ms(int(row["batch_size"]), int(row["isl"]), int(row["osl"]))
                errors.append(abs(found / float(row["silicon_tpot_ms"]) - 1))
    assert len(errors) == 42
    assert sum(errors) / len(errors) <= 0.05
    assert max(errors) <= 0.12
