"""What a running SGLang server is and does, read from its own account of itself (SGLang 0.5.23)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from helix.errors import EngineError
from helix.executor.engines.fields import positive
from helix.executor.engines.openai_errors import Place
from helix.executor.engines.sglang.http import Transport, together


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One server. `identity` tells the model from another, `revision` also how it is served, as far as that changes
    answers; neither says where. `kv_tokens` and `max_running` are those of each of its `ranks` (data-parallel workers).
    """

    model: str
    path: str
    identity: str
    revision: str = ""
    adapters: tuple[str, ...] = ()
    ranks: int = 1
    max_context: int | None = None
    kv_tokens: int | None = None
    max_running: int | None = None
    page: int = 1
    prefix_cache: bool = True
    cache_report: bool = False
    policy: str = ""
    eviction: str = ""
    orders_by_priority: bool = False
    low_first: bool = False
    preempts: bool = False
    mixes: bool = False
    device: str = ""
    seeded: bool = False  # whether a seed makes a sampled reply repeat
    native: str | None = None  # why prompts have to go through the chat endpoint; None: they need not

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a request may call the model by."""
        short = (name.rstrip("/").rpartition("/")[2] for name in (self.model, self.path))
        return tuple(dict.fromkeys((self.model, self.path, *short)))

    @property
    def pins(self) -> bool:
        """Whether the priority of a request keeps its prefix cached."""
        return self.eviction == "priority"


async def read_facts(transport: Transport, place: Place) -> Facts:
    """Asks the server. Raises EngineError where it does not answer, or is not one that can be used."""
    try:
        info = await transport.ask(place, "/server_info")
    except EngineError as error:
        if error.status not in (404, 405):
            raise
        what = f"{place.address} is not an SGLang server (it has no /server_info)"
        raise EngineError(f"{what}; for another server write --engine {place.address}/v1", fatal=True) from None
    about, listed, loads = await together(
        transport.ask(place, "/model_info"),
        transport.ask(place, "/v1/models"),
        _loads(transport, place),
    )
    for name, value in (("server_info", info), ("model_info", about), ("v1/models", listed)):
        if not isinstance(value, dict):
            raise EngineError(f"{place.address} sent no object for /{name}: {place.look(json.dumps(value))}")
    return facts_of(place, info, about, listed, loads)


async def read_identity(transport: Transport, place: Place) -> str:
    """What tells the served model from another, asked again: where it differs, the server was started anew."""
    about = await transport.ask(place, "/model_info")
    return _identity(about, about) if isinstance(about, dict) else ""


async def _loads(transport: Transport, place: Place) -> list[dict[str, Any]]:
    """What /v1/loads says of each rank; nothing where the server is older than it."""
    try:
        return rank_loads(await transport.ask(place, "/v1/loads?include=core,queues"))
    except EngineError as error:
        if error.status is None or error.overloaded:
            raise
        return []


def rank_loads(found: Any) -> list[dict[str, Any]]:
    """The entries of /v1/loads, in the order of their ranks."""
    entries = found.get("loads") if isinstance(found, dict) else None
    fit = [entry for entry in entries or [] if isinstance(entry, dict) and isinstance(entry.get("dp_rank"), int)]
    return sorted(fit, key=lambda entry: int(entry["dp_rank"]))


def facts_of(
    place: Place, info: dict[str, Any], about: dict[str, Any], listed: dict[str, Any], loads: list[dict[str, Any]]
) -> Facts:
    """The facts in what a server says. Raises EngineError (fatal) for a server that cannot answer alone."""
    if about.get("is_generation") is False or info.get("is_embedding") is True:
        raise EngineError(f"{place.address} serves an embedding model, which writes no text", fatal=True)
    half = str(info.get("disaggregation_mode") or "null")
    if half != "null":
        what = f"{place.address} is the {half} half of a pair of servers and does not answer alone"
        raise EngineError(f"{what}; write --engine http://ROUTER:PORT/v1", fatal=True)
    path = str(about.get("model_path") or info.get("model_path") or "")
    model = str(about.get("served_model_name") or info.get("served_model_name") or path)
    data = listed.get("data")
    entries = [e for e in data if isinstance(e, dict)] if isinstance(data, list) else []
    base = next((entry for entry in entries if entry.get("id") == model), entries[0] if entries else {})
    kv_tokens = [found for entry in loads if (found := positive(entry.get("max_total_num_tokens")))]
    running = [found for entry in loads if (found := positive(entry.get("max_running_requests")))]
    kv = min(kv_tokens, default=positive(info.get("max_total_num_tokens")))
    context = positive(base.get("max_model_len")) or positive(info.get("context_length"))
    policy = str(info.get("schedule_policy") or "")
    priorities = info.get("enable_priority_scheduling") is True
    return Facts(
        model=model,
        path=path,
        identity=_identity(about, info),
        revision=f"{_identity(about, info)} {_flags(info)}".strip(),
        adapters=tuple(str(entry["id"]) for entry in entries if entry.get("parent") and entry.get("id")),
        ranks=max(positive(info.get("dp_size")) or 1, len(loads)),
        max_context=min((found for found in (context, kv) if found is not None), default=None),
        kv_tokens=kv,
        max_running=min(running, default=positive(info.get("max_running_requests"))),
        page=positive(info.get("page_size")) or 1,
        prefix_cache=info.get("disable_radix_cache") is not True,
        cache_report=info.get("enable_cache_report") is True,
        policy=policy,
        eviction=str(info.get("radix_eviction_policy") or ""),
        orders_by_priority=priorities,
        low_first=info.get("schedule_low_priority_values_first") is True,
        preempts=priorities and info.get("disable_priority_preemption") is not True,
        mixes=info.get("enable_mixed_chunk") is True,
        device=str(info.get("device") or ""),
        seeded=info.get("enable_deterministic_inference") is True,
        native=_why_not_native(info, about),
    )


def _identity(about: dict[str, Any], info: dict[str, Any]) -> str:
    """The model's path and version, without where it is served."""
    parts = [str(about.get("model_path") or info.get("model_path") or "")]
    parts += [str(about[name]) for name in ("served_model_name", "weight_version") if about.get(name)]
    return " ".join(dict.fromkeys(parts))


def _flags(info: dict[str, Any]) -> str:
    """The flags that change what a model answers."""
    names = ("revision", "quantization", "dtype", "kv_cache_dtype", "chat_template", "hf_chat_template_name")
    flags = (f"{name}={info[name]}" for name in names if info.get(name) not in (None, "auto"))
    return " ".join(flags)


def _why_not_native(info: dict[str, Any], about: dict[str, Any]) -> str | None:
    """Why a prompt that this engine writes itself would not be answered as the chat endpoint answers."""
    if about.get("reasoning_parser"):
        return f"it takes thoughts out of replies (--reasoning-parser {about['reasoning_parser']})"
    if about.get("has_image_understanding") or about.get("has_audio_understanding"):
        return "the model also reads images or sounds"
    template = info.get("chat_template")
    if template and not str(template).endswith((".jinja", ".jinja2")):
        return f"it has a chat template of another kind (--chat-template {template})"
    return None
