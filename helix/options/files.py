"""What commands are given: a workflow's file, and constants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from helix.errors import OptionError

if TYPE_CHECKING:
    from helix.dsl import Workflow


def load_workflow(file: str) -> Workflow:
    """The workflow that a file holds: a `.helix` file, or a Python file with one workflow in it, `file.py[:name]`."""
    from helix import api

    path, _, name = file.partition(":") if ".py" in file else (file, "", "")
    if path.endswith(".py"):
        return api.load_python(path, name or None)
    if Path(path).suffix.lower() not in ("", ".helix") and _is_table(path):
        raise OptionError(f"{path} is a table; a workflow stands here, and its rows behind --input")
    return api.load(path)


def _is_table(path: str) -> bool:
    from helix.executor.tables.formats import SUFFIXES

    return Path(path).suffix.lower() in SUFFIXES


def constants_of(given: tuple[str, ...]) -> dict[str, str]:
    """The constants of `--set NAME=VALUE`."""
    return pairs_of("--set", given)


def pairs_of(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """The values by name of an option that takes NAME=VALUE. Raises OptionError."""
    made: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"{option} takes name=value, found `{each}`")
        made[name.strip()] = value
    return made
