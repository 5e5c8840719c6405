"""The bodies of calls, for SGLang's own endpoint and the OpenAI-compatible one, and the replies in their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from helix.errors import EngineError
from helix.executor.engines.base import FinishReason, Message, Reply, Request
from helix.executor.engines.failures import status_error
from helix.executor.engines.fields import clean_text, count_of
from helix.executor.engines.openai_errors import Place, malformed
from helix.executor.engines.openai_probe import decoded
from helix.executor.engines.sglang.ranks import Worker

FINISH: dict[Any, FinishReason] = {"stop": "stop", "length": "length", "tool_calls": "tool"}
# Fields of `extra` that stand among the sampling parameters of /generate, and those that stand beside them. All others
# are fields of the chat endpoint, which such calls go through.
SAMPLING = frozenset(
    (
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "min_new_tokens",
        "regex",
        "ebnf",
        "structural_tag",
        "ignore_eos",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "no_stop_trim",
        "logit_bias",
        "custom_params",
        "stop_token_ids",
        "stop_regex",
    )
)
BESIDE = frozenset(("lora_path", "session_id", "session_params", "custom_logit_processor"))
# Those of them that decide how the next token of a whole batch is drawn.
DRAWING = frozenset(("top_k", "min_p"))
# What SGLang samples with where nothing is asked for. The chat endpoint takes these from a file of the model instead,
# so it is told them: a call means the same whichever way it goes.
PLAIN = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What a call carries beside its prompt: its id for an abort, its worker, its tenant, its priority."""

    rid: str
    worker: Worker
    tenant: str | None = None
    priority: int | None = None

    def fields(self) -> dict[str, Any]:
        """As fields of a body, the same for both endpoints."""
        found: dict[str, Any] = {"rid": self.rid}
        if self.worker.routed is not None:
            found["routed_dp_rank"] = self.worker.routed
        if self.tenant is not None:
            found["extra_key"] = self.tenant
        if self.priority is not None:
            found["priority"] = self.priority
        return found


def is_native(request: Request) -> bool:
    """Whether all that a request asks for can be asked for at /generate."""
    return all(name in SAMPLING or name in BESIDE for name, _ in request.extra)


def native_body(
    request: Request, text: str, routing: Routing, constrained: bool, max_tokens: int | None
) -> dict[str, Any]:
    """The body for /generate."""
    # A number is always sent: left out it would be 128, null is what the context holds.
    sampling: dict[str, Any] = {"max_new_tokens": _most(request, max_tokens), **_drawing(request, seed="sampling_seed")}
    if request.stop:
        sampling["stop"] = list(request.stop)
    if constrained:
        sampling["json_schema"] = json.dumps(request.schema, ensure_ascii=False)
    body: dict[str, Any] = {"text": text, "sampling_params": sampling, **routing.fields()}
    for name, value in request.extra:
        (sampling if name in SAMPLING else body)[name] = value
    return body


def warm_body(request: Request, ids: list[int], routing: Routing) -> dict[str, Any]:
    """The body for /generate that computes a prompt and generates nothing.

    It draws tokens as the calls behind it do: SGLang picks those of a whole batch in the most general way that any call
    in it has wanted since the batch began. Passes of a greedy batch take a third longer then, on a CPU.
    """
    sampling = {"max_new_tokens": 0, **_drawing(request, seed="sampling_seed")}
    return {"input_ids": ids, "sampling_params": sampling, **routing.fields()}


def chat_body(
    request: Request, model: str, routing: Routing, constrained: bool, max_tokens: int | None, *, plain: bool
) -> dict[str, Any]:
    """The body for /v1/chat/completions; `plain` leaves no sampling field to the model's own file."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "return_meta_info": True,
        **(PLAIN if plain else {}),
        **_drawing(request),
        **routing.fields(),
    }
    most = _most(request, max_tokens)
    if most is not None:
        body["max_tokens"] = most
    if request.stop:
        body["stop"] = list(request.stop)
    if constrained:
        schema = {"name": "reply", "strict": True, "schema": request.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    body.update(request.extra)
    return body


def warm_chat_body(
    request: Request, messages: tuple[Message, ...], model: str, routing: Routing, *, plain: bool
) -> dict[str, Any]:
    """The body for /v1/chat/completions that computes a prompt, where a server tells no tokens; see `warm_body`."""
    return {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "max_tokens": 1,
        "return_meta_info": True,
        **(PLAIN if plain else {}),
        **_drawing(request),
        **routing.fields(),
    }


def native_reply(place: Place, raw: bytes, worker: Worker) -> Reply:
    """The reply in an answer of /generate. Raises EngineError."""
    data = _object(place, raw)
    text, meta = data.get("text"), data.get("meta_info")
    if not isinstance(text, str) or not isinstance(meta, dict):
        raise malformed(place, raw, "a reply without a text")
    return _reply(place, text, meta, worker)


def chat_reply(place: Place, raw: bytes, worker: Worker) -> Reply:
    """The reply in a chat completion. Raises EngineError."""
    data = _object(place, raw)
    try:
        choice = data["choices"][0]
        text = choice["message"].get("content") or ""
        usage = data.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        meta: dict[str, Any] = {
            "prompt_tokens": usage.get("prompt_tokens"),
            "completion_tokens": usage.get("completion_tokens"),
            "cached_tokens": details.get("cached_tokens"),
            **(choice.get("meta_info") or {}),
            "finish_reason": {"type": choice.get("finish_reason") or "stop"},
        }
    except (KeyError, IndexError, TypeError, AttributeError):
        raise malformed(place, raw, "a reply without a message") from None
    if not isinstance(text, str):
        raise malformed(place, raw, "a reply without a message")
    return _reply(place, text, meta, worker)


def _drawing(request: Request, *, seed: str = "seed") -> dict[str, Any]:
    """How a request has its tokens drawn, as far as it says."""
    found = {"temperature": request.temperature, "top_p": request.top_p, seed: request.seed}
    found.update((name, value) for name, value in request.extra if name in DRAWING)
    return {name: value for name, value in found.items() if value is not None}


def _most(request: Request, max_tokens: int | None) -> int | None:
    return request.max_tokens if request.max_tokens is not None else max_tokens


def _object(place: Place, raw: bytes) -> dict[str, Any]:
    try:
        data = decoded(raw)
    except ValueError:
        raise malformed(place, raw, "a reply that is not JSON") from None
    if not isinstance(data, dict):
        raise malformed(place, raw, "a reply without a text")
    return data


def _reply(place: Place, text: str, meta: dict[str, Any], worker: Worker) -> Reply:
    reason = meta.get("finish_reason")
    reason = reason if isinstance(reason, dict) else {"type": reason or "stop"}
    if reason.get("type") == "abort":
        said = place.look(str(reason.get("message") or "no reason given"))
        status = reason.get("status_code")
        if isinstance(status, int) and 400 <= status < 600:
            raise status_error(status, f"{place.address} gave the call up ({status}): {said}")
        raise EngineError(f"{place.address} gave the call up: {said}", status=200, retryable=True)
    waited = meta.get("queue_time")
    return Reply(
        text=clean_text(text),
        finish=FINISH.get(reason.get("type"), "other"),
        prompt_tokens=count_of(meta.get("prompt_tokens")),
        completion_tokens=count_of(meta.get("completion_tokens")),
        cached_tokens=count_of(meta.get("cached_tokens")),
        rank=_rank(meta, worker),
        queue_seconds=float(waited) if isinstance(waited, int | float) and waited >= 0 else None,
    )


def _rank(meta: dict[str, Any], worker: Worker) -> int:
    """The worker that answered: the server says which of its own it was."""
    own = count_of(meta.get("dp_rank"))
    return worker.number if own is None or worker.routed is None else worker.number - worker.routed + own
