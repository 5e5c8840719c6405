"""A folder to run the command in."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder for a workflow, its input and its replies."""
    return Folder(tmp_path)
