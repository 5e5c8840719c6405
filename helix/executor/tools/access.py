"""What tools may reach: hosts and addresses, the servers that are trusted, the secrets that the environment holds."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from helix.errors import OptionError
from helix.tools.targets import substituted, variables

# A shorter value is not looked for in texts: it would be found everywhere. In results, which must not change for a
# word that happens to stand in them, it is longer.
_SHORTEST_SECRET = 4
_SHORTEST_IN_RESULTS = 8
# The well-known prefix under which IPv4 addresses are reached over IPv6 (RFC 6052).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAccess:
    """What the person who starts a run lets its tools reach.

    `hosts` are all that tools over HTTP may ask (None: those that the workflow names); `private` are hosts that may lie
    at private, loopback and link-local addresses. Hosts are `name`, `name:port` or `*.name`. `files` are databases, or
    folders of such, that SQL tools may read besides those in the workflow's folder. `servers` is the file that names
    the MCP servers (None: `mcp.json` beside the workflow), `trusted` are those of them whose hints count.
    """

    hosts: tuple[str, ...] | None = None
    private: tuple[str, ...] = ()
    files: tuple[str | os.PathLike[str], ...] = ()
    servers: Path | None = None
    trusted: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def allows(self, host: str, port: int) -> bool:
        """Whether a host may be asked at all."""
        return self.hosts is None or matches(host, port, self.hosts)

    def allows_private(self, host: str, port: int) -> bool:
        """Whether a host may lie at an address that is not public."""
        return matches(host, port, self.private)


def matches(host: str, port: int, rules: tuple[str, ...]) -> bool:
    """Whether one of the rules names a host: `name`, `name:port`, `*.name` for all names below one."""
    host = host.strip("[]").rstrip(".").lower()
    for rule in rules:
        name, wanted = _split(rule.strip().lower())
        if wanted not in (None, port):
            continue
        if host == name or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False


def _split(rule: str) -> tuple[str, int | None]:
    """The name and the port of a rule. Addresses of IPv6 stand in brackets where a port follows."""
    if rule.startswith("["):
        name, _, rest = rule[1:].partition("]")
        port = rest.removeprefix(":")
    elif rule.count(":") == 1:
        name, _, port = rule.partition(":")
    else:
        name, port = rule, ""
    return name.rstrip("."), int(port) if port.isdecimal() else None


def is_public(address: str) -> bool:
    """Whether an IP address may be asked by anybody: no private, loopback, link-local, reserved or multicast one.

    An IPv4 address inside one of IPv6 (mapped, 6to4, Teredo, NAT64) counts as itself.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is not None:
            found = inner
        elif found.is_site_local:
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


class Secrets:
    """Values that came from the environment: put into texts that are sent, kept out of all that are shown or stored."""

    def __init__(self, what: str, texts: tuple[str, ...], environment: Mapping[str, str]) -> None:
        """Looks up what the texts want. Raises OptionError for a name that the environment does not have."""
        self._values: dict[str, str] = {}
        for name in dict.fromkeys(each for text in texts for each in variables(text)):
            value = environment.get(name)
            if value is None:
                raise OptionError(f"{what} wants ${{{name}}}: the environment has no {name}")
            if any(ord(char) < 32 or ord(char) == 127 for char in value.strip()):
                raise OptionError(f"{what} wants ${{{name}}}: its value has control characters in it")
            self._values[name] = value.strip()
        # Longest first: one may be a part of another.
        long = [value for value in self._values.values() if len(value) >= _SHORTEST_SECRET]
        held = {*long, *(quote(value, safe="") for value in long), *(json.dumps(value)[1:-1] for value in long)}
        self._hidden = sorted(held, key=lambda value: (-len(value), value))

    def into(self, text: str, *, quoted: bool = False) -> str:
        """The text with its `${NAME}` replaced; `quoted` as an address holds the values."""
        if not quoted:
            return substituted(text, self._values)
        return substituted(text, {name: quote(value, safe="") for name, value in self._values.items()})

    def out_of(self, text: str, *, shortest: int = _SHORTEST_SECRET) -> str:
        """The text without any of the values."""
        for value in self._hidden:
            if len(value) >= shortest and value in text:
                text = text.replace(value, "***")
        return text

    def out_of_result(self, text: str) -> str:
        """A result without any of the values: what a server echoes is kept, and handed on."""
        return self.out_of(text, shortest=_SHORTEST_IN_RESULTS)
