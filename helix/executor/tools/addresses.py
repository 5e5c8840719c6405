"""Connections to public addresses only: a name is looked up once, and what was checked is what is connected to.

A name that led to a public address when it was checked may lead to a private one when it is looked up again (DNS
rebinding). So the look-up itself is checked, and the connection gets the addresses that passed, never the name.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Any

from aiohttp.abc import AbstractResolver, ResolveResult

from helix.executor.tools.access import ToolAccess, is_public

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from helix.executor.tools.threads import Threads


# The last part of what the system takes for an address of IPv4, in decimal, octal or hexadecimal.
_NUMBERS = re.compile(r"\d+|0[xX][0-9A-Fa-f]*")


class RefusedAddress(OSError):
    """A host that must not be asked. Its text says which, and what would allow it."""


class CheckedResolver(AbstractResolver):
    """Looks names up on a thread and gives the addresses that may be connected to."""

    def __init__(self, access: ToolAccess, threads: Threads) -> None:
        self._access = access
        self._threads = threads

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host. Raises RefusedAddress where none of them may be connected to."""
        found = await self._threads.run(
            lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        )
        addresses = [(int(kind), number, str(place[0]), int(place[1])) for kind, _, number, _, place in found]
        allowed = [each for each in addresses if self._access.allows_private(host, port) or is_public(each[2])]
        if not allowed:
            raise refused(host, addresses[0][2] if addresses else None)
        return [
            ResolveResult(hostname=host, host=address, port=at, family=kind, proto=number, flags=socket.AI_NUMERICHOST)
            for kind, number, address, at in allowed
        ]

    async def close(self) -> None:
        """Nothing is held."""


def check_host(access: ToolAccess, host: str, port: int) -> None:
    """Refuses a host that is not allowed, or that is written as an address which is not public.

    Raises RefusedAddress. Names are checked when they are looked up.
    """
    if not access.allows(host, port):
        raise RefusedAddress(f"{host} is not among the hosts that --allow-host names")
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        # `127.1` and `2130706433` are addresses to the system, and would be connected to without a look-up.
        if _NUMBERS.fullmatch(host.rstrip(".").rpartition(".")[2]):
            raise RefusedAddress(f"{host} is no name, and no address of four numbers") from None
        return
    if not (is_public(host.strip("[]")) or access.allows_private(host, port)):
        raise refused(host, None)


def refused(host: str, address: str | None) -> RefusedAddress:
    """The error of a host at an address that is not public."""
    where = host if address is None or address == host else f"{host} ({address})"
    return RefusedAddress(f"{where} is no public address; --allow-private {host} allows it")


def open_session(access: ToolAccess, threads: Threads, **options: Any) -> ClientSession:
    """A session whose connections are checked. No cookies are kept, and no proxy of the environment is asked: it would
    look names up itself.
    """
    import aiohttp

    connector = aiohttp.TCPConnector(resolver=CheckedResolver(access, threads), limit=0, limit_per_host=0)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=30.0, sock_connect=30.0),
        trust_env=False,
        **options,
    )
