"""What a rule changed, told in steps: read off the plan before it and the plan after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from helix.logical import (
    Choose,
    Fetch,
    Filter,
    Generate,
    Invoke,
    Limit,
    LogicalPlan,
    Node,
    bodies,
    every_node,
    readable,
    spine,
)
from helix.optimizer.tree.refs import CallSite, Piece, Resolution
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.shape import Hole
from helix.places import Places, static_name
from helix.summary import summarize

ChangeKind = Literal[
    "merged", "dropped", "added", "known", "unrolled", "hoisted", "later", "earlier", "filled", "laid_out", "reworded",
    "leads", "grouped", "filters", "batched", "query", "branches", "constants", "outputs", "operators",
]  # fmt: skip
# What changes no call, no prompt and no row.
COSMETIC: tuple[ChangeKind, ...] = ("branches", "constants", "outputs", "operators")

_MOST_NAMES = 4
_LOOPS = ("items", "rounds")
_BRANCHES = ("then", "otherwise")
_RELATIONS = ("filter", "limit")
_SAID: dict[ChangeKind, str] = {
    "merged": "merges {steps} into {detail}",
    "dropped": "drops {steps}",
    "added": "adds {steps}",
    "known": "takes {steps} from what is known already",
    "unrolled": "unrolls {detail} into {steps}",
    "hoisted": "takes {steps} out of {detail}",
    "later": "runs {steps} only after {detail}",
    "earlier": "runs {steps} before {detail}",
    "filled": "spells out text in prompts: {steps}",
    "laid_out": "puts parts of prompts in another order: {steps}",
    "reworded": "rewrites prompts: {steps}",
    "leads": "lets the first call of {steps} go ahead",
    "grouped": "works on rows grouped by {detail}",
    "filters": "{detail}",
    "batched": "answers several lookups of {steps} with one query",
    "query": "rewrites the SQL of {steps}",
    "branches": "takes away {count} branches",
    "constants": "puts {count} constants where they are read",
    "outputs": "drops outputs that nobody reads: {steps}",
    "operators": "{detail}",
}
_ONE: dict[ChangeKind, str] = {
    "branches": "takes away a branch",
    "constants": "puts a constant where it is read",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that a rule did: to which steps, to or with what (`detail`), or how many times (`count`)."""

    kind: ChangeKind
    steps: tuple[str, ...] = ()
    detail: str = ""
    count: int = 0

    def text(self, most: int | None = _MOST_NAMES) -> str:
        """In words, with at most so many names (None: all)."""
        said = _SAID[self.kind].format(steps=listed(self.steps, most), detail=self.detail, count=self.count)
        return _ONE.get(self.kind, said) if self.count == 1 else said


def together(found: Iterable[Change]) -> tuple[Change, ...]:
    """Changes of one kind told as one."""
    made: dict[tuple[ChangeKind, str], Change] = {}
    for each in found:
        key = (each.kind, each.detail)
        before = made.get(key)
        if before is not None:
            steps = tuple(dict.fromkeys((*before.steps, *each.steps)))
            each = replace(each, steps=steps, count=before.count + each.count)
        made[key] = each
    return tuple(made.values())


def listed(names: Sequence[str], most: int | None = _MOST_NAMES) -> str:
    """Names with commas, the rest of a long list as a number."""
    if most is None or len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def changes(before: LogicalPlan, after: LogicalPlan) -> tuple[Change, ...]:
    """What changed between two plans of one workflow, what a person cares for most first."""
    old, new = _View(before), _View(after)
    found = [*_calls(old, new), *_places(old, new), *_prompts(old, new), *_settings(old, new), *_rows(before, after)]
    return tuple(found) or (_operators(before, after),)


class _View:
    """The calls of a plan by the name of their step, without positions of items."""

    def __init__(self, plan: LogicalPlan) -> None:
        self.plan = plan
        self.found: Resolution = resolve_plan(plan)
        self.sites: dict[str, list[CallSite]] = {}
        for site in self.found.calls:
            self.sites.setdefault(static_name(site.node.step), []).append(site)
        order = Places(plan.steps)
        names = dict.fromkeys(site.node.step for site in self.found.calls)
        self.names = dict.fromkeys(sorted(names, key=lambda name: order.named(name).rank))
        self.relations: Counter[str] = Counter(place.kind for place in self.found.places)
        self.nodes: tuple[Node, ...] = tuple(every_node(plan.sink))
        self.fetched = {node.step for node in self.nodes if isinstance(node, Fetch)}

    def frames(self, site: CallSite, kinds: Collection[str]) -> list[str]:
        """The names of the frames of these kinds that a call stands in, the outermost first."""
        names: list[str] = []
        frame = site.frame
        while frame >= 0:
            place = self.found.places[frame]
            if place.kind in kinds:
                names.append(_named(place.kind, place.name))
            frame = place.parent
        return names[::-1]


def _named(kind: str, name: str) -> str:
    return f"for {name}" if kind == "items" else name


# --- calls that came and went -------------------------------------------------------------------------------------


def _calls(old: _View, new: _View) -> Iterator[Change]:
    gone = [name for name in old.names if name not in new.names]
    known = [name for name in gone if name in new.fetched and name not in old.fetched]
    if known:
        yield Change(kind="known", steps=tuple(known))
    merged = _merged([name for name in gone if name not in known], old, new)
    yield from (Change(kind="merged", steps=tuple(steps), detail=kept) for kept, steps in merged.items())
    told = {*known, *(step for steps in merged.values() for step in steps)}
    # A step whose name is still there without its position was only renamed: its loop is gone.
    dropped = [name for name in gone if name not in told and static_name(name) not in new.sites]
    for name, sites in old.sites.items():
        fewer = len(sites) - len(new.sites.get(name, ())) - sum(static_name(step) == name for step in told)
        if fewer > 0 and name in new.sites:
            dropped.append(f"{fewer} of {len(sites)} {name}")
    if dropped:
        yield Change(kind="dropped", steps=tuple(dropped))
    unrolled: dict[str, list[str]] = {}
    added: list[str] = []
    for name, sites in new.sites.items():
        before = old.sites.get(name, [])
        if len(sites) <= len(before):
            continue
        loops = [loop for site in before for loop in old.frames(site, _LOOPS)]
        names = [site.node.step for site in sites]
        if loops:
            unrolled.setdefault(loops[-1], []).extend(names)
        else:
            added.extend(names)
    yield from (Change(kind="unrolled", steps=tuple(steps), detail=loop) for loop, steps in unrolled.items())
    if added:
        yield Change(kind="added", steps=tuple(added))


def _merged(gone: Iterable[str], old: _View, new: _View) -> dict[str, list[str]]:
    """Steps that are gone since an equal one was kept, by the one that was kept."""
    made: dict[str, list[str]] = {}
    equal = _equal(old)
    for name in gone:
        kept = next((other for other in equal.get(name, ()) if other in new.names), None)
        if kept is not None:
            made.setdefault(kept, []).append(name)
    return made


def _equal(view: _View) -> dict[str, list[str]]:
    """For each step those that ask the same: the same operator but for names, or the same prompt over other rows."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for sites in view.sites.values():
        for site in sites:
            if isinstance(site.node, Generate):
                node, pieces = site.node, (piece.key if isinstance(piece, Hole) else piece for piece in site.prompt)
                groups.setdefault((*pieces, str(node.returns), repr(node.model)), []).append(node.step)
    made: dict[str, list[str]] = {}
    for group in (*summarize(view.plan).equal, *groups.values()):
        for name in group:
            made.setdefault(name, []).extend(other for other in group if other != name)
    return made


# --- where calls run ----------------------------------------------------------------------------------------------


def _places(old: _View, new: _View) -> Iterator[Change]:
    moved: dict[tuple[ChangeKind, str], list[str]] = {}

    def note(kind: ChangeKind, detail: str, step: str) -> None:
        steps = moved.setdefault((kind, detail), [])
        if step not in steps:
            steps.append(step)

    # Where filters or limits have become fewer, a step is after fewer of them and has not moved.
    kept = [kind for kind in _RELATIONS if old.relations[kind] == new.relations[kind]]
    for name, before, after in _pairs(old, new):
        for kinds in (_LOOPS, _BRANCHES):
            left = _left_over(old.frames(before, kinds), new.frames(after, kinds))
            if left:
                note("hoisted", " and ".join(left), name)
        had, has = old.frames(before, kept), new.frames(after, kept)
        if len(has) > len(had):
            note("later", " and ".join(_left_over(has, had)), name)
        elif len(has) < len(had):
            note("earlier", " and ".join(_left_over(had, has)), name)
    yield from (Change(kind=kind, steps=tuple(steps), detail=detail) for (kind, detail), steps in moved.items())


def _pairs(old: _View, new: _View) -> Iterator[tuple[str, CallSite, CallSite]]:
    """The calls that both plans have, where each has as many of a name."""
    for name, before in old.sites.items():
        after = new.sites.get(name, [])
        if len(before) == len(after):
            yield from ((name, one, other) for one, other in zip(before, after, strict=True))


def _left_over(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Names that the others lack, where they are fewer. Those that were only renamed are not told."""
    missing = len(names) - len(others)
    if missing <= 0:
        return []
    spare = Counter(others)
    left: list[str] = []
    for name in names:
        if spare[name]:
            spare[name] -= 1
        else:
            left.append(name)
    return left[:missing] or list(names[:missing])


# --- what calls ask -----------------------------------------------------------------------------------------------


def _prompts(old: _View, new: _View) -> Iterator[Change]:
    steps: dict[ChangeKind, dict[str, None]] = {"filled": {}, "laid_out": {}, "reworded": {}}
    for name, before, after in _pairs(old, new):
        one, other = _pattern(before.prompt), _pattern(after.prompt)
        if one == other:
            continue
        kind: ChangeKind = "reworded"
        if sorted("".join(one)) == sorted("".join(other)):
            kind = "laid_out"
        elif len("".join(other)) > len("".join(one)):
            kind = "filled"
        steps[kind].setdefault(name)
    yield from (Change(kind=kind, steps=tuple(names)) for kind, names in steps.items() if names)


def _pattern(prompt: Sequence[Piece]) -> list[str]:
    """A prompt's literal text and turns; a value is an empty text."""
    return [
        piece if isinstance(piece, str) else f"\0{piece[0]}\0" if isinstance(piece, tuple) else "" for piece in prompt
    ]


def _settings(old: _View, new: _View) -> Iterator[Change]:
    leads = _flagged(new, lambda node: isinstance(node, Generate) and node.lead)
    led = _flagged(old, lambda node: isinstance(node, Generate) and node.lead)
    if fresh := tuple(step for step in leads if step not in led):
        yield Change(kind="leads", steps=fresh)
    tools = {static_name(node.step): node.tool for node in old.nodes if isinstance(node, Invoke)}
    batched: dict[str, None] = {}
    reworded: dict[str, None] = {}
    for node in new.nodes:
        if not isinstance(node, Invoke) or (before := tools.get(static_name(node.step))) is None:
            continue
        if node.tool.batch != before.batch:
            batched.setdefault(node.step)
        elif node.tool.query != before.query:
            reworded.setdefault(node.step)
    if batched:
        yield Change(kind="batched", steps=tuple(batched))
    if reworded:
        yield Change(kind="query", steps=tuple(reworded))


def _flagged(view: _View, wanted: Callable[[Node], bool]) -> list[str]:
    names = (getattr(node, "step", "") for node in view.nodes if wanted(node))
    return list(dict.fromkeys(names))


# --- rows and the rest --------------------------------------------------------------------------------------------


def _rows(before: LogicalPlan, after: LogicalPlan) -> Iterator[Change]:
    if after.scan.order != before.scan.order and after.scan.order:
        yield Change(kind="grouped", detail=", ".join(after.scan.order))
    old = [each.condition.id for each in spine(before.sink.rows) if isinstance(each, Filter)]
    new = [each.condition.id for each in spine(after.sink.rows) if isinstance(each, Filter)]
    limits = [sum(isinstance(each, Limit) for each in spine(plan.sink.rows)) for plan in (before, after)]
    if len(new) < len(old):
        fewer = len(old) - len(new)
        said = f"makes {len(old)} filters {len(new)}" if new else f"drops {fewer} filter{'s' * (fewer > 1)}"
        yield Change(kind="filters", detail=said)
    elif new != old and sorted(new) == sorted(old):
        yield Change(kind="filters", detail="puts filters in another order")
    elif 0 < limits[1] < limits[0]:
        yield Change(kind="filters", detail=f"makes {limits[0]} limits {limits[1]}")
    elif [type(each) for each in spine(before.sink.rows)] != [type(each) for each in spine(after.sink.rows)]:
        yield Change(kind="filters", detail="moves filters and limits over rows")
    branches = [sum(isinstance(node, Choose) for node in every_node(plan.sink)) for plan in (before, after)]
    if branches[1] < branches[0]:
        yield Change(kind="branches", count=branches[0] - branches[1])


def _operators(before: LogicalPlan, after: LogicalPlan) -> Change:
    """What is said where no call and no row is touched."""
    old, new = _Loose(before), _Loose(after)
    if unread := old.outputs - new.outputs:
        return Change(kind="outputs", steps=tuple(sorted(unread)))
    fewer = old.counts - new.counts
    if fewer["Const"] > 0:
        return Change(kind="constants", count=fewer["Const"])
    names = ", ".join(f"{count} {name}" for name, count in sorted(fewer.items()))
    return Change(kind="operators", detail=f"drops {names}" if names else "writes expressions in another way")


class _Loose:
    """How many operators of each kind a plan has, and the outputs of its branches and loops."""

    def __init__(self, plan: LogicalPlan) -> None:
        nodes = list(every_node(plan.sink))
        self.counts = Counter(type(node).__name__ for node in nodes)
        self.outputs = Counter(
            name
            for node in nodes
            for name in dict.fromkeys(name for _, body in bodies(node) for name, _ in body.results if readable(name))
        )
