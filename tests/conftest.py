"""Options and settings of all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fault_figures
import pytest
import sglang_cpu
from hypothesis import HealthCheck, settings
from running import Folder, inside

# The same examples in each run, so that a red run is red again. HYPOTHESIS_PROFILE=explore looks for new ones.
_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", derandomize=True, deadline=None, max_examples=60, suppress_health_check=_CHECKS)
settings.register_profile("explore", deadline=None, max_examples=3000, suppress_health_check=_CHECKS)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected part of golden files")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder for a workflow, its input and its replies."""
    return Folder(tmp_path)


@pytest.fixture
def quick(folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command in the folder as `folder.run` does, but inside the test: a process takes half a second."""

    def run(*more: str | Path, **where: Any) -> Any:
        return inside(*folder.arguments(*more, **where), cwd=folder.path, monkeypatch=monkeypatch, capfd=capfd)

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Shows what became of the rows under each kind of fault, where tests of faults ran."""
    reports = [each for reports in terminalreporter.stats.values() for each in reports]
    lines = fault_figures.table(each for each in reports if getattr(each, "when", "") == "call")
    if lines:
        terminalreporter.section("rows under faults")
        for line in lines:
            terminalreporter.line(line)


# Real data for some tests lies beside the checkout, where there is any.
SHARED = Path(__file__).parents[2] / "shared" / "data"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips tests of the marker `shared` where the data is absent; HELIX_REQUIRE_SHARED=1 makes that a failure."""
    if SHARED.is_dir():
        return
    if os.environ.get("HELIX_REQUIRE_SHARED"):
        raise pytest.UsageError(f"HELIX_REQUIRE_SHARED is set, but {SHARED} is absent")
    skip = pytest.mark.skip(reason=f"{SHARED} is absent")
    for item in items:
        if "shared" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; only for tests with the marker `shared`."""
    return SHARED


@pytest.fixture(scope="session")
def sglang_servers() -> Iterator[sglang_cpu.Servers]:
    """Starts SGLang on the CPU with given flags: `sglang_servers("--schedule-policy", "lpm").address`. Only for tests
    with the marker `sglang`; where it is not installed they skip, or fail under HELIX_REQUIRE_SGLANG=1.

    A start takes most of a minute. With `--dist loadgroup` one process has the tests of the group `lpm`, on the server
    of `sglang_server` and one beside it; another those of `others`, each with flags or a server of its own.
    """
    reason = sglang_cpu.absent()
    if reason is not None:
        (pytest.fail if os.environ.get("HELIX_REQUIRE_SGLANG") else pytest.skip)(reason)
    servers = sglang_cpu.Servers()
    yield servers
    servers.stop()


@pytest.fixture
def sglang_server(sglang_servers: sglang_cpu.Servers) -> sglang_cpu.Server:
    """A server as most people run it for batches: longest prefix first. Its cache is empty."""
    return sglang_servers("--schedule-policy", "lpm")
