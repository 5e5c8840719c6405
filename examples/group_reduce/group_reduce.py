"""The spread and group-reduce of group_reduce.helix, written in Python: the same plan.

This file takes the place of group_reduce.helix in the commands at the head of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import helix as hx

main = hx.model(temperature=0, max_tokens=100)


@dataclass
class Point:
    """What a review says about one part of a product."""

    part: str
    opinion: Literal["good", "bad"]
    quote: str


@hx.workflow
def group_reduce(product: str, stars: int, review: str):
    points = main(
        system="List what a review says about parts of a product. "
        'Reply with a JSON list such as [{"part": "lid", "opinion": "bad", "quote": "too tight"}, '
        '{"part": "colour", "opinion": "good", "quote": "I love the red"}].',
        user=review,
        returns=list[Point],
    )
    point = hx.spread(points)
    hx.keep(point.opinion == "bad")

    with hx.group_by(product) as rows:
        complaints = hx.step(hx.length(rows))
        quotes = hx.map(lambda row: row.point.part + ": " + row.point.quote, rows)
        stars_of_unhappy = hx.map(lambda row: row.stars, rows)
        mean_stars = hx.step(hx.fn.round(hx.fn.sum(stars_of_unhappy) / complaints, 1))
        listed = hx.join(quotes, "\n")
        summary = main(
            system="You sum up complaints for the makers of a product. One sentence, the worst first.",
            user=f"Product: {product}\nComplaints:\n{listed}",
        )

    hx.sort(hx.desc(complaints), mean_stars)
    hx.limit(4)
    return hx.output(product, complaints, mean_stars, summary)
