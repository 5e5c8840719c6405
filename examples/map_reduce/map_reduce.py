"""The map-reduce question answering of map_reduce.helix, written in Python: the same plan.

This file takes the place of map_reduce.helix in the commands at the head of that.
"""

from __future__ import annotations

import helix as hx

main = hx.model(temperature=0, max_tokens=60)

READER = (
    'You read one part of "{title}". Answer the question from this part only, in one sentence. '
    "If the part does not answer it, reply: nothing"
)


@hx.workflow
def map_reduce(title: str, document: str, question: str):
    parts = hx.step(hx.split(document, "\n\n"))

    @hx.map(over=parts)
    def findings(part):
        finding = main(system=READER.format(title=title), user=f"Part:\n{part}\n\nQuestion: {question}")
        return finding

    notes = hx.join(findings, "\n")
    answer = main(
        system="You answer a question from notes on a long document. "
        "Leave out notes that say nothing, and reply in one sentence.",
        user=f"Notes:\n{notes}\n\nQuestion: {question}",
    )
    return hx.output(title, question, answer)
