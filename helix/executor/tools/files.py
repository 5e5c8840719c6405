"""Where the files of databases may lie: in the workflow's folder or below it, or where the command line says."""

from __future__ import annotations

from pathlib import Path

from helix.errors import OptionError
from helix.executor.tools.access import ToolAccess
from helix.logical import Tool
from helix.tools.targets import FILES


def check_database(tool: Tool, folder: Path | None, access: ToolAccess) -> None:
    """Refuses a `sqlite:` or `duckdb:` file that lies elsewhere, links followed. Raises OptionError."""
    for backend in FILES:
        start = f"{backend}:"
        # `duckdb://` is a URL; `sqlite://` is opened as the file of that name.
        if tool.origin == "sql" and tool.target.startswith(start) and not tool.target.startswith("duckdb://"):
            check_file(tool, tool.target.removeprefix(start), folder, folder, access)


def check_file(tool: Tool, name: str, base: Path | None, folder: Path | None, access: ToolAccess) -> None:
    """Refuses a database's file that lies elsewhere; a relative `name` is one of the folder `base`. Raises OptionError.

    Where no folder is known the workflow is a text in somebody's Python, which may open whatever it likes.
    """
    if folder is None:
        return
    place = (base or Path()).joinpath(name).resolve()
    if not any(place.is_relative_to(Path(each).resolve()) for each in (folder, *access.files)):
        raise OptionError(
            f"sql tool `{tool.name}`: the database {name} lies outside of the workflow's folder; "
            f"--allow-file {name} allows it"
        )
