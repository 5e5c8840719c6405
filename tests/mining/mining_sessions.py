"""Sessions for tests of the miner: a shop in which an agent looks up a customer, then orders of the customer."""

from __future__ import annotations

import random
from typing import Any

from helix.mining import History
from helix.traces import LlmEvent, Session, ToolEvent

CITIES = {"Oslo": "OSL", "Rome": "ROM", "Lima": "LIM"}


class Talk:
    """Builds a session as it would be recorded."""

    def __init__(self, name: str, group: str | None = None) -> None:
        self.name, self.group = name, group or name
        self.events: list[Any] = []
        self._user: list[str] = []
        self._step = 0

    def user(self, text: str) -> None:
        self._user.append(text)

    def decide(self, *calls: tuple[str, dict[str, Any], Any], text: str | None = None) -> None:
        step, self._step = self._step, self._step + 1
        ids = tuple(f"{step}.{number}" for number in range(len(calls)))
        names = {"session": self.name, "group": self.group, "step": step}
        self.events.append(LlmEvent(**names, id=str(step), user=tuple(self._user), text=text, calls=ids))
        self._user = []
        for id, (tool, args, result) in zip(ids, calls, strict=True):
            status = "error" if isinstance(result, str) and result.startswith("error") else "ok"
            self.events.append(ToolEvent(**names, id=id, tool=tool, args=args, result=result, status=status))

    def session(self) -> Session:
        return Session(id=self.name, group=self.group, events=tuple(self.events))


def customer(number: int) -> tuple[str, list[str]]:
    """A customer's id and orders."""
    draw = random.Random(number)
    orders = ["".join(draw.choices("ABCDEFGHJK", k=4)) + f"{draw.randrange(100):02}" for _ in range(3)]
    return f"ann_lee_{1000 + number}", orders


def shop(number: int, group: str | None = None) -> Session:
    """The agent asks who it is, looks the customer up, then each order in turn, and ends."""
    talk = Talk(f"s{number}", group)
    user, orders = customer(number)
    talk.user("Hello, where is my parcel?")
    talk.decide(text="Who are you?")
    talk.user(f"I am {user}, please look.")
    talk.decide(("get_customer", {"customer_id": user}, {"id": user, "orders": orders}))
    for order in orders:
        talk.decide(("get_order", {"order_id": order}, {"order_id": order, "state": "on its way", "from": user}))
    talk.decide(text="They are on their way.")
    return talk.session()


def shops(count: int) -> list[Session]:
    return [shop(number) for number in range(count)]


def asked(number: int, orders_seen: int = 0) -> History:
    """The history of a new customer, up to some of the orders."""
    history = History()
    user, orders = customer(number)
    history.user("Hello, where is my parcel?")
    history.said("Who are you?")
    history.user(f"I am {user}, please look.")
    if orders_seen >= 0 and orders_seen != 0:
        history.called("get_customer", {"customer_id": user}, {"id": user, "orders": orders})
    for order in orders[: max(0, orders_seen - 1)]:
        history.called("get_order", {"order_id": order}, {"order_id": order, "state": "on its way", "from": user})
    return history
