"""Structured logs: a JSON object a line, levels, where they go, and that no text of a prompt is in them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from running import command, jsonl

import helix
from helix.telemetry.logs import LOGGER, RunLog
from helix.telemetry.watching import watching

TEXT = """workflow w(x: text)

tool shout(x: text) -> text from python "logtools:shout"

loud = shout(x)
a = llm { user "Say {{ loud }}" }

output a
"""
ROWS = [{"x": "tell nobody"}, {"x": "bad"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logtools.py").write_text(
        "def shout(x: str) -> str:\n    if x == 'bad':\n        raise ValueError('broken')\n    return x.upper()\n",
        encoding="utf-8",
    )
    (tmp_path / "w.helix").write_text(TEXT, encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text(jsonl(ROWS), encoding="utf-8")
    return tmp_path


def run(folder: Path, *options: str) -> Any:
    return command("run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "--no-store", *options, cwd=folder)


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_a_file_gets_what_happens(folder: Path) -> None:
    ran = run(folder, "--log-level", "debug", "--log-file", "run.log")
    assert ran.returncode == 3
    found = events((folder / "run.log").read_text(encoding="utf-8"))
    assert [event["event"] for event in found] == ["run.began", "call", "call", "call", "run.ended"]
    assert not events(ran.stderr)
    began, *calls, ended = found
    assert (began["level"], began["workflow"], began["rows"], began["engines"]) == ("info", "w", 2, ["scripted"])
    assert datetime.fromisoformat(began["time"]).utcoffset() is not None
    by_step = {(call["step"], call["row"]): call for call in calls}
    assert by_step["loud", 0]["kind"] == "tool"
    assert by_step["a", 0]["prompt_tokens"] > 0
    bad = by_step["loud", 1]
    assert (bad["level"], bad["error"], bad["outcome"]) == ("warning", "tool", "failed")
    assert "broken" in bad["message"]
    assert (ended["level"], ended["outcome"], ended["failed_rows"], ended["calls"]) == ("warning", "failed_rows", 1, 3)
    assert "NOBODY" not in (folder / "run.log").read_text(encoding="utf-8")


def logged(folder: Path, **options: Any) -> list[tuple[str, str]]:
    """The events of a run with these options, and their levels."""
    file = folder / "some.log"
    with watching(log_file=str(file), **options) as observers:
        helix.load(folder / "w.helix").run(ROWS, engine="scripted", observers=observers)
    found = events(file.read_text(encoding="utf-8"))
    file.unlink()
    return [(event["event"], event["level"]) for event in found]


def test_a_level_leaves_the_lower_ones_out(folder: Path) -> None:
    few = [("call", "warning"), ("run.ended", "warning")]
    before = list(LOGGER.handlers)
    assert len(logged(folder, log_level="debug")) == 5
    assert logged(folder, log_level="info") == [("run.began", "info"), *few]
    assert logged(folder, log_level="warning") == few
    assert logged(folder, log_level="error") == []
    # A file alone gets what a person should know.
    assert logged(folder) == logged(folder, log_level="info")
    assert LOGGER.handlers == before


def test_without_a_file_it_goes_to_standard_error_and_without_a_level_nowhere(folder: Path) -> None:
    found = events(run(folder, "--log-level", "info", "--quiet").stderr)
    assert [event["event"] for event in found] == ["run.began", "call", "run.ended"]
    assert not events(run(folder).stderr)


def test_wrong_options_are_told(folder: Path) -> None:
    ran = run(folder, "--log-level", "debg")
    assert ran.returncode == 2
    assert "debug" in ran.stderr
    ran = run(folder, "--log-file", "no/such/run.log")
    assert ran.returncode == 2
    assert "cannot write the log no/such/run.log" in ran.stderr


def test_from_python_the_logger_is_pythons_own(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="helix")
    assert LOGGER.name == "helix"
    helix.load(folder / "w.helix").run(ROWS, engine="scripted", observers=[RunLog()])
    assert [record.message for record in caplog.records] == ["run.began", "call", "call", "call", "run.ended"]
    assert caplog.records[0].helix_fields["workflow"] == "w"  # type: ignore[attr-defined]
