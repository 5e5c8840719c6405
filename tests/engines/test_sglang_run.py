"""Runs of the command on a server that looks like SGLang."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_server import Answer, Call
from fake_sglang import ENDLESS, FakeSGLang
from running import Folder, said_calls

SYSTEM = "You sort tickets into kinds. " * 20
WORKFLOW = f"""
workflow triage(ticket: text)

kind = llm(temperature: 0, max_tokens: 8) {{
  system "{SYSTEM}"
  user "{{{{ ticket }}}}"
}}
output ticket, kind
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.workflow(WORKFLOW)
    return folder


def test_a_run_names_its_tenant_with_every_call(folder: Folder) -> None:
    folder.rows(*({"ticket": f"ticket {number}"} for number in range(5)))
    with FakeSGLang() as server:
        done = folder.run("-o", "out.jsonl", "--tenant", "ann", engine=server.address)
        assert done.returncode == 0, done.stderr
        sent = server.bodies("/generate")
        assert {body["extra_key"] for body in sent} == {"ann"}
    assert [row["kind"] for row in folder.read()] == ["Green"] * 5
    assert said_calls(done.stderr) == 5
    done = folder.run("-o", "out.jsonl", "--tenant", " ", engine=server.address)
    assert done.returncode == 2
    assert "tenant is a name, found a blank one" in done.stderr


def test_a_call_that_takes_too_long_is_aborted(folder: Folder) -> None:
    folder.rows({"ticket": "short"}, {"ticket": ENDLESS})
    with FakeSGLang() as server:
        done = folder.run("-o", "out.jsonl", "--call-timeout", "0.5s", "--attempts", "2", engine=server.address)
        assert done.returncode == 3, done.stderr
        endless = [body["rid"] for body in server.bodies("/generate") if ENDLESS in body.get("text", "")]
        assert len(endless) == 2
        assert [body["rid"] for body in server.bodies("/abort_request")] == endless
    short, long = folder.read()
    assert short["kind"] == "Green"
    assert long["_error"]["kind"] == "timeout"


def test_notes_on_flags_are_said_once(folder: Folder) -> None:
    folder.rows(*({"ticket": f"ticket {number}"} for number in range(5)))
    with FakeSGLang(info={"disable_radix_cache": True}) as server:
        done = folder.run("-o", "out.jsonl", engine=server.address)
        assert done.returncode == 0, done.stderr
    assert done.stderr.count("its prefix cache is off, so calls share nothing; start it without") == 1


def test_a_busy_server_costs_no_attempt(folder: Folder) -> None:
    left = [3]

    def answer(call: Call) -> Answer | None:
        if call.route == "/generate" and b"return_prompt_token_ids" not in call.body and left[0]:
            left[0] -= 1
            return Answer(status=503, headers={"retry-after": "0.01"}, body={"detail": "The request queue is full."})
        return None

    folder.rows({"ticket": "one"})
    with FakeSGLang(answer=answer) as server:
        done = folder.run("-o", "out.jsonl", "--attempts", "1", engine=server.address)
    assert done.returncode == 0, done.stderr
    assert folder.read()[0]["kind"] == "Green"


def test_an_address_without_a_server(folder: Folder) -> None:
    folder.rows({"ticket": "one"})
    with FakeSGLang() as server:
        address = server.address
    done = folder.run("-o", "out.jsonl", engine=address)
    assert done.returncode == 2
    assert "nothing listens at http://127.0.0.1:" in done.stderr
    assert "Traceback" not in done.stderr
