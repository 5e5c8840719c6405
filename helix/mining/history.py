"""A session so far, as the miner looks at it: what was said, what was called, what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from helix.canonical import canonical_text
from helix.mining.texts import Text
from helix.traces.canonical import is_secret
from helix.traces.events import Event, LlmEvent

# The signature of a text of the user, and of what was before the beginning.
USER, START = "USER", "^"
# Values of a result beyond these are not looked at: a large table is no source of an argument.
MOST_LEAVES = 2_000
LONGEST_VALUE = 400
_LONG_KEY = 30


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in a result: its path with `*` for what varies, the record that it stands in (the keys and places of the
    path but the last, as they are), itself, and its canonical text. A varying key is a leaf too.
    """

    path: str
    record: tuple[str, ...]
    value: Any
    text: str


@dataclass(slots=True)
class Called:
    """A call that has ended."""

    tool: str
    args: dict[str, Any]
    result: Any
    ok: bool
    key: str
    turn: int
    _leaves: list[Leaf] | None = None
    _paths: dict[str, list[Leaf]] | None = None
    _records: dict[str, set[tuple[str, ...]]] | None = None
    _places: dict[str, list[tuple[str, int]]] | None = None

    def found(self) -> list[Leaf]:
        """The values of the result, taken apart once."""
        if self._leaves is None:
            self._leaves = [] if not self.ok else leaves_of(self.result)
        return self._leaves

    def paths(self) -> dict[str, list[Leaf]]:
        """The values of the result by their paths."""
        if self._paths is None:
            self._paths = {}
            for leaf in self.found():
                self._paths.setdefault(leaf.path, []).append(leaf)
        return self._paths

    def places(self) -> dict[str, list[tuple[str, int]]]:
        """Where each value, by its canonical text, stands in the result: paths, and places among the values there."""
        if self._places is None:
            self._places = {}
            counts: dict[str, int] = {}
            for leaf in self.found():
                place = counts.get(leaf.path, 0)
                counts[leaf.path] = place + 1
                self._places.setdefault(leaf.text, []).append((leaf.path, place))
        return self._places

    def records(self) -> dict[str, set[tuple[str, ...]]]:
        """The records of the result that hold each value, by the value's canonical text."""
        if self._records is None:
            self._records = {}
            for leaf in self.found():
                self._records.setdefault(leaf.text, set()).add(leaf.record)
        return self._records


class History:
    """One session so far. It only grows."""

    def __init__(self) -> None:
        self.signatures: list[str] = []
        self.calls: list[Called] = []
        self.texts: list[Text] = []
        self.model_text: Text | None = None
        # What came after the model's last text: nothing ("n"), a text of the user ("m") or a call ("c").
        self.since = ""
        self.latest: dict[str, Called] = {}
        self.fresh = False
        self._phrases: tuple[str, ...] | None = None
        self._used: dict[tuple[str, str], dict[str, int]] = {}
        self._args: dict[tuple[str, str], tuple[Any, str]] = {}

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """The history of events that have happened, in their order."""
        history = cls()
        for event in events:
            history.add(event)
        return history

    def add(self, event: Event) -> None:
        """Something happened. Of a decision all is taken in: its user texts and what the model said."""
        if isinstance(event, LlmEvent):
            for text in event.user:
                self.user(text)
            self.said(event.text)
        else:
            self.called(event.tool, event.args, event.result, ok=event.status == "ok")

    def user(self, text: str) -> None:
        """The user said something."""
        self.signatures.append(USER)
        self.texts.append(Text(text))
        self._phrases = None
        self.fresh = True
        self.since = "m"

    def said(self, text: str | None) -> None:
        """The model said something, with a call or without one."""
        if text:
            self.model_text = Text(text)
            self.since = "n"

    def called(self, tool: str, args: Mapping[str, Any], result: Any, *, ok: bool = True) -> None:
        """A call has ended; `ok` is false for an error."""
        held = dict(args)
        call = Called(tool, held, result, ok, call_key(tool, held), len(self.texts))
        self.signatures.append(tool if ok else f"{tool}!")
        self.calls.append(call)
        self.fresh = False
        self.since = "c"
        if ok:
            self.latest[tool] = call
        for name, value in held.items():
            if is_secret(value):
                continue
            text = canonical_text(value)
            self._args[tool, name] = self._args["*", name] = (value, text)
            known = self._used.setdefault((tool, name), {})
            known[text] = known.get(text, 0) + 1

    @property
    def phrases(self) -> tuple[str, ...]:
        """What the user's last two texts say, in words and pairs of words; one object until the user speaks again."""
        if self._phrases is None:
            self._phrases = tuple(sorted(frozenset().union(*(text.phrases for text in self.texts[-2:]))))
        return self._phrases

    def used(self, tool: str, name: str) -> Mapping[str, int]:
        """How often each value, as canonical text, was this argument of this tool."""
        return self._used.get((tool, name), {})

    def argument(self, tool: str, name: str) -> tuple[Any, str] | None:
        """The latest value of an argument, of one tool or (`*`) of any, and its canonical text; None where there is
        none."""
        return self._args.get((tool, name))

    def earlier(self) -> Iterable[tuple[tuple[str, str], str]]:
        """The canonical texts of all latest arguments by tool (or `*`) and name."""
        return ((argument, text) for argument, (_, text) in self._args.items())

    @property
    def turn_calls(self) -> list[Called]:
        """The calls since the user last spoke."""
        turn = len(self.texts)
        found = []
        for call in reversed(self.calls):
            if call.turn != turn:
                break
            found.append(call)
        return found[::-1]

    def context(self, order: int) -> tuple[str, ...]:
        """The last signatures, padded at the start."""
        held = self.signatures[-order:] if order else []
        return (START,) * (order - len(held)) + tuple(held)


def call_key(tool: str, args: Mapping[str, Any]) -> str:
    """The tool and its canonical arguments as one text: equal for equal calls."""
    return f"{tool}{canonical_text(dict(args))}"


def leaves_of(result: Any) -> list[Leaf]:
    """The values of a result with their paths; lists and objects with varying keys count as `*`."""
    found: list[Leaf] = []
    _walk(result, "", (), found)
    return found


@lru_cache(maxsize=20_000)
def _varies(name: str) -> bool:
    """Whether a key is data rather than the name of a field."""
    return len(name) > _LONG_KEY or any(each.isdigit() for each in name)


def _walk(value: Any, path: str, record: tuple[str, ...], found: list[Leaf]) -> None:
    if len(found) >= MOST_LEAVES:
        return
    if is_secret(value):
        return
    if isinstance(value, dict):
        for name in value:
            varies = _varies(name)
            inner = f"{path}.*" if varies else f"{path}.{name}"
            if varies and len(found) < MOST_LEAVES:
                found.append(Leaf(f"{path}~", record, name, canonical_text(name)))
            _walk(value[name], inner, (*record, name), found)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            _walk(item, f"{path}[]", (*record, str(place)), found)
    elif not (isinstance(value, str) and len(value) > LONGEST_VALUE) and value is not None:
        found.append(Leaf(path, record[:-1], value, canonical_text(value)))
