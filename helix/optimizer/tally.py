"""Counts calls and tokens of a plan, op by op: over the rows of a table, or from its statistics alone."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from helix.evaluate import Callables
from helix.logical import Generate, Invoke
from helix.optimizer.bounds import text_tokens, turn_tokens
from helix.optimizer.lengths import sampling
from helix.optimizer.rule import TableStats
from helix.optimizer.sizes import Sizes
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.bind import Binder, Instance
from helix.optimizer.tree.refs import CallSite, Place, Resolution
from helix.optimizer.tree.shape import Hole, Static, Tree, Turn, bits
from helix.optimizer.tree.trie import CallTrie, Paths, TokenTrie

Row = Mapping[str, Any]
# Up to so many calls prompts are compared token by token; beyond that values are compared as wholes.
EXACT_CALLS = 50_000
# Numbers of values that are not known yet, in a trie of tokens: below those of turns, above every vocabulary.
_UNKNOWN = 0x4000_0000
_MOST_UNKNOWN = 0xBFFE_0000


@dataclass(slots=True, kw_only=True)
class Tally:
    """By op: `calls` made, those `merged` with an equal one, `prompts` their prompt tokens together. By tool site:
    `tool_calls`. `made_by_place` are the tokens of distinct beginnings by the place of the tree.

    `assumed` are the frames that were entered by chance because what decides them was not known.
    """

    rows: float
    calls: list[float]
    merged: list[float]
    prompts: list[float]
    tool_calls: list[float]
    made_by_place: array[float]
    p_min: float
    kind: str
    exact: bool
    paths: Paths
    assumed: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def own_shares(self, cached: float) -> list[float]:
        """The cached tokens of each op: what its places were used for beyond the first time, scaled to their sum."""
        users: dict[int, float] = {}
        for op, path in enumerate(self.paths.paths):
            for place in path:
                users[place] = users.get(place, 0.0) + self.calls[op]
        found: list[float] = []
        for op, path in enumerate(self.paths.paths):
            fresh = sum(self.made_by_place[place] * self.calls[op] / users[place] for place in path if users[place])
            found.append(max(0.0, self.prompts[op] - fresh))
        total, wanted = sum(found), cached * sum(self.prompts)
        return [share * wanted / total if total else 0.0 for share in found]


def tally_rows(
    found: Resolution,
    tree: Tree,
    sizes: Sizes,
    tokenizer: Tokenizer,
    rows: Iterable[Row],
    *,
    callables: Callables | None = None,
    exact_calls: int = EXACT_CALLS,
    most_calls: int,
) -> Tally:
    """Counts over the rows of a table. Beyond `most_calls` the rest of the rows is taken to be like those before."""
    binder = Binder(found, tree, sizes, tokenizer, callables)
    trie = CallTrie(binder.paths)
    ops = [site for site in found.calls if isinstance(site.node, Generate)]
    kinds = same_calls(ops)
    count = len(ops)
    calls, merged, prompts = [0.0] * count, [0.0] * count, [0.0] * count
    seen: dict[int, float] = {}
    exact = _ExactPrompts(found, tree, tokenizer, binder.paths) if exact_calls else None
    source = _Counted(rows)
    bound = 0
    for here in binder.run(source):
        weight = here.weight
        handles = trie.bind_all(here.order, here.numbers, here.tokens, weight)
        for (op, _), handle in zip(here.order, handles, strict=True):
            made = weight * tree.ops[op].sample
            if kinds[op] >= 0:
                key = handle * count + kinds[op]
                missing = seen.get(key, 1.0)
                seen[key] = missing * (1.0 - weight)
                merged[op] += made * (1.0 - missing)
                made *= missing
            calls[op] += made
            prompts[op] += made * trie.prompt_tokens(handle)
        bound += len(handles)
        if exact is not None:
            if bound > exact_calls:
                exact = None
            else:
                exact.take(here)
        if bound >= most_calls:
            source.stop()
    rest = source.rest()
    scale = (binder.rows + rest) / binder.rows if binder.rows else 1.0
    tally = Tally(
        rows=float(binder.rows + rest),
        calls=[each * scale for each in calls],
        merged=[each * scale for each in merged],
        prompts=[each * scale for each in prompts],
        tool_calls=_tool_calls(found, binder.weights, scale),
        made_by_place=array("d", [each * scale for each in trie.made_by_place]),
        p_min=trie.made_tokens * scale if exact is None else exact.p_min,
        kind="values" if exact is None else "tokens",
        exact=all(source.known for source in found.holes.values()),
        paths=binder.paths,
    )
    if rest:
        tally.notes.append(f"counted over the first {binder.rows:,} of {binder.rows + rest:,} rows and scaled up")
    if binder.failed_rows:
        tally.notes.append(f"{binder.failed_rows:,} rows lack an input and are not called")
    for index, place in enumerate(found.places):
        if place.value is None or not found.refs[place.value].known:
            tally.assumed.add(index)
    return tally


class _Counted:
    """Rows that can be cut short: what is left is then counted, not bound."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = iter(rows)
        self._stopped = False

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            yield row
            if self._stopped:
                return

    def stop(self) -> None:
        """Gives no more rows."""
        self._stopped = True

    def rest(self) -> int:
        """How many rows were not given."""
        return sum(1 for _ in self._rows) if self._stopped else 0


def same_calls(sites: list[CallSite]) -> list[int]:
    """For each op the number of the kind of call that its equal prompts share, -1 where they share none."""
    numbers: dict[tuple[str, ...], int] = {}
    made: list[int] = []
    for site in sites:
        node = site.node
        assert isinstance(node, Generate)
        if node.deterministic and node.cache:
            kind = (sampling(node.model), str(node.returns), str(node.sample), str(node.coerce), str(node.on_overflow))
            made.append(numbers.setdefault(kind, len(numbers)))
        else:
            made.append(-1)
    return made


def _tool_calls(found: Resolution, weights: list[float], scale: float) -> list[float]:
    return [weights[site.frame] * scale for site in found.calls if isinstance(site.node, Invoke)]


class _ExactPrompts:
    """Prompts compared token by token; a value that is not known is as many tokens of its own as it is estimated."""

    def __init__(self, found: Resolution, tree: Tree, tokenizer: Tokenizer, paths: Paths) -> None:
        self._tree = tree
        self._tokenizer = tokenizer
        self._trie = TokenTrie()
        self._numbers = paths.keys
        self._unknown: dict[int, int] = {}
        self._known: dict[str, array[int]] = {}
        self._paths = [tree.path(op) for op in tree.ops]
        statics = (segment.text for segment in tree.segments if isinstance(segment, Static))
        self._text = list(statics)
        self._scale: float | None = None if tokenizer.ids_of is None else 1.0
        self._tokens, self._bytes = 0, 0

    def take(self, here: Instance) -> None:
        """Takes the calls of an instance."""
        for op, _ in here.order:
            reply = self._numbers.get(self._tree.ops[op].reply, -1)
            output = self._value(here, reply) if reply >= 0 and here.numbers[reply] else None
            self._trie.insert(self._prompt(op, here), output, here.weight)

    def _prompt(self, op: int, here: Instance) -> array[int]:
        made = array("I", [0xFFFF_1000 + self._tree.ops[op].namespace])
        text: list[str] = []
        for segment in self._paths[op]:
            if isinstance(segment, Static):
                text.append(segment.text)
                continue
            if isinstance(segment, Hole) and (value := here.texts[self._numbers[segment.key]]) is not None:
                text.append(value)
                continue
            self._flush(text, made)
            if isinstance(segment, Turn):
                made.extend(turn_tokens(segment.role, self._tokenizer))
            else:
                made.extend(self._value(here, self._numbers[segment.key]))
        self._flush(text, made)
        return made

    def _value(self, here: Instance, number: int) -> array[int]:
        """A value that is not known: as many tokens of its own as it is taken to have."""
        serial = self._unknown.setdefault(here.numbers[number], len(self._unknown)) % _MOST_UNKNOWN
        count = round(here.tokens[number] * (1 if self._tokenizer.ids_of is not None else 4))
        return array("I", [_UNKNOWN + serial]) * count

    def _flush(self, text: list[str], made: array[int]) -> None:
        if text:
            whole = "".join(text)
            text.clear()
            made.extend(text_tokens(whole, self._tokenizer))
            if self._scale is None:
                self._tokens += self._tokenizer.count(whole)
                self._bytes += len(whole.encode("utf-8", "surrogatepass"))

    @property
    def p_min(self) -> float:
        """The tokens of distinct beginnings, less the mark of the namespace that each begins with."""
        scale = self._scale if self._scale is not None else self._tokens / self._bytes if self._bytes else 0.25
        marks = len({op.namespace for op in self._tree.ops}) if len(self._trie) > 1 else 0
        return max(0.0, self._trie.distinct_tokens - marks) * scale


# --- from statistics ----------------------------------------------------------------------------------------------


def tally_stats(found: Resolution, tree: Tree, sizes: Sizes, stats: TableStats | None) -> Tally:
    """Counts from a table's statistics; without any for one row."""
    rows = float(stats.rows) if stats is not None else 1.0
    paths = Paths(tree)
    weights: list[float] = []
    for index, place in enumerate(found.places):
        parent = weights[place.parent] if place.parent >= 0 else rows
        weights.append(parent if place.parent < 0 else _inside(found, sizes, index, place, parent, stats))
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    kinds = same_calls(sites)
    distinct = _Distinct(found, sizes, stats, rows)
    keys = list(paths.keys)
    demand: dict[int, float] = {}
    for op, path in enumerate(paths.paths):
        for at in path:
            demand[at] = demand.get(at, 0.0) + weights[sites[op].frame]
    calls, merged, prompts = [0.0] * len(sites), [0.0] * len(sites), [0.0] * len(sites)
    made_by_place = array("d", [0.0]) * len(paths.holes)
    for op, path in enumerate(paths.paths):
        roots, tokens = 0, 0.0
        for at in path:
            hole = paths.holes[at]
            value = 0.0
            if hole >= 0:
                roots |= found.holes[keys[hole]].roots
                value = sizes.mean(keys[hole])
            size = paths.literal[at] + value
            if not made_by_place[at]:
                fresh = size - value if paths.decoded[at] else size
                made_by_place[at] = fresh * distinct.of(roots, demand[at])
            tokens += size
        total = weights[sites[op].frame]
        made = distinct.of(roots, total) if kinds[op] >= 0 else total
        calls[op] = made * tree.ops[op].sample
        merged[op] = (total - made) * tree.ops[op].sample
        prompts[op] = calls[op] * tokens
    tally = Tally(
        rows=rows,
        calls=calls,
        merged=merged,
        prompts=prompts,
        tool_calls=_tool_calls(found, weights, 1.0),
        made_by_place=made_by_place,
        p_min=sum(made_by_place),
        kind="statistics",
        exact=not found.holes,
        paths=paths,
        assumed=set(range(len(found.places))),
    )
    tally.notes.append("estimated for one row without a table" if stats is None else "estimated from statistics")
    return tally


def _inside(
    found: Resolution, sizes: Sizes, index: int, place: Place, parent: float, stats: TableStats | None
) -> float:
    """How often a frame runs when its parent runs so often."""
    match place.kind:
        case "items" | "spread":
            return parent * sizes.lists.get(index, place.expected)
        case "limit":
            return min(parent, float(place.times))
        case "group":
            count = len(place.node.keys)  # type: ignore[attr-defined]
            keys = [found.refs[value] for value in place.values[:count]]
            if stats is not None and all(key.kind == "column" and key.field in stats.columns for key in keys):
                groups = 1.0
                for key in keys:
                    groups *= stats.columns[key.field].distinct
                return combinations(groups, parent) if count > 1 else min(groups, parent)
            return max(min(parent, 1.0), parent * place.expected)
        case "sort" | "rows":
            return parent
    return parent * place.expected


def seen_values(values: float, rows: float, draws: float) -> float:
    """How many of some values are seen in so many draws from rows that hold each of them equally often (Yao, 1977)."""
    if values <= 0 or rows <= 0 or draws <= 0:
        return 0.0
    values = min(values, rows)
    if draws >= rows:
        return values
    return float(min(draws, values * -math.expm1(rows / values * math.log1p(-draws / rows))))


def combinations(values: float, rows: float) -> float:
    """How many of so many combinations of independent values so many rows hold (Cardenas, 1975)."""
    if values <= 1:
        return min(values, rows)
    return float(min(rows, values * -math.expm1(rows * math.log1p(-1.0 / values))))


class _Distinct:
    """How many different values some roots take together, from the distinct values of columns."""

    def __init__(self, found: Resolution, sizes: Sizes, stats: TableStats | None, rows: float) -> None:
        self._found = found
        self._sizes = sizes
        self._stats = stats
        self._rows = rows
        self._known: dict[int, tuple[float, float]] = {}

    def of(self, roots: int, draws: float) -> float:
        """The distinct values that so many calls see."""
        if not roots:
            return min(1.0, draws)
        found = self._known.get(roots)
        if found is None:
            found = self._known[roots] = self._values(roots)
        return seen_values(*found, draws)

    def _values(self, roots: int) -> tuple[float, float]:
        """How many values there are, and in how many places of the table they stand."""
        values, places, random = 1.0, max(self._rows, 1.0), False
        columns: list[str] = []
        pending, seen = list(bits(roots)), set[int]()
        while pending:
            root = pending.pop()
            if root in seen:
                continue
            seen.add(root)
            ref = self._found.refs[root]
            random = random or ref.random
            inner = 1.0
            if ref.kind == "column":
                columns.append(ref.field)
            elif ref.kind == "item":
                inner = max(1.0, self._sizes.lists.get(ref.frame, 1.0))
                pending.extend(bits(self._found.refs[ref.args[0]].roots))
            elif ref.kind == "carried":
                inner = max(1.0, self._found.places[ref.frame].expected)
                pending.extend(bits(self._found.refs[ref.args[0]].roots))
            values *= inner
            places *= inner
        return (places if random else values * self._together(columns)), places

    def _together(self, columns: list[str]) -> float:
        """How many different values some columns take together."""
        rows = max(self._rows, 1.0)
        known = self._stats.columns if self._stats is not None else {}
        if any(name not in known for name in columns):
            return rows
        deciding = self._deciding(columns)
        if len(deciding) == 1:
            return float(min(rows, max(1, known[deciding[0]].distinct)))
        together = 1.0
        for name in deciding:
            together *= max(1, known[name].distinct)
        return combinations(together, rows) if deciding else 1.0

    def _deciding(self, columns: list[str]) -> list[str]:
        """The columns without those that another of them decides; of two that decide each other the first stays."""
        pairs = set(self._stats.determines) if self._stats is not None else set()
        kept: list[str] = []
        for name in sorted(set(columns)):
            if not any((other, name) in pairs for other in kept):
                kept = [other for other in kept if (name, other) not in pairs]
                kept.append(name)
        return kept
