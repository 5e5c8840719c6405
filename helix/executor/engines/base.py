"""What the executor asks of an engine: the requests, the replies, and the protocol itself.

An engine turns one request into one reply. It does not retry, count or order: the executor does. It raises
`EngineError` for everything that goes wrong on the engine's side, and lets `asyncio.CancelledError` through after it
has closed the request's connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

FinishReason = Literal["stop", "length", "tool", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat prompt: role `system`, `user` or `assistant`, and its text as the model shall see it."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call. Absent sampling fields (None) are left to the engine's own defaults.

    `schema` is the JSON Schema the reply must satisfy (None: free text); `sample` numbers the samples of one prompt.
    `step` and `row` say whose call it is, for logs and the scripted engine; they are never sent.
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
    row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. Token counts are the engine's own; None where it does not tell."""

    text: str
    finish: FinishReason = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do, read when it is opened; None where it does not tell.

    `max_context` is in tokens, prompt and reply together. `models` are the names it serves.
    """

    max_context: int | None = None
    schema_decoding: bool = False
    reports_cached_tokens: bool = False
    counts_tokens: bool = False
    models: tuple[str, ...] = field(default=())


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
