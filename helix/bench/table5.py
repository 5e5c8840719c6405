"""Table 5: how far orders of the same calls are from the exact optimum, beside the published figures."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from helix.bench.layout import Block, figure, spread
from helix.bench.milp import Gaps, Optimum, Solved
from helix.bench.small import CAPACITY, CELLS
from helix.canonical import canonical_text
from helix.plots import Axis, Plot, bars
from helix.plots.bars import Bar

_NOTES = (
    f"one worker that holds {CAPACITY:,} tokens; 2 to 4 steps over 2 to 4 rows, lengths drawn around those of W1 to W5",
    "replies are taken to be as long as planned; a policy with several orders of a case counts by their mean",
    "CONCUR, ThunderAgent and KVFlow come to `fcfs` here: what they do beside has no place in this model",
    "published: Helium's own claim (arXiv 2603.16104), on cases that are not known to us",
)


def gap_blocks(found: Gaps) -> list[Block]:
    """The table of the policies, and that of the cells."""
    rows = []
    for row in found.rows() if found.solved else ():
        told = row.published_steps is not None and row.published_gap is not None
        rows.append(
            (
                row.policy,
                " / ".join(figure(each / 1e6) for each in row.steps),
                _of(row.published_steps, 1e6) if told else "-",
                " / ".join(f"{each:.2f}" for each in row.gap),
                _of(row.published_gap, 1.0) if told else "-",
            )
        )
    proven = len(found.solved) - len(found.unproven)
    by_milp = sum(each.by_milp.proven for each in found.solved)
    notes = [
        f"{proven} of {len(found.solved)} optima proven by branch and bound, {by_milp} of them by the MILP too",
        *_NOTES,
    ]
    notes += [
        f"{each.case}: the best order is within {100 * each.optimum.gap:.2f} % of the bound" for each in found.unproven
    ]
    cells = [
        (
            cell,
            str(len(here)),
            spread([each.optimum.makespan / 1e6 for each in here]),
            *(f"{100 * max(max(each.gaps(policy)) for each in here):.2f}" for policy in ("helium:paper", "helix")),
        )
        for cell in CELLS
        if (here := [each for each in found.solved if each.cell == cell])
    ]
    return [
        Block(
            title="Table 5: gap to the exact optimum",
            header=("policy", "token steps 1e6", "published", "gap %", "published %"),
            rows=tuple(rows),
            notes=tuple(notes),
        ),
        Block(
            title="Table 5, by cell",
            header=("cell", "cases", "optimum, token steps 1e6", "largest gap %, helium:paper", "helix"),
            rows=tuple(cells),
        ),
    ]


def _of(values: tuple[float, float, float] | None, unit: float) -> str:
    return "-" if values is None else " / ".join(figure(each / unit) for each in values)


def gap_plot(found: Gaps) -> Plot:
    """The gap of each policy: mean, least and most over the cases."""
    rows = found.rows()
    gap = Bar(
        name="gap",
        values=tuple(row.gap[0] for row in rows),
        low=tuple(row.gap[1] for row in rows),
        high=tuple(row.gap[2] for row in rows),
    )
    return bars(
        "gap to the exact optimum", [row.policy for row in rows], [gap], y=Axis(label="gap, per cent"), x="policy"
    )


def solved_to_json(solved: Solved) -> dict[str, Any]:
    """A case as a JSON object, with a digest of all that came out."""
    made = asdict(solved)
    return made | {"log": blake2b(canonical_text(made).encode(), digest_size=8).hexdigest()}


def solved_from_json(values: dict[str, Any]) -> Solved:
    """A case from a JSON object. Raises KeyError and TypeError where something lacks."""
    given = {name: value for name, value in values.items() if name != "log"}
    for name in ("optimum", "by_milp"):
        given[name] = Optimum(**{**given[name], "order": tuple(given[name]["order"])})
    given["steps"] = {name: tuple(steps) for name, steps in given["steps"].items()}
    return Solved(**given)
