"""Contract 11 on a real SGLang: killed and started again in the middle of a run, it costs the calls in flight."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from running import Folder, said_calls
from sglang_cpu import PATIENCE, Server

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("others")]

TEXT = """workflow t(a: text)
model main { max_tokens: 24 }
x = llm main { user "Tell me about {{ a }}." }
y = llm main { user "Make it shorter: {{ x }}" }
output a, x, y
"""
ROWS = 24


def test_11_a_server_killed_and_started_again_loses_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.workflow(TEXT)
    folder.rows(*({"a": f"the number {number}"} for number in range(ROWS)))
    with Server() as server:
        address = f"sglang://127.0.0.1:{server.port}"
        process = folder.start("-e", address, "-o", "out.jsonl", "-c", "6", "--attempts", "1")
        try:
            ends = time.monotonic() + PATIENCE
            while sum(path.stat().st_size for path in tmp_path.rglob("journal")) < 1000:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < ends
                time.sleep(0.05)
            os.killpg(server.pid, signal.SIGKILL)
            with Server(port=server.port):
                _, err = process.communicate(timeout=PATIENCE)
                again = folder.run("-o", "again.jsonl", engine=address)
        finally:
            process.kill()
            process.communicate()
    said = err.decode()
    assert process.returncode == 0, said
    # Said once when it begins; lines of progress repeat what the run waits for.
    waits = "waiting, up to --wait-limit 600 s, for an engine that does not answer: "
    assert [line.startswith(waits) for line in said.splitlines()].count(True) == 1
    assert said.count("the engine answers again; going on") == 1
    assert [row["_error"] for row in folder.read()] == [None] * ROWS
    assert 2 * ROWS < said_calls(said.splitlines()[-1]) <= 2 * ROWS + 6 * 2
    assert (again.returncode, said_calls(again.stderr)) == (0, 0)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
