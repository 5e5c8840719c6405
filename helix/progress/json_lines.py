"""Progress as JSON: an object a line on standard error. The keys are promised in docs/reference/cli.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from helix.progress.measures import Measures
from helix.results import RunReport, StepReport

JSON_EVERY = 1.0
# Figures of a step that are told: those of StepReport that a run in progress has.
STEP_KEYS = (
    "calls",
    "done",
    "merged",
    "fetched",
    "failed",
    "retries",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "tool_calls",
)


class JsonView:
    """Writes an object after every second, and one for the beginning, the end and each message."""

    every = JSON_EVERY

    def start(self, measures: Measures) -> None:
        """The run begins."""
        _write("begin", measures_json(measures))

    def show(self, measures: Measures) -> None:
        """Writes how far it is."""
        _write("progress", measures_json(measures))

    def tell(self, text: str) -> None:
        """One message."""
        message(text)

    def end(self, measures: Measures, report: RunReport) -> None:
        """The run has ended."""
        ended = {"state": "ended", "why": None, "left_seconds": None}
        _write("end", measures_json(measures) | ended | {"outcome": report.outcome, "stopped": report.stopped})

    def stop(self) -> None:
        """Nothing more is written."""


def message(text: str) -> None:
    """What is said to a person, as an object."""
    _write("message", {"text": text})


def measures_json(measures: Measures) -> dict[str, Any]:
    """The measures as JSON values; what is not known is null."""
    return {
        "state": measures.state,
        "why": measures.why,
        "seconds": _round(measures.seconds),
        "left_seconds": _round(measures.left),
        "rows": measures.rows,
        "done_rows": measures.done,
        "failed_rows": measures.failed,
        "known_rows": measures.known,
        "calls": measures.calls,
        "merged": measures.merged,
        "fetched": measures.fetched,
        "retries": measures.retries,
        "in_flight": measures.in_flight,
        "queued": measures.queued,
        "prompt_tokens": measures.prompt_tokens,
        "cached_tokens": measures.cached_tokens,
        "completion_tokens": measures.completion_tokens,
        "prompt_tokens_per_second": _round(measures.prompt_rate),
        "completion_tokens_per_second": _round(measures.completion_rate),
        "hit_rate": None if measures.hit_rate is None else round(measures.hit_rate, 4),
        "cost": measures.cost,
        "currency": measures.currency,
        "phase": measures.phase,
        "phases": measures.phases,
        "phase_done": measures.phase_done,
        "phase_rows": measures.phase_rows,
        "steps": {name: _step(step) for name, step in measures.steps.items()},
    }


def _step(step: StepReport) -> dict[str, int]:
    return {key: getattr(step, key) for key in STEP_KEYS}


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _write(event: str, values: Mapping[str, Any]) -> None:
    # Characters beyond ASCII are escaped: none of them reaches a terminal raw.
    with suppress(OSError, ValueError):
        print(json.dumps({"event": event, **values}), file=sys.stderr, flush=True)
