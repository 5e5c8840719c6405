"""Databases outside of a workflow's folder (contract 17): none is read unless the command line says so."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from running import Folder, inside

SECRET = "cookie-of-somebody"
ROW = {"a": "v"}


def database(path: Path) -> Path:
    """A database that says something."""
    path.parent.mkdir(exist_ok=True, parents=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (?)", [SECRET])
    connection.close()
    return path


@pytest.fixture
def own(folder: Folder) -> Folder:
    """A folder below another one, in which a database lies that is nobody's here."""
    database(folder.path / "elsewhere" / "cookies.sqlite")
    inner = Folder(folder.path / "own")
    inner.path.mkdir()
    inner.rows(ROW)
    return inner


def asks(target: str) -> str:
    return (
        f'workflow t(a: text)\ntool ask() -> table from sql "{target}" effects read, query "SELECT a FROM t"\n'
        "r = ask()\noutput r"
    )


def run(own: Folder, patch: Any, capfd: Any, *more: str) -> Any:
    return inside(*own.arguments("-o", "out.jsonl", *more), cwd=own.path, monkeypatch=patch, capfd=capfd)


@pytest.mark.parametrize(
    "form", ["sqlite:{}", "duckdb:{}", "sqlite+pysqlite:///{}", "sqlite:////{}", "sqlite:link.sqlite"]
)
@pytest.mark.parametrize("place", ["absolute", "../elsewhere/cookies.sqlite", "below/../../elsewhere/cookies.sqlite"])
def test_17_a_database_elsewhere_is_not_read(
    own: Folder, form: str, place: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    pytest.importorskip("sqlalchemy")
    elsewhere = own.path.parent / "elsewhere" / "cookies.sqlite"
    (own.path / "below").mkdir()
    (own.path / "link.sqlite").symlink_to(elsewhere)
    own.workflow(asks(form.format(elsewhere if place == "absolute" else place)))
    done = run(own, monkeypatch, capfd)
    assert done.returncode == 2
    assert "lies outside of the workflow's folder; --allow-file" in done.stderr
    assert not (own.path / "out.jsonl").exists()


@pytest.mark.parametrize("allowed", ["../elsewhere/cookies.sqlite", "../elsewhere", ".."])
def test_17_the_command_line_may_allow_it(
    own: Folder, allowed: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    own.workflow(asks("sqlite:../elsewhere/cookies.sqlite"))
    done = run(own, monkeypatch, capfd, "--allow-file", allowed)
    assert done.returncode == 0, done.stderr
    assert own.read()[0]["r"] == [{"a": SECRET}]
    assert run(own, monkeypatch, capfd, "--allow-file", "../else", "--fresh").returncode == 2


def test_17_one_below_the_workflow_is_its_own(own: Folder, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    database(own.path / "data" / "shop.sqlite")
    own.workflow(asks("sqlite:data/shop.sqlite"))
    assert run(own, monkeypatch, capfd).returncode == 0
    own.workflow(asks(f"sqlite:{own.path / 'data' / 'shop.sqlite'}"))
    assert run(own, monkeypatch, capfd).returncode == 0


def test_17_python_that_may_read_any_file_may_name_any(
    own: Folder, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    elsewhere = own.path.parent / "elsewhere" / "cookies.sqlite"
    own.write(
        "flow.py",
        "import helix as hx\n\n"
        f"ask = hx.sql_tool('ask', 'sqlite:{elsewhere}', {{}}, query='SELECT a FROM t', effects='read')\n\n\n"
        "@hx.workflow\ndef t(a: str):\n    return hx.output(r=ask())\n",
    )
    done = inside(
        "run", "flow.py", "-i", "rows.jsonl", "-e", "scripted", "-o", "out.jsonl",
        cwd=own.path, monkeypatch=monkeypatch, capfd=capfd,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert own.read()[0]["r"] == [{"a": SECRET}]
