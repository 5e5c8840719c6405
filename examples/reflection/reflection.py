"""The reflection loop of reflection.helix, written in Python: the same plan.

This file takes the place of reflection.helix in the commands at the head of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import helix as hx

writer = hx.model(temperature=0, max_tokens=80)

EDITOR = (
    "You are a strict editor. A notice is good when it holds all the facts, adds none, and is friendly. "
    'Reply with JSON: {"ok": true or false, "note": "what to change, in one sentence"}.'
)


@dataclass
class Review:
    """What the editor says of a draft: the type of the reply."""

    ok: bool
    note: str


@hx.workflow
def reflection(place: str, facts: str, readers: str = "everybody"):
    first = writer(
        system="You write short notices. Use all the facts and add none. At most three sentences.",
        user=f"Notice of: {place}\nFor: {readers}\nFacts: {facts}",
        name="draft",
    )

    @hx.repeat(up_to=3, until=lambda now: now.review.ok, draft=first, rounds=0)
    def done(draft, rounds):
        review = writer(system=EDITOR, user=f"Facts: {facts}\nNotice: {draft}", returns=Review)
        better = writer(
            system="You improve a notice as the editor asks. Reply with the whole new notice.",
            user=f"Facts: {facts}\nNotice: {draft}\nThe editor says: {review.note}",
        ).when(hx.not_(review.ok))
        return {"review": review, "draft": hx.default(better, draft), "rounds": rounds + 1}

    return hx.output(
        place,
        notice=done.draft,
        rounds=done.rounds,
        accepted=done.review.ok,
        note=done.review.note,
    )
