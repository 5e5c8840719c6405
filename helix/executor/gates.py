"""Gates before calls that begin alike: one goes first, so that the others find their beginning in the engine's cache.

A cold cache makes each of a hundred calls compute the same beginning at once. Behind a gate the first one is let
through alone; when it has ended, the gate is open for good and nobody waits any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helix.executor.calls import Call

# How many calls may lead and fail before a gate opens all the same: a failed one may not have reached the engine.
LEADERS = 3


class Gate:
    """One beginning. A call passes its gates from the shortest beginning to the longest, so none waits for itself."""

    __slots__ = ("held", "leader", "left", "open")

    def __init__(self) -> None:
        self.open = False
        self.leader: Call | None = None
        self.left = LEADERS
        self.held: list[Call] = []


class Gates:
    """Lets calls in and holds others back; knows all that it holds."""

    def __init__(self) -> None:
        self._holding: dict[int, Gate] = {}

    def enter(self, call: Call) -> bool:
        """Whether a call may be made now; if not, it is held until `leave` gives it back."""
        for gate in call.gates:
            if gate.open:
                continue
            if gate.leader is None:
                gate.leader = call
            elif gate.leader is not call:
                gate.held.append(call)
                self._holding[id(gate)] = gate
                return False
        return True

    def leave(self, call: Call, *, failed: bool) -> list[Call]:
        """Takes note of the end of a call: those that it held up, in their order."""
        freed: list[Call] = []
        for gate in call.gates:
            if gate.leader is call:
                gate.leader = None
                gate.left -= 1
                gate.open = not failed or gate.left == 0
                freed += gate.held
                gate.held = []
                self._holding.pop(id(gate), None)
        return sorted(freed, key=lambda freed_call: freed_call.priority)

    def give_back(self) -> list[Call]:
        """All calls that are held, in their order: no further one is to be made."""
        held = [call for gate in self._holding.values() for call in gate.held]
        for gate in self._holding.values():
            gate.held = []
        self._holding.clear()
        return sorted(held, key=lambda call: call.priority)
