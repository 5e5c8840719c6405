"""`helix explain --analyze` of a workflow whose tools ask a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Folder, inside
from tool_servers import web_server


def test_tools_reach_what_the_command_line_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with web_server() as server:
        folder = Folder(tmp_path)
        folder.workflow(
            f'workflow w(a: text)\ntool t(a: text) -> json from http "GET {server.url("/{a}")}" effects read\n'
            "x = t(a)\noutput x"
        )
        folder.rows({"a": "one"}, {"a": "two"})
        asked = ("explain", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "--analyze", "--quiet")
        done = inside(*asked, cwd=folder.path, monkeypatch=monkeypatch, capfd=capfd)
        assert (done.returncode, server.asked) == (2, [])
        assert "--allow-private 127.0.0.1 allows it" in done.stderr
        done = inside(*asked, "--allow-private", "127.0.0.1", cwd=folder.path, monkeypatch=monkeypatch, capfd=capfd)
        assert done.returncode == 0, done.stderr
        # Both rows ask at once: which of the two reaches the server first is not promised.
        assert sorted(each["path"] for each in server.asked) == ["/one", "/two"]
