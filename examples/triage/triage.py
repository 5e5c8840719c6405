"""The ticket triage of triage.helix, written in Python: the same plan.

This file takes the place of triage.helix in the commands at the head of that.
"""

from __future__ import annotations

from typing import Literal

import shop_orders

import helix as hx

main = hx.model(temperature=0, max_tokens=40)
orders = hx.tool(name="orders", effects="read", cost="1ms", timeout="5s")(shop_orders.find_orders)


@hx.workflow
def triage(id: str, ticket: str, customer: str | None = None):
    shop = hx.let("Fernhill Outdoors")
    category = main(
        system='Classify the ticket. Reply with JSON: "delivery", "billing", "defect" or "other".',
        user=ticket,
        returns=Literal["delivery", "billing", "defect", "other"],
        max_tokens=12,
    )
    priority = main(
        system='Classify the ticket. Reply with JSON: "normal" or "urgent".',
        user=ticket,
        returns=Literal["normal", "urgent"],
        max_tokens=12,
    )
    urgent = hx.step(priority == "urgent")
    history = orders(customer).when(category == "delivery")

    def answer(task, question, reply, ticket):
        """One call that shows the model a question and its answer first. A Python function is a macro of steps."""
        return main(
            messages=[
                hx.system(f"You write for {shop}. {task}"),
                hx.user(question),
                hx.assistant(reply),
                hx.user(ticket),
            ]
        )

    def delivery():
        parcel = hx.step(hx.default(hx.first(history), {"item": "order", "status": "not in our books"}))
        return answer(
            "Tell the customer in one sentence where the parcel is.",
            "Where is my kettle?\nOur books say: the kettle is on a lorry.",
            "We are sorry for the wait, your kettle is on a lorry and will be with you soon.",
            f"{ticket}\nOur books say: the {parcel.item} is {parcel.status}.",
        )

    reply = hx.choose(
        category == "delivery",
        delivery,
        category == "billing",
        lambda: answer(
            "Say in one sentence that the accounts team will look at it.",
            "I paid twice for my kettle.",
            "We are sorry that you paid twice for your kettle, our accounts team will look at it today.",
            ticket,
        ),
        category == "defect",
        lambda: answer(
            "Say in one sentence that we are sorry and will replace the broken thing.",
            "My kettle is broken.",
            "We are sorry that your kettle is broken, please send us a photo and we will replace it.",
            ticket,
        ),
        otherwise=lambda: answer(
            "Answer in one sentence.",
            "Do you sell kettles?",
            "Thank you for asking, a colleague will tell you about kettles today.",
            ticket,
        ),
    )
    return hx.output(id, category, urgent, reply)
