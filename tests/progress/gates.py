"""A server whose calls wait until a test lets them through."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from fake_server import completion


class GateServer:
    """Answers chat completions, so many as `let` has let through so far; a context manager."""

    def __init__(self) -> None:
        self._open = threading.Condition()
        self._allowed = 0
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(200, {"object": "list", "data": [{"id": "m"}]} if self.path == "/v1/models" else {})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                if not self.path.endswith("/chat/completions"):
                    self._send(404, {})
                    return
                gate._pass()
                body: Any = completion("reply").body
                self._send(200, body)

            def _send(self, status: int, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def let(self, number: int) -> None:
        """Lets so many more calls through."""
        with self._open:
            self._allowed += number
            self._open.notify_all()

    def _pass(self) -> None:
        with self._open:
            self._open.wait_for(lambda: self._allowed > 0)
            self._allowed -= 1

    def __enter__(self) -> GateServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let(1_000_000)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
