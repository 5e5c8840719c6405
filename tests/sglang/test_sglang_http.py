"""Runs on a real SGLang by way of its OpenAI-compatible endpoint, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import Folder, said_calls
from sglang_cpu import Server

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("lpm")]

PATIENCE = 180.0
POLICY = (
    "A parcel that comes late is refunded in part, one that comes open in full, one that is lost is sent again. " * 6
)
WORKFLOW = f"""
workflow triage(ticket: text)

model main {{ temperature: 0, max_tokens: 12 }}

category = llm main -> choice["late", "open", "lost"] {{
  system "{POLICY}"
  user "{{{{ ticket }}}}"
}}
reply = llm main {{
  system "{POLICY}"
  user "{{{{ ticket }}}} It is {{{{ category }}}}. Answer."
}}
output ticket, category, reply
"""
TICKETS = ["My parcel came a week late.", "The box was open.", "It never came.", "Where is it? It is two weeks now."]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.workflow(WORKFLOW)
    folder.rows(*({"ticket": ticket} for ticket in TICKETS))
    return folder


def run(folder: Folder, address: str, *more: str) -> tuple[list[dict[str, Any]], str]:
    """The rows of a run that must be well, and what it said."""
    done = folder.run("-o", "out.jsonl", *more, engine=address, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return folder.read(), done.stderr


def test_a_run_from_the_command_line(folder: Folder, sglang_server: Server) -> None:
    before = sglang_server.metrics()
    rows, said = run(folder, sglang_server.address + "/v1", "-c", "4")
    assert [row["ticket"] for row in rows] == TICKETS
    assert all(row["category"] in ("late", "open", "lost") and row["reply"] for row in rows)
    assert said_calls(said) == 8
    after = sglang_server.metrics()
    prompt, cached = (
        after[f"{name}_tokens_total"] - before.get(f"{name}_tokens_total", 0.0) for name in ("prompt", "cached")
    )
    assert prompt > 8 * 100
    # What the run says is what the server counted; the policy, shared by all prompts, was found in its cache.
    assert f"{prompt:,.0f} prompt tokens ({cached:,.0f} cached," in said
    assert cached > 3 * 100


def test_one_call_at_a_time_gives_the_same_rows(folder: Folder, sglang_server: Server) -> None:
    first, _ = run(folder, sglang_server.address + "/v1", "-c", "1")
    sglang_server.flush()
    again, _ = run(folder, sglang_server.address + "/v1", "-c", "1")
    assert first == again


def test_a_prompt_longer_than_the_context_is_an_error_of_its_row(folder: Folder, sglang_server: Server) -> None:
    folder.rows({"ticket": "late " * 9000}, {"ticket": TICKETS[0]})
    done = folder.run("-o", "out.jsonl", engine=sglang_server.address + "/v1", timeout=PATIENCE)
    assert done.returncode == 3, done.stderr
    long, short = folder.read()
    assert long["_error"]["kind"] == "prompt.too_long"
    assert short["_error"] is None
    assert short["reply"]
