"""What happens in a run as structured logs: a JSON object a line, through the logger `helix` of Python's `logging`.

Events are `run.began`, `call` (debug; failed ones are warnings), `retry` (warning) and `run.ended`; each has its
figures as fields. No prompt and no reply is ever in them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.errors import OptionError, name_help

if TYPE_CHECKING:
    from helix.executor.observe import RunFacts, SeenCall
    from helix.results import RunReport

LOGGER = logging.getLogger("helix")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FIELDS = "helix_fields"


def log(level: int, event: str, **fields: Any) -> None:
    """One event with its fields; those that are None are left out."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={_FIELDS: {name: value for name, value in fields.items() if value is not None}})


class JsonLines(logging.Formatter):
    """A record as a line of JSON: time (UTC), level, event, then its fields."""

    def format(self, record: logging.LogRecord) -> str:
        made: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            made["traceback"] = self.formatException(record.exc_info)
        return json.dumps(made, ensure_ascii=False, default=str)


class _StandardError(logging.StreamHandler[Any]):
    """Writes to what standard error is at the time: while a view of progress is there, lines come above it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure(level: str, file: str | Path | None = None) -> logging.Handler:
    """Has events of a level and above written to a file, else to standard error. Raises OptionError."""
    if level not in LEVELS:
        raise OptionError(f"unknown log level `{level}`; {name_help(level, LEVELS, 'levels')}")
    handler: logging.Handler
    if file is None:
        handler = _StandardError()
    else:
        try:
            handler = logging.FileHandler(file, encoding="utf-8")
        except OSError as error:
            raise OptionError(f"cannot write the log {file}: {error.strerror or error}") from None
    handler.setFormatter(JsonLines())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(LEVELS[level])
    LOGGER.propagate = False
    return handler


class RunLog:
    """Logs a run."""

    def began(self, facts: RunFacts, now: float) -> None:
        """The run begins."""
        log(
            logging.INFO,
            "run.began",
            workflow=facts.workflow,
            rows=facts.rows,
            engines=list(facts.engines),
            policy=facts.policy,
        )

    def called(self, call: SeenCall) -> None:
        """A call has ended."""
        for number, attempt in enumerate(call.attempts, 1):
            if attempt.error is not None and number < len(call.attempts):
                log(
                    logging.WARNING,
                    "retry",
                    step=call.step,
                    row=call.row,
                    attempt=number,
                    kind=getattr(attempt.error, "kind", type(attempt.error).__name__),
                    message=str(attempt.error),
                )
        replies = [attempt.reply for attempt in call.attempts if attempt.reply is not None]
        log(
            logging.DEBUG if call.failure is None else logging.WARNING,
            "call",
            kind=call.kind,
            step=call.step,
            row=call.row,
            outcome=call.outcome,
            seconds=round(call.ended - call.began, 6),
            queued=round(call.queued, 6),
            attempts=len(call.attempts),
            prompt_tokens=_total(reply.prompt_tokens for reply in replies),
            completion_tokens=_total(reply.completion_tokens for reply in replies),
            cached_tokens=_total(reply.cached_tokens for reply in replies),
            rank=next((reply.rank for reply in reversed(replies) if reply.rank is not None), None),
            error=None if call.failure is None else call.failure.kind,
            message=None if call.failure is None else call.failure.message,
        )

    def ended(self, report: RunReport, now: float) -> None:
        """The run has ended."""
        log(
            logging.INFO if report.outcome == "complete" else logging.WARNING,
            "run.ended",
            outcome=report.outcome,
            rows=report.rows,
            failed_rows=report.failed_rows,
            calls=report.calls,
            merged=report.merged,
            fetched=report.fetched,
            prompt_tokens=report.total("prompt_tokens"),
            completion_tokens=report.total("completion_tokens"),
            seconds=round(report.seconds, 6),
            stopped=report.stopped,
        )


def _total(counts: Any) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
