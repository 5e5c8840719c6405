"""A folder to run the command in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Folder, inside


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder for a workflow, its input and its replies."""
    return Folder(tmp_path)


@pytest.fixture
def quick(folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command in the folder, inside the test."""

    def run(*more: str | Path, **where: Any) -> Any:
        done = inside(*folder.arguments(*more, **where), cwd=folder.path, monkeypatch=monkeypatch, capfd=capfd)
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        return done

    return run
