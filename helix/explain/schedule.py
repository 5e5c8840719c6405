"""How a plan is run, as text: a tree for each rank of what is computed ahead, its groups of rows, and the order of the
steps; what the plan wants of the engine; and the short form of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from helix.explain.figures import number, seconds
from helix.explain.layout import paint, shortened, wrapped
from helix.physical import PhysicalPlan, PhysicalStep, RowGroup, WarmPrefix
from helix.show import cells

# Of a rank's groups and of warm-ups so many are shown; a person asks for the rest with `--verbose`.
_SHOWN = 8
_KEY = 40


@dataclass(slots=True)
class Entry:
    """A line of a tree: what it is, what is told of it, and what stands below it."""

    text: str
    facts: tuple[str, ...] = ()
    below: list[Entry] = field(default_factory=list)
    style: str = ""


# --- the tree -----------------------------------------------------------------------------------------------------


def schedule_lines(plan: PhysicalPlan, width: int, *, color: bool = False, verbose: bool = False) -> list[str]:
    """The tree of each rank, no line wider than `width` cells."""
    lines: list[str] = []
    for entry in rank_entries(plan, verbose=verbose):
        lines += _drawn(entry, width, color)
    return lines


def rank_entries(plan: PhysicalPlan, *, verbose: bool = False) -> Iterator[Entry]:
    """The ranks, each with what it does. Warm-ups and steps are the same on all, and told once."""
    for rank in range(plan.ranks):
        mine = [group for group in plan.groups if rank in group.ranks]
        facts = []
        if mine:
            rows = sum(_share(group, rank) for group in mine)
            facts = [_count(len(mine), "group"), _count(rows, "row"), f"{seconds(plan.loads[rank])} s of work"]
        below = list(_group_entries(plan, mine, rank, verbose))
        if rank:
            below.append(Entry("computes ahead and releases steps as rank 0", style="quiet"))
        else:
            below = [*_warm_entries(plan, verbose), *below, _block_entry(plan)]
        yield Entry(f"rank {rank}", tuple(facts), below, style="heading")


def _share(group: RowGroup, rank: int) -> int:
    """The rows of a group that a rank takes: where several share it, they take turns."""
    return -(-(group.rows - group.ranks.index(rank)) // len(group.ranks))


def _warm_entries(plan: PhysicalPlan, verbose: bool) -> list[Entry]:
    made = [Entry(f"ahead: {each.text}", _warm_facts(each), style="good") for each in plan.warm]
    top: list[Entry] = []
    for entry, each in zip(made, plan.warm, strict=True):
        (top if each.after is None else made[each.after].below).append(entry)
    return _some(top, verbose, "more to compute ahead")


def _warm_facts(warm: WarmPrefix) -> tuple[str, ...]:
    return (_count(warm.tokens, "token"), _count(len(warm.steps), "step"), _count(warm.calls, "call"))


def _group_entries(plan: PhysicalPlan, groups: Sequence[RowGroup], rank: int, verbose: bool) -> list[Entry]:
    return _nested(plan, groups, rank, 0, verbose)


def _nested(plan: PhysicalPlan, groups: Sequence[RowGroup], rank: int, depth: int, verbose: bool) -> list[Entry]:
    """Groups below those that agree in the columns before."""
    made: list[Entry] = []
    for key, part in groupby(groups, key=lambda group: group.key[depth]):
        members = list(part)
        rows = sum(_share(group, rank) for group in members)
        name = f"{plan.group_by[depth]} = {shortened(_key_text(key), _KEY)}"
        if depth + 1 < len(plan.group_by):
            below = _nested(plan, members, rank, depth + 1, verbose)
            made.append(Entry(name, (_count(len(members), "group"), _count(rows, "row")), below))
        else:
            made += [Entry(name, _group_facts(group, rank)) for group in members]
    return _some(made, verbose, "more groups")


def _group_facts(group: RowGroup, rank: int) -> tuple[str, ...]:
    rows = _share(group, rank)
    facts = [
        _count(rows, "row"),
        f"{number(group.shared_tokens)} tokens shared",
        f"{number(group.row_tokens)} a row",
        f"{seconds(group.work / len(group.ranks))} s",
    ]
    if len(group.ranks) > 1:
        facts.append(f"with rank {', '.join(str(other) for other in group.ranks if other != rank)}")
    return tuple(facts)


def _key_text(key: str) -> str:
    """A value of a key on one line: texts as they are between quotes."""
    try:
        value = json.loads(key)
    except ValueError:
        return key
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else key


def _some(entries: list[Entry], verbose: bool, rest: str) -> list[Entry]:
    if verbose or len(entries) <= _SHOWN + 1:
        return entries
    return [*entries[:_SHOWN], Entry(f"{len(entries) - _SHOWN:,} {rest}", style="quiet")]


def _block_entry(plan: PhysicalPlan) -> Entry:
    if not plan.steps:
        return Entry("no llm steps", style="quiet")
    rows = min(plan.block, max(1, round(plan.rows)))
    title = "the row" if plan.rows <= 1 else "all rows" if rows >= plan.rows else f"each {rows:,} rows in turn"
    facts = [f"{number(plan.row_tokens)} tokens a row at most"]
    if plan.held_tokens:
        facts.append(f"{number(plan.held_tokens)} kept between phases")
    return Entry(title, tuple(facts), [_phase_entry(plan, phase) for phase in phases_of(plan)])


def phases_of(plan: PhysicalPlan) -> list[tuple[PhysicalStep, ...]]:
    """The steps of each phase, in the order of release."""
    ordered = sorted(plan.steps, key=lambda step: step.phase)
    return [tuple(part) for _, part in groupby(ordered, key=lambda step: step.phase)]


def _phase_entry(plan: PhysicalPlan, steps: Sequence[PhysicalStep]) -> Entry:
    if len(steps) == 1:
        return _step_entry(steps[0])
    return Entry("row by row" if plan.rows > 1 else "together", (), [_step_entry(step) for step in steps])


def _step_entry(step: PhysicalStep) -> Entry:
    facts = (
        _count(step.calls, "call"),
        f"{number(step.prompt_tokens)} tokens, {number(step.private_tokens)} its own",
        f"reply {number(step.output_tokens)} ({step.source})",
        f"{seconds(step.rank_up)} s to the end",
    )
    return Entry(step.step, facts, style="name")


def _count(value: float, noun: str) -> str:
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def _drawn(root: Entry, width: int, color: bool) -> list[str]:
    """A tree as lines with guides, without recursion."""
    lines = [_line("", root, width, color)]
    stack = [(entry, "", last) for entry, last in _with_last(root.below)][::-1]
    while stack:
        entry, guide, last = stack.pop()
        lines.append(_line(guide + ("└─ " if last else "├─ "), entry, width, color))
        inner = guide + ("   " if last else "│  ")
        stack += [(below, inner, end) for below, end in _with_last(entry.below)][::-1]
    return lines


def _with_last(entries: Sequence[Entry]) -> list[tuple[Entry, bool]]:
    return [(entry, at == len(entries) - 1) for at, entry in enumerate(entries)]


def _line(lead: str, entry: Entry, width: int, color: bool) -> str:
    """A line with as many of its facts as leave the text two fifths of the room."""
    room = width - cells(lead)
    facts = list(entry.facts)
    least = min(cells(entry.text), room * 2 // 5)
    while facts and least + 2 + cells(", ".join(facts)) > room:
        facts.pop()
    told = ", ".join(facts)
    text = shortened(entry.text, room - (2 + cells(told) if told else 0))
    shown = paint(text, entry.style, color) if entry.style else text
    return lead + shown + (f"  {paint(told, 'quiet', color)}" if told else "")


# --- settings and the short form ----------------------------------------------------------------------------------


def advice_lines(plan: PhysicalPlan, width: int, *, color: bool = False) -> list[str]:
    """The settings that the plan wants of the engine, each with its reason below it."""
    lines: list[str] = []
    for each in plan.advice:
        flag = f"{each.flag} {each.value}".rstrip()
        lines.append("  " + paint(shortened(flag, width - 2), "name", color))
        lines += [paint(line, "quiet", color) for line in wrapped(each.why, width, first="    ")]
    return lines


def schedule_notes(plan: PhysicalPlan) -> list[str]:
    """What the schedule rests on."""
    made: list[str] = []
    order = plan.order
    if order is not None and order.now < order.first:
        made.append(f"the order of the steps was made {1 - order.now / order.first:.1%} shorter in token steps")
    if order is not None and order.exact is not None:
        gap = order.now / order.exact - 1 if order.exact else 0.0
        best = "the best order of all calls" if order.proven else "the best order that was found"
        made.append(f"{best} is {gap:.1%} shorter" if gap >= 0.0005 else f"it is as short as {best}")
    if plan.kv_wanted:
        held = "" if plan.kv_tokens is None else f", it holds {plan.kv_tokens:,}"
        made.append(f"the cache of a rank should hold {plan.kv_wanted:,} tokens{held}")
    return [*made, *plan.notes]


def worth_telling(plan: PhysicalPlan) -> bool:
    """Whether there is anything to schedule: several steps, groups, warm-ups or ranks."""
    return len(plan.steps) > 1 or bool(plan.groups or plan.warm) or (plan.ranks > 1 and bool(plan.steps))


def short_lines(plan: PhysicalPlan, width: int) -> list[str]:
    """The schedule in a few lines: the steps in their order, what is computed ahead, what each rank takes."""
    lines: list[str] = []
    lines += wrapped(_order(plan), width, first="  ", then="    ")
    for each in plan.warm[:2]:
        said = f"{_count(each.tokens, 'token')} for {_count(each.calls, 'call')} of {_count(len(each.steps), 'step')}"
        lines += wrapped(f"computed ahead: {said}", width, first="  ")
    if len(plan.warm) > 2:
        lines += wrapped(f"computed ahead: {_count(len(plan.warm) - 2, 'more beginning')}", width, first="  ")
    for rank in range(plan.ranks if plan.groups else 0):
        mine = [group for group in plan.groups if rank in group.ranks]
        rows = sum(_share(group, rank) for group in mine)
        by = ", ".join(plan.group_by)
        said = f"{_count(len(mine), 'group')} by {by}, {_count(rows, 'row')}, {seconds(plan.loads[rank])} s of work"
        lines += wrapped(f"rank {rank}: {said}", width, first="  ")
    return lines


def _order(plan: PhysicalPlan) -> str:
    """The steps in their order, those that go row by row together in brackets; the middle of a long plan left out."""
    phases = phases_of(plan)
    names: list[str] = []
    for steps in phases:
        told = " + ".join(dict.fromkeys(step.step for step in steps))
        name = f"({told})" if " + " in told else told
        if names[-1:] != [name]:
            names.append(name)
    if len(names) > _SHOWN:
        names = [*names[: _SHOWN - 1], f"... {len(names) - _SHOWN:,} more ...", names[-1]]
    return ", then ".join(names)


def title(plan: PhysicalPlan) -> str:
    """What the schedule is for."""
    ranks = f"{plan.ranks} ranks" if plan.ranks > 1 else "one rank"
    held = f" of {plan.kv_tokens:,} tokens" if plan.kv_tokens is not None else ""
    rows = "one row" if plan.rows == 1 else f"{number(plan.rows)} rows"
    return f"({rows} on {ranks}{held})"
