"""Contract 18: a secret of the environment appears nowhere, whoever looks on and whoever says it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from running import Folder
from tool_servers import WebServer, web_server

KEY, TOKEN = "sk-0f1e2d3c4b5a69788796", "tok-5d41402abc4b2a76b971"
TEXT = """workflow t(a: text)
tool echo(a: text) -> json from http "GET http://127.0.0.1:PORT/{a}" header "Authorization: Bearer ${SHOP_TOKEN}",
  effects read
found = echo(a)
x = llm { user "{{ a }} {{ found }}" }
output a, found, x
"""


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


def respond(call: Call) -> Answer | None:
    """Refuses one row with the key in its words."""
    if call.route == "/v1/models":
        return models("m")
    if call.route != "/v1/chat/completions":
        return None
    given = call.headers.get("authorization", "")
    if "status" in call.json["messages"][0]["content"] or "bad" in call.json["messages"][0]["content"]:
        return Answer(status=400, body={"error": {"message": f"the key {given} may not ask this"}})
    return completion("fine")


def held(folder: Path, *secrets: str) -> list[str]:
    """The files in which one of the secrets stands."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(each.encode() in path.read_bytes() for each in secrets)]


def test_18_a_secret_is_in_no_file_and_no_message_of_a_run_that_everybody_watches(
    folder: Folder, quick: Any, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    folder.workflow(TEXT.replace("PORT", str(web.port)))
    folder.rows({"a": "echo"}, {"a": "bad"}, {"a": "status"})
    watched = ["--report", "run.html", "--otel", "spans.jsonl", "--otel-prompts", "--log-level", "debug"]
    with FakeServer(respond) as server:
        done = quick(
            "-o", "out.jsonl", *watched, "--log-file", "run.log", "--trace", "calls.jsonl",
            "--allow-private", "127.0.0.1", engine=server.url,
        )  # fmt: skip
        assert done.returncode == 3, done.stderr
        sent = [call.headers["authorization"] for call in server.chats()]
    # Both were sent, and said back.
    assert set(sent) == {f"Bearer {KEY}"}
    assert {each["headers"]["Authorization"] for each in web.asked[-3:]} == {f"Bearer {TOKEN}"}
    rows = folder.read()
    assert "***" in str(rows[0]["found"])
    assert "may not ask this" in rows[1]["_error"]["message"]
    assert KEY not in done.stdout + done.stderr
    assert TOKEN not in done.stdout + done.stderr
    names = {path.name for path in folder.path.rglob("*")}
    assert {"run.html", "spans.jsonl", "run.log", "calls.jsonl", "out.jsonl"} <= names
    assert any(path.suffix == ".sqlite" or "journal" in path.name for path in folder.path.rglob("*"))
    assert held(folder.path, KEY, TOKEN) == []


@pytest.mark.parametrize("collector", ["http://someone:{key}@127.0.0.1:9/v1/traces", "http://127.0.0.1:9/{key}"])
def test_18_a_secret_in_the_address_of_a_collector_is_not_said(folder: Folder, collector: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    folder.workflow('workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x')
    folder.rows({"a": "v"})
    done = folder.run("-o", "out.jsonl", "--otel", collector.format(key=KEY), timeout=60)
    assert done.returncode == 0, done.stderr
    assert "warning: spans are missing at 127.0.0.1: it did not take them" in done.stderr
    assert KEY not in done.stdout + done.stderr
    assert held(folder.path, KEY) == []


def test_18_no_answer_of_a_model_is_code_or_a_template(folder: Folder, quick: Any) -> None:
    folder.workflow('workflow t(a: text)\nx = llm { user "{{ a }}" }\ny = llm { user "again: {{ x }}" }\noutput x, y\n')
    reply = "{{ 7 * 7 }}{% for i in range(9) %}{{ i }}{% endfor %}${HOME}$(id)"
    folder.rows({"a": "{{ 6 * 7 }}"})
    folder.rules({"match": "^again: (.*)", "reply": "saw \\1"}, {"match": "^\\{\\{ 6 \\* 7 \\}\\}$", "reply": reply})
    assert quick("-o", "out.jsonl").returncode == 0
    assert folder.read()[0]["x"] == reply
    assert folder.read()[0]["y"] == f"saw {reply}"
