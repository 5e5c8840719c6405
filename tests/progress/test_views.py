"""How far a run is: lines where nobody watches, JSON for programs, a view that fits; at times that the test tells."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from progress_runs import report

from helix.errors import OptionError
from helix.optimizer.cost import Prices
from helix.progress import MODES, Progress, clean, count, kind_of, money, say, sayer
from helix.progress.json_lines import STEP_KEYS
from helix.progress.live import drawn
from helix.progress.measures import Measures, Meter
from helix.progress.words import clock, short
from helix.results import Phase, RunReport, StepReport


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(make: Callable[[float], RunReport], seconds: int, *, rows: int | None = 20, **options: Any) -> Progress:
    """A run that is looked at every second; it has not ended yet."""
    tick = Clock()
    shown = Progress(rows, now=tick, **({"quiet": False} | options))
    shown.start()
    for second in range(seconds):
        tick.now = 100.0 + second
        shown.update(make(second))
    return shown


def bare(done: float) -> RunReport:
    return RunReport(done_rows=int(done), failed_rows=1, steps={"x": StepReport(calls=1200, merged=3)})


# --- words ----------------------------------------------------------------------------------------------------------


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


def test_times_and_numbers_are_short() -> None:
    assert [clock(seconds) for seconds in (0, 59.4, 125, 3725, 400_000)] == [
        "0 s", "59 s", "2:05", "1:02:05", "111:06:40",
    ]  # fmt: skip
    assert [short(number) for number in (0, 7.44, 9.96, 12_345.6, 41_000_000)] == [
        "0.0", "7.4", "10", "12,346", "41.0 M",
    ]  # fmt: skip


def test_small_amounts_of_money_keep_two_digits() -> None:
    assert [money(amount, "USD") for amount in (0.0, 1234.567, 0.1, 0.0999, 0.0045, 0.000099)] == [
        "0.00 USD", "1,234.57 USD", "0.10 USD", "0.100 USD", "0.0045 USD", "0.000099 USD",
    ]  # fmt: skip
    assert money(2.0, None) == "2.00"


# --- lines ----------------------------------------------------------------------------------------------------------


def test_where_there_is_no_terminal_a_line_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    run(bare, 50)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(", about")[0] for line in err.splitlines()] == [
        "15 of 20 rows, 1,200 calls, 3 merged, 1 failed, 15 s",
        "30 of 20 rows, 1,200 calls, 3 merged, 1 failed, 30 s",
        "45 of 20 rows, 1,200 calls, 3 merged, 1 failed, 45 s",
    ]


def test_a_line_tells_the_time_left_the_pace_of_tokens_and_the_cost(capsys: pytest.CaptureFixture[str]) -> None:
    def made(second: float) -> RunReport:
        return report(10 * int(second), seconds=second, failed=2, step={"fetched": 7})

    run(made, 17, rows=1000, prices=Prices(prompt=1.0, output=4.0), mode="steps")
    assert capsys.readouterr().err.splitlines() == [
        "150 of 1,000 rows, 150 calls, 7 fetched, 2 failed, 15 s, about 1:25 left, 50/s generated, 100/s of prompts, "
        "hit rate 60%, 0.0045 USD",
        "  x: 150 done, 7 fetched, 750 tokens generated",
    ]


def test_an_outage_is_told_when_it_begins_and_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    def made(second: float) -> RunReport:
        away = "waiting, up to --wait-limit 600 s, for an engine that does not answer: gone\x1b[2J"
        return report(5, waiting=away if 3 <= second < 40 else None)

    run(made, 50, rows=10)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "waiting, up to --wait-limit 600 s, for an engine that does not answer: gone?[2J"
    assert lines[1].startswith("5 of 10 rows, 5 calls, 15 s")
    assert lines[1].endswith("; waiting, up to --wait-limit 600 s, for an engine that does not answer: gone?[2J")
    assert lines[3] == "the engine answers again; going on"
    assert lines[4].startswith("5 of 10 rows, 5 calls, 45 s")
    assert len(lines) == 5


def test_a_line_of_a_later_phase_tells_of_that(capsys: pytest.CaptureFixture[str]) -> None:
    def made(second: float) -> RunReport:
        rows, groups = Phase(done=20, known=0, all=20, over=True), Phase(done=int(second), known=0, all=60, over=False)
        return report(20, phases=(rows, groups))

    run(made, 16)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("20 of 20 rows, 20 calls, 15 s, phase 2 of 2: 15 of 60, about 45 s left of this phase")


def test_quiet_and_off_say_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    run(bare, 50, quiet=True)
    run(lambda second: report(1, waiting="away" if second == 1 else None), 50, quiet=True)
    run(bare, 50, mode="off")
    assert capsys.readouterr() == ("", "")
    run(lambda second: report(1, waiting="away" if second == 1 else None), 50, mode="off")
    assert capsys.readouterr().err == "away\nthe engine answers again; going on\n"


def test_a_reader_that_is_gone_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> Any:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    say("nobody hears this")
    run(bare, 40)
    run(bare, 40, mode="json").end(bare(1))


# --- JSON -----------------------------------------------------------------------------------------------------------

KEYS = {
    "event": str,
    "state": str,
    "why": (str, type(None)),
    "seconds": float,
    "left_seconds": (float, type(None)),
    "rows": (int, type(None)),
    "done_rows": int,
    "failed_rows": int,
    "known_rows": int,
    "calls": int,
    "merged": int,
    "fetched": int,
    "retries": int,
    "in_flight": int,
    "queued": int,
    "prompt_tokens": int,
    "cached_tokens": int,
    "completion_tokens": int,
    "prompt_tokens_per_second": (float, type(None)),
    "completion_tokens_per_second": (float, type(None)),
    "hit_rate": (float, type(None)),
    "cost": (float, type(None)),
    "currency": (str, type(None)),
    "phase": int,
    "phases": int,
    "phase_done": int,
    "phase_rows": (int, type(None)),
    "steps": dict,
}


def test_json_is_an_object_a_line_with_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(lambda second: report(2 * int(second), seconds=second), 5, mode="json")
    sayer("json")("a note\n\x1b[31m")
    shown.end(report(20))
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [each["event"] for each in found] == ["begin", *["progress"] * 4, "message", "end"]
    for each in found:
        if each["event"] == "message":
            assert each == {"event": "message", "text": "a note\n\x1b[31m"}
            continue
        more = {"outcome": str, "stopped": (str, type(None))} if each["event"] == "end" else {}
        wanted = KEYS | more
        assert list(each) == list(wanted)
        assert [key for key in wanted if not isinstance(each[key], wanted[key])] == []
        assert all(tuple(step) == STEP_KEYS for step in each["steps"].values())
    assert [each["done_rows"] for each in found if "rows" in each] == [0, 2, 4, 6, 8, 20]
    assert (found[4]["left_seconds"], found[4]["seconds"], found[4]["state"]) == (6.0, 4.0, "running")
    assert (found[-1]["outcome"], found[-1]["state"], found[-1]["left_seconds"]) == ("complete", "ended", None)


def test_json_is_ascii_whatever_a_model_or_a_step_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    made = report(1, waiting="gone \x9b31m \u202e")
    made.steps["schritt_ü"] = StepReport()
    run(lambda second: made, 3, mode="json")
    text = capsys.readouterr().err
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())
    assert "schritt_ü" in json.loads(text.splitlines()[-1])["steps"]


def test_json_comes_once_a_second_in_simulated_time_too(capsys: pytest.CaptureFixture[str]) -> None:
    tick = Clock()
    shown = Progress(20, quiet=True, mode="json", now=tick)
    shown.start()
    for look in range(30_000):
        tick.now = 100 + look / 10_000
        shown.update(report(1))
    assert len(capsys.readouterr().err.splitlines()) == 3


# --- which view -----------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_view_is_live_only_where_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def kinds(**more: Any) -> list[str]:
        return [kind_of(mode, **({"quiet": False, "shared": False} | more)) for mode in MODES if mode != "live"]

    monkeypatch.setenv("TERM", "xterm")
    assert kinds() == ["plain", "plain", "plain", "json", "off"]
    with pytest.raises(OptionError, match="--progress live needs a terminal for itself, and standard error is none"):
        kind_of("live", quiet=False, shared=False)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert kind_of("live", quiet=False, shared=False) == "live"
    assert kinds() == ["live", "live", "plain", "json", "off"]
    assert kinds(quiet=True) == ["off", "live", "plain", "json", "off"]
    assert kinds(shared=True) == ["plain", "plain", "plain", "json", "off"]
    with pytest.raises(OptionError, match="the results go to it too"):
        kind_of("live", quiet=False, shared=True)
    monkeypatch.setenv("TERM", "dumb")
    assert kinds() == ["plain", "plain", "plain", "json", "off"]
    with pytest.raises(OptionError, match=r"cannot move its cursor \(TERM=dumb\)"):
        kind_of("live", quiet=False, shared=False)


# --- the live view --------------------------------------------------------------------------------------------------


def measures(**more: Any) -> Measures:
    """A million rows, 400,000 of them done."""
    made = Meter(1_000_000, Prices(prompt=1.0, output=4.0))
    made.start(0.0)
    before = {"failed": 12, "known": 5000, "queued": 300, "in_flight": 64}
    for second in range(2):
        found = made.read(report(400_000 * second, seconds=second * 2000.0, **(before | more)), second * 2000.0)
    return found


def lines(given: Measures, width: int, height: int = 24, **more: Any) -> list[str]:
    return [line.plain for line in drawn(given, width, height, **more)]


def test_the_view_of_a_million_rows() -> None:
    assert lines(measures(), 110) == [
        "rows   ━━━━━━━━━━━━━━━━────────────────────────   40%  400,000 of 1,000,000, 12 failed, 5,000 known before",
        "time   33:20, about 50:00 left, 12.00 USD",
        "calls  400,000 made, 64 in flight, 300 in line",
        "tokens 1,000/s generated, 2,000/s of prompts, hit rate 60%",
    ]


def test_a_narrow_view_leaves_out_what_matters_least() -> None:
    assert lines(measures(), 40, blocks=False) == [
        "rows   400,000 of 1,000,000, 40%",
        "time   33:20, about 50:00 left",
        "calls  400,000 made, 64 in flight",
        "tokens 1,000/s generated",
    ]
    wide = "rows   ====-------   40%  400,000 of 1,000,000, 12 failed, 5,000 known before"
    assert lines(measures(), 80, blocks=False)[0] == wide
    assert lines(measures(), 60, blocks=False)[0] == "rows   400,000 of 1,000,000, 40%, 12 failed"


@pytest.mark.parametrize("width", [1, 2, 7, 20, 33, 50, 79, 200])
@pytest.mark.parametrize("height", [1, 2, 3, 5, 24])
def test_the_view_fits_any_terminal(width: int, height: int) -> None:
    given = measures(paused=30.0)
    given = Measures(
        **{
            **{name: getattr(given, name) for name in Measures.__slots__},
            "steps": {f"step_{number}_of_a_workflow_with_long_names": StepReport(done=number) for number in range(40)},
        }
    )
    shown = list(drawn(given, width, height, steps=True))
    assert 1 <= len(shown) <= max(1, height - 1)
    assert all(line.cell_len < max(2, width) for line in shown)
    if height >= 3 and width >= 50:
        assert shown[1].plain.startswith("waiting: the engine is overloaded")


def test_steps_that_have_no_room_are_counted() -> None:
    given = measures()
    given = Measures(
        **{
            **{name: getattr(given, name) for name in Measures.__slots__},
            "steps": {f"s{number}": StepReport(done=number, failed=1) for number in range(40)},
        }
    )
    shown = lines(given, 80, 12, steps=True)
    assert shown[-1] == "  and 34 more steps"
    assert shown[4:-1] == [f"  s{number:<3} {number} done, 1 failed" for number in range(6)]
    assert len(lines(given, 80, 60, steps=True)) == 44


def test_what_a_model_wrote_never_comes_raw() -> None:
    given = measures(waiting="gone \x1b[2J\nsecond\x07 line \x9b1m")
    assert lines(given, 80)[1] == "gone ?[2J second? line ?1m"


def test_all_rows_are_a_hundred_percent_and_no_fewer() -> None:
    made = Meter(100_000)
    made.start(0.0)
    assert " 99%" in lines(made.read(report(99_999), 5.0), 80)[0]
    assert "100%" in lines(made.read(report(100_000), 6.0), 80)[0]
    assert lines(Meter(None).read(report(7), 5.0), 80)[0] == "rows   7"
    assert lines(Meter(0).read(report(0), 5.0), 80)[0] == "rows   0 of 0"


# --- above the view -------------------------------------------------------------------------------------------------


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of standard error."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    return made


def test_a_flood_of_lines_is_drawn_in_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    tick = Clock()
    with Progress(20, quiet=False, now=tick) as shown:
        shown.start()
        for number in range(10_000):
            tick.now += 0.0001
            print(f"line {number:05}", file=sys.stderr)
            if number % 5000 == 4999:
                shown.update(report(5))
    said = re.findall(r"line (\d{5})", screen.getvalue())
    assert said == [f"{number:05}" for number in range(10_000)]
    assert screen.getvalue().count("rows   ") <= 15
    assert sys.stderr is screen


def test_lines_of_several_threads_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    wait = threading.Barrier(4)

    def speak(name: str) -> None:
        wait.wait()
        for number in range(200):
            print(f"{name}{number}", name * 3, file=sys.stderr)
        print("unfinished", name, end="", file=sys.stderr)

    with Progress(20, quiet=False, now=Clock()) as shown:
        shown.start()
        threads = [threading.Thread(target=speak, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    text = screen.getvalue()
    for name in "abcd":
        found = re.findall(rf"{name}\d+ {name}+", text)
        assert found == [f"{name}{number} {name * 3}" for number in range(200)]
        assert f"unfinished {name}" in text


def test_who_keeps_the_stream_is_heard_when_the_view_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with Progress(20, quiet=False, now=Clock()) as shown:
        shown.start()
        kept = sys.stderr
        print("one\n\ntwo", file=kept)
    assert sys.stderr is screen
    for number in range(3):
        print("after", number, file=kept)
    text = screen.getvalue()
    assert "one\n\n" in text
    assert "two\n" in text
    assert text.endswith("after 0\nafter 1\nafter 2\n")


def test_a_forked_process_speaks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with Progress(20, quiet=False, now=Clock()) as shown:
        shown.start()
        drawn_before = screen.getvalue().count("rows ")
        monkeypatch.setattr(os, "getpid", lambda: -1)
        print("from a child", file=sys.stderr)
        monkeypatch.undo()
        assert screen.getvalue().endswith("from a child\n")
        assert screen.getvalue().count("rows ") == drawn_before


def test_a_line_that_is_written_over_shows_what_it_ends_with(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with Progress(20, quiet=False, now=Clock()) as shown:
        shown.start()
        for part in ("10%", "\r20%", "\r100%", "\r\n", "dos\r\n", "end"):
            sys.stderr.write(part)
        assert (sys.stderr.isatty(), sys.stderr.encoding, sys.stderr.writable()) == (True, "utf-8", True)
    text = screen.getvalue()
    assert [line for line in ("10%", "20%", "100%", "dos", "end") if line in text] == ["100%", "dos", "end"]
