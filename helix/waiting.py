"""Waiting for a coroutine from code that may or may not be inside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Made = TypeVar("_Made")


def waited(
    work: Coroutine[Any, Any, _Made], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> _Made:
    """The result of a coroutine, from outside a loop or inside one: there it gets a thread and a loop of its own.

    `loop_factory` makes the loop (None: an ordinary one).
    """

    def made() -> _Made:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(work)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return made()
    outcome: list[_Made] = []
    failure: list[BaseException] = []

    def run_apart() -> None:
        try:
            outcome.append(made())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run_apart, name="helix-run")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
