"""What the executor asks of an engine: the requests, the replies, and the protocol itself.

An engine turns one request into one reply. It does not retry, count or order: the executor does. It raises
`EngineError` for everything that goes wrong on the engine's side, and lets `asyncio.CancelledError` through after it
has closed the request's connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

FinishReason = Literal["stop", "length", "tool", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call of a tool as a model asks for it natively: `arguments` is JSON text as it came, `id` tells it apart."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat prompt: role `system`, `user` or `assistant`, and its text as the model shall see it.

    In dialogues with native tool calls a message of the assistant may hold `calls`, and one of the role `tool` is the
    result of the call that `answers` names.
    """

    role: str
    content: str
    calls: tuple[ToolUse, ...] = ()
    answers: str | None = None

    @property
    def shown(self) -> str:
        """All of it as one text, by which prompts are compared and told apart."""
        return shown(self.content, self.calls)


def shown(content: str, calls: tuple[ToolUse, ...]) -> str:
    """A message's text with the calls that it holds."""
    if not calls:
        return content
    return content + json.dumps([[call.id, call.name, call.arguments] for call in calls], ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call. Absent sampling fields (None) are left to the engine's own defaults.

    `schema` is the JSON Schema the reply must satisfy (None: free text); `sample` numbers the samples of one prompt.
    `step` and `row` say whose call it is, for logs and the scripted engine, `name` is the step with the positions of
    the items that the call is for, as records name it; they are never sent. `rank` is the worker that is to take the
    call (None: the engine chooses), `priority` says how long its prefix should stay cached, or how early it is to run;
    engines without either ignore them. `tools` are function definitions (`{name, description, parameters}`) for native
    tool calls; with `answers_only` the model may not call any. Of a warm-up, `follows` are some of the texts that
    prompts go on with behind it, a few characters each (none: anything may follow).
    """

    model: str | None
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    extra: tuple[tuple[str, Any], ...] = ()
    sample: int = 0
    step: str = ""
    name: str = ""
    row: int = 0
    rank: int | None = None
    priority: int | None = None
    follows: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    answers_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. Token counts are the engine's own; None where it does not tell. `calls` are native tool calls.

    `rank` is the worker that answered, `queue_seconds` how long the call waited in the engine before its prefill.
    """

    text: str
    finish: FinishReason = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    rank: int | None = None
    queue_seconds: float | None = None
    calls: tuple[ToolUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do, read when it is opened; None where it does not tell.

    `max_context` is in tokens, prompt and reply together. `models` are the names it serves, `model` the one that
    answers requests that name none, `revision` what tells one build of the served model from another (part of what a
    stored result is known by).

    `ranks` are the workers that a request can be sent to, each with a prefix cache of its own that holds `kv_tokens`
    tokens in pages of `page` and runs `max_running` requests at once; beside them `decode_ranks` workers only decode
    what these have prefilled. `prefix_cache` says that prompts with an equal beginning share its computation, `warms`
    that the engine is a `WarmingEngine`.
    `keeps`: the priority of a request says how long its prompt stays cached, and nothing else. What was computed ahead
    then stays as long as the prompts of calls of the same priority that have ended.
    `pass_tokens` is what a pass of prefill costs beside its tokens, in tokens: below it, computing twice is cheaper.
    `mixes`: such a pass decodes too, so that it holds nobody up.
    `tool_calls` says that it takes tools and gives calls of its own (None: a `ProbingEngine` finds out).
    """

    max_context: int | None = None
    schema_decoding: bool = False
    reports_cached_tokens: bool = False
    counts_tokens: bool = False
    models: tuple[str, ...] = field(default=())
    model: str | None = None
    revision: str | None = None
    ranks: int = 1
    decode_ranks: int = 0
    kv_tokens: int | None = None
    page: int = 1
    max_running: int | None = None
    prefix_cache: bool = False
    warms: bool = False
    keeps: bool = False
    pass_tokens: float | None = None
    mixes: bool = False
    tool_calls: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a worker is doing: requests running and waiting, and the share of its KV cache that cannot be evicted."""

    rank: int
    running: int
    waiting: int
    held: float | None = None


class Engine(Protocol):
    """An engine. Opened once before the first call, closed once after the last; calls run concurrently in between."""

    @property
    def name(self) -> str:
        """The engine's address as a person writes it, without secrets."""

    async def open(self, *, concurrency: int) -> Capabilities:
        """Connects, sizes its pool for that many calls at once, and says what it can do. Raises EngineError."""

    async def generate(self, request: Request) -> Reply:
        """Makes the call. Raises EngineError; on cancellation closes the connection of the call."""

    async def count_tokens(self, request: Request) -> int:
        """The prompt's length in tokens, chat template included. Only called where `counts_tokens` is set."""

    async def close(self) -> None:
        """Releases everything; safe to call twice and after a failed open."""


class RestartableEngine(Engine, Protocol):
    """An engine that may go away in the middle of a run and come back, such as a server that is started again."""

    async def look(self) -> None:
        """Looks whether it answers again. Raises EngineError where not, a fatal one where it now serves another model
        than when it was opened.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """In how many steps of a workflow some call begins so next: with these messages, the last perhaps only in part."""

    messages: tuple[Message, ...]
    steps: int
    model: str | None = None


class HintedEngine(Engine, Protocol):
    """An engine whose cache can be told what is used next. No real one can; the simulated one stands in for them."""

    def take_hints(self) -> None:
        """Has the cache evict what is used again last; right after `open`."""

    def hint(self, hints: Iterable[Hint]) -> None:
        """Tells when beginnings of prompts are used next. Takes the place of the hints before."""


class ProbingEngine(Engine, Protocol):
    """An engine that only a call can tell of whether it has native tool calls."""

    async def calls_tools(self) -> bool:
        """Whether it has; asked once, where a plan has an agent. Raises EngineError where it does not answer."""


class WarmingEngine(Engine, Protocol):
    """An engine whose prefix cache can be filled before it is needed."""

    async def warm(self, request: Request) -> Reply:
        """Computes the beginning of prompts: the messages of the request, the last of them perhaps only in part, on its
        rank. Nothing is generated. Raises EngineError.
        """

    async def load(self) -> tuple[Load, ...]:
        """What each rank is doing now. Raises EngineError."""


def above(priority: int | None) -> int:
    """The priority of what is computed ahead, where priorities say how long prompts stay cached. SGLang has a prompt
    whose call has ended one above its reply; without a reply it would be pushed out before all of these.
    """
    return (priority or 0) + 1
