"""A folder with the tools of agents."""

from __future__ import annotations

from pathlib import Path

import pytest
from agents_support import TOOLS


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tools, and the current one."""
    (tmp_path / "shop.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    return tmp_path
