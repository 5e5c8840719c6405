"""Which calls of a row follow on one another, and how long the longest chain of them takes.

Items of a loop and samples of a step run beside each other, rounds of a `repeat` and turns of an agent one after the
other. A call is known by its row and by its step as records name it, with the positions of the items that it is for:
two steps in a loop follow on one another for one item, and not across items. Where a name lacks positions (rows that a
list was spread to, tools of which only the step is told) nobody knows whose item a call is, and an item may have the
shortest call of one step and the longest of the next: of the steps in such a loop only the longest call counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from helix.logical import Agent, Generate
from helix.optimizer.tree.refs import CallSite, Resolution
from helix.optimizer.tree.shape import bits
from helix.places import static_name

# What a call took, in any unit, by row and step.
Spent = tuple[int, str, float]
_NUMBER = re.compile(r"\d+")
# A row has seldom more of them.
LINES = 64
# A call site, and the item that its calls are for; None: not known.
_Place = tuple[int, tuple[int, ...] | None]


class Chains:
    """The chains of a plan's calls."""

    def __init__(self, found: Resolution) -> None:
        self._loops = [_loops_of(found, site) for site in found.calls]
        self._in_turn = [_takes_turns(found, site) for site in found.calls]
        self._before = all_before(found)
        self._names: dict[str, list[tuple[int, re.Pattern[str]]]] = {}
        # Sites of one name, of which nobody knows which one a call is of, go by the first: it comes after what all of
        # them come after, and before what comes after all of them.
        self._same: dict[int, int] = {}
        named: dict[str, int] = {}
        for site in found.calls:
            step, index = site.node.step, site.index
            first = named.setdefault(step, index)
            self._same[first] = self._same.get(first, 0) | 1 << index
            if first == index:
                self._names.setdefault(static_name(step), []).append((index, _named(step)))
                continue
            self._before[first] &= self._before[index]
            self._in_turn[first] &= self._in_turn[index]
            if self._loops[first] != self._loops[index]:
                self._loops[first] = (*self._loops[first][: _common(self._loops[first], self._loops[index])], -1)
        self._places: dict[str, _Place | None] = {}

    def longest(self, times: Iterable[Spent], beside: Iterable[Spent] = ()) -> float:
        """The longest chain of a row, over all rows. Of those `beside` the others of their step one counts where it
        alone is longer than all of these.
        """
        rows: dict[int, tuple[list[Spent], list[Spent]]] = {}
        for spent in times:
            rows.setdefault(spent[0], ([], []))[0].append(spent)
        for spent in beside:
            rows.setdefault(spent[0], ([], []))[1].append(spent)
        return max((self.of_row(own, others) for own, others in rows.values()), default=0.0)

    def of_row(self, times: Sequence[Spent], beside: Sequence[Spent] = ()) -> float:
        """The longest chain among calls of one row."""
        own: dict[_Place, float] = {}
        for _, step, spent in times:
            place = self._place(step)
            if place is not None:
                in_turn = self._in_turn[place[0]] and place[1] is not None
                own[place] = own.get(place, 0.0) + spent if in_turn else max(own.get(place, 0.0), spent)
        for _, step, spent in beside:
            place = self._place(step)
            if place is not None:
                own[place] = max(own.get(place, 0.0), spent)
        if len(own) < 2:
            return max(own.values(), default=0.0)
        return self._longest(own)

    def _longest(self, own: dict[_Place, float]) -> float:
        """The longest chain, from what each place takes by itself."""
        # Of each site the longest chain that ends in it, by the first positions of its item, as many as are asked for.
        ended: dict[int, list[dict[tuple[int, ...], float]]] = {}
        longest = 0.0
        for site, item in sorted(own, key=lambda place: (place[0], place[1] or ())):
            loops = self._loops[site]
            begun = 0.0
            for other, known in ended.items():
                if self._same[other] & ~self._before[site]:
                    continue
                common = _common(loops, self._loops[other])
                if common and (item is None or len(known) <= common):
                    continue
                begun = max(begun, known[common].get((item or ())[:common], 0.0))
            end = begun + own[site, item]
            longest = max(longest, end)
            depth = 0 if item is None else len(loops)
            kept = ended.setdefault(site, [])
            kept.extend({} for _ in range(depth + 1 - len(kept)))
            for length in range(depth + 1):
                first = (item or ())[:length]
                kept[length][first] = max(kept[length].get(first, 0.0), end)
        return longest

    def lines(self, calls: Sequence[Spent], contexts: Sequence[float]) -> list[tuple[float, float]]:
        """All calls in lines of which each call follows on the one before, as few as are found at once: what a line
        takes, and the widest of its contexts, of which each call has one. Calls of a row go on its first `LINES` lines
        or begin one, so that wide rows take no longer: more lines than there need be only lower a bound.
        """
        rows: dict[int, list[tuple[_Place, float, float]]] = {}
        made: list[tuple[float, float]] = []
        for (row, step, spent), context in zip(calls, contexts, strict=True):
            place = self._place(step)
            if place is None:
                made.append((spent, context))
            else:
                rows.setdefault(row, []).append((place, spent, context))
        for own in rows.values():
            lines: list[tuple[_Place, float, float]] = []
            for place, spent, context in sorted(own, key=lambda each: (each[0][0], each[0][1] or ())):
                # The longest that it follows on, so that long lines get longer.
                best = -1
                for at, line in enumerate(lines[:LINES]):
                    if (best < 0 or line[1] > lines[best][1]) and self._follows(place, line[0]):
                        best = at
                if best < 0:
                    lines.append((place, spent, context))
                else:
                    lines[best] = (place, lines[best][1] + spent, max(lines[best][2], context))
            made += [line[1:] for line in lines]
        return made

    def _follows(self, place: _Place, other: _Place) -> bool:
        """Whether a call of a place is made after all those of another one."""
        if place == other:
            return self._in_turn[place[0]] and place[1] is not None
        if self._same[other[0]] & ~self._before[place[0]]:
            return False
        common = _common(self._loops[place[0]], self._loops[other[0]])
        if not common:
            return True
        return place[1] is not None and other[1] is not None and place[1][:common] == other[1][:common]

    def _place(self, step: str) -> _Place | None:
        """The site and the item of a call; None where no step of the plan has that name."""
        if step not in self._places:
            self._places[step] = self._found(step)
        return self._places[step]

    def _found(self, step: str) -> _Place | None:
        for site, pattern in self._names.get(static_name(step), ()):
            match = pattern.fullmatch(step)
            if match is not None:
                loops = self._loops[site]
                item = tuple(int(number) for part in match.groups() for number in _NUMBER.findall(part))
                return site, item if len(item) == len(loops) and -1 not in loops else None
        return None


def all_before(found: Resolution) -> list[int]:
    """By call site all those that its calls come after, as bits.

    A step in an arm or a loop may not be made at all, and then nobody waits for what it needs: who comes after it comes
    after that only where either of the two is inside too.
    """
    frames = [_frames(found, site) for site in found.calls]
    inside: dict[int, int] = {}
    for site, around in zip(found.calls, frames, strict=True):
        for frame in around:
            inside[frame] = inside.get(frame, 0) | 1 << site.index
    made: list[int] = []
    for site, around in zip(found.calls, frames, strict=True):
        before = site.needs & ((1 << site.index) - 1)
        for other in bits(before):
            frame = found.calls[other].frame
            before |= made[other] if frame in around else made[other] & inside[frame]
        made.append(before)
    return made


def _frames(found: Resolution, site: CallSite) -> list[int]:
    """The frames that a call is in, the innermost first."""
    frames, frame = [], site.frame
    while frame >= 0:
        frames.append(frame)
        frame = found.places[frame].parent
    return frames


def _common(loops: Sequence[int], others: Sequence[int]) -> int:
    """How many loops, the outermost first, both are in."""
    count = 0
    for loop, other in zip(loops, others, strict=False):
        if loop != other:
            break
        count += 1
    return count


def _loops_of(found: Resolution, site: CallSite) -> tuple[int, ...]:
    """The loops that a call is in since the last group, the outermost first, by their frames. Where rows were spread
    all but the outermost are left out, and -1 says that no name tells the item.
    """
    kinds = {frame: found.places[frame].kind for frame in _frames(found, site)}
    since = list(takewhile(lambda frame: kinds[frame] != "group", kinds))
    loops = [frame for frame in reversed(since) if kinds[frame] in ("items", "spread")]
    return (loops[0], -1) if any(kinds[frame] == "spread" for frame in loops) else tuple(loops)


def _takes_turns(found: Resolution, site: CallSite) -> bool:
    """Whether the calls of a site for one item are made one after the other."""
    if isinstance(site.node, Agent):
        return True
    one = not isinstance(site.node, Generate) or site.node.sample == 1
    return one and any(found.places[frame].kind == "rounds" for frame in _frames(found, site))


def _named(step: str) -> re.Pattern[str]:
    """What the calls of a step are named: as the step, with positions of items where it has none."""
    parts = (re.escape(part) + ("" if part.endswith("]") else r"((?:\[\d+\])*)") for part in step.split("."))
    return re.compile(r"\.".join(parts))
