"""Texts of users and models as sources of arguments: tokens by their shape, quotations, names, dates, spans."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from itertools import pairwise

# What is looked at of a text.
MOST_CHARACTERS = 6_000

_TOKEN = re.compile(r"[^\s\"'`“”‘’(),;:!?\[\]{}<>*]+")
_QUOTED = re.compile(
    r"(?<!\w)'([^'\n]{1,200})'(?!\w)|\"([^\"\n]{1,200})\"|`([^`\n]{1,200})`|“([^”\n]{1,200})”|‘([^’\n]{1,200})’"
)
_NAME = re.compile(r"\b[A-Z][\w.&-]*(?:\s+(?:of|the|and|de|[A-Z][\w.&-]*))*\s+[A-Z][\w.&-]*|\b[A-Z][\w.&-]+")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.])[-+]?\d+(?:\.\d+)?")
_FORMULA = re.compile(r"[\d(][\d\s.+\-*/()^%]*[\d)]")
_PIECE = re.compile(r"[\w@#$%&+./\\:'’-]*[\w@#$%&+/\\]|[^\w\s]")
_WORD = re.compile(r"[a-z]+|\d+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MONTH_DAY = re.compile(_MONTH + r"\s+(\d{1,2})(?:st|nd|rd|th)?\b(?:,?\s+(\d{4}))?", re.IGNORECASE)
_DAY_MONTH = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?" + _MONTH + r"(?:,?\s+(\d{4}))?", re.IGNORECASE)
_HOUR = re.compile(r"\b(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\s*([ap])\.?m\b)?|\b(\d{1,2})\s*([ap])\.?m\b", re.IGNORECASE)
_ISO = re.compile(r"\b(\d{4})[-/](\d{1,2})[-/](\d{1,2})\b")
_SLASHED = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b")


class Text:
    """A text, taken apart as far as somebody asks."""

    def __init__(self, text: str) -> None:
        self.text = text[:MOST_CHARACTERS]

    @cached_property
    def lowered(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def tokens(self) -> list[str]:
        """Runs of characters between spaces and brackets, without the full stop of a sentence."""
        return [token for each in _TOKEN.findall(self.text) if (token := each.rstrip(".-")) != ""]

    @cached_property
    def shaped(self) -> dict[str, list[str]]:
        """The tokens by shape, the last first."""
        found: dict[str, list[str]] = {}
        for token in reversed(self.tokens):
            held = found.setdefault(shape(token), [])
            if token not in held:
                held.append(token)
        return found

    @cached_property
    def quoted(self) -> list[str]:
        """What stands in quotation marks, the last first."""
        return _unique(next(part for part in found if part) for found in reversed(_QUOTED.findall(self.text)))

    @cached_property
    def names(self) -> list[str]:
        """Words with capitals that stand together, the last first."""
        return _unique(each.rstrip(".") for each in reversed(_NAME.findall(self.text)))

    @cached_property
    def numbers(self) -> list[int | float]:
        """The numbers, the last first."""
        found: list[int | float] = []
        for each in reversed(_NUMBER.findall(self.text)):
            plain = each.replace(",", "")
            if len(plain) > 18:
                continue
            number = float(plain) if "." in plain else int(plain)
            if not any(number == other and type(number) is type(other) for other in found):
                found.append(number)
        return found

    @cached_property
    def formulas(self) -> list[str]:
        """Runs of digits and signs of arithmetic, without spaces, the last first."""
        found = (each.replace(" ", "") for each in reversed(_FORMULA.findall(self.text)))
        return _unique(each for each in found if any(sign in each[1:] for sign in "+-*/^%"))

    @cached_property
    def dates(self) -> list[tuple[int | None, int, int]]:
        """The dates as (year or None, month, day), the last first."""
        found: list[tuple[int, tuple[int | None, int, int]]] = []
        found += [(m.start(), (_int(m[3]), _month(m[1]), int(m[2]))) for m in _MONTH_DAY.finditer(self.text)]
        found += [(m.start(), (_int(m[3]), _month(m[2]), int(m[1]))) for m in _DAY_MONTH.finditer(self.text)]
        found += [(m.start(), (int(m[1]), int(m[2]), int(m[3]))) for m in _ISO.finditer(self.text)]
        found += [(m.start(), (int(m[3]), int(m[1]), int(m[2]))) for m in _SLASHED.finditer(self.text)]
        dates: list[tuple[int | None, int, int]] = []
        for _, date in sorted(found, key=lambda held: -held[0]):
            if 1 <= date[1] <= 12 and 1 <= date[2] <= 31 and date not in dates:
                dates.append(date)
        return dates

    @cached_property
    def hours(self) -> list[str]:
        """The times of day as 14:30:00, the last first."""
        found: list[str] = []
        for each in reversed(list(_HOUR.finditer(self.text))):
            hour, minute, second = int(each[1] or each[5]), int(each[2] or 0), int(each[3] or 0)
            half = (each[4] or each[6] or "").lower()[:1]
            if half and not 1 <= hour <= 12:
                continue
            hour = hour % 12 + (12 if half == "p" else 0) if half else hour
            if hour < 24 and minute < 60 and second < 60:
                found.append(f"{hour:02}:{minute:02}:{second:02}")
        return _unique(found)

    @cached_property
    def pieces(self) -> list[str]:
        """Words and marks, in order: what spans are made of."""
        return _PIECE.findall(self.text)

    @cached_property
    def lowered_pieces(self) -> list[str]:
        """The pieces in lower case."""
        return [piece.lower() for piece in self.pieces]

    @cached_property
    def standing(self) -> dict[str, list[int]]:
        """Where each piece in lower case stands, the last places first; `^` is before the first one."""
        found: dict[str, list[int]] = {}
        pieces = self.lowered_pieces
        for place in range(len(pieces) - 2, -1, -1):
            found.setdefault(pieces[place], []).append(place)
        if pieces:
            found.setdefault("^", []).append(-1)
        return found

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Where each piece begins and ends."""
        return [(each.start(), each.end()) for each in _PIECE.finditer(self.text)]

    @cached_property
    def stems(self) -> frozenset[str]:
        """The beginnings of the words in lower case, with camel case and underscores parted."""
        return frozenset(stems(self.text))

    @cached_property
    def phrases(self) -> frozenset[str]:
        """The beginnings of the words, and of each two that stand together."""
        parts = [_stem(word) for word in _WORD.findall(self.lowered)]
        return frozenset((*parts, *(f"{first} {second}" for first, second in pairwise(parts))))

    def span(self, before: str, after: str) -> str | None:
        """What stands between the last `before` (a piece in lower case) and the next `after` that follows it.

        `^` and `$` are the ends of the text; `after` may be `.` for any mark.
        """
        pieces, places = self.lowered_pieces, self.places
        for start in self.standing.get(before, ()):
            for end in range(start + 2, min(start + 14, len(pieces) + 1)):
                piece = pieces[end] if end < len(pieces) else "$"
                if piece == after or (after == "." and (piece == "$" or (len(piece) == 1 and not piece.isalnum()))):
                    return self.text[places[start + 1][0] : places[end - 1][1]]
        return None

    @cached_property
    def _bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        starts = {place[0]: number for number, place in enumerate(self.places)}
        return starts, {place[1]: number for number, place in enumerate(self.places)}

    def spans_of(self, value: str) -> list[tuple[str, str]]:
        """Pairs of what stands before and after a value, for `span`; the last occurrences first."""
        found: list[tuple[str, str]] = []
        pieces = self.pieces
        starts, ends = self._bounds
        at = len(self.text) if value else -1
        while at >= 0 and len(found) < 4 and (at := self.text.rfind(value, 0, at)) >= 0:
            first, last = starts.get(at), ends.get(at + len(value))
            if first is None or last is None:
                continue
            before = pieces[first - 1].lower() if first else "^"
            after = pieces[last + 1].lower() if last + 1 < len(pieces) else "$"
            found.append((before, after))
            if len(after) == 1 and not after.isalnum():
                found.append((before, "."))
        return found


@lru_cache(maxsize=20_000)
def shape(token: str) -> str:
    """The shape of a token: its runs of digits with their length, of capitals and small letters, and its marks."""
    found: list[str] = []
    last, run = "", 0
    mixed = any(each.isdigit() for each in token) and any(each.isalpha() for each in token)
    if mixed and token.isalnum() and token.upper() == token:
        # A code such as 4WQ150: where its digits stand says nothing.
        return f"#{len(token)}"
    for each in token:
        kind = "9" if each.isdigit() else "A" if each.isupper() else "a" if each.isalpha() else each
        if kind == last:
            run += 1
            continue
        if last:
            found.append(_run(last, run))
        last, run = kind, 1
    if last:
        found.append(_run(last, run))
    return "".join(found)


def _run(kind: str, length: int) -> str:
    if kind == "9":
        return f"9{length}" if length <= 8 else "9+"
    if kind == "A":
        return f"A{length}" if length <= 4 else "A+"
    return kind


def stems(text: str) -> list[str]:
    """The words of a text or a name, cut to their first five letters, in their order, each once."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text[:MOST_CHARACTERS]).lower()
    return list(dict.fromkeys(_stem(word) for word in _WORD.findall(parted)))


def _stem(word: str) -> str:
    if word.isdigit():
        return f"9{min(len(word), 6)}"
    if len(word) > 3 and word.endswith("s"):
        word = word[:-1]
    return word[:5]


def _unique(found: object) -> list[str]:
    return list(dict.fromkeys(found))  # type: ignore[call-overload]


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _month(name: str) -> int:
    return _MONTHS.index(name.lower()[:3]) + 1
