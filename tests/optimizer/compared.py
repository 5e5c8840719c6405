"""Runs plans on the scripted engine and compares what comes out: rows, order, values, errors in place, and calls.

Some prompts fail, chosen by their hash, so that equal prompts fail alike whoever asks; a tool fails for some arguments.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from helix.errors import EngineError
from helix.executor.engines.base import Message, Request
from helix.executor.engines.schema_value import schema_value
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.prompts import reply_schema
from helix.executor.run import Run
from helix.executor.settings import RunSettings
from helix.executor.tables import MemorySink, open_rows
from helix.logical import Generate, LogicalPlan
from helix.places import static_name
from helix.prefixes import literal_messages
from helix.types import JSON, TEXT, ListOf, Table, Type

PATIENCE = 60.0


def fraction(*parts: object) -> float:
    """A number from 0 to 1 that the parts alone decide."""
    raw = repr(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(raw, digest_size=4).digest()) / 2**32


@dataclass(kw_only=True)
class Tools:
    """The Python functions that random workflows declare, with a log of calls. `failing` is the share that raises.

    The tools are coroutines: on threads, which calls a limit comes in time to stop would be another in each run.
    """

    failing: float = 0.0
    log: list[tuple[str, str]] = field(default_factory=list)

    async def find(self, key: str) -> Any:
        self._note("find", key)
        return [None, key, {"f": key, "g": len(key)}, [key, "b"], 7][int(fraction("kind", key) * 5)]

    async def save(self, items: list[str]) -> list[str]:
        self._note("save", items)
        return items[::-1]

    def weigh(self, text: str) -> Any:
        """A pure function that does not keep its word: it is declared to give an int."""
        if fraction("weigh", text) < self.failing:
            raise ValueError("too heavy")
        return "heavy" if fraction("word", text) < 0.2 else len(text)

    def _note(self, name: str, argument: Any) -> None:
        self.log.append((name, json.dumps(argument)))
        if fraction(name, argument) < self.failing:
            raise ValueError(f"{name} does not like {argument!r}")

    @property
    def callables(self) -> dict[str, Callable[..., Any]]:
        return {"find": self.find, "save": self.save, "weigh": self.weigh}

    def calls(self, name: str) -> list[str]:
        """The arguments of the calls of a tool, sorted: in which order rows come is not said."""
        return sorted(argument for called, argument in self.log if called == name)


DECLARATIONS: Mapping[str, tuple[str, tuple[Type, ...], Type]] = {
    "find": ('tool find(key: text) -> json from python "lib:find" effects read', (TEXT,), JSON),
    "save": (
        'tool save(items: list[text]) -> list[text] from python "lib:save" effects write',
        (ListOf(TEXT),),
        ListOf(TEXT),
    ),
    # Two spellings of one query, a look-up that fails where the key is no JSON, and statements that a workflow writes.
    "sold": (
        'tool sold(who: text) -> table from sql "sqlite:shop.db" '
        'query "select id, total from orders where customer=:who"',
        (TEXT,),
        Table(),
    ),
    "bought": (
        'tool bought(who: text) -> table from sql "sqlite:shop.db" '
        'query "SELECT id , total FROM orders WHERE (customer = :who)"',
        (TEXT,),
        Table(),
    ),
    "parsed": (
        'tool parsed(who: text) -> table from sql "sqlite:shop.db" '
        'query "SELECT city, json(:who) AS v FROM people WHERE name = :who OR 1"',
        (TEXT,),
        Table(),
    ),
    "ask": ('tool ask(query: text) -> table from sql "sqlite:shop.db"', (TEXT,), Table()),
}
STATEMENTS = (
    "select count(*) n from orders o where ((o.total > 1))",
    "SELECT COUNT(*) AS n FROM orders AS o WHERE o.total > 1 -- all",
    "SELECT name, city FROM people",
    "SELECT json(name) FROM people",
)
SHOP = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL, day TEXT);
CREATE TABLE people (name TEXT, city TEXT);
"""


def make_shop(folder: Path) -> None:
    """Writes the database that the workflows' SQL tools read."""
    database = sqlite3.connect(folder / "shop.db")
    database.executescript(SHOP)
    names = ("red", "bug report", "42", "ไทย")
    orders = [(number, names[number % 4], number / 2, f"2026-01-{number + 10}") for number in range(12)]
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
    database.executemany("INSERT INTO people VALUES (?, ?)", [(name, name.upper()) for name in names])
    database.commit()
    database.close()


@cache
def _shop() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    make_shop(Path(folder.name))
    return folder


def shop() -> Path:
    """A folder with that database, which goes with the process."""
    return Path(_shop().name)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run gave: its rows, and what it took to make them."""

    rows: list[dict[str, Any]]
    calls: int
    prompt_tokens: int
    found: list[str]
    saved: list[str]


def answer(request: Request, *, failing: float, salt: int) -> str | None:
    """What the engine replies to a prompt; None where it does not like it."""
    # Parts that the author left unordered are lines of one message: their order is not to matter here.
    prompt = [(message.role, sorted(message.content.split("\n"))) for message in request.messages]
    # Steps that sample get replies of their own, whatever others ask.
    own = "" if request.temperature == 0 or request.seed is not None else static_name(request.step)
    seed = (salt, request.model, request.sample, prompt, own)
    if fraction(*seed) < failing:
        return None
    digest = blake2b(repr(seed).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if request.schema is None:
        return f"scripted {digest.hex()[:12]}"
    return json.dumps(schema_value(request.schema, digest))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A store that knows what the engine would reply to a prompt of literal text."""

    failing: float
    salt: int

    def reply(self, step: Generate) -> str | None:
        messages = tuple(Message(role=role, content=text) for role, text in literal_messages(step) or ())
        request = Request(model=step.model.name, messages=messages, schema=reply_schema(step.returns))
        return answer(request, failing=self.failing, salt=self.salt)


def run_plan(
    plan: LogicalPlan,
    rows: Sequence[Mapping[str, Any]],
    *,
    failing: float = 0.0,
    salt: int = 0,
    folder: Path | None = None,
    merge: bool = True,
) -> Outcome:
    """Runs a plan to its end. `failing` is the share of prompts that fail, `salt` changes which ones do; relative
    databases lie in `folder`. Without `merge` equal calls are made again instead of once.
    """
    tools = Tools(failing=failing)

    def reply(request: Any) -> Any:
        text = answer(request, failing=failing, salt=salt)
        return EngineError("the scripted engine does not like this prompt", status=400) if text is None else text

    engine = ScriptedEngine(reply=reply)

    async def main() -> list[dict[str, Any]]:
        source = open_rows([dict(row) for row in rows], plan.scan.columns, on_bad_row="keep")
        sink = MemorySink(tuple((name, value.type) for name, value in plan.sink.columns))
        run = Run(
            plan,
            source,
            sink,
            RunSettings(concurrency=2, merge=merge),
            open_engine=lambda address: engine,
            callables=tools.callables,
            folder=folder,
        )
        try:
            source.scan()
            await run.start()
            await run.finish()
            sink.commit()
        finally:
            await run.close()
            source.close()
        return sink.to_dicts()

    made = asyncio.run(asyncio.wait_for(main(), PATIENCE))
    for row in made:
        if row["_error"] is not None:
            del row["_error"]["skipped"]
    tokens = sum(
        -(-sum(len(m.content.encode("utf-8", "surrogatepass")) for m in r.messages) // 4) for r in engine.requests
    )
    return Outcome(
        rows=made, calls=engine.calls, prompt_tokens=tokens, found=tools.calls("find"), saved=tools.calls("save")
    )


def difference(
    plain: Outcome, better: Outcome, *, calls: bool = True, tokens: bool = True, effects: bool = True
) -> str | None:
    """What a run of an optimized plan did otherwise than the plain one; None where all is as it must be."""
    # As JSON: in Python 1, 1.0 and True are equal.
    if json.dumps(plain.rows) != json.dumps(better.rows):
        pairs = zip(plain.rows, better.rows, strict=False)
        first = next((pair for pair in pairs if json.dumps(pair[0]) != json.dumps(pair[1])), None)
        return f"the rows differ: {first or (len(plain.rows), len(better.rows))}"
    if effects and plain.saved != better.saved:
        return f"the calls with effects differ: {plain.saved} and {better.saved}"
    if calls and better.calls > plain.calls:
        return f"{better.calls} calls instead of {plain.calls}"
    if calls and len(better.found) > len(plain.found):
        return f"{len(better.found)} calls of the tool instead of {len(plain.found)}"
    if tokens and better.prompt_tokens > plain.prompt_tokens:
        return f"{better.prompt_tokens} prompt tokens instead of {plain.prompt_tokens}"
    return None
