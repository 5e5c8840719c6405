"""The source distribution and the wheel made from it: what is in them, what they say of themselves, and that they work
without the checkout.
"""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import helix

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Files of the root that are of use to those who have the source distribution alone.
BESIDE = {
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "README.md", "SECURITY.md", "mkdocs.yml",
    "pyproject.toml", ".gitignore",
}  # fmt: skip
# Names that only one network knows.
LOCAL = re.compile(
    r"localhost|127\.0\.0\.1|\.(local|lan|internal|corp)\b|//(10|192\.168|172\.(1[6-9]|2\d|3[01]))\.|file:"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a clean environment in which the wheel is installed."""
    (wheel,) = built.glob("*.whl")
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=True)
    command = [home / "bin" / "python", "-m", "pip", "install", "-q", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return home / "bin"


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    """What the wheel says of itself."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        name = f"helix_workflows-{helix.__version__}.dist-info/METADATA"
        return email.message_from_string(archive.read(name).decode())


def tracked(folder: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.splitlines())


def outside(program: Path, *args: str, cwd: Path) -> str:
    """Runs a program of the clean environment where nothing of the checkout is to be found; its standard output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HELIX_", "PYTHON"))}
    done = subprocess.run([program, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- what the project says ------------------------------------------------------------------------------------------


def test_the_page_of_the_installation_names_all_extras() -> None:
    page = (ROOT / "docs" / "reference" / "installation.md").read_text(encoding="utf-8")
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_extras_that_are_asked_for_are_there() -> None:
    extras = set(PROJECT["project"]["optional-dependencies"])
    named: set[str] = set()
    for folder, suffix in (("docs", "*.md"), ("helix", "*.py"), (".", "README.md")):
        for path in (ROOT / folder).rglob(suffix) if folder != "." else [ROOT / suffix]:
            for found in re.findall(r"helix-workflows\[([\w,]+)\]", path.read_text(encoding="utf-8")):
                named |= set(found.split(","))
    assert named - extras == set()
    assert {"local", "otel", "mcp"} <= named


def test_versions_of_python_agree() -> None:
    project = PROJECT["project"]
    assert project["requires-python"] == ">=3.11"
    versions = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r"Python :: 3\.\d", each)]
    assert versions[0] == "3.11"
    assert versions == sorted(versions, key=lambda version: int(version.partition(".")[2]))
    assert PROJECT["tool"]["ruff"]["target-version"] == "py311"
    assert PROJECT["tool"]["mypy"]["python_version"] == "3.11"


# --- what is built --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wheel_holds_every_file(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"helix_workflows-{helix.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if name.startswith("helix/")} == tracked("helix")
    # Nothing beside the package and what the wheel says of itself.
    assert {name.partition("/")[0] for name in names} == {"helix", f"helix_workflows-{helix.__version__}.dist-info"}
    assert "helix/py.typed" in names


@pytest.mark.slow
def test_sdist_holds_what_it_is_to_hold_and_no_file_twice(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    assert sdist.name == f"helix_workflows-{helix.__version__}.tar.gz"
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members]
    assert {member.name.partition("/")[0] for member in members} == {f"helix_workflows-{helix.__version__}"}
    assert len(names) == len(set(names))
    folders = ("helix", "tests", "examples", "docs")
    assert set().union(*map(tracked, folders)) <= set(names)
    assert {name for name in names if name.partition("/")[0] not in folders} == BESIDE
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|\.helix/|\.hypothesis|\.venv", name)]
    assert all(member.isfile() for member in members)
    assert {member.uname for member in members} | {member.gname for member in members} == {""}


@pytest.mark.slow
def test_metadata(metadata: Message) -> None:
    project = PROJECT["project"]
    assert (metadata["Name"], metadata["Version"]) == ("helix-workflows", helix.__version__)
    assert metadata["Summary"] == project["description"]
    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert sorted(metadata.get_all("Classifier", [])) == sorted(project["classifiers"])
    assert not [each for each in project["classifiers"] if each.startswith("License ::")], "the expression says it"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    requirements = metadata.get_all("Requires-Dist", [])
    assert not [each for each in requirements if " @ " in each], "no requirement may be an address"
    needed = [each for each in requirements if "extra ==" not in each]
    assert all("<" in each and ">=" in each for each in needed)
    for name, value in metadata.items():
        assert not LOCAL.search(value), f"{name}: {value}"


# --- what is installed ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_installed_package_is_whole(installed: Path, tmp_path: Path) -> None:
    outside(installed / "python", "-m", "pip", "check", cwd=tmp_path)
    where = outside(installed / "python", "-c", "import helix; print(helix.__file__)", cwd=tmp_path)
    assert where.startswith(str(installed.parent))
    assert outside(installed / "helix", "--version", cwd=tmp_path) == f"helix, version {helix.__version__}\n"
    assert outside(installed / "python", "-m", "helix", "--version", cwd=tmp_path) == (
        f"helix, version {helix.__version__}\n"
    )
    commands = re.findall(
        r"^  (\w+) ", outside(installed / "helix", "--help", cwd=tmp_path).partition("Commands:")[2], re.M
    )
    for name in [each for each in commands if each != "helix"]:
        assert "Examples:" in outside(installed / "helix", name, "--help", cwd=tmp_path)
    assert "_helix_completion" in outside(installed / "helix", "completion", "bash", cwd=tmp_path)


@pytest.mark.slow
def test_the_installed_package_runs(installed: Path, built: Path, tmp_path: Path) -> None:
    program = installed / "helix"
    outside(program, "init", "start", cwd=tmp_path)
    outside(program, "explain", "start/feedback.helix", "-i", "start/feedback.jsonl", cwd=tmp_path)
    rows = ["-i", "start/feedback.jsonl", "-o", "start.parquet"]
    outside(program, "run", "start/feedback.helix", *rows, "-e", "scripted", "--report", "run.html", cwd=tmp_path)
    assert len(outside(program, "show", "start.parquet", cwd=tmp_path).splitlines()) >= 5
    assert "<html" in (tmp_path / "run.html").read_text(encoding="utf-8")
    # An example of the source distribution, with nothing else of it.
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        wanted = [each for each in archive.getmembers() if "/examples/triage/" in each.name]
        archive.extractall(tmp_path, members=wanted, filter="data")
    (example,) = tmp_path.glob("*/examples/triage")
    said = outside(program, "run", "triage.helix", "-i", "tickets.jsonl", "-e", "scripted", "--no-store", cwd=example)
    read = [json.loads(line) for line in said.splitlines()]
    assert len(read) == len((example / "tickets.jsonl").read_text(encoding="utf-8").splitlines())
    assert [row["_row"] for row in read] == list(range(len(read)))
