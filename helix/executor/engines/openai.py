"""The engine for OpenAI-compatible servers: vLLM, SGLang, llama.cpp, OpenAI and other clouds, at
`http(s)://.../v1`.

Calls go through the `openai` client over its aiohttp transport. Replies are read as plain JSON rather than as
the client's response models: a call then costs a third of the CPU (tests/benchmarks/http_overhead.py measures
it). The client's own retries and timeouts are off; the executor retries, and times out by cancelling, which
closes the connection.

The model is `model`, else the one the server serves. Output schemas go out as `response_format` of type
`json_schema` with strict decoding; a server that refuses a schema is asked again without it, the schema is
remembered for the run, and `notes` says so once: replies are then only checked by the executor. Likewise
`max_tokens` becomes `max_completion_tokens` for servers that ask for that.

Context: `max_model_len` of vLLM and SGLang, a slot's context of llama.cpp. Token counts: vLLM and llama.cpp.
Keys never appear in an error, a note, or a repr. Proxies from the environment are used, except for this
machine.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from helix.errors import EngineError, OptionError, name_help
from helix.executor.engines.base import Capabilities, FinishReason, Reply, Request
from helix.executor.engines.fields import clean_text, count_of, schema_key
from helix.executor.engines.hosts import is_local
from helix.executor.engines.openai_calls import TOOL_PROBE, read_calls, shown_message
from helix.executor.engines.openai_errors import Place, connection_error, malformed, refuses_schema, reply_error
from helix.executor.engines.openai_probe import Served, count, decoded, listed, probe, tokenize

if TYPE_CHECKING:
    from openai import AsyncOpenAI

FINISH: dict[Any, FinishReason] = {
    None: "stop",
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool",
    "function_call": "tool",
}
# Servers on uvicorn close an idle connection after five seconds; a call on one just closed would be lost.
IDLE_SECONDS = 4.0
READY_PAUSE = 0.25  # seconds between looks at a server that is still loading its model


class OpenAIEngine:
    """An OpenAI-compatible server. `notes` holds what a report should say about how it was used."""

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        name: str | None = None,
        max_tokens: int | None = None,
        open_timeout: float = 10.0,
        tenant: str | None = None,
    ) -> None:
        """`max_tokens` is for requests that name none; `open_timeout` is the time in seconds that `open` may
        take. Calls of another `tenant` share no cached prefix with these, where the server can keep them apart.

        No key is looked for in the environment. Raises OptionError for an address or a key that cannot be
        one.
        """
        parts = _split(base_url)
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._name = name or self._base
        self._local = is_local(parts.hostname or "")
        self._query = dict(parse_qsl(parts.query))
        self._authorization, secrets = _authorization(parts, api_key)
        self._place = Place(address=self._name, secrets=secrets, keyed=self._authorization is not None)
        self._model = model
        self._max_tokens = max_tokens
        self._open_timeout = open_timeout
        self.tenant = tenant
        self._client: AsyncOpenAI | None = None
        self._served = Served(model=model)
        self._loading: EngineError | None = None
        self._limit = "max_tokens"
        self._refused: set[str] = set()
        self.notes: list[str] = []

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._name!r}, model={self._model!r})"

    @property
    def name(self) -> str:
        """The address, without user, password and query."""
        return self._name

    async def open(self, *, concurrency: int) -> Capabilities:
        """Looks at the server and picks the model. A pool of `concurrency` connections is opened as calls
        need them.
        """
        self._client = self._connected(concurrency)
        try:
            async with asyncio.timeout(self._open_timeout):
                served = await self._ready()
        except TimeoutError:
            await self.close()
            said = "" if self._loading is None else f" ({self._loading.message})"
            what = f"{self._name} was not ready in {self._open_timeout:g} seconds{said}"
            raise EngineError(f"{what}; is the server running and reachable?", fatal=True) from None
        except EngineError as error:
            await self.close()
            raise EngineError(error.message, status=error.status, fatal=True, kind=error.kind) from None
        except BaseException:
            await self.close()
            raise
        self._served = served
        if self.tenant is not None and not served.salts:
            what = f"{self._name} cannot be told to keep the cached prefixes of tenants apart"
            self.notes.append(f"{what}; SGLang and vLLM can")
        place = self._place
        self._place = Place(address=place.address, secrets=place.secrets, keyed=place.keyed, models=served.models)
        return Capabilities(
            max_context=served.max_context,
            schema_decoding=True,
            reports_cached_tokens=served.caches,
            counts_tokens=served.counter is not None,
            models=served.models,
            model=served.model,
            tool_calls=None,
        )

    async def calls_tools(self) -> bool:
        """Asks a question that wants a tool: whether the server takes tools and reads the model's call of one."""
        try:
            reply = await self.generate(TOOL_PROBE)
        except EngineError as error:
            if error.status in (400, 404, 405, 422, 500, 501):
                return False
            raise
        return bool(reply.calls)

    async def look(self) -> None:
        """Looks whether the server answers again, with the model that it had. Raises EngineError."""
        model, before = self._served.model, self._served.models
        names = await listed(self._fetch, self._base, self._name, model)
        if before and not names:
            raise EngineError(f"{self._name} does not list its models", retryable=True)
        if model in before and model not in names:
            what = f"{self._name} came back without the model `{model}`"
            raise EngineError(f"{what}; {name_help(model or '', names, 'models served')}", fatal=True)

    async def generate(self, request: Request) -> Reply:
        """One chat completion."""
        constrained = request.schema is not None
        if constrained and self._refused:
            constrained = schema_key(request.schema) not in self._refused
        limit, refusal = self._limit, None
        while True:
            try:
                reply = await self._complete(request, constrained, limit)
            except EngineError as error:
                if error.status == 400 and limit == "max_tokens" and "max_completion_tokens" in error.message:
                    limit = "max_completion_tokens"
                elif constrained and refuses_schema(error):
                    constrained, refusal = False, error
                else:
                    raise
            else:
                self._limit = limit
                if refusal is not None:
                    self._refuse(request, refusal)
                return reply

    async def count_tokens(self, request: Request) -> int:
        """The prompt's tokens as the server counts them, chat template included."""
        counter = self._served.counter
        if counter is None:
            raise EngineError(f"{self._name} does not count tokens")
        try:
            return await count(self._fetch, self._base, counter, request.model or self._served.model, request)
        except (KeyError, TypeError, ValueError):
            raise EngineError(f"{self._name} gave no token count", retryable=True) from None

    async def tokenize(self, text: str) -> list[int]:
        """A text's tokens, without those of the chat template; only where `counts_tokens` is set."""
        counter = self._served.counter
        if counter is None:
            raise EngineError(f"{self._name} does not count tokens")
        try:
            return await tokenize(self._fetch, self._base, counter, self._served.model, text)
        except (KeyError, TypeError, ValueError):
            raise EngineError(f"{self._name} gave no tokens", retryable=True) from None

    async def close(self) -> None:
        """Closes the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _connected(self, concurrency: int) -> AsyncOpenAI:
        import openai

        limits = type(openai.DEFAULT_CONNECTION_LIMITS)(
            max_connections=concurrency, max_keepalive_connections=concurrency, keepalive_expiry=IDLE_SECONDS
        )
        return openai.AsyncOpenAI(
            base_url=self._base,
            api_key="unused",  # the client insists on one; the header below is what is sent
            max_retries=0,
            timeout=None,
            default_headers={"Authorization": self._authorization} if self._authorization else None,
            default_query=self._query or None,
            http_client=openai.DefaultAioHttpClient(timeout=None, limits=limits, trust_env=not self._local),
        )

    async def _ready(self) -> Served:
        """What is served; waits for a server that is still loading or busy, as long as `open` may take."""
        self._loading = None
        while True:
            try:
                return await probe(self._fetch, self._base, self._name, self._model)
            except EngineError as error:
                if error.status != 425 and not error.overloaded:
                    raise
                self._loading = error
            await asyncio.sleep(READY_PAUSE)

    async def _complete(self, request: Request, constrained: bool, limit: str) -> Reply:
        body = self._body(request, constrained, limit)
        return self._reply(await self._send("/chat/completions", body), body.get("model"))

    def _body(self, request: Request, constrained: bool, limit: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model or self._served.model or "",
            "messages": [shown_message(message) for message in request.messages],
        }
        if request.tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in request.tools]
            body["tool_choice"] = "none" if request.answers_only else "auto"
        for name in ("temperature", "top_p", "seed"):
            value = getattr(request, name)
            if value is not None:
                body[name] = value
        max_tokens = request.max_tokens if request.max_tokens is not None else self._max_tokens
        if max_tokens is not None:
            body[limit] = max_tokens
        if request.stop:
            body["stop"] = list(request.stop)
        if self.tenant is not None and self._served.salts:
            body["cache_salt"] = self.tenant
        if constrained:
            schema = {"name": "reply", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body.update(request.extra)
        return body

    def _reply(self, raw: bytes, model: str | None) -> Reply:
        try:
            data = decoded(raw)
        except ValueError:
            raise malformed(self._place, raw, "a reply that is not JSON") from None
        try:
            choice = data["choices"][0]
            text = _text(choice["message"].get("content"))
            usage = data.get("usage") or {}
            details = usage.get("prompt_tokens_details") or {}
            return Reply(
                text=text,
                finish=FINISH.get(choice.get("finish_reason"), "other"),
                prompt_tokens=count_of(usage.get("prompt_tokens")),
                completion_tokens=count_of(usage.get("completion_tokens")),
                cached_tokens=count_of(details.get("cached_tokens")),
                calls=read_calls(choice["message"].get("tool_calls")),
            )
        except (KeyError, IndexError, TypeError, AttributeError):
            pass
        failure = data.get("error") if isinstance(data, dict) else None
        status = failure.get("code") if isinstance(failure, dict) else None
        if isinstance(status, int) and 400 <= status <= 599:
            raise reply_error(self._place, status, {}, raw, model)
        raise malformed(self._place, raw, "a reply without a message")

    async def _fetch(self, path: str, body: dict[str, Any] | None) -> Any:
        """The JSON value at a path; the errors are those of a call."""
        raw = await self._send(path, body)
        try:
            return decoded(raw)
        except ValueError:
            raise malformed(self._place, raw, f"something that is not JSON for {path}") from None

    async def _send(self, path: str, body: dict[str, Any] | None) -> bytes:
        """The body of the answer. Every failure but cancellation becomes an EngineError without its cause
        attached: the causes hold the request, and with it the key."""
        import aiohttp
        import openai

        client = self._client
        if client is None:
            raise EngineError(f"{self._name} is not open", fatal=True)
        options: Any = {} if self._authorization else {"headers": {"Authorization": openai.Omit()}}
        try:
            if body is None:
                return cast(bytes, await client.get(path, cast_to=bytes, options=options))
            return cast(bytes, await client.post(path, cast_to=bytes, body=body, options=options))
        except openai.APIStatusError as error:
            response = error.response
            model = str((body or {}).get("model"))
            failure = reply_error(self._place, response.status_code, response.headers, response.content, model)
        except (openai.APIConnectionError, aiohttp.ClientError, OSError) as error:
            failure = connection_error(self._place, error)
        except (UnicodeEncodeError, TypeError, ValueError) as error:
            why = self._place.look(str(error))
            failure = EngineError(f"the request cannot be written as JSON in UTF-8: {why}")
        raise failure

    def _refuse(self, request: Request, error: EngineError) -> None:
        self._refused.add(schema_key(request.schema))
        step = f"the schema of step `{request.step}`" if request.step else "an output schema"
        note = f"{self._name} refused {step}, so replies are checked but not constrained: {error.message}"
        if note not in self.notes:
            self.notes.append(note)


def _text(content: Any) -> str:
    """The text of a message: a text, null, or the list of parts that some servers send."""
    if content is None:
        return ""
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content if part.get("type", "text") == "text")
    return clean_text(content)


def _split(base_url: str) -> SplitResult:
    """The parts of an address. The message of an error shows no more of it than what a person must see to
    mend it.
    """
    try:
        parts = urlsplit(base_url.strip())
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        shown = base_url.rpartition("@")[2].partition("?")[0]
        raise OptionError(f"not an address of a server: `{shown}`; expected http://HOST:PORT/v1 or https://HOST/v1")
    for tail in ("/chat/completions", "/completions", "/models"):
        path = parts.path.rstrip("/")
        if path.endswith(tail):
            raise OptionError(f"the address goes too far: leave out `{tail}` at its end")
    return parts


def _authorization(parts: SplitResult, api_key: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The header to send, and the secrets in it: the key, else the user and password of the address."""
    key = (api_key or "").strip()
    password = unquote(parts.password or "")
    if not all("!" <= char <= "~" for char in key):
        raise OptionError("the API key holds a space or a character that is not ASCII; check HELIX_API_KEY")
    secrets = tuple(sorted((text for text in (key, password, parts.password or "") if len(text) > 3), key=len))[::-1]
    if key:
        return f"Bearer {key}", secrets
    if parts.username is None:
        return None, secrets
    pair = f"{unquote(parts.username)}:{password}"
    coded = b64encode(pair.encode()).decode()
    return f"Basic {coded}", (coded, *secrets)
