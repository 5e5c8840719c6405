"""What a server says about itself when the engine is opened: its models, its context, whether it counts
tokens.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Request
from helix.executor.engines.fields import positive

Counter = Literal["vllm", "llama.cpp", "llama.cpp template"]
# A GET (body None) or POST on a path below the base address, or on a whole address; raises EngineError.
Fetch = Callable[[str, dict[str, Any] | None], Awaitable[Any]]

PROBE = [{"role": "user", "content": "x"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served: the names, the model that is called where a request names none, and its context in
    tokens.
    """

    models: tuple[str, ...] = ()
    model: str | None = None
    max_context: int | None = None
    counter: Counter | None = None
    caches: bool = False
    salts: bool = False


async def probe(fetch: Fetch, base: str, address: str, model: str | None) -> Served:
    """Asks the server. Raises EngineError where it does not answer, OptionError where a model must be named."""
    entries = await _entries(fetch, base, address, model)
    names = tuple(entry["id"] for entry in entries)
    if model is None:
        if len(names) != 1:
            listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            what = f"serves several models: {listed}" if names else "does not list its models"
            raise OptionError(f"{address} {what}; name one with --model")
        model = names[0]
    entry = next((entry for entry in entries if entry["id"] == model), entries[0] if len(entries) == 1 else {})
    context = positive(entry.get("max_model_len"))
    counter: Counter | None = None
    root = base.removesuffix("/v1")
    owner = str(entry.get("owned_by"))
    if owner == "llamacpp":
        counter = await _llama_counter(fetch, root, model)
        meta = entry.get("meta")
        trained = meta if isinstance(meta, dict) else {}
        context = await _llama_context(fetch, root) or positive(trained.get("n_ctx") or trained.get("n_ctx_train"))
    elif owner == "vllm" and await _counts(fetch, f"{root}/tokenize", {"model": model, "messages": PROBE}, "count"):
        counter = "vllm"
    return Served(
        models=names,
        model=model,
        max_context=context,
        counter=counter,
        caches=owner == "llamacpp",
        salts=owner in ("vllm", "sglang"),
    )


async def listed(fetch: Fetch, base: str, address: str, model: str | None) -> tuple[str, ...]:
    """The names that the server lists; none where it has no such list. Raises EngineError where it does not answer."""
    return tuple(entry["id"] for entry in await _entries(fetch, base, address, model))


async def count(fetch: Fetch, base: str, counter: Counter, model: str | None, request: Request) -> int:
    """The prompt's tokens, counted by the server with its own chat template."""
    root = base.removesuffix("/v1")
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    if counter == "vllm":
        found = await fetch(f"{root}/tokenize", {"model": model, "messages": messages})
        return int(found["count"])
    if counter == "llama.cpp":
        found = await fetch(f"{root}/v1/chat/completions/input_tokens", {"model": model, "messages": messages})
        return int(found["input_tokens"])
    prompt = (await fetch(f"{root}/apply-template", {"messages": messages}))["prompt"]
    body = {"content": prompt, "add_special": True, "parse_special": True}
    return len((await fetch(f"{root}/tokenize", body))["tokens"])


async def tokenize(fetch: Fetch, base: str, counter: Counter, model: str | None, text: str) -> list[int]:
    """A text's tokens by the server's tokenizer, without those that a chat template adds."""
    root = base.removesuffix("/v1")
    body: dict[str, Any] = {"content": text, "add_special": False}
    if counter == "vllm":
        body = {"model": model, "prompt": text, "add_special_tokens": False}
    return [int(token) for token in (await fetch(f"{root}/tokenize", body))["tokens"]]


async def _entries(fetch: Fetch, base: str, address: str, model: str | None) -> list[dict[str, Any]]:
    """The entries of /models; empty where the server has no such list and a model was named."""
    try:
        found = await fetch("/models", None)
    except EngineError as error:
        if error.status not in (403, 404, 405, 501):
            raise
        if error.status == 404 and not base.endswith("/v1"):
            await _missing_v1(fetch, base, address)
        if error.status == 403 and model is None:
            raise
        return []
    listed = found.get("data") if isinstance(found, dict) else found
    entries = listed if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


async def _missing_v1(fetch: Fetch, base: str, address: str) -> None:
    """Raises where the server answers one step further down, at /v1."""
    try:
        await fetch(f"{base}/v1/models", None)
    except EngineError as error:
        if error.status not in (401, 403):
            return
    raise OptionError(f"{address} has no models, but {address}/v1 has; write --engine {address}/v1")


async def _llama_counter(fetch: Fetch, root: str, model: str) -> Counter | None:
    path = f"{root}/v1/chat/completions/input_tokens"
    if await _counts(fetch, path, {"model": model, "messages": PROBE}, "input_tokens"):
        return "llama.cpp"
    if await _counts(fetch, f"{root}/apply-template", {"messages": PROBE}, "prompt"):
        return "llama.cpp template"
    return None


async def _llama_context(fetch: Fetch, root: str) -> int | None:
    """The context of one slot: what a single call can use."""
    try:
        found = await fetch(f"{root}/props", None)
    except EngineError:
        return None
    settings = found.get("default_generation_settings") if isinstance(found, dict) else None
    return positive(settings.get("n_ctx")) if isinstance(settings, dict) else None


async def _counts(fetch: Fetch, path: str, body: dict[str, Any], key: str) -> bool:
    try:
        found = await fetch(path, body)
    except EngineError:
        return False
    return isinstance(found, dict) and key in found


def decoded(raw: bytes) -> Any:
    """The JSON value of a body. Raises ValueError where it is none, whatever is wrong with it."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
