"""Lowers a logical plan to a physical one: phases, groups of rows, ranks, warm-ups, and settings of the engine.

What is done once for the template (tree, order of the steps, warm-ups) does not grow with the table; the rows are read
once, and of them only groups are kept. Scheduling after Helium (arXiv 2603.16104): upward ranks in seconds, a walk
through the templated radix tree, groups by longest processing time first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helix.logical import Generate, LogicalPlan
from helix.optimizer.lowering.advice import advice_of, kv_wanted
from helix.optimizer.lowering.assign import Assigner, Placed, release_order
from helix.optimizer.lowering.context import LEAST_BUDGET, SHARE, LowerContext
from helix.optimizer.lowering.few import FewCalls, best_calls
from helix.optimizer.lowering.fixity import Fixity
from helix.optimizer.lowering.helium import Worker, helium_phases
from helix.optimizer.lowering.ops import Op, list_ops, often_by_frame
from helix.optimizer.lowering.order import Phase, phases_of
from helix.optimizer.lowering.recurrence import timeline
from helix.optimizer.lowering.room import ENOUGH, MOST_ROWS, Room, block_of, busy_of, room_of
from helix.optimizer.lowering.search import PRICE, OrderSearch
from helix.optimizer.lowering.table import Decoding, Group, Look, look_at
from helix.optimizer.lowering.warm import warm_prefixes
from helix.optimizer.sizes import estimate_sizes
from helix.optimizer.tree.build import build_tree
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.shape import bits
from helix.optimizer.tree.trie import Paths
from helix.physical import OrderCost, PhysicalPlan, PhysicalStep, RowGroup


def lower(plan: LogicalPlan, context: LowerContext | None = None) -> PhysicalPlan:
    """The physical plan of an optimized one. The same plan and table give the same one, whatever the order of rows
    that agree in the columns to group by.

    Time is linear in rows and calls. Without rows and statistics it is the plan for one row.
    """
    context = context or LowerContext()
    found = resolve_plan(plan, context.callables)
    tree = build_tree(plan, context.tokenizer, found)
    lengths = {
        site.index: context.lengths.of(site, context.tokenizer)
        for site in found.calls
        if isinstance(site.node, Generate)
    }
    sizes = estimate_sizes(found, context.tokenizer, context.stats, lengths)
    paths = Paths(tree)
    group_by = plan.scan.order
    fixity = Fixity(found, tree, paths, group_by, context.stats)
    look = look_at(found, tree, paths, fixity, sizes, list(lengths.values()), context, group_by)
    often = often_by_frame(found, sizes.lists)
    ops = list_ops(
        found, tree, paths, context.engine, lengths,
        calls=look.calls, prompts=look.prompts, made_by_place=look.made_by_place, often=often,
    )  # fmt: skip
    helium = context.planner.startswith("helium")
    if helium:
        worker = Worker(rows=max(1.0, look.rows / context.ranks), capacity=context.capacity, running=context.running)
        paper = context.planner == "helium-paper"
        phases = helium_phases(tree, paths, fixity, sizes, ops, worker, paper=paper)
    else:
        phases = phases_of(tree, fixity, ops)
    decoding = Decoding(context.engine, min(context.engine.batch, context.running))
    budget = min(context.budget, SHARE * _seconds(ops, look, decoding) / context.ranks)
    if context.planner != "helix":
        budget, look.groups = 0, []
    room = room_of(found, tree, paths, fixity, sizes, ops, phases, often)
    block = _block(room, context, look)
    order: OrderCost | None = None
    if ops:
        search = OrderSearch(
            paths, fixity, sizes, ops, rows=look.rows, block=max(1, block // context.ranks), capacity=context.capacity
        )
        if budget > 0 and search.calls:
            phases, order = search.improved(phases, budget)
            room = room_of(found, tree, paths, fixity, sizes, ops, phases, often)
            block = _block(room, context, look)
    calls: tuple[tuple[int, str], ...] = ()
    if look.few is not None and look.few.calls and context.ranks == 1 and budget > 0:
        calls, order = _call_by_call(look.few, ops, phases, block, context, max(budget, LEAST_BUDGET))
    enough = ENOUGH * context.ranks * busy_of(room, ops, capacity=context.capacity, running=context.running)
    if helium:
        # All rows go through one phase before any goes through the next.
        block = max(1, min(MOST_ROWS * context.ranks, round(look.rows)))
    groups, placed = _groups(look, context, decoding, budget)
    warm = warm_prefixes(tree, ops, context.theta)
    wanted = kv_wanted(context, ops, room, rows=look.rows, block=block) if ops else 0
    tight = context.kv_tokens is not None and (wanted > context.kv_tokens or (room.held > 0 and block < look.rows))
    return PhysicalPlan(
        plan=plan,
        ranks=context.ranks,
        group_by=group_by,
        block=block,
        fills=block >= enough,
        steps=_steps(ops, phases),
        warm=warm,
        groups=groups,
        advice=advice_of(context, ops, room, warm, tight=tight, grouped=bool(groups)),
        row_tokens=room.row,
        kv_tokens=context.kv_tokens,
        kv_wanted=wanted,
        held_tokens=room.held,
        fixed_tokens=room.fixed,
        call_tokens=room.call,
        max_running=context.max_running,
        rows=look.rows,
        loads=tuple(placed.loads),
        order=order,
        calls=calls,
        notes=_notes(context, ops),
    )


def _call_by_call(
    few: FewCalls, ops: Sequence[Op], phases: Sequence[Phase], block: int, context: LowerContext, budget: float
) -> tuple[tuple[tuple[int, str], ...], OrderCost]:
    """The order of the calls of a small table, where it is better than that of the phases, and what was found."""
    at = {op: (number, place) for number, phase in enumerate(phases) for place, op in enumerate(phase.ops)}

    def turn(call: int) -> tuple[int, int, int, int]:
        row, op = few.places[call]
        return row // block, at[op][0], row, at[op][1]

    start = sorted(range(len(few.calls)), key=turn)
    first = timeline(few.calls, [start], [context.capacity]).makespan
    best = best_calls(few.calls, context.capacity, start, min(context.budget, budget))
    calls: tuple[tuple[int, str], ...] = ()
    if best.makespan < first:
        calls = tuple((row, ops[op].node.id) for row, op in (few.places[call] for call in best.order))
    rows = len({row for row, _ in few.places})
    exact = best.makespan if best.proven else None
    return calls, OrderCost(
        first=first, now=best.makespan, rows=rows, tried=best.tried, exact=exact, proven=best.proven
    )


def _seconds(ops: Iterable[Op], look: Look, decoding: Decoding) -> float:
    """The engine's time for all calls of a table, each beginning computed once."""
    work = sum(op.calls * decoding.of(op.prompt, op.length.mean) for op in ops)
    return work + decoding.prefill(sum(look.made_by_place))


def _block(room: Room, context: LowerContext, look: Look) -> int:
    shared = sum(sum(group.shared) for group in look.groups)
    share = shared / look.rows if look.rows else 0.0
    return block_of(
        room, capacity=context.capacity, running=context.running, ranks=context.ranks, rows=look.rows,
        group_share=share,
    )  # fmt: skip


def _steps(ops: Sequence[Op], phases: Sequence[Phase]) -> tuple[PhysicalStep, ...]:
    """The steps in the order of release; ops of one step are told together."""
    made: dict[str, PhysicalStep] = {}
    for number, phase in enumerate(phases):
        for op in (ops[index] for index in phase.ops):
            before = made.get(op.node.id)
            needs = (ops[other].node.id for other in bits(op.needs))
            calls = op.calls + (before.calls if before else 0.0)
            share = op.calls / calls if calls else 1.0
            made[op.node.id] = PhysicalStep(
                node=op.node.id,
                step=op.node.step,
                phase=before.phase if before else number,
                rank_up=max(op.rank_up, before.rank_up if before else 0.0),
                calls=calls,
                prompt_tokens=_mean(share, op.prompt, before.prompt_tokens if before else 0.0),
                private_tokens=_mean(share, op.private, before.private_tokens if before else 0.0),
                output_tokens=op.length.mean,
                output_p90=op.length.p90,
                source=op.length.source,
                needs=tuple(dict.fromkeys((*(before.needs if before else ()), *needs))),
            )
    return tuple(made.values())


def _mean(share: float, one: float, other: float) -> float:
    return share * one + (1 - share) * other


def _groups(
    look: Look, context: LowerContext, decoding: Decoding, budget: float
) -> tuple[tuple[RowGroup, ...], Placed]:
    """The groups in the order of release, each with its ranks."""
    if not look.groups:
        return (), Placed([], [])
    assigner = Assigner(look.groups, context.ranks, decoding.prefill)
    placed, _ = assigner.improved(assigner.place(), int(budget / (PRICE * 100)))
    ranks: list[tuple[int, ...]] = [()] * len(look.groups)
    for part, taken in zip(placed.parts, placed.ranks, strict=True):
        ranks[part.first : part.end] = [taken] * (part.end - part.first)
    made: list[RowGroup] = []
    first = 0
    for at in release_order(placed, look.groups, context.ranks):
        group = look.groups[at]
        made.append(_row_group(group, first, ranks[at], decoding))
        first += group.rows
    return tuple(made), placed


def _row_group(group: Group, first: int, ranks: tuple[int, ...], decoding: Decoding) -> RowGroup:
    shared = sum(group.shared)
    return RowGroup(
        key=group.key,
        first=first,
        rows=group.rows,
        shared_tokens=shared,
        row_tokens=group.tokens / group.rows,
        work=group.seconds + decoding.prefill(shared),
        ranks=ranks,
    )


def _notes(context: LowerContext, ops: Sequence[Op]) -> tuple[str, ...]:
    """What the plan rests on."""
    made: list[str] = []
    if not ops:
        return ()
    if not context.tokenizer.exact:
        made.append("tokens are estimated from characters")
    if context.kv_tokens is None:
        made.append(f"the cache of a rank is taken to hold {context.capacity:,} tokens")
    made.append(f"seconds are those of {context.engine.name}")
    return tuple(made)
