"""What the target of a tool says: a database and its dialect, a method and an address, a server and a tool of it.

Targets are data: nothing here opens, resolves or reads anything, and `${NAME}`, which stands for a value of the
environment, stays as it is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from helix.errors import name_help

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# The dialect (a name of sqlglot's) of each backend that a database URL may name (a name of SQLAlchemy's).
DIALECTS = {
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "postgresql": "postgres",
    "cockroachdb": "postgres",
    "redshift": "redshift",
    "mysql": "mysql",
    "mariadb": "mysql",
    "mssql": "tsql",
    "oracle": "oracle",
    "snowflake": "snowflake",
    "bigquery": "bigquery",
    "clickhouse": "clickhouse",
    "trino": "trino",
    "presto": "presto",
    "databricks": "databricks",
}
FILES = ("sqlite", "duckdb")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SLOT = re.compile(r"(?<!\$)\{([^{}]*)\}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\]")
_SECRET = re.compile(
    r"authorization|cookie|secret|token|passw|(api|access|auth|subscription|^x)[-_]?key", re.IGNORECASE
)


def variables(text: str) -> tuple[str, ...]:
    """The names of the environment that a text wants, `${NAME}`, each once, in order."""
    return tuple(dict.fromkeys(_VARIABLE.findall(text)))


def substituted(text: str, values: dict[str, str]) -> str:
    """The text with each `${NAME}` replaced by its value; one without a value stays."""
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


# --- sql ----------------------------------------------------------------------------------------------------------


def sql_backend(target: str) -> str:
    """The backend of a SQL tool: sqlite and duckdb over a file, or what a database URL names.

    Raises ValueError with what is wrong: no backend, an unknown one, a password written out.
    """
    backend, colon, rest = target.partition(":")
    if colon and backend in FILES and not rest.startswith("//"):
        if not rest:
            raise ValueError(f'"{target}" names no file')
        return backend
    scheme, separator, place = target.partition("://")
    name = scheme.partition("+")[0].lower()
    if not separator or not colon:
        raise ValueError(f'a sql tool reads "sqlite:file", "duckdb:file" or a database URL, found "{target}"')
    if name not in DIALECTS:
        raise ValueError(f"no database is called `{name}`; {name_help(name, DIALECTS, 'databases')}")
    if name == "sqlite":
        return name
    password = _password(place)
    if password and not _VARIABLE.fullmatch(password):
        raise ValueError("a secret does not belong in a workflow: write ${NAME} for the password")
    return name


def _password(place: str) -> str:
    user, at, _ = place.partition("/")[0].rpartition("@")
    return user.partition(":")[2] if at else ""


def sql_dialect(target: str) -> str:
    """The dialect of a SQL tool's statements, as sqlglot calls it."""
    return DIALECTS[sql_backend(target)]


# --- http ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """`GET https://api.example.org/v1/items/{id}`: `url` is a template, `slots` are the parameters that it shows."""

    method: str
    url: str
    host: str
    slots: tuple[str, ...]

    @property
    def has_body(self) -> bool:
        """Whether what the address does not show is sent as a JSON body, not in the query."""
        return self.method in ("POST", "PUT", "PATCH")


def http_target(target: str) -> HttpTarget:
    """Reads the target of an HTTP tool. Raises ValueError with what is wrong."""
    method, space, url = target.strip().partition(" ")
    url = url.strip()
    if not space or method.upper() not in METHODS:
        help = name_help(method.upper(), METHODS, "methods") if space else 'write "GET https://host/path"'
        raise ValueError(f'an http tool calls "METHOD https://host/path", found "{target}"; {help}')
    if any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError("an address has no white space in it")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f'"{url}" is no address: {error}') from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f'an http tool calls an http or https address, found "{url}"')
    if "@" in parts.netloc:
        raise ValueError("a secret does not belong in a workflow: send a header with ${NAME} instead of user:password@")
    if not _HOST.fullmatch(f"[{host}]" if ":" in host else host):
        raise ValueError(f'the host of "{url}" is fixed: parameters stand in its path and its query')
    slots = tuple(dict.fromkeys(_SLOT.findall(url)))
    return HttpTarget(method=method.upper(), url=url, host=host.lower(), slots=slots)


def filled(url: str, given: dict[str, str]) -> str:
    """The address with its slots filled; the texts are to be quoted already."""
    return _SLOT.sub(lambda found: given[found[1]], url)


def header(text: str) -> tuple[str, str]:
    """`Name: value` of a request, read. Raises ValueError for what is none, and for a secret written out."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not value:
        raise ValueError(f'a header is "Name: value", found "{text}"')
    if any(not char.isprintable() or ord(char) > 255 for char in value):
        raise ValueError(f"the value of the header `{name}` has characters that a header cannot hold")
    if _SECRET.search(name) and not variables(value):
        raise ValueError(f'a secret does not belong in a workflow: write "{name}: ${{NAME}}" and set NAME outside')
    if name.lower() in ("host", "content-length", "transfer-encoding", "connection", "accept-encoding"):
        raise ValueError(f"the header `{name}` is made by the connection itself")
    return name, value


# --- mcp ----------------------------------------------------------------------------------------------------------


def mcp_target(target: str) -> tuple[str, str]:
    """The server and the tool that `server:tool` names. Raises ValueError where it names none."""
    server, colon, name = target.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z0-9_.-]+", server) or not name.strip():
        raise ValueError(f'an mcp tool is "server:tool", the server one of mcp.json, found "{target}"')
    return server, name
