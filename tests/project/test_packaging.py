"""The wheel made from the source distribution holds every file of the package, and works without the checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return out


def tracked(folder: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.splitlines())


@pytest.mark.slow
def test_wheel_holds_every_file(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("helix/")}
    assert packed == tracked("helix")


@pytest.mark.slow
def test_sdist_holds_no_file_twice(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers()]
    assert tracked("helix") <= set(names)
    assert not [name for name in names if name.split("/")[0] in ("grammar", "optimizer", "executor")]


@pytest.mark.slow
def test_wheel_runs_in_a_clean_environment(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True, capture_output=True, text=True)
    helix = tmp_path / "venv" / "bin" / "helix"
    subprocess.run([helix, "init", "start"], cwd=tmp_path, check=True, capture_output=True)
    command = [helix, "run", "start/feedback.helix", "-i", "start/feedback.jsonl", "--engine", "scripted"]
    ran = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert len(ran.stdout.splitlines()) == 3
