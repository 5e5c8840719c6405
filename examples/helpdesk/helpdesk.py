"""The help desk of helpdesk.helix, written in Python: the same plan.

This file takes the place of helpdesk.helix in the commands at the head of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import bikes

import helix as hx

main = hx.model(temperature=0, max_tokens=120)
bookings = hx.tool(
    name="bookings",
    effects="read",
    cost="1ms",
    timeout="5s",
    description="The bookings of a customer, by customer number.",
)(bikes.find_bookings)
bike = hx.tool(
    name="bike",
    effects="read",
    cost="1ms",
    timeout="5s",
    description="The state of a bike, and from when it is free.",
)(bikes.look_at_bike)


@dataclass
class Answer:
    """What the customer reads, and whether it is sure."""

    reply: str
    sure: bool


@hx.workflow
def helpdesk(customer: str, question: str):
    answer = hx.agent(
        f"Customer {customer} asks: {question}",
        model=main,
        tools=[bookings, bike],
        max_turns=4,
        trace=True,
        system="You answer customers of a hire shop for bikes in one sentence. Look things up before you answer.",
        returns=Answer,
    )
    return hx.output(
        customer=customer,
        reply=answer.answer.reply,
        sure=answer.answer.sure,
        turns=hx.length(answer.trace),
    )
