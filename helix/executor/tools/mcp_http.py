"""The HTTP client of MCP servers at an address: connections to checked addresses only, replies of bounded size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2

from helix.executor.tools.access import ToolAccess
from helix.executor.tools.addresses import CheckedResolver, check_host
from helix.executor.tools.threads import Threads


def http_client(access: ToolAccess, threads: Threads, headers: dict[str, str], most: int) -> httpx2.AsyncClient:
    """A client for one server; no reply, nor an event of one, takes more than `most` bytes."""
    return httpx2.AsyncClient(
        transport=_Checked(access, threads, most),
        # Nothing is decompressed: a few bytes may stand for many.
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(30.0, read=None),
        follow_redirects=False,
        trust_env=False,
    )


class _Checked(httpx2.AsyncHTTPTransport):
    """Connects to the address that was checked: the name is kept for the certificate and the `Host` alone."""

    def __init__(self, access: ToolAccess, threads: Threads, most: int) -> None:
        super().__init__()
        self._access = access
        self._resolver = CheckedResolver(access, threads)
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request. Raises RefusedAddress where it may not be sent."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        check_host(self._access, host, port)
        found = await self._resolver.resolve(host, port)
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=found[0]["host"])
        response = await super().handle_async_request(request)
        if response.headers.get("content-type", "").partition(";")[0].strip() != "text/event-stream":
            response.stream = _Bounded(response.stream, self._most)
        return response


class _Bounded(httpx2.AsyncByteStream):
    """A stream that ends with an error where it goes on for too long."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.ReadError(f"a reply of more than {self._most:,} bytes")
            yield piece

    async def aclose(self) -> None:
        """Closes the stream below."""
        await self._stream.aclose()
