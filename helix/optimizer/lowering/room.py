"""The room that rows take in a KV cache while they are worked on, and how many of them a cache holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helix.logical import Generate
from helix.optimizer.lowering.fixity import ROW, Fixity
from helix.optimizer.lowering.ops import Op
from helix.optimizer.lowering.order import Phase
from helix.optimizer.sizes import Sizes
from helix.optimizer.tree.frames import around_frame
from helix.optimizer.tree.refs import Resolution
from helix.optimizer.tree.shape import Tree
from helix.optimizer.tree.trie import Paths
from helix.optimizer.turns import growth

# The part of a cache that may be promised away.
FULL = 0.95
# Rows of a block, where nothing has to be kept between its phases: enough for any batch, few enough to hold.
MOST_ROWS = 4096
# The share of the calls that a rank can run at once which the rows of a block have to reach.
ENOUGH = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Tokens of a rank's cache. `fixed` are what all rows share. `row` is the most that a row takes at once, replies
    included; `held` the part of it that has to stay between phases for a later one; `call` the most that one call
    takes below what rows share. `group_held`: what a group shares is used by more than one phase.
    """

    fixed: float
    row: float
    held: float
    call: float
    group_held: bool


def room_of(
    found: Resolution, tree: Tree, paths: Paths, fixity: Fixity, sizes: Sizes, ops: Sequence[Op],
    phases: Sequence[Phase], often: Sequence[float],
) -> Room:  # fmt: skip
    """The room that a row takes, phase by phase."""
    size = _place_sizes(paths, sizes)
    many = copies_of(found, paths, sizes)
    replies = {op.reply: op.index for op in tree.ops if op.reply}
    keys = list(paths.keys)
    own = [[place for place in path if fixity.places[place] == ROW] for path in paths.paths]
    fixed = sum(size[place] * many[place] for place, depth in enumerate(fixity.places) if not depth)
    last: dict[int, int] = {}
    grouped: dict[int, set[int]] = {}
    for number, phase in enumerate(phases):
        for op in phase.ops:
            for place in paths.paths[op]:
                last[place] = number
                if 0 < fixity.places[place] < ROW:
                    grouped.setdefault(place, set()).add(number)
    looped = _looped(found, phases, own)
    row = held = call = 0.0
    done: set[int] = set()
    kept: set[int] = set()
    for number, phase in enumerate(phases):
        live = kept | looped[number]
        outputs = 0.0
        for op in phase.ops:
            live.update(own[op])
            reply = ops[op].length.p90 + growth(ops[op].node, ops[op].length.p90)
            outputs += reply * max(1.0, often[tree.ops[op].frame]) * ops[op].node.sample
            call = max(call, sum(size[place] for place in own[op]) + reply)
            done.add(op)
        row = max(row, sum(size[place] * many[place] for place in live) + outputs)
        kept = {place for place in live if last[place] > number}
        for place, until in last.items():
            hole = paths.holes[place]
            if until > number and paths.decoded[place] and hole >= 0 and replies.get(keys[hole], -1) in done:
                kept.add(place)
        held = max(held, sum(size[place] * many[place] for place in kept | looped[number]))
    return Room(fixed=fixed, row=row, held=held, call=call, group_held=any(len(used) > 1 for used in grouped.values()))


def _looped(found: Resolution, phases: Sequence[Phase], own: Sequence[Sequence[int]]) -> list[set[int]]:
    """By phase the places that a row's later rounds come back to: those of a loop that goes through several phases."""
    made: list[set[int]] = [set() for _ in phases]
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    at = {op: number for number, phase in enumerate(phases) for op in phase.ops}
    for loop, place in enumerate(found.places):
        if place.kind != "rounds" or place.expected <= 1:
            continue
        inside = [op for op, site in enumerate(sites) if op in at and loop in around_frame(found, site.frame)]
        numbers = sorted({at[op] for op in inside})
        if len(numbers) > 1:
            places = {each for op in inside for each in own[op]}
            for number in range(numbers[0], numbers[-1] + 1):
                made[number] |= places
    return made


def _place_sizes(paths: Paths, sizes: Sizes) -> list[float]:
    """The tokens of each place; of a value that grows round by round those of its last one."""
    keys = list(paths.keys)
    return [
        paths.literal[place] + (max(sizes.holes[keys[hole]]) if hole >= 0 else 0.0)
        for place, hole in enumerate(paths.holes)
    ]


def copies_of(found: Resolution, paths: Paths, sizes: Sizes) -> list[float]:
    """How many copies of a place one row has at once: one for each item of the lists that it depends on.

    The rounds of a loop come one after the other and take their place.
    """
    keys = list(paths.keys)
    items: Mapping[int, float] = {
        index: max(1.0, sizes.lists.get(index, place.expected))
        for index, place in enumerate(found.places)
        if place.kind in ("items", "spread")
    }
    made = [1.0] * len(paths.holes)
    for path in paths.paths:
        around: set[int] = set()
        for place in path:
            hole = paths.holes[place]
            if hole >= 0:
                for arg in found.holes[keys[hole]].args:
                    frame = found.refs[arg].frame
                    while frame >= 0:
                        if frame in items:
                            around.add(frame)
                        frame = found.places[frame].parent
            copies = 1.0
            for frame in sorted(around):
                copies *= items[frame]
            made[place] = copies
    return made


def block_of(room: Room, *, capacity: int, running: int, ranks: int, rows: float, group_share: float) -> int:
    """How many rows are worked on phase by phase before the next ones begin.

    Between phases a block's rows keep what a later phase continues, beside what all rows share and the calls that run.
    `group_share` are the tokens that a row has of its group's beginning. At least one row; no more than the table.
    """
    most = max(1, min(MOST_ROWS * ranks, round(rows)))
    held = room.held + (group_share if room.group_held else 0.0)
    if not held:
        return most
    free = FULL * capacity - room.fixed
    free -= min(free / 2, running * room.call)
    return max(1, min(most, int(free / held) * ranks))


def busy_of(room: Room, ops: Sequence[Op], *, capacity: int, running: int) -> float:
    """The calls that a rank runs at once: as many as it has seats for, or room beside what all rows share."""
    made = sum(op.calls for op in ops)
    own = sum(op.calls * (op.private + op.length.mean) for op in ops)
    return min(float(running), max(0.0, FULL * capacity - room.fixed) * made / own) if own else float(running)
