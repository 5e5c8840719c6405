"""The child process of the embedded engine: llama.cpp's server over one model, on a free port of this machine.

It reads one line of JSON from its standard input (the key is in it, so that no list of processes shows it), and writes
one to its standard output when the model is loaded: `{"address": "http://127.0.0.1:PORT"}`. It ends when its standard
input ends or its parent is gone, so it never outlives the run, however that ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

LOOK = 1.0  # seconds between looks at the parent


def main() -> int:
    """Serves until the parent is gone. The exit code says how the start went: 0, or 1 with the reason on stderr."""
    if sys.stdin.isatty():
        print("this is the child process of the embedded engine; run `helix run` instead", file=sys.stderr)
        return 2
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop, and finishes calls first
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints is not taken for the report
    threading.Thread(target=_end_with_input, daemon=True).start()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    try:
        server = _served(settings)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    report.write(json.dumps({"address": server.listening_address}) + "\n")
    report.close()
    threading.Event().wait()  # the server ends with its last reference, which is here
    return 0


def _served(settings: dict[str, Any]) -> Any:
    """Loads the model and starts to serve it."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.n_threads_http = settings["connections"]
    params.cache_ram_mib = settings["cache_mib"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.offline = True
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = 2  # warnings and errors: a line per request would be a gigabyte in a long run
    return xllamacpp.Server(params)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def _end_with_parent(parent: int) -> None:
    """The input alone is not enough where the parent has forked: a fork holds the other end of the pipe open."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
