"""The rules of the scripted engine: what a rule looks at, what it answers, and how it is read from a TOML
file.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from helix.errors import OptionError, name_help
from helix.executor.engines.base import FinishReason, Reply, Request

Answer = str | Reply | Exception | None
Responder = Callable[[Request], Answer | Awaitable[Answer]]

ERRORS = ("connection", "malformed", "prompt.too_long")
FINISHES: tuple[str, ...] = get_args(FinishReason)
# `\1` and `\g<name>` stand for groups; `\\1` and `\\g` are how a reply says those characters themselves.
_GROUP = re.compile(r"\\(?:(?P<kept>\\(?=\d|g<))|(?P<number>\d{1,2})|g<(?P<name>\w+)>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. Every condition that is given must hold; what is not given does not matter.

    Conditions: `step` names; `match` (regular expression) and `contains` (plain text) look at the last user
    message, `prompt_match` and `prompt_contains` at the whole prompt (contents of all messages, joined by a
    newline); `row` (from 0) and `sample` (from 0) are the request's; `attempt` counts how often this very
    request was made (from 1); `call` counts the requests that met the rule's other conditions (from 1).

    `turn` is the number of assistant messages in the prompt plus one: the turn of an agent.

    Answers: `reply` (several: one per sample, in turn) with `finish`; `calls` of tools, each `{tool, args}`, or an
    `answer`, as an agent asks for them: natively or in JSON; `error` (a status from 400 to 599, or
    one of `connection`, `malformed`, `prompt.too_long`) with `message` and `retry_after` seconds; `hang`
    never answers. `delay` seconds pass before any of them. A rule with none of them gives the default reply.
    """

    step: tuple[str, ...] = ()
    match: re.Pattern[str] | None = None
    contains: str | None = None
    prompt_match: re.Pattern[str] | None = None
    prompt_contains: str | None = None
    row: frozenset[int] = field(default=frozenset())
    sample: frozenset[int] = field(default=frozenset())
    attempt: frozenset[int] = field(default=frozenset())
    call: frozenset[int] = field(default=frozenset())
    turn: frozenset[int] = field(default=frozenset())
    calls: tuple[ToolAsk, ...] = ()
    answer: tuple[Any, ...] = ()
    reply: tuple[str, ...] = ()
    finish: FinishReason = "stop"
    delay: float = 0.0
    error: int | str | None = None
    message: str | None = None
    retry_after: float | None = None
    hang: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAsk:
    """A call of a tool that a rule makes a model ask for."""

    tool: str
    args: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The engine's own table of a file."""

    max_context: int | None = None
    schema_decoding: bool = True
    counts_tokens: bool = True
    keep_log: bool = True
    strict: bool = False
    tool_calls: bool = False
    models: tuple[str, ...] = ("scripted",)


def load_rules(path: str | Path) -> tuple[tuple[Rule, ...], Settings]:
    """The rules and the settings of a TOML file. Raises OptionError with the file's name and what is wrong in
    it.
    """
    try:
        text = Path(path).expanduser().read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise OptionError(f"{path}: cannot read the scripted replies: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"{path}: not UTF-8 at byte {error.start}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path}: not TOML: {error}") from None
    _known(document, {"engine", "rule"}, str(path), "tables")
    rules, engine = document.get("rule", []), document.get("engine", {})
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise OptionError(f"{path}: `rule` must be written as [[rule]] tables")
    if not isinstance(engine, dict):
        raise OptionError(f"{path}: `engine` must be written as an [engine] table")
    made = tuple(make_rule(rule, f"{path}: rule {number}") for number, rule in enumerate(rules, 1))
    return made, make_settings(engine, f"{path}: [engine]")


def make_settings(given: Mapping[str, Any], where: str) -> Settings:
    """Settings from plain values, checked."""
    _known(given, {spec.name for spec in fields(Settings)}, where, "settings")
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key == "max_context":
            values[key] = _whole(value, where, key, low=1)
        elif key == "models":
            values[key] = _texts(value, where, key)
        else:
            values[key] = _flag(value, where, key)
    return Settings(**values)


def make_rule(given: Mapping[str, Any], where: str) -> Rule:
    """A rule from plain values (texts, numbers, lists of them), checked; `where` begins every message."""
    _known(given, {spec.name for spec in fields(Rule)}, where, "keys")
    values = {key: _READERS[key](value, where, key) for key, value in given.items()}
    rule = Rule(**values)
    given_answers = (bool(rule.reply), bool(rule.calls), bool(rule.answer), rule.error is not None, rule.hang)
    if sum(given_answers) > 1:
        raise OptionError(f"{where}: a rule has one of `reply`, `calls`, `answer`, `error` and `hang`, not several")
    for key in ("message", "retry_after"):
        if key in given and rule.error is None:
            raise OptionError(f"{where}: `{key}` needs an `error`")
    if "finish" in given and (rule.error is not None or rule.hang):
        raise OptionError(f"{where}: `finish` needs a reply")
    for text in (*rule.reply, *_texts_in([[call.args for call in rule.calls], list(rule.answer)])):
        _check_groups(text, rule.match or rule.prompt_match, where)
    return rule


def expanded(value: Any, match: re.Match[str] | None) -> Any:
    """A JSON value with the groups of the match put into its texts."""
    if match is None:
        return value
    if isinstance(value, str):
        return expand(value, match)
    if isinstance(value, dict):
        return {key: expanded(item, match) for key, item in value.items()}
    return [expanded(item, match) for item in value] if isinstance(value, list) else value


def _texts_in(value: Any) -> Iterator[str]:
    """The texts in a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item)


def expand(text: str, match: re.Match[str]) -> str:
    """The reply with the groups of the match put in; a group that took no part gives nothing."""
    if "\\" not in text:
        return text

    def group(found: re.Match[str]) -> str:
        return "\\" if found["kept"] else match[found["name"] or int(found["number"])] or ""

    return _GROUP.sub(group, text)


def _check_groups(text: str, pattern: re.Pattern[str] | None, where: str) -> None:
    """Without a pattern a reply is taken as it stands; with one, every group that it names must exist."""
    for found in _GROUP.finditer(text) if pattern is not None else ():
        assert pattern is not None
        number, name = found["number"], found["name"]
        if number and int(number) > pattern.groups:
            has = f"/{pattern.pattern}/ has {pattern.groups} groups"
            raise OptionError(f"{where}: the reply uses \\{number}, but {has}")
        if name and name not in pattern.groupindex:
            known = name_help(name, pattern.groupindex, "groups")
            raise OptionError(f"{where}: the reply uses \\g<{name}>, but /{pattern.pattern}/ has none; {known}")


def _known(given: Mapping[str, Any], known: set[str], where: str, what: str) -> None:
    for key in given:
        if key not in known:
            raise OptionError(f"{where}: unknown key `{key}`; {name_help(key, known, what)}")


def _wrong(value: Any, where: str, key: str, expected: str) -> OptionError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return OptionError(f"{where}: `{key}` must be {expected}, found {shown}")


def _text(value: Any, where: str, key: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, where, key, "a text")
    return value


def _texts(value: Any, where: str, key: str) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    good = isinstance(values, list | tuple) and values and all(isinstance(item, str) for item in values)
    if not good:
        raise _wrong(value, where, key, "a text or a list of texts")
    return tuple(values)


def _flag(value: Any, where: str, key: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, where, key, "true or false")
    return value


def _whole(value: Any, where: str, key: str, *, low: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise _wrong(value, where, key, f"a whole number from {low}")
    return value


def _numbers(low: int) -> Callable[[Any, str, str], frozenset[int]]:
    def read(value: Any, where: str, key: str) -> frozenset[int]:
        values = value if isinstance(value, list | tuple | set | frozenset) else [value]
        if not values:
            raise _wrong(value, where, key, f"a whole number from {low} or a list of them")
        return frozenset(_whole(item, where, key, low=low) for item in values)

    return read


def _seconds(value: Any, where: str, key: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise _wrong(value, where, key, "a number of seconds from 0")
    return float(value)


def _pattern(value: Any, where: str, key: str) -> re.Pattern[str]:
    if isinstance(value, re.Pattern):
        return value
    try:
        return re.compile(_text(value, where, key))
    except re.error as error:
        raise OptionError(f"{where}: `{key}` is not a regular expression: {error}") from None


def _finish(value: Any, where: str, key: str) -> FinishReason:
    if value not in FINISHES:
        raise _wrong(value, where, key, f"one of {', '.join(FINISHES)}")
    return value  # type: ignore[no-any-return]


def _error(value: Any, where: str, key: str) -> int | str:
    status = isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599
    if not status and value not in ERRORS:
        raise _wrong(value, where, key, f"a status from 400 to 599 or one of {', '.join(ERRORS)}")
    return value  # type: ignore[no-any-return]


def _calls(value: Any, where: str, key: str) -> tuple[ToolAsk, ...]:
    made: list[ToolAsk] = []
    for call in value if isinstance(value, list | tuple) else [value]:
        good = isinstance(call, Mapping) and isinstance(call.get("tool"), str) and call.keys() <= {"tool", "args"}
        if not good:
            raise _wrong(call, where, key, "{ tool = NAME, args = { ... } } or a list of them")
        made.append(ToolAsk(tool=call["tool"], args=call.get("args", {})))
    if not made:
        raise _wrong(value, where, key, "at least one call")
    return tuple(made)


_READERS: dict[str, Callable[[Any, str, str], Any]] = {
    "step": _texts,
    "match": _pattern,
    "contains": _text,
    "prompt_match": _pattern,
    "prompt_contains": _text,
    "row": _numbers(0),
    "sample": _numbers(0),
    "attempt": _numbers(1),
    "call": _numbers(1),
    "turn": _numbers(1),
    "calls": _calls,
    "answer": lambda value, where, key: (value,),
    "reply": _texts,
    "finish": _finish,
    "delay": _seconds,
    "error": _error,
    "message": _text,
    "retry_after": _seconds,
    "hang": _flag,
}
