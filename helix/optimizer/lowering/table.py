"""What the rows of a table come to: calls and tokens by op, and the groups that rows make, with their sizes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.canonical import canonical_text
from helix.logical import Generate
from helix.optimizer.engine_time import EngineTime
from helix.optimizer.lengths import Length
from helix.optimizer.lowering.context import LowerContext, Row
from helix.optimizer.lowering.few import FewCalls
from helix.optimizer.lowering.fixity import ROW, Fixity
from helix.optimizer.lowering.room import copies_of
from helix.optimizer.sizes import Sizes
from helix.optimizer.tally import same_calls, tally_stats
from helix.optimizer.tree.bind import Binder, Instance
from helix.optimizer.tree.refs import Resolution
from helix.optimizer.tree.shape import Tree
from helix.optimizer.tree.trie import CallTrie, Paths
from helix.optimizer.turns import add_turns

Key = tuple[str, ...]


@dataclass(slots=True)
class Group:
    """Rows that agree in the columns to group by. `shared` are the tokens that the first n columns add to a prompt's
    beginning, by n from 1; `tokens` those that the rows add to that, `seconds` the engine's time for them, prefix and
    all that is shared aside.
    """

    key: Key
    place: tuple[Any, ...]
    rows: int = 0
    tokens: float = 0.0
    seconds: float = 0.0
    shared: tuple[float, ...] = ()


@dataclass(slots=True)
class Look:
    """A table looked at: by op `calls` and `prompts` (their tokens together), the tokens of distinct beginnings by the
    place of the tree, the groups in the order of their keys, and the calls one by one where they are few.
    """

    rows: float
    calls: list[float]
    prompts: list[float]
    made_by_place: array[float]
    groups: list[Group] = field(default_factory=list)
    few: FewCalls | None = None


class Decoding:
    """The engine's time for a call besides the prefill of what it does not share, in seconds."""

    def __init__(self, engine: EngineTime, batch: float) -> None:
        self._engine = engine
        self._step = engine.d / max(1.0, batch) + engine.e

    def of(self, prompt: float, output: float) -> float:
        """The seconds of decoding a reply in a full batch."""
        engine = self._engine
        return (self._step * engine.steps(output) + engine.f * engine.contexts(prompt, output)) / 1000

    def prefill(self, tokens: float) -> float:
        """The seconds of prefilling tokens, many calls to a pass."""
        engine = self._engine
        return (engine.a * tokens / engine.chunk + engine.b * tokens) / 1000


def look_at(
    found: Resolution, tree: Tree, paths: Paths, fixity: Fixity, sizes: Sizes, lengths: Sequence[Length],
    context: LowerContext, group_by: Sequence[str],
) -> Look:  # fmt: skip
    """What a table comes to. Rows are bound up to so many calls; what is left is like those before.

    Without rows it comes from the statistics, without these it is one row; there are no groups then.
    """
    if context.rows is None:
        tally = tally_stats(found, tree, sizes, context.stats)
        look = Look(tally.rows, tally.calls, tally.prompts, tally.made_by_place)
    else:
        look = _Looker(found, tree, paths, fixity, sizes, lengths, context, group_by).run(context.rows)
    add_turns(
        found, paths, lengths, calls=look.calls, prompts=look.prompts, made_by_place=look.made_by_place
    )  # fmt: skip
    return look


class _Looker:
    def __init__(
        self, found: Resolution, tree: Tree, paths: Paths, fixity: Fixity, sizes: Sizes, lengths: Sequence[Length],
        context: LowerContext, group_by: Sequence[str],
    ) -> None:  # fmt: skip
        self._binder = Binder(found, tree, sizes, context.tokenizer, context.callables)
        self._trie = CallTrie(paths)
        self._few = FewCalls(tree, paths, [length.mean for length in lengths])
        self._tree = tree
        self._paths = paths
        self._lengths = lengths
        self._decoding = Decoding(context.engine, min(context.engine.batch, context.running))
        self._columns = tuple(group_by)
        self._most = context.bound_calls
        self._stats = context.stats
        self._groups: dict[Key, Group] = {}
        depths = len(self._columns)
        self._common = [place for place, depth in enumerate(fixity.places) if depth < ROW]
        self._levels = [[place for place, depth in enumerate(fixity.places) if depth == n + 1] for n in range(depths)]
        self._copies = copies_of(found, paths, sizes)
        self._means = [sizes.mean(key) for key in paths.keys]
        count = len(tree.ops)
        self._calls, self._prompts = [0.0] * count, [0.0] * count
        self._kinds = same_calls([site for site in found.calls if isinstance(site.node, Generate)])
        self._seen: dict[int, float] = {}
        self._bound = 0
        self._read = 0
        self._here: Group | None = None
        self._spent = [0.0, 0.0]

    def run(self, rows: Iterable[Row]) -> Look:
        source = iter(rows)
        for here in self._binder.run(self._watched(source)):
            self._take(here)
        bound = self._binder.rows
        spent = self._spent
        if not self._columns and self._stats is not None and self._bound >= self._most:
            # Nothing more is asked of the rows than how many there are.
            self._read, source = self._stats.rows, iter(())
        for row in source:
            self._read += 1
            if self._columns:
                group = self._group(row)
                group.rows += 1
                group.tokens += spent[0] / bound
                group.seconds += spent[1] / bound
        scale = self._read / bound if bound else 1.0
        made = array("d", [each * scale for each in self._trie.made_by_place])
        groups = sorted(self._groups.values(), key=lambda group: (group.place, group.key))
        typical = self._typical(groups)
        for group in groups:
            group.shared = group.shared or typical
        return Look(
            float(self._read), [each * scale for each in self._calls], [each * scale for each in self._prompts], made,
            groups, self._few if self._few.whole and self._read == bound else None,
        )  # fmt: skip

    def _typical(self, groups: Sequence[Group]) -> tuple[float, ...]:
        """What the columns share in the mean, for groups of which no row was bound."""
        known = [group.shared for group in groups if group.shared]
        if not known:
            return (0.0,) * len(self._columns)
        return tuple(sum(shared[n] for shared in known) / len(known) for n in range(len(self._columns)))

    def _watched(self, source: Iterator[Row]) -> Iterator[Row]:
        """The rows that are bound, each with its group at hand while its calls are."""
        for row in source:
            self._read += 1
            if self._columns:
                self._here = self._group(row)
                self._here.rows += 1
            yield row
            if self._bound >= self._most:
                return

    def _group(self, row: Row) -> Group:
        values = [row.get(column) for column in self._columns]
        key = tuple(_text(value) for value in values)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, tuple(place_of(value) for value in values))
        return group

    def _take(self, here: Instance) -> None:
        trie, weight = self._trie, here.weight
        self._few.take(here)
        before = trie.made_tokens
        common = sum(trie.made_by_place[place] for place in self._common)
        handles = trie.bind_all(here.order, here.numbers, here.tokens, weight)
        common = sum(trie.made_by_place[place] for place in self._common) - common
        self._bound += len(handles)
        seconds = 0.0
        for (op, _), handle in zip(here.order, handles, strict=True):
            made = weight * self._tree.ops[op].sample
            if self._kinds[op] >= 0:
                same = handle * len(self._kinds) + self._kinds[op]
                missing = self._seen.get(same, 1.0)
                self._seen[same] = missing * (1.0 - weight)
                made *= missing
            prompt = trie.prompt_tokens(handle)
            self._calls[op] += made
            self._prompts[op] += made * prompt
            seconds += made * self._decoding.of(prompt, self._lengths[op].mean)
        fresh = max(0.0, trie.made_tokens - before - common)
        seconds += self._decoding.prefill(fresh)
        self._spent[0] += fresh
        self._spent[1] += seconds
        if self._here is not None:
            self._here.tokens += fresh
            self._here.seconds += seconds
            if not self._here.shared:
                self._here.shared = tuple(self._level(here, places) for places in self._levels)

    def _level(self, here: Instance, places: Sequence[int]) -> float:
        """The tokens of some places in an instance that fills their holes."""
        total = 0.0
        for place in places:
            hole = self._paths.holes[place]
            copies = self._copies[place]
            # Of the items of a list one is here at most.
            tokens = 0.0 if hole < 0 else self._means[hole] if copies > 1 else here.tokens[hole]
            total += (self._paths.literal[place] + tokens) * copies
        return total


def _text(value: Any) -> str:
    try:
        return canonical_text(value)
    except ValueError:
        # JSON has no infinities; a column of a table may.
        return repr(value)


def place_of(value: Any) -> tuple[int, Any]:
    """Where a value stands among others: numbers, texts, bools, the rest, null last; the order in which rows come."""
    if value is None:
        return (9, 0)
    if isinstance(value, bool):
        return (2, int(value))
    if isinstance(value, int | float):
        return (0, value if isinstance(value, float) or abs(value) < 2**63 else float(value))
    text = value if isinstance(value, str) else canonical_text(value)
    return (1 if isinstance(value, str) else 3, text.encode("utf-8", "surrogatepass"))
