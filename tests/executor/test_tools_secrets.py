"""A file of secrets for tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from running import run

from helix.errors import OptionError
from helix.executor.tools.access import ToolAccess
from helix.executor.tools.opener import ToolOpener
from helix.executor.tools.secrets_file import with_secrets
from helix.services import Tool
from helix.types import JSON


def test_values_of_a_file_go_before_those_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "of the environment")
    monkeypatch.setenv("SHOP_OTHER", "kept")
    file = tmp_path / "secrets.toml"
    file.write_text('# a comment\nSHOP_TOKEN = "of the file"\n')
    held = with_secrets(file)
    assert (held["SHOP_TOKEN"], held["SHOP_OTHER"]) == ("of the file", "kept")
    assert with_secrets(None)["SHOP_TOKEN"] == "of the environment"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"TOKEN = hunter2\n", "are not TOML, at line 1, column 9"),
        (b"TOKEN = 7\n", "`TOKEN` is a int"),
        (b'[shop]\nTOKEN = "hunter2"\n', "`shop` is a table"),
        (b'"my token" = "hunter2"\n', "`my token` is no name of a variable"),
        (b'TOKEN = "\xff"\n', "are not UTF-8"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_none_of_that_kind(tmp_path: Path, text: bytes | None, found: str) -> None:
    file = tmp_path / "secrets.toml"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(OptionError) as raised:
        with_secrets(file)
    assert found in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_an_http_tool_sends_it_and_nothing_shows_it(tmp_path: Path, echo: str) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text('SHOP_TOKEN = "hunter2hunter2"\n')
    text = (
        f'workflow w(a: text)\ntool web(q: text) -> json from http "GET {echo}/" effects read,\n'
        '  header "Authorization: Bearer ${SHOP_TOKEN}"\nfound = web(a)\noutput found\n'
    )
    ran = run(text, [{"a": "x"}], folder=tmp_path, secrets=file, allow_private=["127.0.0.1"])
    # The server says the header back.
    assert ran.column("found") == [{"said": "Bearer ***"}]


def test_what_tools_and_servers_are_given_is_known_as_secret(tmp_path: Path) -> None:
    servers = {"docs": {"command": "docs", "env": {"KEY": "${B}"}}, "web": {"url": "https://x.example/${C}"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    opener = ToolOpener({}, tmp_path, ToolAccess(environment={"A": "alpha", "B": "beta", "C": "gamma", "D": "delta"}))
    tool = Tool(
        name="web", origin="http", target="GET https://x.example/${A}", params=(), returns=JSON, effects="read"
    )  # fmt: skip

    async def opened() -> frozenset[str]:
        await opener.open(tool)
        alone = opener.secrets()
        assert alone == {"alpha"}
        opener.servers()
        found = opener.secrets()
        await opener.close()
        return found

    assert asyncio.run(opened()) == {"alpha", "beta", "gamma"}


@pytest.fixture
def echo() -> Iterator[str]:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Echo(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"said": self.headers["Authorization"]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing is said."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
