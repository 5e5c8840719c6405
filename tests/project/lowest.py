"""Runs the core tests with the lowest versions that pyproject.toml allows: `python tests/project/lowest.py [FOLDER]`.

A virtual environment in FOLDER, else in a temporary one, gets the lowest of each package that is named there, and the
latest of those that these want. What needs a GPU, a model or a browser is left out. Exit code: that of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# With what `dev` brings, these are all that can be tried without a GPU or a model of hundreds of megabytes.
EXTRAS = ("bench", "dev", "duckdb", "mcp", "otel", "sql", "tokenizers")
# One test of each package at least: parsers, templates, graphs, Arrow, HTTP, SQL, MCP, spans, progress, mixed-integer
# programs.
TESTS = (
    "tests/bench/test_milp_gaps.py",
    "tests/engines",
    "tests/executor/test_tools_mcp.py",
    "tests/executor/test_tools_sql.py",
    "tests/executor/test_tools_sql_engines.py",
    "tests/executor/test_run.py",
    "tests/explain/test_explain_command.py",
    "tests/grammar",
    "tests/optimizer/test_canonicalize_sql.py",
    "tests/optimizer/test_driver.py",
    "tests/report/test_report_page.py",
    "tests/store",
    "tests/tables",
    "tests/telemetry",
)
# The embedded model is not installed here, and its download is of no package.
LEFT_OUT = ("--ignore=tests/engines/test_weights.py",)


def lowest(folder: Path) -> int:
    """Installs into a folder and runs the tests; their exit code."""
    python = folder / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    began = time.monotonic()
    subprocess.run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder)], check=True)
    wanted = f"{ROOT}[{','.join(EXTRAS)}]"
    install = ["pip", "install", "-q", "--python", str(python), "--resolution", "lowest-direct", "-e", wanted]
    subprocess.run([*uv, *install], check=True)
    print(f"lowest versions installed in {time.monotonic() - began:.0f} s", flush=True)
    tests = [str(python), "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile", *TESTS, *LEFT_OUT]
    return subprocess.run(tests, cwd=ROOT, check=False, env={**os.environ, "VIRTUAL_ENV": str(folder)}).returncode


def main() -> int:
    """The command."""
    if len(sys.argv) > 1:
        return lowest(Path(sys.argv[1]).absolute())
    with tempfile.TemporaryDirectory() as folder:
        return lowest(Path(folder) / "venv")


if __name__ == "__main__":
    sys.exit(main())
