"""Reports of runs as they stand at one moment."""

from __future__ import annotations

from typing import Any

from helix.results import Activity, Phase, RunReport, StepReport


def doing(*, done: int = 0, known: int = 0, failed: int = 0, **more: Any) -> Activity:
    """What a run with one phase is doing."""
    phases = more.pop("phases", (Phase(done=done, known=known, all=None, over=False),))
    given = {"in_flight": 8, "queued": 0, "tools": 0, "paused": 0.0, "no_room": False} | more
    return Activity(failed=failed, phases=phases, **given)


def report(done: int, *, calls: int | None = None, waiting: str | None = None, **more: Any) -> RunReport:
    """A run with one step, `x`, whose calls have 10 tokens of prompt, 6 of them cached, and 5 generated."""
    step: dict[str, Any] = more.pop("step", {})
    made = done if calls is None else calls
    stopped = more.pop("stopped", None)
    seconds = more.pop("seconds", 0.0)
    figures = {"calls": made, "done": made, "prompt_tokens": 10 * made, "cached_tokens": 6 * made}
    figures |= {"prefilled_tokens": 4 * made, "completion_tokens": 5 * made}
    return RunReport(
        done_rows=done,
        waiting=waiting,
        stopped=stopped,
        seconds=seconds,
        steps={"x": StepReport(**(figures | step))},
        activity=doing(done=done, **more),
    )
