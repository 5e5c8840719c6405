"""Spans of runs: what hangs below what, when it was, and that texts are in them only where they are asked for."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from running import command, jsonl

import helix
from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Capabilities, Reply, Request
from helix.telemetry import names
from helix.telemetry.tracing import TraceTarget, Tracing
from helix.telemetry.watching import watching

TEXT = """workflow w(x: text)

tool shout(x: text) -> text from python "spantools:shout" effects pure

model m {
  temperature: 0
  max_tokens: 9
}

loud = shout(x)
a = llm m { user "Say {{ loud }}" }
b = llm m { user "Say {{ a }} again" }

output b
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spantools.py").write_text(
        "def shout(x: str) -> str:\n    if x == 'bad':\n        raise ValueError(x)\n    return x.upper()\n",
        encoding="utf-8",
    )
    (tmp_path / "w.helix").write_text(TEXT, encoding="utf-8")
    return tmp_path


def traced(folder: Path, rows: list[dict[str, Any]], *, prompts: bool = False, **options: Any) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider.get_tracer("tests"), prompts=prompts)
    helix.load(folder / "w.helix").run(rows, observers=[tracing], **{"engine": "scripted", **options})
    return list(exporter.get_finished_spans())


def below(spans: list[ReadableSpan], parent: ReadableSpan) -> list[ReadableSpan]:
    found = [span for span in spans if span.parent is not None and span.parent.span_id == parent.context.span_id]
    return sorted(found, key=lambda span: (span.start_time or 0, span.name))


def run_of(spans: list[ReadableSpan]) -> ReadableSpan:
    (run,) = [span for span in spans if span.parent is None]
    return run


def test_a_run_has_steps_and_steps_have_calls(folder: Path) -> None:
    before = time.time_ns()
    spans = traced(folder, [{"x": "one"}, {"x": "two"}])
    run = run_of(spans)
    assert run.name == "run w"
    assert run.attributes is not None
    found = {name: run.attributes[name] for name in (names.WORKFLOW, names.ROWS, names.CALLS, names.OUTCOME)}
    assert found == {"helix.workflow": "w", "helix.rows": 2, "helix.calls": 6, "helix.outcome": "complete"}
    assert run.attributes[names.ENGINES] == ("scripted",)
    steps = below(spans, run)
    assert sorted(step.name for step in steps) == ["step a", "step a", "step b", "step b", "step loud", "step loud"]
    for step in steps:
        (call,) = below(spans, step)
        assert before <= (run.start_time or 0) <= (step.start_time or 0) <= (call.start_time or 0)
        assert (call.end_time or 0) <= (step.end_time or 0) <= (run.end_time or 0) <= time.time_ns()
        assert call.attributes is not None
        assert step.attributes is not None
        assert step.attributes[names.OUTCOME] == "made"
        if step.name == "step loud":
            assert (call.name, call.kind) == ("execute_tool loud", SpanKind.INTERNAL)
            assert call.attributes["gen_ai.operation.name"] == "execute_tool"
        else:
            assert (call.name, call.kind) == ("chat", SpanKind.CLIENT)
            assert call.attributes["gen_ai.operation.name"] == "chat"
            assert call.attributes["gen_ai.request.temperature"] == 0
            assert call.attributes["gen_ai.request.max_tokens"] == 9
            assert call.attributes["gen_ai.usage.input_tokens"] > 0
            assert call.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    rows = sorted(step.attributes[names.ROW] for step in steps if step.name == "step a" and step.attributes)
    assert rows == [0, 1]


def test_texts_are_in_spans_only_where_they_are_asked_for(folder: Path) -> None:
    secret = "tell nobody"
    plain = traced(folder, [{"x": secret}])
    assert secret.upper() not in "".join(span.to_json() for span in plain)
    told = traced(folder, [{"x": secret}], prompts=True)
    texts: dict[str, Any] = {}
    for span in told:
        texts |= dict(span.attributes or {}) if span.name.startswith(("chat", "execute_tool")) else {}
    assert json.loads(texts[names.TOOL_RESULT]) == secret.upper()
    (message,) = json.loads(texts[names.INPUT_MESSAGES])
    assert message["role"] == "user"
    assert message["parts"][0]["type"] == "text"
    (said,) = json.loads(texts[names.OUTPUT_MESSAGES])
    assert (said["role"], said["finish_reason"]) == ("assistant", "stop")
    assert any(secret.upper() in str((span.attributes or {}).get(names.INPUT_MESSAGES)) for span in told)


def test_what_fails_says_so_and_what_was_merged_has_no_call(folder: Path) -> None:
    spans = traced(folder, [{"x": "bad"}, {"x": "good"}, {"x": "good"}], concurrency=1)
    steps = below(spans, run_of(spans))
    (failed,) = [step for step in steps if (step.attributes or {})[names.OUTCOME] == "failed"]
    (call,) = below(spans, failed)
    for span in (failed, call):
        assert span.status.status_code == StatusCode.ERROR
        assert (span.attributes or {})[names.ERROR_TYPE] == "tool"
    assert "bad" not in (failed.status.description or "")
    merged = [step for step in steps if (step.attributes or {})[names.OUTCOME] == "merged"]
    assert len(merged) == 3
    assert all(not below(spans, step) for step in merged)
    assert (run_of(spans).attributes or {})[names.FAILED_ROWS] == 1


class Flaky:
    """Fails every call once."""

    name = "flaky"

    def __init__(self) -> None:
        self.asked: set[int] = set()

    async def open(self, *, concurrency: int) -> Capabilities:
        return Capabilities()

    async def generate(self, request: Request) -> Reply:
        if request.row not in self.asked:
            self.asked.add(request.row)
            raise EngineError("no", kind="engine.broken", retryable=True, retry_after=0.01)
        return Reply(text="well", prompt_tokens=3, completion_tokens=1, cached_tokens=2, rank=4)

    async def count_tokens(self, request: Request) -> int:
        return 1

    async def close(self) -> None:
        return None


def test_attempts_that_failed_are_calls_too(folder: Path) -> None:
    (folder / "w.helix").write_text(
        'workflow w(x: text)\na = llm { model "big", user "Say {{ x }}" }\noutput a\n'.replace('model "big", ', ""),
        encoding="utf-8",
    )
    spans = traced(folder, [{"x": "one"}], engine=Flaky(), model="big")
    (step,) = below(spans, run_of(spans))
    assert (step.attributes or {})[names.ATTEMPTS] == 2
    first, second = below(spans, step)
    assert first.name == second.name == "chat big"
    assert first.status.status_code == StatusCode.ERROR
    assert (first.attributes or {})[names.ERROR_TYPE] == "engine.broken"
    assert (first.end_time or 0) <= (second.start_time or 0)
    assert (second.attributes or {})[names.CACHED_TOKENS] == 2
    assert (second.attributes or {})[names.RANK] == 4
    assert step.status.status_code == StatusCode.UNSET


def test_nothing_is_traced_unless_it_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracing, "began", lambda *given: pytest.fail("traced"))
    result = helix.load(folder / "w.helix").run([{"x": "one"}], engine="scripted")
    assert result.report.failed_rows == 0


def test_a_run_that_is_stopped_ends_its_span(folder: Path) -> None:
    spans = traced(folder, [{"x": f"{at}"} for at in range(9)], max_calls=4, concurrency=1)
    run = run_of(spans)
    assert run.status.status_code == StatusCode.ERROR
    assert "budget of 4 calls" in str((run.attributes or {})[names.STOPPED])


def test_spans_and_a_report_go_together(folder: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    rows = [{"x": "one"}]
    workflow = helix.load(folder / "w.helix")
    plain = workflow.run(rows, engine="scripted", report=True)
    both = workflow.run(rows, engine="scripted", report=True, observers=[Tracing(provider.get_tracer("t"))])
    assert plain.run_report is not None
    assert both.run_report is not None
    assert set(both.run_report.to_json()) == set(plain.run_report.to_json())
    assert len(exporter.get_finished_spans()) == 7


def test_the_command_writes_spans_to_a_file(folder: Path) -> None:
    (folder / "rows.jsonl").write_text(jsonl([{"x": "one"}, {"x": "two"}]), encoding="utf-8")
    (folder / "spans.jsonl").write_text('{"resource": {"attributes": {"service.name": "helix"}}}\n', encoding="utf-8")
    ran = command(
        "run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "--no-store", "--otel", "spans.jsonl", cwd=folder
    )
    assert ran.returncode == 0, ran.stderr
    spans = [json.loads(line) for line in (folder / "spans.jsonl").read_text(encoding="utf-8").splitlines()]
    # What was there stays.
    assert len(spans) == 1 + 13
    assert {span["resource"]["attributes"]["service.name"] for span in spans} == {"helix"}
    assert "ONE" not in json.dumps(spans)


def test_the_command_writes_prompts_if_it_is_told_to(folder: Path) -> None:
    with watching(otel=str(folder / "told.jsonl"), otel_prompts=True) as observers:
        helix.load(folder / "w.helix").run([{"x": "one"}], engine="scripted", observers=observers)
    assert "ONE" in (folder / "told.jsonl").read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written_is_told_before_the_run(folder: Path) -> None:
    (folder / "rows.jsonl").write_text(jsonl([{"x": "one"}]), encoding="utf-8")
    ran = command("run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "--otel", "no/such/spans.jsonl", cwd=folder)
    assert ran.returncode == 2
    assert "cannot write spans to no/such/spans.jsonl" in ran.stderr
    assert ran.stdout == ""


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(OptionError, match=r"pip install 'helix-workflows\[otel\]'"):
        TraceTarget(str(tmp_path / "spans.jsonl"))


@pytest.mark.slow
def test_a_collector_that_is_away_does_not_hold_the_run(folder: Path) -> None:
    (folder / "rows.jsonl").write_text(jsonl([{"x": "one"}]), encoding="utf-8")
    began = time.monotonic()
    ran = command(
        "run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "--no-store",
        "--otel", "http://127.0.0.1:9/v1/traces", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert '"_error": null' in ran.stdout
    assert time.monotonic() - began < 30


def test_times_on_a_simulated_engine_are_simulated_ones(folder: Path) -> None:
    began = time.monotonic()
    spans = traced(folder, [{"x": "one"}], engine="sim:h100/llama-3.1-8b?reply_tokens=9000")
    run = run_of(spans)
    steps = {step.name: step for step in below(spans, run)}
    # Nine tokens at some 7 ms each, twice; the tool takes no time to speak of.
    assert 0.05e9 < (steps["step a"].end_time or 0) - (steps["step a"].start_time or 0) < 1e9
    assert (steps["step loud"].end_time or 0) - (steps["step loud"].start_time or 0) < 1e6
    assert (run.end_time or 0) - (run.start_time or 0) > 0.1e9
    assert time.monotonic() - began < 60
