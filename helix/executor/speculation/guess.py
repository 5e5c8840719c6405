"""One guess: a call that nobody has asked for yet, and what has become of it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from helix.executor.speculation.value import Worth
from helix.services import Tool
from helix.tools.effects import Effect

# `shadow` is never made; `issue` is made and compared, never served.
Kind = Literal["shadow", "issue", "serve"]
# `waiting` for a place, `running`, `done` with a result, `failed` without one, `dropped`: it serves nobody any more.
State = Literal["waiting", "running", "done", "failed", "dropped"]
# Who it was made for: a session and its turn; a step of the workflow has no turn.
Owner = tuple[str, int | None]
# Tool, arguments, tenant and the epochs of what it reads.
Key = tuple[Any, ...]


class Guess:
    """A guess. `args` are in the order of the tool's parameters, `call` is the tool with its arguments as one text.

    `born`, `began` and `ended` are seconds of the run's clock; `claims` are the real calls that wait for it now,
    `served` those that had their result from it, `matched` says that somebody has asked for it.
    """

    __slots__ = (
        "args",
        "began",
        "born",
        "call",
        "claims",
        "effect",
        "ended",
        "key",
        "kind",
        "matched",
        "owners",
        "p_low",
        "pattern",
        "served",
        "settled",
        "state",
        "task",
        "text",
        "tool",
        "void",
        "worth",
    )

    def __init__(
        self,
        *,
        tool: Tool,
        args: list[Any],
        call: str,
        key: Key,
        effect: Effect,
        kind: Kind,
        owner: Owner,
        p_low: float,
        worth: Worth,
        pattern: str,
        born: float,
    ) -> None:
        self.tool = tool
        self.args = args
        self.call = call
        self.key = key
        self.effect = effect
        self.kind = kind
        self.owners: set[Owner] = {owner}
        self.p_low = p_low
        self.worth = worth
        self.pattern = pattern
        self.born = born
        self.began: float | None = None
        self.ended: float | None = None
        self.state: State = "waiting"
        self.task: asyncio.Task[None] | None = None
        self.text: str | None = None
        # Set where a real call waits for it: done once it will not serve that call.
        self.void: asyncio.Future[None] | None = None
        self.claims = 0
        self.served = 0
        self.matched = False
        self.settled = False

    @property
    def live(self) -> bool:
        """Whether it may still serve somebody."""
        return self.state in ("waiting", "running", "done")

    @property
    def seconds(self) -> float:
        """How long the call took; 0 where it has not ended."""
        return 0.0 if self.began is None or self.ended is None else self.ended - self.began

    @property
    def launched(self) -> bool:
        """Whether its call was made."""
        return self.kind != "shadow" and self.began is not None

    @property
    def shared(self) -> bool:
        """Whether its result holds beyond the decision that it was made for, and so for whoever asks."""
        return outlives(self.tool)

    def fresh(self, now: float) -> bool:
        """Whether its result is young enough. What was read counts as old as the beginning of the call."""
        holds = self.tool.holds
        return self.tool.effects == "pure" or holds is None or self.began is None or now - self.began <= holds


def outlives(tool: Tool) -> bool:
    """Whether results of a tool hold beyond the decision that they were read for: by its `freshness`."""
    return tool.effects == "pure" or tool.freshness == tool.UNTIL_WRITE or tool.holds is not None
