"""What the results of tools hang on: the source of functions with all that they use, the content of databases."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from running import ROOT, environment

from helix.executor.store import sources
from helix.executor.store.sources import Database, function_version
from helix.executor.tools.modules import load_function

TOOLS = """
import json
import re
from dataclasses import dataclass

RATE = 3
WORDS = {"a": [1, 2.5], "b": None}
PATTERN = re.compile("x+")


@dataclass
class Box:
    size: int

    def double(self):
        return helper(self.size)


def helper(number):
    return number * RATE


def tool(text: str, factor: int = 2) -> str:
    inner = [helper(len(text)) for _ in range(factor)]
    return json.dumps([inner, WORDS, bool(PATTERN.match(text)), Box(1).double()])


def other(text: str) -> str:
    return text
"""


def version(folder: Path, text: str, name: str = "tool", **files: str) -> str | None:
    """The version of a function in a file, told by a process of its own, as a later run would."""
    (folder / "tools.py").write_text(dedent(text))
    for file, content in files.items():
        path = folder / f"{file.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    script = (
        "import sys; from pathlib import Path\n"
        "from helix.executor.store.sources import function_version\n"
        "from helix.executor.tools.modules import load_function\n"
        "print(function_version(load_function(f'tools:{sys.argv[2]}', [Path(sys.argv[1])])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, folder, name], capture_output=True, text=True, env=environment(None), cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.strip()
    return None if found == "None" else found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 3", "RATE = 4"),
        ("2.5", "2.25"),
        ('"x+"', '"y+"'),
        ("factor: int = 2", "factor: int = 3"),
        ("return number * RATE", "return number + RATE"),
        ("size: int", "size: float"),
        ("return helper(self.size)", "return helper(self.size + 1)"),
        ("range(factor)", "range(factor + 1)"),
    ],
)
def test_what_a_function_uses_is_in_its_version(tmp_path: Path, old: str, new: str) -> None:
    assert TOOLS.count(old) == 1
    first = version(tmp_path, TOOLS)
    assert first is not None
    assert version(tmp_path, TOOLS.replace(old, new)) != first


def test_what_a_function_does_not_use_is_not(tmp_path: Path) -> None:
    first = version(tmp_path, TOOLS)
    assert version(tmp_path, TOOLS.replace("return text", "return text + text")) == first
    assert version(tmp_path, "# a comment\n" + TOOLS) == first
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert version(elsewhere, TOOLS) == first


USING = """
from helpers import clean
import package.part


def tool(text: str) -> str:
    import late

    return clean(text) + package.part.NAME + late.word()
"""
HELPERS = {
    "helpers": "from deep import z\n\n\ndef clean(text):\n    return text + z\n",
    "deep": "z = 'a'\n",
    "package____init__": "",
    "package__part": "from . import inner\nNAME = 'n'\n",
    "package__inner": "X = 1\n",
    "late": "def word():\n    return 'w'\n",
}


@pytest.mark.parametrize("changed", ["helpers", "deep", "package__part", "package__inner", "late"])
def test_files_beside_it_that_it_imports_are_in_its_version(tmp_path: Path, changed: str) -> None:
    first = version(tmp_path, USING, **HELPERS)
    assert first is not None
    assert version(tmp_path, USING, **HELPERS, unrelated="y = 1\n") == first
    assert version(tmp_path, USING, **(HELPERS | {changed: HELPERS[changed] + "# more\n"})) != first


def test_what_has_no_content_gives_no_version(tmp_path: Path) -> None:
    assert version(tmp_path, "CONNECTION = open('/dev/null')\ndef tool(text):\n    return CONNECTION.read()\n") is None
    made = "class Client: pass\nclient = Client()\ndef tool(text):\n    return client.ask(text)\n"
    assert version(tmp_path, made) is None


def test_a_file_edited_since_it_was_imported_gives_no_version_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_FIRST", {})
    (tmp_path / "kept_tools.py").write_text("from kept_helper import f\ndef tool(text):\n    return f(text)\n")
    (tmp_path / "kept_helper.py").write_text("def f(text):\n    return text\n")
    function = load_function("kept_tools:tool", [tmp_path])
    assert function_version(function) is not None
    (tmp_path / "kept_helper.py").write_text("def f(text):\n    return text + text\n")
    assert function_version(function) is None


def test_closures_and_functions_made_in_python_have_versions() -> None:
    def make(rate: int) -> object:
        def tool(text: str) -> int:
            return len(text) * rate

        return tool

    one, same, other = (function_version(make(rate)) for rate in (1, 1, 2))  # type: ignore[arg-type]
    assert one is not None
    assert one == same != other
    assert function_version(len) is not None


# --- databases ---


def made(path: Path, *values: int, wal: bool = False) -> Path:
    database = sqlite3.connect(path)
    if wal:
        database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE t (a)")
    database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    database.commit()
    database.close()
    return path


def test_a_database_is_known_by_its_content(tmp_path: Path) -> None:
    one = Database(made(tmp_path / "one.db", 1, 2))
    (tmp_path / "copy.sqlite").write_bytes((tmp_path / "one.db").read_bytes())
    assert one.version == Database(tmp_path / "copy.sqlite").version
    assert one.content
    database = sqlite3.connect(tmp_path / "one.db")
    database.execute("UPDATE t SET a = 3 WHERE a = 2")
    database.commit()
    database.close()
    assert not one.unchanged()
    assert Database(tmp_path / "one.db").version != one.version


def test_what_is_in_the_log_of_a_database_counts(tmp_path: Path) -> None:
    path = made(tmp_path / "one.db", 1, wal=True)
    before = Database(path)
    database = sqlite3.connect(path)
    database.execute("INSERT INTO t VALUES (2)")
    database.commit()
    assert not before.unchanged()
    assert Database(path).version != before.version
    database.close()


def test_a_large_database_is_told_by_size_and_time_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_DATABASE_BYTES", 100)
    found = Database(made(tmp_path / "one.db", 1))
    assert not found.content
    assert found.unchanged()
