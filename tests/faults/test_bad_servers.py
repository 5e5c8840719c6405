"""Servers that fail in every way seen in life (contract 2, 11): a row error or one message, nothing lost, each counted.

Each fault hits one row of many, or all, or the first attempt of each; each request is counted on the server.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from running import Folder, said_calls

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x\n'
ROWS = 12
BAD = 5

NO_TEXT = {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}]}
FAULTS: Mapping[str, tuple[Answer, str, int, str]] = {
    # What the server sends; the kind of the row's error, the attempts made, words of the message.
    "500": (Answer(status=500, body={"error": {"message": "boiler"}}), "engine", 3, "answered 500: boiler"),
    "502 as a page": (Answer(status=502, body="<html>bad gateway</html>"), "engine", 3, "<html>bad gateway</html>"),
    "400": (Answer(status=400, body={"error": {"message": "no"}}), "engine", 1, "answered 400: no"),
    "a body cut off": (Answer(body=NO_TEXT, end="half"), "engine", 3, "broke off"),
    "a reset": (Answer(end="reset"), "engine", 3, "connection"),
    "closed at once": (Answer(raw=b""), "engine", 3, "closed the connection before it answered"),
    "not HTTP": (Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "engine", 3, "not HTTP"),
    "not JSON": (Answer(body=b"\x00\xff garbage"), "engine", 3, "not JSON"),
    "half of a JSON": (Answer(body=b'{"choices": [{"mess'), "engine", 3, "not JSON"),
    "no body": (Answer(body=b""), "engine", 3, "it is empty"),
    "JSON of another kind": (Answer(body=[1, 2]), "engine", 3, "a reply without a message"),
    "no choices": (Answer(body={"choices": []}), "engine", 3, "a reply without a message"),
    "an error with status 200": (Answer(body={"error": {"code": 500, "message": "inside"}}), "engine", 3, "inside"),
    "silence": (Answer(end="silence"), "timeout", 3, "no reply within 0.4 s"),
    "half, then silence": (Answer(body=NO_TEXT, end="half+silence"), "timeout", 3, "no reply within 0.4 s"),
    "a slow drip": (Answer(body=NO_TEXT, drip=0.01), "timeout", 3, "no reply within 0.4 s"),
}


def serve(fault: Answer, hits: Callable[[str, int], bool]) -> Callable[[Call], Answer | None]:
    """Answers with the prompt; `hits` says by prompt and number of the request for it where the fault is instead."""
    seen: Counter[str] = Counter()

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        prompt = call.json["messages"][0]["content"]
        seen[prompt] += 1
        return fault if hits(prompt, seen[prompt]) else completion(f"[{json.dumps(prompt)}]")

    return respond


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*({"a": f"row {number}"} for number in range(ROWS)))
    return folder


def run(quick: Any, server: FakeServer, *more: str, timeout: float = 30.0) -> Any:
    done = quick("-o", "out.jsonl", "-c", "4", "--call-timeout", str(timeout), *more, engine=server.url)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done


def patience(kind: str) -> float:
    """The time of a call: short only where it is to pass, since other calls must not take so long on a busy machine."""
    return 0.4 if kind == "timeout" else 30.0


def good(number: int) -> dict[str, Any]:
    return {"_row": number, "a": f"row {number}", "x": f'["row {number}"]', "_error": None}


@pytest.mark.parametrize("name", FAULTS)
def test_one_bad_row_is_its_own_error_and_the_others_are_whole(ready: Folder, quick: Any, name: str) -> None:
    fault, kind, tries, words = FAULTS[name]
    with FakeServer(serve(fault, lambda prompt, _: prompt == f"row {BAD}")) as server:
        done = run(quick, server, timeout=patience(kind))
    rows = ready.read()
    assert done.returncode == 3
    assert [row for row in rows if row["_row"] != BAD] == [good(number) for number in range(ROWS) if number != BAD]
    bad = rows[BAD]
    assert (bad["_row"], bad["x"], bad["_error"]["kind"]) == (BAD, None, kind)
    assert bad["_error"]["attempts"] == tries
    assert words in bad["_error"]["message"]
    assert len(server.chats()) == said_calls(done.stderr) == ROWS - 1 + tries
    assert f"row {BAD}, step x: {kind}: " in done.stderr
    assert f"{ROWS} rows, 1 failed, " in done.stderr


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "400"])
def test_a_fault_that_passes_costs_requests_and_no_row(ready: Folder, quick: Any, name: str) -> None:
    fault, kind, _, _ = FAULTS[name]
    with FakeServer(serve(fault, lambda _, number: number == 1)) as server:
        done = run(quick, server, timeout=patience(kind))
    assert done.returncode == 0, done.stderr
    assert ready.read() == [good(number) for number in range(ROWS)]
    assert len(server.chats()) == said_calls(done.stderr) == 2 * ROWS


@pytest.mark.parametrize("name", ["500", "a reset", "not JSON", "silence"])
def test_a_server_that_always_fails_fails_every_row_and_ends(ready: Folder, quick: Any, name: str) -> None:
    fault, kind, tries, _ = FAULTS[name]
    with FakeServer(serve(fault, lambda *_: True)) as server:
        done = run(quick, server, timeout=patience(kind))
    rows = ready.read()
    assert done.returncode == 3
    assert [(row["_row"], row["a"], row["x"]) for row in rows] == [(n, f"row {n}", None) for n in range(ROWS)]
    assert {row["_error"]["kind"] for row in rows} == {kind}
    assert len(server.chats()) == said_calls(done.stderr) == ROWS * tries
    assert f"... {ROWS} rows failed in all" in done.stderr


@pytest.mark.parametrize("empty", [completion(""), completion(" \n "), Answer(body=NO_TEXT)])
def test_an_empty_reply_where_there_must_be_a_value_is_asked_for_again(
    ready: Folder, quick: Any, empty: Answer
) -> None:
    ready.workflow(TEXT.replace("llm {", "llm -> json {"))
    with FakeServer(serve(empty, lambda prompt, number: prompt == "row 5" or number == 1)) as server:
        done = run(quick, server)
    errors = [row["_error"] and (row["_error"]["kind"], row["_error"]["raw"]) for row in ready.read()]
    assert done.returncode == 3
    assert {error for number, error in enumerate(errors) if number != BAD} == {None}
    assert errors[BAD][0] == "empty"
    assert errors[BAD][1].strip() == ""
    assert len(server.chats()) == said_calls(done.stderr) == 2 * ROWS


@pytest.mark.parametrize("empty", [completion(""), Answer(body=NO_TEXT)])
def test_an_empty_text_is_a_text(ready: Folder, quick: Any, empty: Answer) -> None:
    with FakeServer(serve(empty, lambda *_: True)) as server:
        done = run(quick, server)
    assert done.returncode == 0
    assert [row["x"] for row in ready.read()] == [""] * ROWS


def test_many_failures_stop_the_run_where_asked(ready: Folder, quick: Any) -> None:
    fault, *_ = FAULTS["500"]
    with FakeServer(serve(fault, lambda *_: True)) as server:
        done = run(quick, server, "--max-failed", "3", "--attempts", "1", "-c", "1")
    assert done.returncode == 3
    assert len(server.chats()) == 4
    assert [row["_error"]["kind"] for row in ready.read()] == ["engine"] * 4 + ["not_started"] * 8


def test_a_storm_of_429_is_waited_out_together(ready: Folder, quick: Any) -> None:
    """The server takes two calls at a time and turns all others away."""
    times: list[float] = []
    limited = Answer(status=429, headers={"retry-after-ms": "150"}, body={"error": {"message": "slow down"}})

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        times.append(time.monotonic())
        window = [at for at in times if times[-1] - at < 0.1]
        return limited if len(window) > 2 else completion(json.dumps([call.json["messages"][0]["content"]]))

    with FakeServer(respond) as server:
        done = run(quick, server, "--attempts", "1", "-c", "6")
    assert done.returncode == 0, done.stderr
    assert ready.read() == [good(number) for number in range(ROWS)]
    assert len(server.chats()) == said_calls(done.stderr)
    # Six at once, and after each pause at most six again: no hammering.
    assert len(times) <= 60


def test_a_server_that_is_always_full_ends_each_call_in_time(ready: Folder, quick: Any) -> None:
    full = Answer(status=429, headers={"retry-after-ms": "100"}, body={"error": {"message": "full"}})
    began = time.monotonic()
    with FakeServer(serve(full, lambda *_: True)) as server:
        done = run(quick, server, "--wait-limit", "300ms")
    assert time.monotonic() - began < 15
    assert done.returncode == 3
    assert {row["_error"]["kind"] for row in ready.read()} == {"engine"}


def test_a_wait_that_is_too_long_stops_the_run_with_one_message(ready: Folder, quick: Any) -> None:
    full = Answer(status=429, headers={"retry-after": "86400"}, body={"error": {"message": "quota of the day"}})
    with FakeServer(serve(full, lambda *_: True)) as server:
        done = run(quick, server, "-c", "2")
    assert done.returncode == 3
    assert len(server.chats()) <= 2
    assert "stopped early: the engine asks to wait 86400 s, longer than the 600 s that a call waits" in done.stderr
    assert len(ready.read()) == ROWS


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_key_that_is_refused_in_the_middle_stops_at_once_and_keeps_what_is_done(
    ready: Folder, quick: Any, status: int
) -> None:
    refusal = Answer(status=status, body={"error": {"message": "the key has expired"}})
    with FakeServer(serve(refusal, lambda prompt, _: int(prompt[4:]) >= 6)) as server:
        done = run(quick, server, "-c", "1")
    assert done.returncode == 3
    assert len(server.chats()) == 7
    rows = ready.read()
    assert rows[:6] == [good(number) for number in range(6)]
    assert [row["_error"]["kind"] for row in rows[6:]] == ["engine"] + ["not_started"] * 5
    # The row, one of those after it, and why the run ended.
    assert done.stderr.count("the key has expired") == 3


def test_a_wrong_model_is_one_message_before_the_first_row(ready: Folder, quick: Any) -> None:
    absent = Answer(
        status=404, body={"error": {"message": "The model `big` does not exist", "code": "model_not_found"}}
    )
    with FakeServer(serve(absent, lambda *_: True)) as server:
        done = run(quick, server, "--model", "big")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "does not serve the model `big`" in done.stderr
    assert "models served: m" in done.stderr
    assert len(server.chats()) <= 4
    assert ready.names == ["rows.jsonl", "w.helix"]


def test_a_model_that_goes_away_in_the_middle_stops_the_run(ready: Folder, quick: Any) -> None:
    absent = Answer(status=404, body={"error": {"message": "model not found", "code": "model_not_found"}})
    with FakeServer(serve(absent, lambda prompt, _: int(prompt[4:]) >= 3)) as server:
        done = run(quick, server, "-c", "1")
    assert done.returncode == 3
    assert len(server.chats()) == 4
    assert ready.read()[:3] == [good(number) for number in range(3)]
    assert "stopped early: " in done.stderr


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (Answer(body=b"<html>welcome to nginx</html>"), "not JSON"),
        (Answer(status=500, body={"error": "no models yet"}), "no models yet"),
        (models("a", "b"), "serves several models: a, b"),
        (models(), "does not list its models"),
        (Answer(body=json.dumps("text")), "does not list its models"),
        (Answer(end="reset"), "connection"),
    ],
)
def test_what_is_no_server_of_models_is_one_message(ready: Folder, quick: Any, listed: Answer, words: str) -> None:
    with FakeServer(lambda call: listed if call.route == "/v1/models" else None) as server:
        done = run(quick, server)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert server.chats() == []
    assert ready.names == ["rows.jsonl", "w.helix"]
