"""Workflows from files and texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from helix.errors import InputError, OptionError, near_match

if TYPE_CHECKING:
    from helix.dsl import Workflow


def load(path: str | os.PathLike[str]) -> Workflow:
    """The workflow in a `.helix` file. Raises InputError where it cannot be read, SourceErrors for its mistakes."""
    from helix.dsl import Workflow
    from helix.grammar.parse import parse

    file = Path(path)
    return Workflow(syntax=parse(read_workflow(file), str(file)), folder=file.parent, path=file)


def load_python(path: str | os.PathLike[str], name: str | None = None) -> Workflow:
    """The workflow in a Python file: the one of that name, or the only one there. The file is run to find it."""
    from helix.dsl import Workflow
    from helix.errors import name_help
    from helix.executor.tools.modules import load_module

    file = Path(path)
    if not file.is_file():
        raise InputError(f"the workflow {file} does not exist")
    found = {key: value for key, value in vars(load_module(file)).items() if isinstance(value, Workflow)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is not None and name in found:
        return found[name]
    if name is not None:
        raise OptionError(f"{file} has no workflow `{name}`; {name_help(name, found, 'workflows there')}")
    if not found:
        raise OptionError(f"{file} holds no workflow; mark a function with @hx.workflow")
    raise OptionError(f"{file} holds several workflows ({', '.join(found)}); name one: {file}:{next(iter(found))}")


def loads(text: str, *, name: str = "<workflow>", folder: str | os.PathLike[str] | None = None) -> Workflow:
    """The workflow in a text. `folder` is where its tools and sub-workflows are looked up. Raises SourceErrors."""
    from helix.dsl import Workflow
    from helix.grammar.parse import parse

    return Workflow(syntax=parse(text, name), folder=None if folder is None else Path(folder))


def read_workflow(file: Path) -> bytes:
    """The bytes of a workflow file. Raises InputError with a near match where there is no such file."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        siblings = sorted(each.name for each in file.parent.glob("*.helix")) if file.parent.is_dir() else []
        near = near_match(file.name, siblings)
        help = f"did you mean `{file.with_name(near)}`?" if near else None
        raise InputError(f"the workflow {file} does not exist", help=help) from None
    except OSError as error:
        raise InputError(f"the workflow {file} cannot be read: {error.strerror}") from None
