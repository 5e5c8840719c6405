"""The tokenizer inside a GGUF file: exact counts for the embedded engine and for llama.cpp, with nothing to install.

A GGUF file begins with its metadata, the vocabulary among it, so the weights are not read. Byte-pair vocabularies are
read ("gpt2" in GGUF's words) with the ways of splitting words that GPT-2, SmolLM, Llama 3 and Qwen 2 use; others are
refused, since a count that is only nearly right is no better than an estimate that says so.

Markers of a chat template inside a text (`<|im_end|>`) are counted as plain text.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from helix.errors import OptionError
from helix.optimizer.tokens import Tokenizer, from_ids

_PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
# Words that are remembered, and the characters that one may have to be.
_REMEMBERED = 100_000
_LONGEST = 64
# More than any vocabulary has; a length beyond it is a file that is none.
_MOST_ITEMS = 4_000_000
_MOST_BYTES = 64 * 1024 * 1024

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?{L}+| ?{N}+| ?[^\s{l}{n}]+|\s+(?!\S)"
_LLAMA3 = (
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n{l}{n}]?{L}+|{DIGITS}"
    r"| ?[^\s{l}{n}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# By the name that GGUF gives the way of splitting: expressions applied one after the other, and whether a word that is
# in the vocabulary as a whole is taken as it is.
_SPLITS: dict[str, tuple[tuple[str, ...], bool]] = {
    "gpt-2": ((_GPT2,), False),
    "smollm": (("{N}", _GPT2), False),
    "llama-bpe": ((_LLAMA3.replace("{DIGITS}", "{N}{1,3}"),), True),
    "qwen2": ((_LLAMA3.replace("{DIGITS}", "{N}"),), False),
}


def from_gguf(path: str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file. Raises OptionError for what is none, and for vocabularies of other kinds."""
    file = Path(path)
    found = _metadata(file)
    model, split = found.get("tokenizer.ggml.model"), found.get("tokenizer.ggml.pre")
    if model != "gpt2" or split not in _SPLITS:
        known = ", ".join(_SPLITS)
        raise OptionError(f"{file}: the vocabulary is {model} with {split}; byte-pair ones with {known} are read")
    tokens, merges = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.merges"]
    pair = _BytePairs(tokens, merges, split)
    return from_ids(file.stem, pair.ids)


class _BytePairs:
    """A byte-pair vocabulary: a text is cut into words, each word's bytes are joined pair by pair, best rank first."""

    def __init__(self, tokens: Sequence[str], merges: Sequence[str], split: str) -> None:
        self._number = {token: number for number, token in enumerate(tokens)}
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(merges):
            first, _, second = merge.partition(" ")
            self._ranks[first, second] = rank
        expressions, self._whole = _SPLITS[split]
        self._splits = [_compiled(expression) for expression in expressions]
        self._known: dict[str, list[int]] = {}
        self._bytes = _byte_characters()

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        made: list[int] = []
        for word in self._words(text):
            known = self._known.get(word)
            if known is None:
                known = self._word(word)
                if len(word) <= _LONGEST:
                    if len(self._known) >= _REMEMBERED:
                        self._known.clear()
                    self._known[word] = known
            made += known
        return made

    def _words(self, text: str) -> list[str]:
        words = [text]
        for split in self._splits:
            words = [part for word in words for part in _cut(split, word)]
        return words

    def _word(self, word: str) -> list[int]:
        parts = [self._bytes[byte] for byte in word.encode("utf-8", "surrogatepass")]
        joined = "".join(parts)
        if self._whole and joined in self._number:
            return [self._number[joined]]
        parts = self._joined(parts)
        # A few vocabularies lack some bytes; llama.cpp drops those.
        return [self._number[part] for part in parts if part in self._number]

    def _joined(self, parts: list[str]) -> list[str]:
        """The parts joined pair by pair, the pair of the best rank first, of equal ones the leftmost."""
        ranks, count = self._ranks, len(parts)
        after, before = list(range(1, count + 1)), list(range(-1, count - 1))
        heap = [(rank, at) for at, pair in enumerate(pairwise(parts)) if (rank := ranks.get(pair)) is not None]
        heapify(heap)
        while heap:
            rank, at = heappop(heap)
            other = after[at]
            # A pair that has been joined with something else meanwhile has another rank, or none.
            if not parts[at] or other >= count or ranks.get((parts[at], parts[other])) != rank:
                continue
            parts[at] += parts[other]
            parts[other] = ""
            after[at] = after[other]
            if after[at] < count:
                before[after[at]] = at
            for left in (before[at], at):
                if left >= 0 and after[left] < count:
                    fresh = ranks.get((parts[left], parts[after[left]]))
                    if fresh is not None:
                        heappush(heap, (fresh, left))
        return [part for part in parts if part]


def _cut(split: re.Pattern[str], text: str) -> list[str]:
    """What an expression finds in a text, and what stands between, in order."""
    made: list[str] = []
    end = 0
    for found in split.finditer(text):
        if found.start() > end:
            made.append(text[end : found.start()])
        if found.end() > found.start():
            made.append(found[0])
        end = found.end()
    if end < len(text):
        made.append(text[end:])
    return made


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    letters, numbers = _category("L"), _category("N")
    filled = expression.replace("{L}", f"[{letters}]").replace("{N}", f"[{numbers}]")
    return re.compile(filled.replace("{l}", letters).replace("{n}", numbers))


@cache
def _category(first: str) -> str:
    """The characters of a Unicode category as the inside of a set: Python's own expressions do not know them."""
    ranges: list[str] = []
    start = -1
    for code in range(0x110001):
        inside = code < 0x110000 and unicodedata.category(chr(code))[0] == first
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    return "".join(ranges)


@cache
def _byte_characters() -> list[str]:
    """The character by which byte-pair vocabularies write each byte: itself where it can be seen."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = (byte for byte in range(0x100) if byte not in seen)
    shown = {byte: chr(byte) for byte in seen} | {byte: chr(0x100 + at) for at, byte in enumerate(hidden)}
    return [shown[byte] for byte in range(0x100)]


# --- the file -----------------------------------------------------------------------------------------------------


def _metadata(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return _read(stream)
    except OSError as error:
        raise OptionError(f"cannot read the model file {file}: {error.strerror or error}") from None
    except (ValueError, struct.error, UnicodeDecodeError):
        raise OptionError(f"{file} is not a GGUF file") from None


def _read(stream: BinaryIO) -> dict[str, Any]:
    if stream.read(4) != b"GGUF":
        raise ValueError("no GGUF")
    version, _, count = struct.unpack("<IQQ", _bytes(stream, 20))
    if version not in (2, 3) or count > _MOST_ITEMS:
        raise ValueError("another version")
    found: dict[str, Any] = {}
    for _ in range(count):
        name = _text(stream)
        found[name] = _value(stream, _number(stream, "<I"))
    return found


def _value(stream: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(stream)
    if kind == _LIST:
        inner, count = struct.unpack("<IQ", _bytes(stream, 12))
        if count > _MOST_ITEMS or inner == _LIST:
            raise ValueError("a list of lists")
        if inner == _TEXT:
            return [_text(stream) for _ in range(count)]
        return list(struct.unpack(f"<{count}{_form(inner)}", _bytes(stream, count * struct.calcsize(_form(inner)))))
    return _number(stream, f"<{_form(kind)}")


def _form(kind: int) -> str:
    if kind not in _PLAIN:
        raise ValueError("an unknown type")
    return _PLAIN[kind]


def _number(stream: BinaryIO, form: str) -> Any:
    return struct.unpack(form, _bytes(stream, struct.calcsize(form)))[0]


def _text(stream: BinaryIO) -> str:
    return _bytes(stream, _number(stream, "<Q")).decode("utf-8", "replace")


def _bytes(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size) if size <= _MOST_BYTES else b""
    if len(data) != size:
        raise ValueError("the file ends too early")
    return data
