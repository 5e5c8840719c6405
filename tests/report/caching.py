"""An engine with a prefix cache that never forgets, whose tokens are words: every figure of a report can be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helix.executor.engines.base import Capabilities, Message, Reply, Request
from helix.executor.engines.scripted import ScriptedEngine

TEMPLATE = 2  # tokens before each message, and one turn more at the end


class CachingEngine(ScriptedEngine):
    """Answers `reply`; tells exact tokens and what of a prompt it has computed before. `ranks` are used in turn."""

    def __init__(self, reply: str = "so it is", *, whole: bool = True, ranks: int = 1, **settings: Any) -> None:
        super().__init__(counts_tokens=True, **settings)
        self.answer = reply
        self.ranks = ranks
        self.words: dict[str, int] = {}
        self.asked = 0
        self._seen: list[set[tuple[int, ...]]] = [set() for _ in range(ranks)]
        if whole:
            self.tokenize_prompt = self._tokenize_prompt

    async def open(self, *, concurrency: int) -> Capabilities:
        told = await super().open(concurrency=concurrency)
        return Capabilities(
            max_context=told.max_context,
            counts_tokens=True,
            reports_cached_tokens=True,
            ranks=self.ranks,
            kv_tokens=5000,
        )

    def ids(self, text: str) -> list[int]:
        """A token for each word."""
        return [self.words.setdefault(word, 100 + len(self.words)) for word in text.split()]

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a prompt, its template included."""
        roles = {"system": 1, "user": 2, "assistant": 3}
        made: list[int] = []
        for message in messages:
            made += [roles[message.role], 9, *self.ids(message.content)]
        return [*made, 3, 9]

    async def tokenize(self, text: str) -> list[int]:
        """A text's tokens."""
        self.asked += 1
        return self.ids(text)

    async def _tokenize_prompt(self, messages: Sequence[Message]) -> list[int]:
        self.asked += 1
        return self.prompt(messages)

    async def count_tokens(self, request: Request) -> int:
        return len(self.prompt(request.messages))

    async def _answer(self, request: Request) -> Reply:
        tokens = self.prompt(request.messages)
        rank = self.calls % self.ranks
        seen = self._seen[rank]
        cached = 0
        while cached < len(tokens) and tuple(tokens[: cached + 1]) in seen:
            cached += 1
        seen.update(tuple(tokens[:end]) for end in range(1, len(tokens) + 1))
        return Reply(
            text=self.answer,
            prompt_tokens=len(tokens),
            cached_tokens=min(cached, len(tokens) - 1),
            completion_tokens=len(self.answer.split()),
            rank=rank if self.ranks > 1 else None,
            queue_seconds=0.0,
        )
