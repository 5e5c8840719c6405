"""A request inside the simulated engine."""

from __future__ import annotations

from collections.abc import Callable

from helix.executor.engines.sim.radix import Node


class SimCall:
    """`text` is the prompt with its whole reply behind it, `width` characters a token; how much of it is computed is
    told by `kv`.

    `prompt` and `target` are the tokens of the two, `most_new` what the reply may take, `done` what of it is there.
    Of its pages `held` are in the tree, down to `node`, which is locked; `known` of them it has put there itself,
    `private` are its own. `cached` are the tokens that were found when it was first admitted. `arrived`, `admitted`,
    `first` (its first token) and `ended` are times in nanoseconds.

    `matched` are the pages of the tree that were found when it was last looked for, down to `matched_node`. `loaded`
    says that its prompt was looked for in the host tier. Where other ranks decode, `reserved` are the pages
    that the one with the number `seat` keeps for it, and `sent` the tokens that are there or on their way.
    """

    __slots__ = (
        "aborted",
        "admitted",
        "arrived",
        "cached",
        "done",
        "ended",
        "first",
        "held",
        "known",
        "kv",
        "loaded",
        "matched",
        "matched_node",
        "most_new",
        "node",
        "on_end",
        "priority",
        "private",
        "prompt",
        "rank",
        "reserved",
        "retractions",
        "routing",
        "seat",
        "sent",
        "serial",
        "space",
        "target",
        "text",
        "width",
    )

    def __init__(
        self,
        serial: int,
        *,
        text: str,
        width: int,
        space: str,
        prompt: int,
        target: int,
        most_new: int,
        priority: int | None,
        routing: str | None,
        on_end: Callable[[SimCall], None],
    ) -> None:
        self.serial = serial
        self.text = text
        self.width = width
        self.space = space
        self.prompt = prompt
        self.target = target
        self.most_new = most_new
        self.priority = priority
        self.routing = routing
        self.on_end = on_end
        self.rank = 0
        self.done = self.kv = self.known = self.held = self.private = self.retractions = self.reserved = self.sent = 0
        self.seat: int | None = None
        self.loaded = False
        self.matched = 0
        self.matched_node: Node | None = None
        self.cached: int | None = None
        self.node: Node | None = None
        self.arrived = 0
        self.admitted: int | None = None
        self.first: int | None = None
        self.ended: int | None = None
        self.aborted = False

    @property
    def fill(self) -> int:
        """The tokens that have to be computed before the next one is generated."""
        return self.prompt + self.done

    def beginning(self, tokens: int) -> str:
        """The text of the first tokens."""
        return self.text[: tokens * self.width]
