"""How far a run is: lines where nobody watches a bar, clean text, and no harm where nobody reads at all."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from helix import progress
from helix.progress import Progress, clean, count, say
from helix.results import RunReport, StepReport


def report(done: int) -> RunReport:
    return RunReport(done_rows=done, failed_rows=1, steps={"x": StepReport(calls=1200, merged=3)})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\n\tlines", "two\n\tlines"),
        ("\x1b[31mred\x1b[0m", "?[31mred?[0m"),
        ("bell\x07 back\x08 return\r", "bell? back? return?"),
        ("\x9b31m", "?31m"),
        ("\u202egnp.exe", "?gnp.exe"),
        ("line\u2028para\u2029", "line?para?"),
        ("half \ud83d", "half ?"),
        ("ไทย é 👩\u200d🚀 \xa0x", "ไทย é 👩\u200d🚀 \xa0x"),
    ],
)
def test_clean_text_moves_no_cursor(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_counts_have_their_noun() -> None:
    assert [count(number, "row") for number in (0, 1, 2, 12345)] == ["0 rows", "1 row", "2 rows", "12,345 rows"]


def test_where_there_is_no_terminal_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with Progress(20, quiet=False) as shown:
        shown.start()
        for second in range(100, 150):
            now = float(second)
            shown.update(report(second - 100))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "15 of 20 rows, 1,200 calls, 3 merged, 1 failed, 15 s",
        "30 of 20 rows, 1,200 calls, 3 merged, 1 failed, 30 s",
        "45 of 20 rows, 1,200 calls, 3 merged, 1 failed, 45 s",
    ]


def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with Progress(20, quiet=True) as shown:
        shown.start()
        shown.update(report(1))
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("bar", [True, False])
def test_a_bar_is_live_only_where_it_may_be(monkeypatch: pytest.MonkeyPatch, bar: bool) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with Progress(20, quiet=False, bar=bar) as shown:
        shown.start()
        shown.update(report(5))
        assert (shown._bar is not None) is bar


def test_a_reader_that_is_gone_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> Any:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    say("nobody hears this")
