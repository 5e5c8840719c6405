"""Spans of a run by OpenTelemetry: run, step, call and tool.

A run is a span, and below it each call of a step in a row is one; each request that this took, attempts that failed
included, is a span below that, named and described as the conventions for generative AI have it. A call that was not
made since an equal one was has a step's span alone. Prompts, replies and results of tools are left out unless they are
asked for. Spans are made when a call has ended, with the times at which its parts began.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from helix.errors import OptionError
from helix.progress import say
from helix.telemetry import names

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

    from helix.executor.observe import Attempt, RunFacts, SeenCall
    from helix.results import RunReport

MISSING = "tracing needs OpenTelemetry; install it with: pip install 'helix-workflows[otel]'"
_SECOND = 1_000_000_000


class Tracing:
    """Gives the spans of runs to a tracer. `prompts` puts the texts of prompts, replies and results into them.

    Times of a run's clock become those of the world: that of simulated time goes on from the run's beginning.
    """

    def __init__(self, tracer: Tracer, *, prompts: bool = False) -> None:
        self._tracer = tracer
        self._prompts = prompts
        self._run: Span | None = None
        # Nanoseconds of the world at the run's second 0.
        self._zero = 0

    def began(self, facts: RunFacts, now: float) -> None:
        """The run begins."""
        self._zero = time.time_ns() - round(now * _SECOND)
        self._run = self._tracer.start_span(
            f"run {facts.workflow}",
            start_time=self._at(now),
            attributes={
                names.WORKFLOW: facts.workflow,
                names.POLICY: facts.policy,
                names.ENGINES: facts.engines,
                names.ROWS: facts.rows,
            },
        )

    def called(self, call: SeenCall) -> None:
        """A call has ended."""
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        if self._run is None:
            return
        span = self._tracer.start_span(
            f"step {call.step.partition('[')[0]}",
            context=set_span_in_context(self._run),
            start_time=self._at(call.began),
            attributes={
                names.STEP: call.step,
                names.ROW: call.row,
                names.OUTCOME: call.outcome,
                names.ATTEMPTS: len(call.attempts),
                names.QUEUE_SECONDS: call.queued,
            },
        )
        for attempt in call.attempts:
            self._attempt(call, attempt, span)
        if call.failure is not None:
            span.set_attribute(names.ERROR_TYPE, call.failure.kind)
            span.set_status(Status(StatusCode.ERROR, call.failure.message if self._prompts else call.failure.kind))
        span.end(self._at(call.ended))

    def ended(self, report: RunReport, now: float) -> None:
        """The run has ended."""
        from opentelemetry.trace import Status, StatusCode

        if self._run is None:
            return
        self._run.set_attributes(
            {
                names.ROWS: report.rows,
                names.FAILED_ROWS: report.failed_rows,
                names.CALLS: report.calls,
                names.MERGED: report.merged,
                names.FETCHED: report.fetched,
                names.OUTCOME: report.outcome,
                names.INPUT_TOKENS: report.total("prompt_tokens"),
                names.OUTPUT_TOKENS: report.total("completion_tokens"),
            }
        )
        if report.stopped is not None:
            self._run.set_attribute(names.STOPPED, report.stopped)
            self._run.set_status(Status(StatusCode.ERROR, report.stopped))
        self._run.end(self._at(now))
        self._run = None

    def _at(self, seconds: float) -> int:
        return self._zero + round(seconds * _SECOND)

    def _attempt(self, call: SeenCall, attempt: Attempt, parent: Span) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        tool = call.kind == "tool"
        model = attempt.request.model if attempt.request is not None else None
        step = call.step.partition("[")[0]
        what = f"{names.EXECUTE_TOOL} {step}" if tool else f"{names.CHAT} {model}" if model else names.CHAT
        span = self._tracer.start_span(
            what,
            context=set_span_in_context(parent),
            kind=SpanKind.INTERNAL if tool else SpanKind.CLIENT,
            start_time=self._at(attempt.began),
            attributes={names.OPERATION: names.EXECUTE_TOOL if tool else names.CHAT},
        )
        span.set_attributes(_tool(call, self._prompts) if tool else _chat(attempt, self._prompts))
        error = attempt.error
        kind = None if error is None else str(getattr(error, "kind", type(error).__name__))
        if kind is None and tool and call.failure is not None:
            kind = call.failure.kind
        if kind is not None:
            span.set_attribute(names.ERROR_TYPE, kind)
            span.set_status(Status(StatusCode.ERROR, kind))
        span.end(self._at(call.ended if attempt.ended is None else attempt.ended))


def _tool(call: SeenCall, prompts: bool) -> dict[str, Any]:
    made: dict[str, Any] = {names.TOOL_NAME: call.step.partition("[")[0]}
    if prompts and call.text is not None:
        made[names.TOOL_RESULT] = call.text
    return made


def _chat(attempt: Attempt, prompts: bool) -> dict[str, Any]:
    """The attributes of a request and its reply; those that are not known are left out."""
    request, reply = attempt.request, attempt.reply
    made: dict[str, Any] = {}
    if request is not None:
        made |= {
            names.REQUEST_MODEL: request.model,
            names.TEMPERATURE: request.temperature,
            names.MAX_TOKENS: request.max_tokens,
            names.TOP_P: request.top_p,
            names.SEED: request.seed,
            names.STOP: request.stop or None,
            names.OUTPUT_TYPE: "text" if request.schema is None else "json",
            names.RANK: request.rank,
        }
        if prompts:
            made[names.INPUT_MESSAGES] = _messages((message.role, message.shown) for message in request.messages)
    if reply is not None:
        made |= {
            names.FINISH: (reply.finish,),
            names.INPUT_TOKENS: reply.prompt_tokens,
            names.OUTPUT_TOKENS: reply.completion_tokens,
            names.CACHED_TOKENS: reply.cached_tokens,
            names.ENGINE_QUEUE_SECONDS: reply.queue_seconds,
        }
        if reply.rank is not None:
            made[names.RANK] = reply.rank
        if prompts:
            made[names.OUTPUT_MESSAGES] = _messages([("assistant", reply.text)], finish=reply.finish)
    return {name: value for name, value in made.items() if value is not None}


def _messages(messages: Any, **more: str) -> str:
    """Messages as the conventions write them: JSON of roles and parts."""
    made = [
        {"role": role, "parts": [{"type": "text", "content": text}]}
        | ({"finish_reason": more["finish"]} if "finish" in more else {})
        for role, text in messages
    ]
    return json.dumps(made, ensure_ascii=False)


class _Unsent(logging.Handler):
    """Takes what OpenTelemetry logs of a collector that cannot be reached: an address with whatever is secret in it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


class TraceTarget:
    """Where spans of the command line go: a collector's address (OTLP over HTTP), or a file of JSON lines.

    A context manager: at its end all spans are sent. Raises OptionError where that cannot be.
    """

    def __init__(self, target: str, *, prompts: bool = False) -> None:
        self._file: Any = None
        self._target = target
        self._unsent = _Unsent()
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
        except ImportError:
            raise OptionError(MISSING) from None
        exporter: Any
        if target.startswith(("http://", "https://")):
            try:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            except ImportError:
                raise OptionError(MISSING) from None
            exporter = OTLPSpanExporter(endpoint=target)
        else:
            try:
                self._file = Path(target).open("a", encoding="utf-8")  # noqa: SIM115 - closed at the end
            except OSError as error:
                raise OptionError(f"cannot write spans to {target}: {error.strerror or error}") from None
            exporter = ConsoleSpanExporter(
                out=self._file, formatter=lambda span: json.dumps(json.loads(span.to_json()), ensure_ascii=False) + "\n"
            )
        from helix import __version__

        self._provider: TracerProvider = TracerProvider(
            resource=Resource.create({"service.name": "helix", "service.version": __version__}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracing = Tracing(self._provider.get_tracer("helix", __version__), prompts=prompts)

    def __enter__(self) -> Tracing:
        self._logger = logging.getLogger("opentelemetry")
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self._unsent)
        return self.tracing

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._provider.shutdown()
        self._logger.removeHandler(self._unsent)
        self._logger.propagate = self._propagated
        if self._unsent.count:
            say(
                f"warning: spans are missing at {urlsplit(self._target).hostname or self._target}: it did not take them"
            )
        if self._file is not None:
            self._file.close()
