"""The file that names the MCP servers, `mcp.json`: what other programs that speak the protocol keep too.

{"mcpServers": {
    "docs": {"command": "docs-server", "args": ["--quiet"], "env": {"DOCS_TOKEN": "${DOCS_TOKEN}"}},
    "web": {"url": "https://mcp.example.org/mcp", "headers": {"Authorization": "Bearer ${WEB_TOKEN}"}}}}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.errors import OptionError, name_help

FILE = "mcp.json"
_KNOWN = ("command", "args", "env", "cwd", "url", "headers", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server: a program that is started and spoken to over its standard streams, or an address.

    `env` and `headers` may want `${NAME}` of the environment. `cwd` is where the program runs.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: Path | None = None
    url: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def find_servers(file: Path | None, folder: Path | None) -> dict[str, McpServer]:
    """The servers of a file, or of `mcp.json` in a folder; none where that is not there. Raises OptionError."""
    if file is None:
        if folder is None or not (folder / FILE).is_file():
            return {}
        file = folder / FILE
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{file} is not JSON: {error}") from None
    entries = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(entries, dict):
        raise OptionError(f'{file} names no servers: expected {{"mcpServers": {{"name": {{...}}}}}}')
    return {name: _server(str(name), entry, file) for name, entry in entries.items()}


def _server(name: str, entry: Any, file: Path) -> McpServer:
    where = f"{file}: server `{name}`"
    if not isinstance(entry, dict):
        raise OptionError(f"{where} is no record")
    odd = next((key for key in entry if key not in _KNOWN), None)
    if odd is not None:
        raise OptionError(f"{where}: unknown field `{odd}`; {name_help(str(odd), _KNOWN, 'fields')}")
    command, url, args, cwd = (entry.get(key) for key in ("command", "url", "args", "cwd"))
    if (command is None) == (url is None):
        raise OptionError(f"{where} has either a `command` to start it or a `url`")
    for key, value in (("command", command), ("url", url), ("cwd", cwd)):
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise OptionError(f"{where}: `{key}` is a text")
    if args is not None and not (isinstance(args, list) and all(isinstance(each, str) for each in args)):
        raise OptionError(f"{where}: `args` is a list of texts")
    place = file.parent if cwd is None else file.parent / cwd
    return McpServer(
        name=name,
        command=command,
        args=tuple(args or ()),
        env=_texts(entry, "env", where),
        cwd=place,
        url=url,
        headers=_texts(entry, "headers", where),
    )


def _texts(entry: dict[str, Any], key: str, where: str) -> tuple[tuple[str, str], ...]:
    value = entry.get(key) or {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise OptionError(f"{where}: `{key}` is a record of texts")
    return tuple(value.items())
