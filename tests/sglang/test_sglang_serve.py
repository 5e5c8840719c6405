"""`helix serve --cpu` starts a real SGLang, says where it is, and ends it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from running import Folder, start
from sglang_cpu import absent

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("others")]

PATIENCE = 400.0


def test_serve_on_the_cpu_run_and_end(tmp_path: Path) -> None:
    if (reason := absent()) is not None:
        pytest.skip(reason)
    folder = Folder(tmp_path)
    folder.workflow('workflow t(a: text)\nx = llm(max_tokens: 4) { user "{{ a }}" }\noutput x\n')
    folder.rows({"a": "one"}, {"a": "two"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    log = tmp_path / "serve.log"
    with log.open("wb") as said:
        more = {"stdout": subprocess.DEVNULL, "stderr": said}
        process = start("serve", "w.helix", "--cpu", "--port", port, "--kv-tokens", 4096, cwd=tmp_path, **more)
    try:
        address = ready(process, log)
        done = folder.run("-o", "out.jsonl", "--no-store", "--report", "run.json", engine=address, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        made = json.loads((tmp_path / "run.json").read_text("utf-8"))
        assert (made["calls"]["llm"], made["tokens"]["untold"]) == (2, 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert "the server has ended" in log.read_text("utf-8", "replace")
        with socket.socket() as again:
            assert again.connect_ex(("127.0.0.1", port)) != 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that the command names once the server is ready."""
    ends = time.monotonic() + PATIENCE
    while True:
        said = log.read_text("utf-8", "replace")
        if found := re.search(r"ready after .* --engine (sglang://127\.0\.0\.1:\d+)", said):
            return found[1]
        assert process.poll() is None, said
        assert time.monotonic() < ends, said
        time.sleep(0.5)
