"""The Python functions of a workflow, loaded for a run: given from Python, or from the folder of the workflow file.

A part of `helix.api`, kept apart from it for its size alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helix.dsl import Workflow
    from helix.grammar.bind import Bound
    from helix.syntax import Workflow as Syntax


def load_callables(workflow: Workflow, bound: Bound) -> dict[str, Callable[..., Any]]:
    """The functions of a workflow's python tools and expressions, by their qualified names.

    Functions given from Python are taken as they are; others are loaded from the folder of the workflow file and from
    nowhere else. Raises OptionError for what is not there.
    """
    from helix.executor.tools.modules import load_function

    given = {"": workflow.callables} | {path: used.callables for path, used in used_workflows(workflow).items()}
    found: dict[str, Callable[..., Any]] = {}
    for name, declared in bound.callables.items():
        own = given.get(declared.namespace, {})
        if declared.name in own:
            found[name] = own[declared.name]
            continue
        folders = [] if declared.folder is None else [declared.folder]
        found[name] = load_function(declared.target, folders)
    return found


def look_up_callables(workflow: Workflow, bound: Bound) -> None:
    """Looks whether these functions are there, running nothing. Raises OptionError for the first that is not."""
    from helix.executor.tools.modules import look_up_function

    given = {"": workflow.callables} | {path: used.callables for path, used in used_workflows(workflow).items()}
    for declared in bound.callables.values():
        if declared.name not in given.get(declared.namespace, {}):
            look_up_function(declared.target, [] if declared.folder is None else [declared.folder])


def used_workflows(workflow: Workflow) -> dict[str, Workflow]:
    """The workflows that a workflow calls, those that they call among them, by path."""
    found: dict[str, Workflow] = {}
    stack = [workflow]
    while stack:
        for path, used in stack.pop().uses.items():
            if path not in found:
                found[path] = used
                stack.append(used)
    return found


def used_modules(workflow: Workflow) -> dict[str, Syntax]:
    """The texts of the workflows that a workflow calls, by path."""
    return {path: used.syntax for path, used in used_workflows(workflow).items()}
