"""What the command line has look on at a run: a log, and spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helix.executor.observe import Observer

# The level of a log for which only a file is named.
DEFAULT_LEVEL = "info"


@contextmanager
def watching(
    *, log_level: str | None = None, log_file: str | None = None, otel: str | None = None, otel_prompts: bool = False
) -> Iterator[list[Observer]]:
    """Those who look on; at the end logs are closed and spans sent. Raises OptionError for what cannot be written."""
    with ExitStack() as stack:
        observers: list[Observer] = []
        if log_level is not None or log_file is not None:
            from helix.telemetry.logs import LOGGER, RunLog, configure

            # Whoever uses the logger from Python gets it back as it was.
            stack.callback(setattr, LOGGER, "propagate", LOGGER.propagate)
            stack.callback(LOGGER.setLevel, LOGGER.level)
            handler = configure(log_level or DEFAULT_LEVEL, log_file)
            stack.callback(handler.close)
            stack.callback(LOGGER.removeHandler, handler)
            observers.append(RunLog())
        if otel is not None:
            from helix.telemetry.tracing import TraceTarget

            observers.append(stack.enter_context(TraceTarget(otel, prompts=otel_prompts)))
        yield observers
