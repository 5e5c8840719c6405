"""An HTTP server for tests of tools, in a thread of its own: it echoes, and does what servers should not do."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import mcp_server

FLOOD = 100 * 1024 * 1024


@dataclass(kw_only=True)
class WebServer:
    """A running server: its port, and what it was asked."""

    port: int
    asked: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    busy: int = 0

    def url(self, path: str) -> str:
        """An address of the server."""
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def web_server() -> Iterator[WebServer]:
    """Runs the server."""
    made: WebServer
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def answer(self, body: bytes, kind: str = "application/json", status: int = 200, **headers: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def serve(self) -> None:
            with suppress(OSError):
                self.reply()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

        def reply(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length).decode()
            query = parse_qs(parts.query, keep_blank_values=True)
            asked = {
                "method": self.command,
                "path": parts.path,
                "raw": self.path,
                "query": query,
                "headers": dict(self.headers),
                "body": json.loads(body) if body else None,
            }
            made.asked.append(asked)
            match parts.path.split("/")[1]:
                case "redirect":
                    self.answer(b"", status=int(query.get("status", ["302"])[0]), Location=query["to"][0])
                case "loop":
                    self.answer(b"", status=302, Location="/loop")
                case "status":
                    code = int(query["code"][0])
                    self.answer(f"no: {self.headers.get('Authorization')}".encode(), "text/plain", code)
                case "busy":
                    # Twice too busy, then there is time.
                    made.busy += 1
                    if made.busy % 3:
                        self.answer(b"later", "text/plain", int(query["code"][0]), Retry_After=query["wait"][0])
                    else:
                        self.answer(b'"at last"')
                case "text":
                    self.answer("grüße\n".encode(), "text/plain; charset=utf-8")
                case "latin":
                    self.answer("grüße".encode("latin-1"), "text/plain; charset=latin-1")
                case "garbage":
                    self.answer(b"\xff\xfe\x00garbage")
                case "nan":
                    self.answer(b'{"a": NaN}')
                case "nothing":
                    self.answer(b"", status=204)
                case "deep":
                    self.answer(b"[" * 200_000)
                case "bomb":
                    self.answer(gzip.compress(b"0" * FLOOD, 9), Content_Encoding="gzip")
                case "gzip":
                    self.answer(gzip.compress(b'{"packed": true}'), Content_Encoding="gzip")
                case "cut":
                    self.answer(gzip.compress(b'{"packed": true}' * 100)[:-12], Content_Encoding="gzip")
                case "drip":
                    self.start_endless()
                    while not ended.wait(0.02):
                        self.wfile.write(b"1\r\n \r\n")
                        self.wfile.flush()
                case "flood":
                    self.start_endless()
                    piece = b"x" * 65536
                    while made.sent < FLOOD:
                        self.wfile.write(b"10000\r\n" + piece + b"\r\n")
                        made.sent += len(piece)
                case "hang":
                    ended.wait(20)
                case "mcp":
                    self.speak_mcp(asked["body"] or {})
                case "drop":
                    self.close_connection = True
                case _:
                    self.answer(json.dumps(asked).encode())

        def speak_mcp(self, message: dict[str, Any]) -> None:
            """An MCP server that answers each message with one of JSON."""
            if self.command != "POST":
                self.answer(b"", status=405)
            elif "id" not in message:
                self.answer(b"", status=202)
            else:
                body = {"jsonrpc": "2.0", "id": message["id"], **mcp_server.answer(message)}
                self.answer(json.dumps(body).encode())

        def start_endless(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = WebServer(port=server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
