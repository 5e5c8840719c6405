"""A package `sglang` whose `launch_server` only answers /health, for tests of how a server is started and ended."""

from __future__ import annotations

from pathlib import Path

LAUNCH = """
import http.server, json, os, pathlib, subprocess, sys, time

here = pathlib.Path(os.environ["FAKE_SGLANG"])
(here / "argv.json").write_text(json.dumps(sys.argv[1:]))
how = os.environ.get("FAKE_SGLANG_HOW", "")
if how == "broken":
    sys.exit("no GPU is here")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
(here / "pids.json").write_text(json.dumps([os.getpid(), child.pid]))
port = int(sys.argv[sys.argv.index("--port") + 1])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path in ("/health", "/server_info") else 404)
        self.end_headers()
        if how == "ends":
            os._exit(7)

    def log_message(self, *args):
        print("asked", self.path, file=sys.stderr)


http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def make_package(folder: Path) -> dict[str, str]:
    """Writes the package; gives the environment by which Python finds it."""
    package = folder / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(LAUNCH)
    return {"PYTHONPATH": str(folder / "site"), "FAKE_SGLANG": str(folder)}
