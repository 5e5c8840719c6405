"""The one way through the house: who may import whom, and what `import helix` may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "helix"
FOLDERS = ("grammar", "optimizer", "executor")
HEAVY = ("openai", "sglang", "torch", "pyarrow", "networkx", "lark", "jinja2", "pydantic", "sqlglot", "rich", "httpx")
# The command line sits above everything, `helix/api.py` joins the folders, all else is nouns and one front end.
# The methods `run`, `explain`, ... of a workflow object reach `api` when they are called; nothing does on import.
LATE = {("dsl", "helix.api")}
TOP = ("cli", "__main__", "commands", "options")
# `explaining` is the part of `api` that explains; nothing but the command line and `api` knows of it.
JOINTS = ("api", "bench", "callables", "explaining", "keeping", "loading", "prepared", "reporting", "simulating", *TOP)
# What shows the work of a folder stands above that one, and below the joints like a folder.
SHOWN = {"explain": "optimizer", "forecast": "optimizer", "report": "optimizer"}
# What only the command line may use.
APART = ("serving",)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The first name below `helix`: a folder or a module."""
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> set[str]:
    """All modules of Helix that a file imports, also inside functions; those for type checking only are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{name.name}" for name in node.names)
    return {name for name in found if name == "helix" or name.startswith("helix.")}


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_no_arrow_goes_the_wrong_way(path: Path) -> None:
    own = part_of(module_of(path))
    wrong: list[str] = []
    for module in sorted(imports_of(path)):
        other = part_of(module)
        if not other or other == own or own in JOINTS:
            # The command line is above `api`; nothing else is above it.
            if own in ("api", "explaining", "prepared", "reporting") and other in TOP:
                wrong.append(module)
            continue
        guarded = other in FOLDERS or other in SHOWN or other in JOINTS or other in APART
        if guarded and (own, module) not in LATE and SHOWN.get(own) != other:
            wrong.append(module)
    assert wrong == [], f"{module_of(path)} may not import {wrong}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


@pytest.mark.parametrize("name", FOLDERS)
def test_root_shows_the_folders(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("helix") / name
    assert link.resolve() == PACKAGE / name


def test_import_helix_is_light() -> None:
    code = f"import sys, helix; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom helix.cli import cli\n"
        "try: cli.main(['--help'], prog_name='helix')\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stderr.strip() == "[]"


def test_public_names_resolve() -> None:
    import helix

    for name in dir(helix):
        assert getattr(helix, name) is not None
