"""Contract 19: runs of different tenants share no result and no cached prefix."""

from __future__ import annotations

from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from running import Folder, said_calls

TEXT = 'workflow t(a: text)\nx = llm { user "say {{ a }}" }\noutput a, x\n'


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*({"a": f"row {number}"} for number in range(6)))
    return folder


def respond(call: Call) -> Answer | None:
    if call.route == "/v1/models":
        return models({"id": "m", "owned_by": "vllm"})
    return completion("reply") if call.route == "/v1/chat/completions" else None


def test_19_no_tenant_takes_a_result_of_another(ready: Folder, quick: Any) -> None:
    with FakeServer(respond) as server:
        for tenant in (["--tenant", "one"], ["--tenant", "two"], []):
            for expected in (6, 0):
                assert said_calls(quick("-o", "out.jsonl", *tenant, engine=server.url).stderr) == expected
        # Nor through the store, for which another run asks.
        ready.workflow(TEXT.replace("output a, x", "output x, a"))
        assert said_calls(quick("-o", "out.jsonl", "--tenant", "two", engine=server.url).stderr) == 0
        assert said_calls(quick("-o", "out.jsonl", "--tenant", "three", engine=server.url).stderr) == 6
        assert len(server.chats()) == 24


def test_19_the_server_is_told_whose_prefixes_to_keep_apart(ready: Folder, quick: Any) -> None:
    with FakeServer(respond) as server:
        quick("-o", "out.jsonl", "--tenant", "one", engine=server.url)
        quick("-o", "out.jsonl", "--tenant", "two", engine=server.url)
        quick("-o", "out.jsonl", engine=server.url)
    assert [call.json.get("cache_salt") for call in server.chats()] == ["one"] * 6 + ["two"] * 6 + [None] * 6


def test_19_a_server_that_cannot_keep_them_apart_is_told_of(ready: Folder, quick: Any) -> None:
    with FakeServer(lambda call: models("m") if call.route == "/v1/models" else respond(call)) as server:
        done = quick("-o", "out.jsonl", "--tenant", "one", engine=server.url)
    assert done.returncode == 0
    assert "cannot be told to keep the cached prefixes of tenants apart" in done.stderr
