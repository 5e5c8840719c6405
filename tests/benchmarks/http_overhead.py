"""What a call over HTTP costs in CPU: the bare `openai` client, our engines, and a whole run, on servers that answer
at once.

Run as `python tests/benchmarks/http_overhead.py [CALLS] [IN_FLIGHT]`. The servers are processes of their own; that for
OpenAI's protocol sends one fixed reply. Printed per way: milliseconds of this process's CPU per call
(`time.process_time`) and calls per second, the median of the rounds, which take turns so that a noisy moment hits all
alike.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path

import helix as hx
from helix.executor.engines.base import Message, Request
from helix.executor.engines.openai import OpenAIEngine
from helix.executor.engines.sglang import SGLangEngine

ROUNDS = 5
WORKFLOW = """
workflow one(text: text)
reply = llm(max_tokens: 64) { system "You are terse." user "{{ text }}" }
output reply
"""
TEXT = "Summarise the complaint below in one sentence. " * 10
REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "The parcel came late and open."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 120, "completion_tokens": 8, "total_tokens": 128},
}
MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "here"}]}


def main(calls: int, in_flight: int) -> None:
    """Measures and prints."""
    inner, outer = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    servers = [context.Process(target=target, args=(inner,), daemon=True) for target in (serve, serve_sglang)]
    ports = []
    try:
        for server in servers:
            server.start()
            ports.append(outer.recv())
        asyncio.run(measure(f"http://127.0.0.1:{ports[0]}/v1", f"sglang://127.0.0.1:{ports[1]}", calls, in_flight))
    finally:
        for server in servers:
            server.terminate()
            server.join()


async def measure(url: str, sglang: str, calls: int, in_flight: int) -> None:
    """Takes turns between the ways and prints the medians."""
    import openai

    bare = openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0)
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": TEXT}]
    engine = OpenAIEngine(url, api_key="key")
    await engine.open(concurrency=in_flight)
    native = SGLangEngine(sglang)
    await native.open(concurrency=in_flight)
    assert native._native
    request = Request(
        model=None,
        messages=tuple(Message(role=item["role"], content=item["content"]) for item in messages),
        temperature=0.0,
        max_tokens=64,
    )

    async def with_client() -> object:
        return await bare.chat.completions.create(model="m", messages=messages, temperature=0.0, max_tokens=64)  # type: ignore[arg-type]

    async def with_engine() -> object:
        return await engine.generate(request)

    async def with_sglang() -> object:
        return await native.generate(request)

    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "bare openai client": with_client,
        "OpenAIEngine": with_engine,
        "SGLangEngine": with_sglang,
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for call in ways.values():
        await drive(call, in_flight * 2, in_flight)
    taken["whole run"] = []
    for _ in range(ROUNDS):
        for name, call in ways.items():
            taken[name].append(await drive(call, calls, in_flight))
        taken["whole run"].append(await run(url, calls, in_flight))
    print(f"{calls} calls, {in_flight} in flight, median of {ROUNDS} rounds")
    for name, rounds in taken.items():
        cpu = statistics.median(cpu for cpu, _ in rounds)
        rate = statistics.median(rate for _, rate in rounds)
        print(f"{name:20} {cpu:6.3f} ms CPU per call  {rate:6.0f} calls/s")
    await engine.close()
    await native.close()
    await bare.close()


async def run(url: str, calls: int, in_flight: int) -> tuple[float, float]:
    """As `drive`, for a run of a workflow of one step: rows in, prompts rendered, replies parsed, a table out."""
    workflow = hx.loads(WORKFLOW)
    rows = [{"text": f"{number} {TEXT}"} for number in range(calls)]
    cpu, wall = time.process_time(), time.perf_counter()
    result = await workflow.arun(rows, engine=url, concurrency=in_flight)
    assert result.report.calls == calls
    return (time.process_time() - cpu) / calls * 1000, calls / (time.perf_counter() - wall)


async def drive(call: Callable[[], Awaitable[object]], calls: int, in_flight: int) -> tuple[float, float]:
    """Milliseconds of CPU per call, and calls per second."""
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await call()

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return (time.process_time() - cpu) / calls * 1000, calls / (time.perf_counter() - wall)


def serve(pipe: Connection) -> None:
    """Answers every request with the fixed reply."""

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(forever())


def serve_sglang(pipe: Connection) -> None:
    """Answers as SGLang does (tests/engines/fake_sglang.py), and keeps nothing."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "engines"))
    from fake_sglang import FakeSGLang

    with FakeSGLang(info={"disable_radix_cache": True, "max_running_requests": 4096}) as server:
        pipe.send(server.port)
        threading.Event().wait()


class Answering(asyncio.Protocol):
    """One connection of the server."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.waiting = b""

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while (end := self.waiting.find(b"\r\n\r\n")) >= 0:
            head = self.waiting[:end].lower()
            _, _, length = head.partition(b"content-length:")
            whole = end + 4 + (int(length.split(b"\r\n")[0]) if length else 0)
            if len(self.waiting) < whole:
                return
            self.waiting = self.waiting[whole:]
            self.transport.write(ANSWERS[b"post" if head.startswith(b"post") else b"get"])  # type: ignore[attr-defined]


def _answer(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


ANSWERS = {b"post": _answer(REPLY), b"get": _answer(MODELS)}


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:3]]
    main(*(numbers + [2000, 64][len(numbers) :]))
