"""Stands in for `xllamacpp` in the child process, so that its life can be tested without the library and a model.

The name of the model file says how it behaves: `crash` fails to load, `slow` never finishes loading, anything else
serves. A prompt `die` ends the process, `wait` is answered after a second, any other is sent back.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any


class CommonParams(SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(model=SimpleNamespace(path=""), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())


class Server:
    def __init__(self, params: CommonParams) -> None:
        print("noise on standard output", flush=True)
        print("loading", params.model.path, file=sys.stderr, flush=True)
        if "crash" in params.model.path:
            print("E invalid magic characters", file=sys.stderr, flush=True)
            raise RuntimeError("Failed to init server")
        if "slow" in params.model.path:
            time.sleep(60)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.params = params  # type: ignore[attr-defined]
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{server.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self.answer({"data": [{"id": next(iter(self.server.params.model_alias)), "owned_by": "fake"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = body["messages"][-1]["content"]
        if text == "die":
            print("E out of memory", file=sys.stderr, flush=True)
            os._exit(7)
        if text == "wait":
            time.sleep(1)
        if text == "settings":
            params = self.server.params
            text = json.dumps(
                {
                    "n_ctx": params.n_ctx,
                    "n_parallel": params.n_parallel,
                    "threads": params.cpuparams.n_threads,
                    "connections": params.n_threads_http,
                    "hosts": params.hostnames,
                    "keys": [name for name in os.environ if name.endswith("_API_KEY")],
                    "max_tokens": body.get("max_tokens"),
                }
            )
        self.answer({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})

    def answer(self, value: object) -> None:
        keyed = self.headers["authorization"] == f"Bearer {self.server.params.api_keys[0]}"
        raw = json.dumps(value if keyed else {"error": {"message": "Invalid API Key"}}).encode()
        self.send_response(200 if keyed else 401)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: object) -> None:
        """Says nothing."""
