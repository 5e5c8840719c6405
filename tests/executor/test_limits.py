"""What bounds all calls of a run together: sleeps that end with the run, times, budgets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from helix.errors import OptionError
from helix.executor.limits import CutShort, Limits, TimedOut
from helix.executor.settings import RunSettings


def limits(**settings: Any) -> tuple[Limits, list[tuple[str, bool, str]]]:
    stops: list[tuple[str, bool, str]] = []

    def stop(reason: str, *, fatal: bool = False, kind: str = "not_started") -> None:
        stops.append((reason, fatal, kind))
        made.halt(reason, kind)

    made = Limits(RunSettings(**settings), stop)
    return made, stops


def test_a_sleep_ends_by_itself_or_with_the_run() -> None:
    async def main() -> None:
        made, _ = limits()
        began = time.monotonic()
        await made.sleep(0.05)
        assert time.monotonic() - began >= 0.05
        asyncio.get_running_loop().call_later(0.02, made.halt, "enough", "not_started")
        with pytest.raises(CutShort, match="not tried again: enough"):
            await made.sleep(60)
        with pytest.raises(CutShort):
            await made.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 5))


def test_the_first_reason_stays() -> None:
    made, _ = limits()
    made.halt("first", "limit")
    made.halt("second", "not_started")
    with pytest.raises(CutShort, match="not started: first") as caught:
        made.count_call()
    assert caught.value.kind == "limit"


def test_budgets_stop_the_run_with_their_own_kind() -> None:
    made, stops = limits(max_calls=1, max_tokens=10)
    made.count_call()
    made.count_tokens(9)
    assert stops == []
    with pytest.raises(CutShort):
        made.count_call()
    made.count_tokens(1)
    assert [kind for _, _, kind in stops] == ["limit", "limit"]
    assert made.calls == 1


def test_times_are_told_apart() -> None:
    async def main() -> None:
        made, _ = limits(run_timeout=0.2)
        assert await made.timed(asyncio.sleep(0, "value"), None) == "value"
        made.start()
        with pytest.raises(TimedOut, match=r"no result within 0\.05 s") as caught:
            await made.timed(asyncio.sleep(5), 0.05, "result")
        assert not caught.value.final
        with pytest.raises(TimedOut, match=r"the run's time limit of 0\.2 s") as caught:
            await made.timed(asyncio.sleep(5), 60)
        assert caught.value.final

        async def own() -> None:
            raise TimeoutError("own")

        with pytest.raises(TimeoutError, match="own"):
            await limits()[0].timed(own(), 60)

    asyncio.run(asyncio.wait_for(main(), 5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1, found 0"),
        ({"attempts": 0}, "attempts must be at least 1, found 0"),
        ({"max_failed": -1}, "max_failed must be at least 0, found -1"),
        ({"max_calls": -1}, "max_calls must be at least 0, found -1"),
        ({"call_timeout": 0}, "call_timeout must be more than 0 seconds, found 0"),
        ({"run_timeout": float("inf")}, "run_timeout must be more than 0 seconds, found inf"),
        ({"run_timeout": float("nan")}, "run_timeout must be more than 0 seconds, found nan"),
        ({"max_failed": float("nan")}, "max_failed must be at least 0, found nan"),
        ({"max_failed": 101, "max_failed_percent": True}, "max_failed is at most 100%, found 101%"),
        ({"on_bad_row": "skip"}, "on_bad_row is `stop` or `keep`, found `skip`"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        RunSettings(**settings)
    assert str(caught.value) == message
