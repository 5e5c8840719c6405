"""The embedded engine: llama.cpp in a child process, by `xllamacpp`, called like any OpenAI-compatible server.

`embedded` serves SmolLM2-135M-Instruct, whose weights are fetched on first use (see `weights`);
`embedded:FILE.gguf` serves a file of your own. The model is tiny: it shows that a workflow runs, it does not
show good answers.

One slot, whatever the concurrency: calls queue in the server. Slots share no prefix, so several of them compute a
shared one several times. Measured on two cores, eight calls that share 1,080 tokens, 24 tokens of reply each: one
slot 4.1 s and 1,185 prompt tokens computed; four slots 12.1 s and 4,452. With the prefix already there 1.5 s against
2.1 s. Prompts that were pushed out of the slot are kept in `cache_mib` of memory: two prefixes of 1,090 tokens that
take turns cost 0.1 s a call with it, 2.8 s without.

Context: at most 8,192 tokens and at most what the model was trained for; 345 MB of memory with the default model,
and `cache_mib` on top when it is full. Threads: the cores this process may use. Replies without a limit of their own
stop after 1,024 tokens, as small models like to go on for ever. At temperature 0 replies repeat as long as the same
part of a prompt was in the cache; a prefix that is computed anew can change the last bits of the logits.
"""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import threading
from dataclasses import replace
from pathlib import Path

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Capabilities, Reply, Request
from helix.executor.engines.embedded.child import Child, usable_cores
from helix.executor.engines.embedded.revision import file_revision
from helix.executor.engines.embedded.weights import ensure
from helix.executor.engines.openai import OpenAIEngine

CONTEXT = 8192
MAX_TOKENS = 1024
CACHE_MIB = 1024
START_TIMEOUT = 120.0  # seconds; large files on slow disks take long
DYING_LOOK, DYING_LOOKS = 0.02, 25  # seconds, and how often
SPARE_CONNECTIONS = 8  # of the child's server: token counts must not wait behind calls


class EmbeddedEngine:
    """A model in a child process, which starts with `open` and ends with `close`, or with this process."""

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        quiet: bool = False,
        threads: int | None = None,
        context: int = CONTEXT,
        max_tokens: int = MAX_TOKENS,
        cache_mib: int = CACHE_MIB,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        """`path` is a GGUF file (None: the default model). `quiet`: no progress while the weights are fetched."""
        self._path = None if path is None else Path(path).expanduser()
        self._name = "embedded" if path is None else f"embedded:{path}"
        self._quiet = quiet
        self._threads = threads
        self._context = context
        self._max_tokens = max_tokens
        self._cache_mib = cache_mib
        self._start_timeout = start_timeout
        self._child: Child | None = None
        self._server: OpenAIEngine | None = None

    def __repr__(self) -> str:
        return f"EmbeddedEngine({self._name!r})"

    @property
    def name(self) -> str:
        """`embedded`, with the file if one was given."""
        return self._name

    @property
    def notes(self) -> list[str]:
        """What a report should say about how the engine was used."""
        return [] if self._server is None else self._server.notes

    async def open(self, *, concurrency: int) -> Capabilities:
        """Fetches the weights if need be, starts the child and waits until it serves."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise OptionError("the embedded engine is not installed: pip install 'helix-workflows[local]'")
        path = await self._weights()
        key = secrets.token_urlsafe(32)
        try:
            self._child = Child(
                {
                    "path": str(path),
                    "alias": path.stem,
                    "context": self._context,
                    "threads": self._threads or usable_cores(),
                    "connections": concurrency + SPARE_CONNECTIONS,
                    "cache_mib": self._cache_mib,
                    "key": key,
                }
            )
            loading = asyncio.to_thread(importlib.import_module, "openai")  # half a second, while the child loads too
            address, _ = await asyncio.gather(self._child.address(self._start_timeout), loading)
            self._server = OpenAIEngine(f"{address}/v1", path.stem, key, name=self._name, max_tokens=self._max_tokens)
            found = await self._server.open(concurrency=concurrency)
            # Small models do not keep to a chat template's tool calls; agents ask for them by a schema.
            return replace(found, tool_calls=False, revision=f"{file_revision(path)} max {self._max_tokens}")
        except BaseException:
            await self.close()
            raise

    async def generate(self, request: Request) -> Reply:
        """One chat completion; fatal where the child is gone."""
        server = self._running()
        try:
            return await server.generate(request)
        except EngineError as error:
            raise await self._explained(error) from None

    async def count_tokens(self, request: Request) -> int:
        """The prompt's tokens by the model's own tokenizer and chat template."""
        server = self._running()
        try:
            return await server.count_tokens(request)
        except EngineError as error:
            raise await self._explained(error) from None

    async def tokenize(self, text: str) -> list[int]:
        """A text's tokens by the model's own tokenizer, without those of the chat template."""
        server = self._running()
        try:
            return await server.tokenize(text)
        except EngineError as error:
            raise await self._explained(error) from None

    async def close(self) -> None:
        """Ends the child. Safe to call twice."""
        server, self._server = self._server, None
        child, self._child = self._child, None
        try:
            if server is not None:
                await server.close()
        finally:
            if child is not None:
                await child.close()

    def _running(self) -> OpenAIEngine:
        if self._server is None:
            raise EngineError(f"{self._name} is not open", fatal=True)
        return self._server

    async def _explained(self, error: EngineError) -> EngineError:
        """The error of a call, or the one that says that the child is gone, which is why."""
        child = self._child
        if error.status is None and error.retryable and child is not None:
            # The connection is seen to end a moment before the process is.
            for _ in range(DYING_LOOKS):
                if not child.is_running():
                    return child.ended("ended while it was in use")
                await asyncio.sleep(DYING_LOOK)
        return error

    async def _weights(self) -> Path:
        if self._path is not None:
            return await asyncio.to_thread(_checked, self._path)
        stop = threading.Event()
        try:
            return await asyncio.to_thread(ensure, quiet=self._quiet, stop=stop)
        except asyncio.CancelledError:
            stop.set()
            raise


def _checked(path: Path) -> Path:
    """The path, where it is a GGUF file."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise OptionError(f"embedded:{path}: cannot read the model file: {error.strerror or error}") from None
    if start != b"GGUF":
        raise OptionError(f"embedded:{path}: not a GGUF file")
    return path.absolute()
