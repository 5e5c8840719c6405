"""What went wrong on the way to an OpenAI-compatible server, in the words and classes of the contract.

The wordings for prompts that are too long are those of OpenAI, vLLM, SGLang, llama.cpp, TGI, Mistral,
Anthropic's and Google's compatible endpoints as their servers send them.
"""

from __future__ import annotations

import email.utils
import errno
import json
import math
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from helix.errors import EngineError, name_help
from helix.executor.engines.failures import status_error

TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})
TOO_LONG = re.compile(
    "|".join(
        (
            r"maximum context length",  # OpenAI, vLLM, SGLang, Mistral, DeepSeek
            r"model'?s context length",  # vLLM, SGLang
            r"maximum model length",  # vLLM
            r"exceeds? the (available )?context (size|length|window)",  # llama.cpp, LM Studio
            r"context (size|length|window) (is |was )?exceeded",
            r"exceeds? the maximum (allowed|input|sequence|model|token)* ?(length|tokens)",  # SGLang
            r"prompt exceeds the KV memory budget",  # SGLang
            r"token count.{0,60}exceeds the maximum",  # Google
            r"prompt is too long",  # Anthropic
            r"input is too (long|large)",  # llama.cpp, Bedrock
            r"too many (input )?tokens",
            r"reduce the length of the (messages|prompt|input)",  # OpenAI, Groq
            r"inputs?`? tokens? \+ .{0,40}must be",  # TGI
        )
    ),
    re.IGNORECASE | re.DOTALL,
)
NO_SCHEMA = re.compile(r"response_format|json.?schema|structured.?output|guided|grammar|schema", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the calls go: the address without secrets, the secrets to keep out of messages, and what is
    served there.
    """

    address: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    keyed: bool = False
    models: tuple[str, ...] = ()

    def clean(self, text: str) -> str:
        """The text without any secret."""
        for secret in self.secrets:
            text = text.replace(secret, "[key]")
        return text

    def look(self, raw: bytes | str, width: int = 200) -> str:
        """A short look at what a server sent, on one line, without secrets."""
        text = raw if isinstance(raw, str) else raw[: 8 * width].decode("utf-8", "replace")
        text = " ".join(self.clean(text).split())
        text = "".join(char if char.isprintable() else "?" for char in text)
        return text if len(text) <= width else text[: width - 3] + "..."


def reply_error(place: Place, status: int, headers: Mapping[str, str], raw: bytes, model: str | None) -> EngineError:
    """The error for an answer with a status of 400 and above."""
    code, said = _said(place, raw)
    text = said or "no message"
    wait = retry_after(headers)
    if status in (400, 413, 422, 500) and (code in TOO_LONG_CODES or TOO_LONG.search(said)):
        return status_error(status, f"prompt too long: {text}", kind="prompt.too_long")
    if status in (401, 403):
        return status_error(status, _refused(place, status, text))
    if status == 404 or code == "model_not_found":
        return status_error(404, _absent(place, code, text, model))
    if status == 429 and code in ("insufficient_quota", "billing_not_active"):
        return EngineError(f"{place.address} has no credit left for this key (429): {text}", status=429, fatal=True)
    return status_error(status, f"{place.address} answered {status}: {text}", retry_after=wait)


def malformed(place: Place, raw: bytes, why: str) -> EngineError:
    """The error for an answer of status 200 that is not a chat completion; the next try may be answered well."""
    shown = f"it begins: {place.look(raw)}" if raw.strip() else "it is empty"
    return EngineError(f"{place.address} sent {why}; {shown}", status=200, retryable=True)


def connection_error(place: Place, error: BaseException) -> EngineError:
    """The error for a call that got no whole answer: retryable, except where no try can get further."""
    import aiohttp

    address = place.address
    for cause in _causes(error):
        match cause:
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
                what = f"no trusted TLS connection to {address}: {place.look(str(cause))}"
                return EngineError(f"{what}; check the address and the server's certificate", fatal=True)
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                what = f"no connection to {address} through the proxy: {place.look(str(cause))}"
                return EngineError(f"{what}; check HTTP_PROXY and NO_PROXY", retryable=True)
            case aiohttp.ClientConnectorDNSError() | socket.gaierror():
                what = f"the host of {address} is not known"
                return EngineError(f"{what}; check the address and the network", retryable=True)
            case aiohttp.ServerDisconnectedError():
                what = f"{address} closed the connection before it answered"
                return EngineError(f"{what}; check the server's log", retryable=True)
            case aiohttp.ClientPayloadError():
                what = f"the reply of {address} broke off"
                return EngineError(f"{what}; check the server's log", retryable=True)
            case aiohttp.ClientResponseError():
                what = f"{address} sent something that is not HTTP: {place.look(cause.message)}"
                return EngineError(f"{what}; check the address", retryable=True)
            case OSError() if cause.errno is not None:
                return EngineError(_os_failure(address, cause), retryable=True)
    inner = error.__cause__ or error
    what = f"no readable reply from {address}: {place.look(str(inner) or type(inner).__name__)}"
    return EngineError(f"{what}; check the address and the server's log", retryable=True)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait in seconds that the answer asks for (`retry-after-ms`, or `retry-after` in seconds or as a
    date).
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            seconds = _until(value)
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def refuses_schema(error: EngineError) -> bool:
    """Whether the server says that it does not take the JSON schema of the request."""
    return error.status in (400, 422, 501) and error.kind == "engine" and bool(NO_SCHEMA.search(error.message))


def _until(date: str) -> float:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, OverflowError):
        return math.nan


def _said(place: Place, raw: bytes) -> tuple[str, str]:
    """The code and the message of an error's body, in whichever of the known forms it is."""
    try:
        body: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return "", place.look(raw)
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return "", place.look(raw)
    inner = body.get("error", body)
    if not isinstance(inner, dict):
        return "", place.look(str(inner))
    code = inner.get("code") if isinstance(inner.get("code"), str) else inner.get("type")
    said = inner.get("message") or inner.get("detail") or raw
    text = said if isinstance(said, str | bytes) else json.dumps(said, ensure_ascii=False)
    return code if isinstance(code, str) else "", place.look(text, 400)


def _refused(place: Place, status: int, text: str) -> str:
    if not place.keyed:
        return f"{place.address} wants an API key ({status}): {text}; set HELIX_API_KEY or OPENAI_API_KEY"
    return f"{place.address} refused the API key ({status}): {text}; check HELIX_API_KEY or OPENAI_API_KEY"


def _absent(place: Place, code: str, text: str, model: str | None) -> str:
    if code != "model_not_found" and "model" not in text.lower():
        return f"{place.address} has no chat completions (404): {text}; check the path of the address"
    if model in place.models:
        served = "the server lists it, so it may still be loading"
    else:
        served = name_help(model or "", place.models, "models served") if place.models else "name another with --model"
    return f"{place.address} does not serve the model `{model}` (404): {text}; {served}"


def _os_failure(address: str, error: OSError) -> str:
    match error.errno:
        case errno.ECONNREFUSED:
            return f"nothing listens at {address} (connection refused); is the server running, and is the port right?"
        case errno.ECONNRESET | errno.EPIPE:
            return f"{address} reset the connection; check the server's log"
        case errno.EMFILE | errno.ENFILE:
            return f"too many open files on the way to {address}; lower --concurrency or raise `ulimit -n`"
    said = error.strerror or errno.errorcode.get(error.errno or 0, "unknown error")
    return f"no connection to {address}: {said}; check the address and the network"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, outermost first; each once."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
