"""Workflows with one agent and a few tools, and the rules that its model follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import Ran, run

from helix.executor.engines.base import Request

TOOLS = """
import asyncio, json

async def orders(customer):
    await asyncio.sleep(0)
    if customer == "nobody":
        raise LookupError("no such customer")
    return [{"id": 7, "customer": customer}]

async def pay(amount, note="none"):
    with open("paid.txt", "a") as file:
        file.write(f"{amount} {note}\\n")
    if amount > 100:
        raise ValueError("too much")
    return {"paid": amount}

def long(size):
    return "x" * size

async def slow(seconds):
    await asyncio.sleep(seconds)
    return "done"
"""
DECLARED = """
tool orders(customer: text) -> json from python "shop:orders" effects read
tool pay(amount: int, note: text = "none") -> json from python "shop:pay" effects write
tool long(size: int) -> text from python "shop:long" effects pure
tool slow(seconds: float) -> text from python "shop:slow" effects read, timeout 50ms
"""
ROWS = [{"ticket": "customer ann"}]
BOTH = pytest.mark.parametrize("native", [False, True], ids=["schema", "native"])


def workflow(body: str, *, returns: str = "", tools: str = "orders, pay", options: str = "") -> str:
    """A workflow with one agent, `answer`."""
    arrow = f" -> {returns}" if returns else ""
    return (
        f"workflow w(ticket: text)\n{DECLARED}\n"
        f'answer = agent{options}{arrow} {{ tools [{tools}] system "Be kind." user "{{{{ ticket }}}}" {body} }}\n'
        "output answer\n"
    )


def calls(*asked: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls of a rule."""
    return [{"tool": tool, "args": args} for tool, args in asked]


def go(
    text: str, rules: list[dict[str, Any]], shop: Path, *, native: bool = False, rows: Any = ROWS, **more: Any
) -> Ran:
    return run(text, rows, rules=rules, settings={"tool_calls": native}, folder=shop, **more)


def tail(engine: Any, turn: int) -> str:
    """What the model was told last before a turn."""
    request = engine.requests[turn - 1]
    return "\n".join(
        message.content for message in request.messages[_last_said(request) + 1 :] if message.role != "assistant"
    )


def _last_said(request: Request) -> int:
    return max((at for at, message in enumerate(request.messages) if message.role == "assistant"), default=-1)
