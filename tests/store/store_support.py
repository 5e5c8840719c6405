"""A store, a journal and calls to try them with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helix.executor.store.journal import Journal, Record
from helix.executor.store.keys import Asked, Asking
from helix.executor.store.results import ResultStore

MODEL = {"name": "m", "revision": "1"}


def asking(parameters: dict[str, Any] | None = None, **options: Any) -> Asking:
    """What a step asks."""
    given = {"kind": "test", "label": "step", "stored": True} | options
    model = given.pop("model", MODEL)
    return Asking(model, parameters or {}, **given)


def asked(
    content: Any, ask: Asking | None = None, *, sample: int = 0, shared: bytes | None = b"s", **place: Any
) -> Asked:
    """One call."""
    where = {"row": 0, "place": "step", "turns": ()} | place
    return (ask or asking()).call(content, sample, shared=shared, **where)


def stored(folder: Path, values: dict[str, str], **options: Any) -> None:
    """Puts values into the store of a folder: prompts and their replies."""
    store = ResultStore(folder, **options)
    for prompt, text in values.items():
        call = asked(prompt)
        store.put(call.key, call.asking, text)
    store.close()


def found(folder: Path, *prompts: str, **options: Any) -> list[str | None]:
    """What a store has for prompts."""
    store = ResultStore(folder, **options)
    texts = [store.get(call.key, call.asking) for call in map(asked, prompts)]
    store.close()
    return texts


def kept(path: Path, *records: Record, **options: Any) -> None:
    """Writes records to a journal and closes it."""

    async def write() -> None:
        journal = Journal(path, **options)
        await asyncio.gather(*(journal.keep(record) for record in records))
        journal.close()

    asyncio.run(write())


def key(number: int) -> bytes:
    """A key of a journal."""
    return number.to_bytes(16, "big")
