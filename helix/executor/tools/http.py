"""Tools over HTTP: one request a call, its address made of a template, its reply read as JSON or text.

Where a request may go is decided before it is made, and again for each redirect: the host has to be one of the
workflow's and of the command line's, its address a public one (see `addresses`). A reply is read as far as `max_bytes`,
decompressed piece by piece, within the tool's time.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from helix import __version__
from helix.canonical import canonical_text
from helix.errors import OptionError, ToolError
from helix.executor.tools.access import Secrets, ToolAccess, matches
from helix.executor.tools.addresses import RefusedAddress, check_host
from helix.executor.tools.results import MAX_BYTES, result_text, too_large
from helix.executor.tools.threads import holding
from helix.logical import Tool
from helix.tools.targets import filled, header, http_target
from helix.types import TEXT, required

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

TIME_LIMIT = 30.0
MAX_REDIRECTS = 5
# How often a request is made that a server is too busy for, and the first wait where it names none, in seconds.
MOST_TRIES = 4
FIRST_WAIT = 0.5
# As much of an error's page as a message shows.
_EXCERPT = 200
_PIECE = 1 << 16
_KEPT = ":/?#[]@!$&'()*+,;=%-._~"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One request to be made: `body` is JSON text."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str | None = None


class _Busy(ToolError):
    """A server that has no time just now; `wait` are the seconds that it asks for, where it does."""

    wait: float | None = None


class HttpTool:
    """Makes one request a call. Making the tool raises OptionError where it may not be used as it is."""

    def __init__(self, tool: Tool, access: ToolAccess, session: ClientSession) -> None:
        what = f"http tool `{tool.name}`"
        try:
            self._target = http_target(tool.target)
            self._secrets = Secrets(what, (self._target.url, *tool.headers), access.environment)
            self._origin = _origin(self._target.url)
            self._headers = [header(text) for text in tool.headers]
            check_host(access, *self._origin[1:])
        except (ValueError, RefusedAddress) as error:
            raise OptionError(f"{what}: {error}") from None
        self._hosts = (self._target.host, *tool.hosts)
        self._tool = tool
        self._access = access
        self._session = session
        self._limit = tool.max_bytes or MAX_BYTES
        self._names = [param.name for param in tool.params]
        # What has changed something is not asked for twice.
        self._again = tool.effects in ("pure", "read", "idempotent_write")
        self._not_before = 0.0

    async def __call__(self, args: list[Any]) -> str:
        """Makes the request. Raises ToolError; its kind is `timeout` where the reply took too long."""
        name, seconds = self._tool.name, self._tool.timeout or TIME_LIMIT
        request = self._request(dict(zip(self._names, args, strict=True)))
        try:
            async with asyncio.timeout(seconds) as timer:
                text = await self._patiently(request, timer.when() or 0.0)
        except TimeoutError:
            late = ToolError(f"{name}: no whole reply within {seconds:g} s")
            if timer.expired():
                late.kind = "timeout"
            raise late from None
        return self._secrets.out_of_result(text)

    def close(self) -> None:
        """Nothing is held: the session is the run's."""

    # --- asking ---

    def _request(self, given: dict[str, Any]) -> _Request:
        """The request for these arguments. Raises ToolError where they make no address."""
        shown = {slot: self._slot(slot, given[slot]) for slot in self._target.slots}
        # A `$` of an argument is quoted by now, so that none can ask for a secret.
        url = self._secrets.into(filled(self._target.url, shown), quoted=True)
        # A segment of dots would lead out of the path that the workflow names.
        if any(unquote(part) in (".", "..") for part in urlsplit(url).path.split("/")):
            raise ToolError(f"{self._tool.name}: a part of the path may not be `.` or `..`")
        rest = {name: value for name, value in given.items() if name not in shown and value is not None}
        headers = [("User-Agent", f"helix/{__version__}"), ("Accept-Encoding", "gzip, deflate")]
        own = [(name, self._secrets.into(value)) for name, value in self._headers]
        if all(name.lower() != "accept" for name, _ in own):
            accepted = "text/plain, */*" if required(self._tool.returns) == TEXT else "application/json, */*;q=0.5"
            headers.append(("Accept", accepted))
        body = None
        if self._target.has_body:
            body = canonical_text(rest)
            if all(name.lower() != "content-type" for name, _ in own):
                headers.append(("Content-Type", "application/json"))
        elif rest:
            url = _with_query(url, rest)
        return _Request(method=self._target.method, url=url, headers=(*headers, *own), body=body)

    def _slot(self, slot: str, value: Any) -> str:
        if value is None or isinstance(value, list | dict):
            kind = "null" if value is None else "a list" if isinstance(value, list) else "a record"
            raise ToolError(f"{self._tool.name}: `{slot}` stands in the address and cannot be {kind}")
        return quote(_shown(value), safe="")

    async def _patiently(self, request: _Request, ends: float) -> str:
        """The result of a request. While the server is busy all calls of the tool wait, as long as there is time."""
        loop = asyncio.get_running_loop()
        tries = 0
        while True:
            await asyncio.sleep(self._not_before - loop.time())
            try:
                async with holding():
                    return await self._fetched(request)
            except _Busy as busy:
                tries += 1
                wait = FIRST_WAIT * 2.0 ** (tries - 1) if busy.wait is None else busy.wait
                if not self._again or tries == MOST_TRIES or loop.time() + wait >= ends:
                    raise
                self._not_before = max(self._not_before, loop.time() + wait)

    async def _fetched(self, request: _Request) -> str:
        """The result of a request, redirects followed. Raises ToolError."""
        for _ in range(MAX_REDIRECTS + 1):
            found = await self._asked(request)
            if isinstance(found, str):
                return found
            request = found
        raise ToolError(f"{self._tool.name}: {self._target.host} redirects more than {MAX_REDIRECTS} times")

    async def _asked(self, request: _Request) -> str | _Request:
        """What one request gives: a result, or the request that it is redirected to."""
        import aiohttp
        from yarl import URL

        name = self._tool.name
        host = urlsplit(request.url).hostname or ""
        try:
            async with self._session.request(
                request.method,
                URL(quote(request.url, safe=_KEPT), encoded=True),
                headers=list(request.headers),
                data=None if request.body is None else request.body.encode("utf-8", "replace"),
                allow_redirects=False,
            ) as response:
                if response.status in (301, 302, 303, 307, 308) and "Location" in response.headers:
                    return self._redirected(request, response.status, response.headers["Location"])
                return self._read(await self._body(response), response)
        except aiohttp.ClientConnectorError as error:
            reason = error.os_error
            if isinstance(reason, RefusedAddress):
                raise ToolError(f"{name}: {reason}") from None
            raise ToolError(f"{name}: {host} cannot be reached: {self._words(reason)}") from None
        except (aiohttp.ClientError, ValueError, OSError, zlib.error) as error:
            if isinstance(error, TimeoutError):
                raise
            raise ToolError(f"{name}: the reply of {host} cannot be read: {self._words(error)}") from None

    def _words(self, error: BaseException) -> str:
        text = " ".join(self._secrets.out_of(str(error) or type(error).__name__).split())
        return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."

    def _redirected(self, request: _Request, status: int, location: str) -> _Request:
        """The next request. Raises ToolError where it may not be made."""
        url = urljoin(request.url, location.strip())
        try:
            origin = _origin(url)
            parts = urlsplit(url)
            if "@" in parts.netloc:
                raise ValueError("an address with a user in it")
            scheme, host, port = origin
            if request.url.startswith("https:") and scheme != "https":
                raise ValueError(f"{host} without encryption")
            if not matches(host, port, self._hosts):
                raise ValueError(f"{host}, which is not among the tool's `hosts`")
            check_host(self._access, host, port)
        except (ValueError, RefusedAddress) as error:
            raise ToolError(f"{self._tool.name}: redirected to {self._words(error)}") from None
        headers = request.headers
        if origin != self._origin:
            # What was meant for one server, secrets among it, goes to no other.
            own = {name for name, _ in self._headers}
            headers = tuple(each for each in headers if each[0] not in own)
        method, body = request.method, request.body
        if status == 303 or (status in (301, 302) and method == "POST"):
            method, body = "GET", None
            headers = tuple(each for each in headers if each[0].lower() != "content-type")
        return _Request(method=method, url=url, headers=headers, body=body)

    # --- reading ---

    async def _body(self, response: ClientResponse) -> bytes:
        """The body, decompressed, as far as the limit; more is an error. Of an error page the beginning is read."""
        limit = self._limit if response.status < 400 else 4 * _EXCERPT
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip", "deflate", ""):
            raise ValueError(f"its encoding `{coding}` was not asked for")
        # 47 reads the heads of both gzip and zlib.
        inflate = zlib.decompressobj(47) if coding in ("gzip", "deflate") else None
        body = bytearray()
        async for piece in response.content.iter_chunked(_PIECE):
            while piece:
                body += piece if inflate is None else inflate.decompress(piece, limit - len(body) + 1)
                if len(body) > limit:
                    if response.status >= 400:
                        return bytes(body[:limit])
                    raise too_large(self._tool.name, limit)
                piece = b"" if inflate is None else inflate.unconsumed_tail
        if inflate is not None and response.status < 400:
            body += inflate.flush()
            if body and not inflate.eof:
                raise ValueError("it is cut off")
        return bytes(body)

    def _read(self, body: bytes, response: ClientResponse) -> str:
        """The result that a body holds. Raises ToolError."""
        name, returns = self._tool.name, self._tool.returns
        if response.status >= 400:
            said = " ".join(self._secrets.out_of(body.decode("utf-8", "replace")).split())
            said = f": {said[:_EXCERPT]}{'...' if len(said) > _EXCERPT else ''}" if said else ""
            reason = f" {response.reason}" if response.reason else ""
            kind = _Busy if response.status in (429, 503) else ToolError
            failed = kind(f"{name}: {response.url.host} answered {response.status}{reason}{said}")
            asked = response.headers.get("Retry-After", "").strip()
            if isinstance(failed, _Busy) and asked.isdecimal():
                failed.wait = float(asked)
            raise failed
        media = response.content_type
        if required(returns) == TEXT or (media.startswith("text/") and media != "text/json"):
            value: Any = self._text(body, response.charset)
        elif not body.strip():
            value = None
        else:
            try:
                value = json.loads(self._text(body, None), parse_constant=_no_constant)
            except (ValueError, RecursionError) as error:
                told = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise ToolError(f"{name}: the reply, {media}, is not JSON: {told}") from None
        return result_text(value, returns, name, self._limit)

    def _text(self, body: bytes, charset: str | None) -> str:
        try:
            return body.decode(charset or "utf-8-sig")
        except (UnicodeDecodeError, LookupError):
            raise ToolError(f"{self._tool.name}: the reply is no text in {charset or 'UTF-8'}") from None


def _origin(url: str) -> tuple[str, str, int]:
    """The scheme, host and port of an address. Raises ValueError where it has none of http."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url[:_EXCERPT]}, which is no http address")
    return parts.scheme, parts.hostname.lower(), parts.port or (443 if parts.scheme == "https" else 80)


def _with_query(url: str, values: dict[str, Any]) -> str:
    """The address with values in its query, each item of a list by itself; before a fragment, which nobody is sent."""
    pairs = [(name, item) for name, value in values.items() for item in (value if isinstance(value, list) else [value])]
    query = "&".join(f"{quote(name, safe='')}={quote(_shown(item), safe='')}" for name, item in pairs)
    plain = url.partition("#")[0]
    return f"{plain}{'&' if '?' in plain else '?'}{query}" if query else plain


def _shown(value: Any) -> str:
    """A value as an address holds it: a text as it is, all else as JSON."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else canonical_text(value)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
