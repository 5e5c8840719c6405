"""Counts tokens: by the engine's own tokenizer where it can be reached, by a tokenizer file, else by an estimate.

The optimizer asks no engine itself: whoever has one open passes in a function. Without any, `estimate()` counts from
the characters alone, and every result that rests on it says so.
"""

from __future__ import annotations

import importlib
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix.errors import OptionError

# What a chat template spends on the beginning and end of a message: ChatML and Llama 3 both take 5.
TURN = 5
# How many texts a tokenizer remembers, and how many characters one may have to be remembered: 32 MB at most.
_REMEMBERED = 8_192
_LONGEST = 4_000

Ids = Callable[[str], Sequence[int]]
Count = Callable[[str], int]
# The tokens of a whole prompt, template included, from its messages as (role, text).
CountMessages = Callable[[Sequence[tuple[str, str]]], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A tokenizer by name. `exact`: its counts are those of the model, not an estimate.

    `turn` is what the chat template spends on each message. `ids_of` is None where only counts can be had.
    """

    name: str
    exact: bool
    count_of: Count
    ids_of: Ids | None = None
    turn: int = TURN
    _known: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def count(self, text: str) -> int:
        """The tokens of a text, without those that a chat template adds."""
        if not text:
            return 0
        known = self._known.get(text)
        if known is None:
            known = self.count_of(text)
            if len(text) <= _LONGEST:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[text] = known
        return known

    def ids(self, text: str) -> array[int] | None:
        """The tokens of a text as numbers, or None where the tokenizer gives only counts."""
        if self.ids_of is None:
            return None
        return array("I", self.ids_of(text)) if text else array("I")


# --- the estimate -------------------------------------------------------------------------------------------------

# Tokens for each character, between what the large byte-pair vocabularies of 2024 to 2026 spend and what small English
# ones do. A word of English takes a token for about four letters; digits go by ones to threes; other alphabets take a
# token for two letters or so, Thai and the Indic scripts four for five, Chinese, Japanese and Korean one for each
# character, emoji two and more. On English prose and on tables of figures it was within 12 % of SmolLM2's tokenizer;
# of other scripts that one, a small English vocabulary, makes up to twice as many, and large ones about half.
_ASCII, _DIGIT, _SIGN = 0.24, 0.5, 0.4
_SCRIPTS: tuple[tuple[str, float], ...] = (
    ("\u0080-\u024f", 0.5),
    ("\u0250-\u08ff", 0.6),
    ("\u0900-\u1fff", 0.8),
    ("\u2000-\u2bff", 0.8),
    ("\u2c00-\ud7ff", 1.0),
    ("\ud800-\uffff", 1.0),
    ("\U00010000-\U0010ffff", 2.2),
)
_FOREIGN = [(re.compile(f"[{span}]+"), weight) for span, weight in _SCRIPTS]
_ANY_FOREIGN = re.compile("[^\x00-\x7f]+")
_NUMBERS = re.compile("[0-9]+")
_SIGNS = re.compile("[!-/:-@\\[-`{-~]+")


def estimated_tokens(text: str) -> float:
    """About how many tokens a text takes, by its characters. It is additive: the parts of a text add up to it."""
    size = len(text)
    tokens = 0.0
    if not text.isascii():
        foreign = "".join(_ANY_FOREIGN.findall(text))
        size -= len(foreign)
        tokens += sum(_length(pattern.findall(foreign)) * weight for pattern, weight in _FOREIGN)
    digits, signs = _length(_NUMBERS.findall(text)), _length(_SIGNS.findall(text))
    return tokens + (size - digits - signs) * _ASCII + digits * _DIGIT + signs * _SIGN


def _length(runs: list[str]) -> int:
    return sum(map(len, runs))


def _estimated(text: str) -> int:
    return max(1, round(estimated_tokens(text)))


ESTIMATE = Tokenizer(name="estimate", exact=False, count_of=_estimated)


def estimate() -> Tokenizer:
    """The tokenizer that needs nothing: its counts are estimates, and are named so."""
    return ESTIMATE


# --- exact ones ---------------------------------------------------------------------------------------------------


def from_ids(name: str, ids: Ids, *, turn: int = TURN) -> Tokenizer:
    """A tokenizer from a function that gives a text's tokens, such as a server's `/tokenize`."""
    return Tokenizer(name=name, exact=True, count_of=lambda text: len(ids(text)), ids_of=ids, turn=turn)


def from_message_counts(name: str, count: CountMessages) -> Tokenizer:
    """A tokenizer from a function that counts the tokens of whole prompts, chat template included.

    What the template spends on a message is found by asking: two empty messages against one.
    """
    empty = [("user", "")]
    one = count(empty)
    turn = max(0, count([*empty, ("assistant", ""), *empty]) - one) // 2
    return Tokenizer(name=name, exact=True, count_of=lambda text: count([("user", text)]) - one, turn=turn)


def from_file(path: str | Path) -> Tokenizer:
    """The tokenizer in a file: that of a GGUF model, or a `tokenizer.json` by the library `tokenizers`.

    Raises OptionError where it cannot be read.
    """
    file = Path(path)
    if file.suffix.lower() == ".gguf":
        from helix.optimizer.gguf import from_gguf

        return from_gguf(file)
    try:
        tokenizers: Any = importlib.import_module("tokenizers")
    except ImportError:
        raise OptionError(f"{file} needs the library `tokenizers`: pip install tokenizers") from None
    if not file.is_file():
        raise OptionError(f"the tokenizer {file} does not exist")
    try:
        loaded: Any = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise OptionError(f"{file} is not a tokenizer.json: {error}") from None
    turn = _turn_of(loaded)

    def ids(text: str) -> Sequence[int]:
        found: Sequence[int] = loaded.encode(text, add_special_tokens=False).ids
        return found

    return from_ids(file.parent.name or file.name, ids, turn=turn)


def _turn_of(loaded: Any) -> int:
    """What a message costs in the two common chat templates, where the vocabulary has their marks."""
    for start, end in (("<|im_start|>", "<|im_end|>"), ("<|start_header_id|>", "<|end_header_id|>")):
        if loaded.token_to_id(start) is not None and loaded.token_to_id(end) is not None:
            return TURN
    return TURN - 1
