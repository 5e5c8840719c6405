"""Requests to SGLang servers over one pool of connections, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from helix.errors import EngineError
from helix.executor.engines.failures import status_error
from helix.executor.engines.openai_errors import Place, connection_error, malformed, reply_error
from helix.executor.engines.openai_probe import decoded

if TYPE_CHECKING:
    import aiohttp

# Servers on uvicorn close an idle connection after five seconds; a call on one just closed would be lost.
IDLE_SECONDS = 4.0


class Transport:
    """The connections to all servers of an address. Keys are in no error and no repr."""

    def __init__(self, *, key: str | None, proxies: bool) -> None:
        """`key` is sent as a bearer token; `proxies` says that those of the environment are used.

        There are as many connections as calls: who makes the calls bounds them, and an abort must not wait for one.
        """
        import aiohttp

        headers = {"content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self._session: aiohttp.ClientSession = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            trust_env=proxies,
            auto_decompress=True,
        )

    async def ask(self, place: Place, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON value that a server answers to a GET (no body) or a POST. Raises EngineError."""
        raw = await self.send(place, path, body)
        try:
            return decoded(raw)
        except ValueError:
            raise malformed(place, raw, f"something that is not JSON for {path.partition('?')[0]}") from None

    async def send(self, place: Place, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The body of the answer. Every failure but cancellation becomes an EngineError without its cause attached: the
        causes hold the request, and with it the key.
        """
        import aiohttp

        failure: EngineError
        try:
            method, data = "GET", None
            if body is not None:
                method, data = "POST", json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            async with self._session.request(method, f"{place.address}{path}", data=data) as response:
                raw = await response.read()
                if response.status < 400:
                    return raw
                failure = _refusal(place, path, response.status, response.headers, raw)
        except (aiohttp.ClientError, OSError) as error:
            failure = connection_error(place, error)
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
            why = place.look(str(error))
            failure = EngineError(f"the request cannot be written as JSON in UTF-8: {why}")
        except RuntimeError:
            if not self._session.closed:
                raise
            failure = EngineError(f"{place.address} is not open", fatal=True)
        raise failure

    async def close(self) -> None:
        """Closes the connections."""
        await self._session.close()


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of things done at once, in their order. The first that fails ends the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _refusal(place: Place, path: str, status: int, headers: Any, raw: bytes) -> EngineError:
    """The error for a status of 400 and above. A path that is not there says nothing about a model."""
    if status == 404:
        shown = place.look(raw) or "no message"
        return status_error(404, f"{place.address} has no {path.partition('?')[0]} (404): {shown}")
    return reply_error(place, status, headers, raw, None)
