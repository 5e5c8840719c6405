"""Keeps what a miner has learned in a JSON file: one tenant each, checked in every part when it is read.

The file names its format, and another version is refused. It is never run or unpickled: a file that somebody changed
can at worst make wrong guesses, which are never served.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from helix.errors import InputError
from helix.mining.arguments import Table, Tally
from helix.mining.candidates import MinerSettings, ToolFacts
from helix.mining.loglinear import Logit
from helix.mining.miner import Miner
from helix.traces.events import EFFECTS
from helix.traces.files import parse_json

FORMAT = 1
# A larger file is not read. What would be larger is pruned until it fits.
MOST_BYTES = 64 * 1024 * 1024
_SMALL_WEIGHT = 0.01
# Functions by their first part, and how many more parts each has.
_PARTS = {
    "const": 1, "absent": 0, "arg": 2, "res": 3, "match": 2, "user": 2, "said": 2, "quoted": 1, "name": 1, "formula": 1,
    "number": 2, "date": 3, "span": 2,
}  # fmt: skip
_NUMBERED = {"user": 2, "said": 2, "quoted": 1, "name": 1, "formula": 1, "number": 1, "date": 1}
_HOUR = re.compile(r"\d{2}:\d{2}:\d{2}")
_Value = TypeVar("_Value")


class _Wrong(Exception):
    """What is wrong with a file, without its name."""


def pattern_file(folder: str | os.PathLike[str], tenant: str | None) -> Path:
    """The file of a tenant below a folder; names of tenants are no paths."""
    name = "patterns" if tenant is None else f"patterns-{hashlib.sha256(tenant.encode()).hexdigest()[:32]}"
    return Path(folder) / f"{name}.json"


def save(
    miner: Miner,
    path: str | os.PathLike[str],
    *,
    tenant: str | None = None,
    schemas: Mapping[str, str] | None = None,
    most: int = MOST_BYTES,
) -> None:
    """Writes a miner's patterns. What nobody would miss is dropped first, from the miner too. Raises InputError."""
    for name, schema in (schemas or {}).items():
        known = miner.tools.get(name, ToolFacts())
        miner.tools[name] = ToolFacts(effects=known.effects, schema=schema)
        miner.stale.discard(name)
    least = 0
    while True:
        prune(miner, least)
        data = _text(miner, tenant).encode("ascii")
        if len(data) <= most:
            break
        least = 1 if least == 0 else least * 2
        if least > 1_000_000:
            raise InputError(f"the patterns do not fit into {most:,} bytes")
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"{target} cannot be written: {error.strerror}") from None


def load(
    path: str | os.PathLike[str],
    *,
    tenant: str | None = None,
    schemas: Mapping[str, str] | None = None,
    settings: MinerSettings | None = None,
) -> Miner:
    """The miner that a file holds. Raises InputError."""
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"the patterns cannot be read: {error.strerror}", path=shown) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"the file is larger than {MOST_BYTES:,} bytes, which no pattern file is", path=shown)
    try:
        held = parse_json(data)
        if not isinstance(held, dict) or "helix_patterns" not in held:
            raise _Wrong("the file holds no patterns: it has no `helix_patterns`")
        version = held["helix_patterns"]
        if version != FORMAT or isinstance(version, bool):
            raise _Wrong(f"version {json.dumps(version)[:40]} of patterns is not known; this Helix reads {FORMAT}")
        if held.get("tenant") != tenant:
            raise _Wrong("the patterns are those of another tenant")
        miner = _miner(held, settings)
    except _Wrong as wrong:
        raise InputError(str(wrong), path=shown) from None
    except ValueError as error:
        raise InputError(f"the file holds no patterns: {error}", path=shown) from None
    for name, schema in (schemas or {}).items():
        facts = miner.tools.get(name)
        if facts is not None and facts.schema is not None and facts.schema != schema:
            miner.stale.add(name)
    return miner


def prune(miner: Miner, least: int = 0) -> None:
    """Drops weights that say next to nothing, and with `least` all that was seen so few times."""
    decisions, arguments = miner.decisions, miner.arguments
    for name in [name for name, seen in decisions.seen.items() if seen <= max(1, least)]:
        decisions.sparse.pop(name, None)
        del decisions.seen[name]
    for name in list(decisions.sparse):
        kept = {outcome: weight for outcome, weight in decisions.sparse[name].items() if abs(weight) >= _SMALL_WEIGHT}
        if kept:
            decisions.sparse[name] = kept
        else:
            del decisions.sparse[name]
    for words in arguments.words.counts.values():
        for phrase in [phrase for phrase, held in words.items() if sum(held.values()) < (1.5 + least) * miner.unit]:
            del words[phrase]
    if not least:
        return
    for tables in (arguments.own, arguments.refined, arguments.shared):
        for table in tables.values():
            for function in [function for function, tally in table.items() if tally.seen <= least]:
                del table[function]
    for pattern in [name for name, held in miner.chances.items() if held[0] <= least * miner.unit]:
        del miner.chances[pattern]
    trie = decisions.trie
    for context in [context for context, held in trie.counts.items() if context and sum(held.values()) <= least]:
        del trie.counts[context]
    for logit in (arguments.logit, miner.calls):
        for name in [name for name, weight in logit.weights.items() if abs(weight) < 0.001 * least]:
            del logit.weights[name]
            logit.squares.pop(name, None)
    arguments.forget_ranks()


def _text(miner: Miner, tenant: str | None) -> str:
    decisions, arguments = miner.decisions, miner.arguments
    held = {
        "helix_patterns": FORMAT,
        "tenant": tenant,
        "sessions": miner.sessions,
        "unit": miner.unit,
        "settings": asdict(miner.settings),
        "tools": {name: asdict(facts) for name, facts in miner.tools.items()},
        "trie": [[list(context), counts] for context, counts in sorted(decisions.trie.counts.items())],
        "dense": [decisions.dense, decisions.squares],
        "sparse": decisions.sparse,
        "seen": decisions.seen,
        "names": arguments.names,
        "own": _tables(arguments.own),
        "refined": _tables(arguments.refined),
        "shared": _tables({(name,): table for name, table in arguments.shared.items()}),
        "words": [[list(key), words] for key, words in sorted(arguments.words.counts.items())],
        "doubles": arguments.doubles,
        "reach": [[*key, tally.tries, tally.hits] for key, tally in sorted(arguments.reach.items())],
        "values": _weights(arguments.logit),
        "calls": _weights(miner.calls),
        "chances": miner.chances,
        "bins": miner.bins,
    }
    return json.dumps(held, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True) + "\n"


def _tables(tables: Mapping[Any, Table]) -> list[Any]:
    return [
        [list(key), [[list(function), tally.tries, tally.hits, tally.seen] for function, tally in sorted_table(table)]]
        for key, table in sorted(tables.items())
        if table
    ]


def sorted_table(table: Table) -> list[tuple[tuple[str, ...], Tally]]:
    """The functions of a table by their names."""
    return sorted(table.items(), key=lambda held: held[0])


def _weights(logit: Logit) -> list[Any]:
    return [logit.weights, logit.squares]


# --- reading, each part checked ---


def _miner(held: dict[str, Any], settings: MinerSettings | None) -> Miner:
    miner = Miner(settings or _settings(held.get("settings")))
    miner.sessions = int(_number(held.get("sessions")))
    miner.unit = _number(held.get("unit"))
    if not miner.unit > 0:
        raise _Wrong("`unit` is more than 0")
    decisions, arguments = miner.decisions, miner.arguments
    miner.tools = _by_name(held.get("tools"), "tools", _facts)
    for context, counts in _pairs(held.get("trie"), "trie"):
        decisions.trie.counts[_texts(context)] = _by_name(counts, "trie", _number)
    for outcome in decisions.outcomes():
        decisions.know(outcome)
    dense = [_list(each, "dense", _any_number) for each in _list(held.get("dense"), "dense", lambda each: each)]
    if settings is None or settings.order == _settings(held.get("settings")).order:
        if len(dense) != 2 or any(len(each) != len(decisions.dense) for each in dense):
            raise _Wrong("`dense` has another number of weights")
        decisions.dense, decisions.squares = dense
    decisions.sparse = _by_name(held.get("sparse"), "sparse", lambda each: _by_name(each, "sparse", _any_number))
    decisions.seen = _by_name(held.get("seen"), "seen", _count)
    arguments.names = _by_name(held.get("names"), "names", lambda each: _by_name(each, "names", _count))
    arguments.own = {(key[0], key[1]): table for key, table in _read_tables(held.get("own"), "own", 2)}
    arguments.refined = {
        (key[0], key[1], key[2]): table for key, table in _read_tables(held.get("refined"), "refined", 3)
    }
    arguments.shared = {key[0]: table for key, table in _read_tables(held.get("shared"), "shared", 1)}
    for key, words in _pairs(held.get("words"), "words"):
        tool, name = _named_argument(key)
        arguments.words.counts[tool, name] = _by_name(words, "words", lambda each: _by_name(each, "words", _number))
    arguments.doubles = _by_name(held.get("doubles"), "doubles", _tally_of_two)
    for entry in _list(held.get("reach"), "reach", lambda each: each):
        if not isinstance(entry, list) or len(entry) != 4:
            raise _Wrong("an entry of `reach` has four parts")
        tool, name = _named_argument(entry[:2])
        arguments.reach[tool, name] = Tally(_number(entry[2]), _number(entry[3]))
    _read_weights(arguments.logit, held.get("values"), "values")
    _read_weights(miner.calls, held.get("calls"), "calls")
    miner.chances = _by_name(held.get("chances"), "chances", _tally_of_two)
    bins = _list(held.get("bins"), "bins", _tally_of_two)
    if len(bins) != len(miner.bins):
        raise _Wrong("`bins` has another number of entries")
    miner.bins = bins
    return miner


def _named_argument(held: Any) -> tuple[str, str]:
    found = _texts(held)
    if len(found) != 2:
        raise _Wrong("an argument is named by its tool and its name")
    return found[0], found[1]


def _settings(held: Any) -> MinerSettings:
    names = {field.name for field in fields(MinerSettings)}
    if not isinstance(held, dict) or set(held) - names:
        raise _Wrong("`settings` are not those of a miner")
    for name, value in held.items():
        expected = (int, float, type(None)) if name == "half_life" else type(getattr(MinerSettings(), name))
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise _Wrong(f"the setting `{name}` has another type")
    try:
        return MinerSettings(**held)
    except Exception as error:
        raise _Wrong(f"`settings`: {error}") from None


def _facts(held: Any) -> ToolFacts:
    if not isinstance(held, dict) or set(held) != {"effects", "schema"} or held["effects"] not in EFFECTS:
        raise _Wrong("a tool has `effects` and `schema`")
    if held["schema"] is not None and not isinstance(held["schema"], str):
        raise _Wrong("the `schema` of a tool is a hash or null")
    return ToolFacts(effects=held["effects"], schema=held["schema"])


def _read_tables(held: Any, what: str, length: int) -> Iterator[tuple[tuple[str, ...], Table]]:
    for key, entries in _pairs(held, what):
        table: Table = {}
        for entry in _list(entries, what, lambda each: each):
            if not isinstance(entry, list) or len(entry) != 4:
                raise _Wrong(f"an entry of `{what}` has four parts")
            tally = Tally(_number(entry[1]), _number(entry[2]), _count(entry[3]))
            table[_function(entry[0])] = tally
        found = _texts(key)
        if len(found) != length:
            raise _Wrong(f"a key of `{what}` has {length} parts")
        yield found, table


def _function(held: Any) -> tuple[str, ...]:
    found = _texts(held)
    if not found or _PARTS.get(found[0], -1) != len(found) - 1:
        raise _Wrong("a function is not one that this Helix knows")
    place = _NUMBERED.get(found[0])
    picks = ("first", "last", "next")
    if place is not None and not _small(found[place]) and not (found[0] in ("quoted", "name") and found[1] == "next"):
        raise _Wrong("a function counts from 0 to 9")
    if found[0] == "date" and not (_small(found[2]) or found[2] == "" or _HOUR.fullmatch(found[2])):
        raise _Wrong("a date has an hour, or none")
    if found[0] == "date" and not re.fullmatch(r"(\d{4})?", found[3]):
        raise _Wrong("a date has a year, or none")
    if found[0] == "res" and found[3] not in picks and not _small(found[3]):
        raise _Wrong("a function picks first, last, next or a place")
    if found[0] == "number" and found[2] not in ("int", "float", "text"):
        raise _Wrong("a number is an int, a float or a text")
    if found[0] == "const":
        parse_json(found[1])
    return found


def _small(text: str) -> bool:
    return len(text) == 1 and text in "0123456789"


def _read_weights(logit: Logit, held: Any, what: str) -> None:
    parts = _list(held, what, lambda each: _by_name(each, what, _any_number))
    if len(parts) != 2 or any(value < 0 for value in parts[1].values()):
        raise _Wrong(f"`{what}` has weights and squares")
    logit.weights, logit.squares = parts


def _by_name(held: Any, what: str, read: Callable[[Any], _Value]) -> dict[str, _Value]:
    if not isinstance(held, dict):
        raise _Wrong(f"`{what}` is an object")
    return {name: read(value) for name, value in held.items()}


def _list(held: Any, what: str, read: Callable[[Any], _Value]) -> list[_Value]:
    if not isinstance(held, list):
        raise _Wrong(f"`{what}` is a list")
    return [read(each) for each in held]


def _pairs(held: Any, what: str) -> Iterator[tuple[Any, Any]]:
    for entry in _list(held, what, lambda each: each):
        if not isinstance(entry, list) or len(entry) != 2:
            raise _Wrong(f"an entry of `{what}` has two parts")
        yield entry[0], entry[1]


def _texts(held: Any) -> tuple[str, ...]:
    if not isinstance(held, list) or not all(isinstance(each, str) for each in held):
        raise _Wrong("a list of texts is expected")
    return tuple(held)


def _tally_of_two(held: Any) -> list[float]:
    found = _list(held, "chances", _number)
    if len(found) != 2 or found[1] > found[0]:
        raise _Wrong("chances come with hits, which are not more")
    return found


def _any_number(held: Any) -> float:
    # Compared before it is converted: a whole number may be too large for that.
    if not isinstance(held, int | float) or isinstance(held, bool) or not -1e12 < held < 1e12:
        raise _Wrong("a number is expected")
    return float(held)


def _number(held: Any) -> float:
    found = _any_number(held)
    if found < 0:
        raise _Wrong("a count is 0 or more")
    return found


def _count(held: Any) -> int:
    found = _number(held)
    if found != int(found):
        raise _Wrong("a whole number is expected")
    return int(found)
