"""Where an argument may come from: functions of the history that fill it.

A function is a tuple of texts, so that it can be counted and kept. A date for which the user names no year has YEAR, or
where that is empty the year of the latest date in a call.

| Function | Gives |
|---|---|
| `const TEXT` | the value of this canonical text |
| `absent` | nothing: the argument is left out |
| `arg TOOL NAME` | the latest argument of that name, of one tool or (`*`) of any |
| `res TOOL PATH PICK` | a value in the tool's latest good result: first, last, next (not used here yet), 0 to 3 |
| `match TOOL PATH` | the value there that the user's last text mentions |
| `user SHAPE N`, `said SHAPE N` | the N-th latest token of that shape of the user, of the model's last text |
| `quoted N`, `name N`, `formula N` | the N-th latest quotation, name with capitals, formula in the user's texts |
| `quoted next`, `name next` | the first in the user's last text that was not used here yet |
| `number N KIND` | the N-th latest number, as int, float or text |
| `date N HOUR YEAR` | the N-th latest date as 2024-05-20, with HOUR after it: none, 00:00:00, or the n-th latest said |
| `span BEFORE AFTER` | what stands between two words of the user |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from helix.canonical import canonical_text
from helix.mining.history import Called, History, Leaf
from helix.mining.texts import Text, shape
from helix.traces.canonical import is_secret

Function = tuple[str, ...]
# A value with its canonical text.
Given = tuple[Any, str]


class _Absent:
    """Stands for an argument that is left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
NOTHING: Final = object()
LEFT_OUT: Function = ("absent",)
# User texts that are looked at, the last ones.
TURNS = 6
SPAN_TURNS = 2
_PICKS = 4
_NTH = 4
_DATE = re.compile(r"(\d{4})-\d{2}-\d{2}")
_MOMENT = re.compile(r"(\d{4})-\d{2}-\d{2} \d{2}:\d{2}:\d{2}")
# The parts of a text by kinds of functions.
_PARTS = {"quoted": "quoted", "name": "names", "formula": "formulas", "number": "numbers"}
# Hours that people do not say.
_HOURS = ("00:00:00", "23:59:59")


class Sources:
    """What the functions can see at one moment; each thing is looked up once."""

    def __init__(self, history: History, *, dates: bool = True) -> None:
        self.history = history
        self.texts: list[Text] = history.texts[: -TURNS - 1 : -1]
        self.with_dates = dates
        self._memo: dict[Function, Given | None] = {}
        self._lists: dict[tuple[str, ...], list[Any]] = {}
        self._year: int | None = -1

    def given(self, function: Function, tool: str, name: str) -> Given | None:
        """What a function gives for an argument, with its canonical text; None where it has no value."""
        memo = self._memo
        if function in memo:
            return memo[function]
        found = self._evaluate(function, tool, name)
        if function[-1] != "next":
            memo[function] = found
        return found

    def _evaluate(self, function: Function, tool: str, name: str) -> Given | None:
        kind = function[0]
        if kind == "res":
            leaf = self._picked(self.leaves(function[1], function[2]), function[3], tool, name)
            return None if leaf is None else (leaf.value, leaf.text)
        if kind == "const":
            return constant(function[1])
        if kind == "arg":
            return self.history.argument(function[1], function[2])
        if kind == "absent":
            return ABSENT, ""
        if kind == "match":
            leaf = self._mentioned(function[1], function[2])
            return None if leaf is None else (leaf.value, leaf.text)
        value = self._said(kind, function, tool, name)
        return None if value is NOTHING else (value, canonical_text(value))

    def _said(self, kind: str, function: Function, tool: str, name: str) -> Any:
        """A value in what was said."""
        if kind in ("user", "said"):
            return _nth(self.tokens(kind, function[1]), int(function[2]))
        if kind == "span":
            for text in self.texts[:SPAN_TURNS]:
                found = text.span(function[1], function[2])
                if found is not None:
                    return found
            return NOTHING
        if kind == "number":
            return self._number(int(function[1]), function[2])
        if kind == "date":
            return self._date(int(function[1]), function[2], function[3])
        if function[1] == "next":
            return self._unused(kind, tool, name)
        return _nth(self.found(kind), int(function[1]))

    def _unused(self, kind: str, tool: str, name: str) -> Any:
        """The first quotation or name of the last text that this argument did not have yet."""
        if not self.texts:
            return NOTHING
        used = self.history.used(tool, name)
        held = reversed(getattr(self.texts[0], _PARTS[kind]))
        return next((each for each in held if canonical_text(each) not in used), NOTHING)

    def leaves(self, tool: str, path: str) -> Sequence[Leaf]:
        """The values at a path of a tool's latest good result, in their order."""
        call = self.history.latest.get(tool)
        return () if call is None else call.paths().get(path, ())

    def tokens(self, kind: str, form: str) -> list[str]:
        """The tokens of a shape in the user's texts or in the model's last one, the latest first."""
        key = (kind, form)
        held = self._lists.get(key)
        if held is None:
            model = self.history.model_text
            texts = self.texts if kind == "user" else [] if model is None else [model]
            held = list(dict.fromkeys(token for text in texts for token in text.shaped.get(form, ())))
            self._lists[key] = held
        return held

    def found(self, kind: str) -> list[Any]:
        """What of a kind stands in the user's texts, the latest first."""
        held = self._lists.get((kind,))
        if held is None:
            part = _PARTS[kind]
            held = []
            for text in self.texts:
                held += [each for each in getattr(text, part) if each not in held]
            self._lists[kind,] = held
        return held

    def year(self) -> int | None:
        """The year of the latest date in an argument or a result."""
        if self._year == -1:
            self._year = next(self._years(), None)
        return self._year

    def _years(self) -> Iterator[int]:
        for call in reversed(self.history.calls):
            for value in (*call.args.values(), *(leaf.value for leaf in call.found()[:200])):
                if isinstance(value, str) and (found := _DATE.match(value)):
                    yield int(found[1])

    def _date(self, nth: int, hour: str = "", usual: str = "") -> Any:
        if not self.with_dates:
            return NOTHING
        found = _nth(self.parts("dates"), nth)
        if found is NOTHING:
            return NOTHING
        year, month, day = found
        year = year or (int(usual) if usual else self.year())
        if year is None:
            return NOTHING
        date = f"{year:04}-{month:02}-{day:02}"
        if len(hour) == 1:
            hour = _nth(self.parts("hours"), int(hour))
        return NOTHING if hour is NOTHING else f"{date} {hour}".rstrip()

    def parts(self, name: str) -> list[Any]:
        """All dates or hours of the user's texts, the latest first."""
        held = self._lists.get((name,))
        if held is None:
            held = list(dict.fromkeys(each for text in self.texts for each in getattr(text, name)))
            self._lists[name,] = held
        return held

    def _number(self, nth: int, kind: str) -> Any:
        found = _nth(self.found("number"), nth)
        if found is NOTHING:
            return NOTHING
        if kind == "int":
            return found if isinstance(found, int) else NOTHING
        return float(found) if kind == "float" else canonical_text(found)

    def _picked(self, leaves: Sequence[Leaf], pick: str, tool: str, name: str) -> Leaf | None:
        if not leaves:
            return None
        if pick == "first":
            return leaves[0]
        if pick == "last":
            return leaves[-1]
        if pick == "next":
            used = self.history.used(tool, name)
            return next((leaf for leaf in leaves if leaf.text not in used), None)
        nth = int(pick)
        return leaves[nth] if nth < len(leaves) else None

    def _mentioned(self, tool: str, path: str) -> Leaf | None:
        if not self.texts:
            return None
        text = self.texts[0].lowered
        for leaf in self.leaves(tool, path):
            if isinstance(leaf.value, str) and len(leaf.value) > 2 and leaf.value.lower() in text:
                return leaf
        return None

    def leading_to(self, value: Any, tool: str, name: str) -> list[Function]:
        """All functions that give this value here, the plainest first."""
        if value is ABSENT:
            return [LEFT_OUT]
        wanted = canonical_text(value)
        found: list[Function] = [("const", wanted)] if len(wanted) <= 200 else []
        for (owner, other), earlier in sorted(self.history.earlier(), key=lambda held: held[0]):
            if (owner == "*" or other == name or owner != tool) and earlier == wanted:
                found.append(("arg", owner, other))
        for source in sorted(self.history.latest):
            found += self._in_result(source, self.history.latest[source], wanted, tool, name)
        if isinstance(value, str):
            found += self._in_texts(value, tool, name)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            for nth, number in enumerate(self.found("number")[:_NTH]):
                if canonical_text(number) == wanted:
                    found.append(("number", str(nth), "int" if isinstance(value, int) else "float"))
                elif isinstance(value, float) and float(number) == value:
                    found.append(("number", str(nth), "float"))
        return found

    def _in_result(self, source: str, call: Called, wanted: str, tool: str, name: str) -> list[Function]:
        paths: dict[str, list[int]] = {}
        for path, place in call.places().get(wanted, ()):
            paths.setdefault(path, []).append(place)
        found: list[Function] = []
        for path, places in paths.items():
            picks = [str(place) for place in places if place < _PICKS]
            if 0 in places:
                picks.append("first")
            if len(call.paths()[path]) - 1 in places:
                picks.append("last")
            found += [("res", source, path, pick) for pick in picks]
            following = ("res", source, path, "next")
            if self._same(following, wanted, tool, name):
                found.append(following)
            if self._same(("match", source, path), wanted, tool, name):
                found.append(("match", source, path))
        return found

    def _same(self, function: Function, wanted: str, tool: str, name: str) -> bool:
        found = self.given(function, tool, name)
        return found is not None and found[1] == wanted

    def _as_date(self, value: str) -> list[Function]:
        held = _DATE.fullmatch(value) or _MOMENT.fullmatch(value)
        if held is None:
            return []
        hours = ("",) if len(value) == 10 else (*_HOURS, *(str(nth) for nth in range(_NTH)))
        return [
            ("date", str(nth), hour, year)
            for nth in range(_NTH)
            for hour in hours
            for year in ("", held[1])
            if self._date(nth, hour, year) == value
        ]

    def _in_texts(self, value: str, tool: str, name: str) -> list[Function]:
        found: list[Function] = []
        form = shape(value)
        for kind in ("user", "said"):
            for nth, token in enumerate(self.tokens(kind, form)[:_NTH]):
                if token == value:
                    found.append((kind, form, str(nth)))
        wanted = canonical_text(value)
        found += [(kind, "next") for kind in ("quoted", "name") if self._same((kind, "next"), wanted, tool, name)]
        for kind in ("quoted", "name", "formula"):
            for nth, each in enumerate(self.found(kind)[:_NTH]):
                if each == value:
                    found.append((kind, str(nth)))
        for nth, number in enumerate(self.found("number")[:_NTH]):
            if canonical_text(number) == value:
                found.append(("number", str(nth), "text"))
        if self.with_dates:
            found += self._as_date(value)
        for text in self.texts[:SPAN_TURNS]:
            for before, after in text.spans_of(value):
                if text.span(before, after) == value:
                    found.append(("span", before, after))
        return list(dict.fromkeys(found))


def constant(text: str) -> Given | None:
    """The value of a constant with its canonical text; None for what stands for a secret."""
    if text[:1] not in "[{":
        return _scalar(text)
    # Made anew: whoever gets a list may change it.
    value = json.loads(text)
    return None if is_secret(value) else (value, canonical_text(value))


@lru_cache(maxsize=20_000)
def _scalar(text: str) -> Given:
    value = json.loads(text)
    return value, canonical_text(value)


def _nth(held: list[Any], nth: int) -> Any:
    return held[nth] if nth < len(held) else NOTHING


def said_of(function: Function) -> str:
    """A function in words."""
    kind, *rest = function
    if kind == "const":
        return rest[0]
    if kind == "absent":
        return "left out"
    if kind == "arg":
        return f"the latest {rest[1]}" if rest[0] == "*" else f"{rest[1]} of the latest {rest[0]}"
    if kind == "res":
        path = rest[1].removeprefix(".") or "the value"
        pick = {"next": "the next unused ", "first": "the first ", "last": "the last "}.get(rest[2])
        return f"{f'no. {int(rest[2]) + 1} of ' if pick is None else pick}{path} in the result of {rest[0]}"
    if kind == "match":
        return f"the {rest[1].removeprefix('.') or 'value'} in the result of {rest[0]} that the user names"
    if kind == "span":
        return f"what the user says between `{rest[0]}` and `{rest[1]}`"
    if rest[0] == "next":
        return f"the next unused {kind} that the user gives"
    if kind in ("user", "said"):
        return f"{_ordinal(rest[1])} {'user' if kind == 'user' else 'model'} token like {rest[0]}"
    return f"{_ordinal(rest[0])} {'name' if kind == 'name' else kind} that the user gives"


def _ordinal(text: str) -> str:
    nth = int(text)
    return "the latest" if nth == 0 else f"the latest but {nth}"
