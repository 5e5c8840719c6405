"""The embedded engine: the life of its child process with a stand-in for the library, and the true model (marked)."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helix.errors import EngineError, OptionError
from helix.executor.engines import open_engine
from helix.executor.engines.base import Message, Request
from helix.executor.engines.embedded import EmbeddedEngine, engine
from helix.executor.engines.embedded.child import usable_cores
from helix.executor.engines.embedded.weights import ensure

HERE = Path(__file__).parent


def ask(text: str, **more: Any) -> Request:
    return Request(**{"model": None, "messages": (Message(role="user", content=text),), **more})


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-in for the library, which parent and child find first, and with model files."""
    shutil.copy(HERE / "fake_xllamacpp.py", tmp_path / "xllamacpp.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("good", "crash", "slow"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    return tmp_path


async def opened(path: Path, **options: Any) -> EmbeddedEngine:
    found = EmbeddedEngine(path, **options)
    await found.open(concurrency=4)
    return found


def pid_of(found: EmbeddedEngine) -> int:
    assert found._child is not None
    return found._child.pid


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def shown_of(pid: int) -> bytes:
    """What others can see of a process: its command and its environment."""
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not is_alive(pid):
            return True
        time.sleep(0.02)
    return False


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux
def test_a_run_from_start_to_end(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-parent")
    # Were the current folder on the child's path, this file would stand in the way of a module it needs.
    (fake / "here").mkdir()
    (fake / "here" / "json.py").write_text("raise SystemExit('wrong json')", encoding="utf-8")
    monkeypatch.chdir(fake / "here")

    async def run() -> dict[str, Any]:
        found = EmbeddedEngine(fake / "good.gguf", threads=3)
        capabilities = await found.open(concurrency=5)
        assert capabilities.models == ("good",)
        pid = pid_of(found)
        server = found._server
        assert server is not None
        assert str(server._authorization).removeprefix("Bearer ").encode() not in shown_of(pid)
        assert os.getsid(pid) == pid
        assert (await found.generate(ask("hello"))).text == "hello"
        settings: dict[str, Any] = json.loads((await found.generate(ask("settings"))).text)
        await found.close()
        await found.close()
        assert not is_alive(pid)
        return settings

    assert asyncio.run(run()) == {
        "n_ctx": 8192,
        "n_parallel": 1,
        "threads": 3,
        "connections": 13,
        "hosts": ["127.0.0.1"],
        "keys": [],
        "max_tokens": 1024,
    }


def test_a_model_that_does_not_load(fake: Path) -> None:
    with pytest.raises(EngineError) as caught:
        asyncio.run(opened(fake / "crash.gguf"))
    assert caught.value.fatal
    assert caught.value.message == (
        "the embedded engine ended before it was ready (exit code 1); it said last:\n"
        f"  noise on standard output\n  loading {fake / 'crash.gguf'}\n  E invalid magic characters\n"
        "  RuntimeError: Failed to init server"
    )


@linux
def test_a_model_that_never_finishes_loading(fake: Path) -> None:
    found = EmbeddedEngine(fake / "slow.gguf", start_timeout=1.5)
    pids: list[int] = []

    async def run() -> None:
        opening = asyncio.ensure_future(found.open(concurrency=1))
        await asyncio.sleep(0.5)
        pids.append(pid_of(found))
        await opening

    with pytest.raises(EngineError, match=r"was not ready after 1\.5 seconds; it said last:\n .*\n  loading") as caught:
        asyncio.run(run())
    assert caught.value.fatal
    assert not is_alive(pids[0])


@linux
def test_cancelling_the_start_ends_the_child(fake: Path) -> None:
    async def run() -> int:
        found = EmbeddedEngine(fake / "slow.gguf")
        opening = asyncio.ensure_future(found.open(concurrency=1))
        await asyncio.sleep(0.5)
        pid = pid_of(found)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        return pid

    assert not is_alive(asyncio.run(run()))


def test_a_child_that_dies_in_use(fake: Path) -> None:
    async def run() -> None:
        found = await opened(fake / "good.gguf")
        for text in ("die", "again"):
            with pytest.raises(EngineError) as caught:
                await found.generate(ask(text))
            assert caught.value.fatal
            assert caught.value.message.startswith(
                "the embedded engine ended while it was in use (exit code 7); it said"
            )
            assert caught.value.message.endswith("\n  E out of memory")
        await found.close()

    asyncio.run(run())


def test_an_interrupt_does_not_stop_a_call(fake: Path) -> None:
    async def run() -> str:
        found = await opened(fake / "good.gguf")
        call = asyncio.ensure_future(found.generate(ask("wait")))
        await asyncio.sleep(0.3)
        os.kill(pid_of(found), signal.SIGINT)
        reply = await call
        await found.close()
        return reply.text

    assert asyncio.run(run()) == "wait"


PARENT = """
import asyncio, os, sys, time
from helix.executor.engines.embedded import EmbeddedEngine
async def run():
    engine = EmbeddedEngine(sys.argv[1])
    await engine.open(concurrency=1)
    fork = os.fork() if sys.argv[2] == "fork" else 0
    if sys.argv[2] == "fork" and fork == 0:
        time.sleep(30)
        os._exit(0)
    print(engine._child.pid, fork, flush=True)
    time.sleep(30)
asyncio.run(run())
"""


@linux
@pytest.mark.parametrize("how", ["plain", "fork"])
def test_the_child_dies_with_its_parent_even_if_that_is_killed(fake: Path, how: str) -> None:
    command = [sys.executable, "-c", PARENT, str(fake / "good.gguf"), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, fork = (int(word) for word in parent.stdout.readline().split())
        assert is_alive(child)
        parent.kill()
        parent.wait()
        try:
            assert ends_within(child, 5)
        finally:
            if fork:
                os.kill(fork, signal.SIGKILL)


def test_calls_before_opening_and_after_closing(fake: Path) -> None:
    async def run() -> None:
        found = EmbeddedEngine(fake / "good.gguf")
        with pytest.raises(EngineError, match="is not open"):
            await found.generate(ask("x"))
        await found.open(concurrency=1)
        await found.close()
        with pytest.raises(EngineError, match="is not open"):
            await found.count_tokens(ask("x"))

    asyncio.run(run())


def test_the_library_is_not_installed(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'helix-workflows\[local\]'"):
        asyncio.run(opened(fake / "good.gguf"))


def test_files_that_are_no_models(fake: Path) -> None:
    (fake / "text.gguf").write_bytes(b"hello")
    for name, message in (
        ("absent.gguf", "cannot read the model file: No such file or directory"),
        (".", "cannot read the model file: Is a directory"),
        ("text.gguf", "not a GGUF file"),
    ):
        with pytest.raises(OptionError, match=message):
            asyncio.run(opened(fake / name))


def test_names() -> None:
    assert open_engine(None).name == "embedded"
    found = open_engine("embedded:~/models/a.gguf", quiet=True)
    assert (found.name, repr(found)) == ("embedded:~/models/a.gguf", "EmbeddedEngine('embedded:~/models/a.gguf')")


def test_a_person_who_starts_the_child_is_told_what_it_is() -> None:
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "helix.executor.engines.embedded"]
        found = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=30)
    finally:
        os.close(ours)
        os.close(theirs)
    assert found.returncode == 2
    assert found.stderr == "this is the child process of the embedded engine; run `helix run` instead\n"


def test_cores_are_those_we_may_use() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


# ---- the true model


@pytest.mark.embedded
class TestModel:
    """On SmolLM2-135M-Instruct, fetched on first use."""

    def test_a_second_start_is_quick_and_reads_the_context(self) -> None:
        ensure(quiet=True)

        async def run() -> float:
            found = EmbeddedEngine(quiet=True)
            start = time.monotonic()
            capabilities = await found.open(concurrency=2)
            taken = time.monotonic() - start
            await found.close()
            assert capabilities.max_context == 8192
            assert capabilities.counts_tokens
            assert capabilities.reports_cached_tokens
            assert capabilities.models == ("SmolLM2-135M-Instruct.Q4_1",)
            return taken

        # Half a second on a quiet machine; fetching or unpacking the weights again would take longer than this.
        assert min(asyncio.run(run()) for _ in range(2)) < 4

    def test_prefixes_are_cached_counts_are_right_and_long_prompts_are_named(self) -> None:
        async def run() -> None:
            found = EmbeddedEngine(quiet=True, context=1024)
            assert (await found.open(concurrency=8)).max_context == 1024
            shared = " ".join(f"Item {number} costs {number * 7 % 90}." for number in range(40))
            requests = [ask(f"{shared} Question {number}?", max_tokens=4, temperature=0.0) for number in range(8)]
            replies = await asyncio.gather(*(found.generate(request) for request in requests))
            for request, reply in zip(requests, replies, strict=True):
                assert reply.prompt_tokens == await found.count_tokens(request)
                assert reply.finish == "length"
                assert reply.completion_tokens == 4
            cached = sorted(reply.cached_tokens or 0 for reply in replies)
            assert cached[0] < 50, "the first computes the prefix"
            assert cached[1] > 350, "the others find it"
            long = ask("word " * 1500)
            assert await found.count_tokens(long) > 1024
            with pytest.raises(EngineError) as caught:
                await found.generate(long)
            assert caught.value.kind == "prompt.too_long"
            assert "1024" in caught.value.message
            await found.close()

        asyncio.run(run())

    def test_equal_calls_at_temperature_zero_repeat(self) -> None:
        async def run() -> list[str]:
            found = EmbeddedEngine(quiet=True)
            await found.open(concurrency=1)
            request = ask("Name three colours.", temperature=0.0, max_tokens=16)
            texts = [(await found.generate(request)).text for _ in range(4)]
            await found.close()
            return texts[1:]  # the first computes the prompt, the others find it in the cache

        assert len(set(asyncio.run(run()))) == 1

    def test_many_calls_at_once_are_all_answered(self) -> None:
        async def run() -> int:
            found = EmbeddedEngine(quiet=True)
            await found.open(concurrency=64)
            calls = [found.generate(ask(f"Say {number}.", max_tokens=2)) for number in range(64)]
            replies = await asyncio.gather(*calls)
            await found.close()
            return sum(reply.completion_tokens or 0 for reply in replies)

        assert asyncio.run(run()) > 64

    def test_a_cancelled_call_frees_the_model(self) -> None:
        async def run() -> float:
            found = EmbeddedEngine(quiet=True, max_tokens=6000)
            await found.open(concurrency=4)
            endless = ask("Count from one to a million.", extra=(("ignore_eos", True),))
            calls = [asyncio.ensure_future(found.generate(endless)) for _ in range(3)]
            await asyncio.sleep(0.5)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            start = time.monotonic()
            await found.generate(ask("Hi", max_tokens=2))
            await found.close()
            return time.monotonic() - start

        assert asyncio.run(run()) < 5

    def test_texts_survive_the_chat_template(self) -> None:
        async def run() -> None:
            found = EmbeddedEngine(quiet=True)
            await found.open(concurrency=1)
            for text in ('{"a": {"b": 1}} %s ${HOME} --- <|im_start|> \\', "ไทย 🎉", "\x00", ""):
                reply = await found.generate(ask(text, max_tokens=2))
                assert reply.prompt_tokens == await found.count_tokens(ask(text))
            await found.close()

        asyncio.run(run())

    def test_a_file_of_ones_own_and_one_that_is_cut_off(self, tmp_path: Path) -> None:
        own = ensure(quiet=True)
        (tmp_path / "own.gguf").symlink_to(own)
        with own.open("rb") as file:
            (tmp_path / "cut.gguf").write_bytes(file.read(5000))

        async def run(name: str) -> tuple[str, ...]:
            found = open_engine(f"embedded:{tmp_path / name}")
            try:
                return (await found.open(concurrency=1)).models
            finally:
                await found.close()

        assert asyncio.run(run("own.gguf")) == ("own",)
        with pytest.raises(EngineError, match=r"ended before it was ready \(exit code 1\); it said last:\n"):
            asyncio.run(run("cut.gguf"))

    def test_a_killed_child_is_named(self) -> None:
        async def run() -> None:
            found = EmbeddedEngine(quiet=True)
            await found.open(concurrency=1)
            call = asyncio.ensure_future(found.generate(ask("Count.", extra=(("ignore_eos", True),))))
            await asyncio.sleep(0.3)
            os.kill(pid_of(found), signal.SIGKILL)
            with pytest.raises(EngineError, match=r"ended while it was in use \(signal 9\)") as caught:
                await call
            assert caught.value.fatal
            await found.close()

        asyncio.run(run())
