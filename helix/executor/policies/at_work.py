"""What the default policy keeps of rows at work, of beginnings that are being computed, and of replies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from helix.executor.policies.prefix_cache import ROLE, TEXT, Node
from helix.executor.policies.rank import Rank, Ticket
from helix.places import static_name

if TYPE_CHECKING:
    from helix.executor.calls import Call

# How prompts go on behind a beginning decides its last tokens: so many characters of so many prompts are looked at.
FOLLOWS, MOST_FOLLOWS = 24, 2
# Tokens of a reply until so many of its step are known, where the step has no limit of its own.
REPLY, ENOUGH = 256, 30


class AtWork:
    """A row at work: where its calls go, how many wait or run and how many of them run, the beginning that is held for
    it, and the prompt that was last. `begun` says that its first call has been let go, `number` counts rows as they
    come. Rows keep their rank's counts of them.
    """

    __slots__ = ("_step", "_turns", "begun", "calls", "free", "held", "last", "left", "number", "rank", "running")

    def __init__(self, rank: Rank, number: int) -> None:
        self.rank = rank
        self.number = number
        self.calls = self.running = 0
        self.begun = False
        # How many calls follow one another yet, and since when it has none.
        self.left = 1
        self.free: float | None = None
        # The step of its last call, and how many calls that step had made before.
        self._step = ""
        self._turns = 0
        self.held: Node | None = None
        self.last: Node | None = None
        rank.fresh += 1

    def asks(self) -> None:
        """One call more."""
        self.rank.idle -= self.begun and not self.calls
        self.calls += 1

    def begin(self) -> None:
        """One of its calls is let go."""
        if not self.begun:
            self.begun = True
            self.rank.fresh -= 1
            self.rank.begun += 1
        self.running += 1

    def move(self, rank: Rank) -> None:
        """Its next calls go to another rank."""
        self._leave()
        self.rank = rank
        rank.begun += self.begun
        rank.fresh += not self.begun

    def answered(self, now: float) -> None:
        """One call less, at this time."""
        self.calls -= 1
        if not self.calls:
            self.free = now
            self.rank.idle += self.begun

    def end(self) -> None:
        """It is done."""
        self.rank.idle -= self.begun and not self.calls
        self._leave()
        if self.held is not None:
            self.rank.cache.unpin(self.held, park=True)

    def _leave(self) -> None:
        self.rank.begun -= self.begun
        self.rank.fresh -= not self.begun

    def turns_left(self, step: str, most: int) -> int:
        """A call of a step comes that makes so many at most, one after the other: how many are left with this one."""
        self._turns = self._turns + 1 if step == self._step else 0
        self._step = step
        return max(1, most - self._turns)

    def hold(self, node: Node, *, whole: bool) -> None:
        """Holds what all its calls begin with; of a dialogue, whose prompts grow, the last one `whole`."""
        path = node.path()
        if whole:
            held: Node | None = node
        elif self.last is not None and self.last in path:
            held = self.last
        elif self.held is not None:
            before = set(map(id, self.held.path()))
            held = next((each for each in reversed(path) if id(each) in before), None)
        else:
            held = next((each for each in reversed(path) if each.users > 1 or len(each.children) > 1), None)
        self.hold_at(held)
        self.last = node

    def hold_at(self, node: Node | None) -> None:
        """Holds a beginning instead of the one so far; None: nothing."""
        if node is not None:
            self.rank.cache.pin(node, park=True)
        if self.held is not None:
            self.rank.cache.unpin(self.held, park=True)
        self.held = node


class Warming:
    """A beginning that is being computed, the calls that wait for it, and the room that they will want."""

    __slots__ = ("held", "more", "node", "rank")

    def __init__(self, node: Node, rank: Rank, more: float) -> None:
        self.node = node
        self.rank = rank
        self.more = more
        self.held: list[Ticket] = []


class Replies:
    """How long replies are, in tokens, by step."""

    __slots__ = ("_counts", "_totals")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()

    def add(self, call: Call, tokens: int) -> None:
        """A reply has come."""
        step = static_name(call.step)
        self._counts[step] += 1
        self._totals[step] += tokens

    def expected(self, call: Call) -> float:
        """The length of a reply that is to come: those of its step in the mean, else what it may be at most."""
        step = static_name(call.step)
        count = self._counts[step]
        if count >= ENOUGH:
            return self._totals[step] / count
        most = None if call.request is None else call.request.max_tokens
        return float(min(most or REPLY, REPLY))

    def mean(self) -> float:
        """The length of all that have come."""
        count = self._counts.total()
        return self._totals.total() / count if count else REPLY


def follows(node: Node) -> tuple[str, ...]:
    """How the prompts that are known go on behind a beginning, a few characters each; nothing where one ends there, or
    where its message does.
    """
    children = [child for child in node.children.values() if child.users]
    known = sorted(child.text[:FOLLOWS] for child in children)
    ends = node.users > sum(child.users for child in children)
    if ends or any(ROLE in text or TEXT in text for text in known):
        return ()
    return tuple(known) if len(known) <= MOST_FOLLOWS else (*known[: MOST_FOLLOWS - 1], known[-1])


def ahead_of(ticket: Ticket) -> Ticket | None:
    """The call that is to compute the next part of a prompt, where it still waits in the engine: a warm-up would only
    wait beside it, and be computed with it.
    """
    if ticket.node is None:
        return None
    for node in ticket.node.path():
        if not node.sure:
            return node.computing if isinstance(node.computing, Ticket) and node.computing.queued else None
    return None


def warming_of(ticket: Ticket) -> Warming | None:
    """The warm-up that is computing the next part of a prompt just now."""
    if ticket.node is None:
        return None
    for node in ticket.node.path():
        if not node.sure:
            return node.warm if isinstance(node.warm, Warming) else None
    return None


def fresh_of(node: Node) -> int:
    """The characters of a beginning that are not there yet."""
    return sum(len(each.text) for each in node.path() if not each.sure)


def shared_of(ticket: Ticket, worth: float, shortest: float) -> Node | None:
    """The shallowest beginning of a prompt that is not there and that enough other calls share: so that they save
    `worth` characters together, and no shorter than `shortest`.
    """
    fresh = 0
    path = [] if ticket.node is None else [each for each in ticket.node.path() if not each.sure]
    for at, node in enumerate(path):
        if node.users < 2:
            return None
        fresh += len(node.text)
        if fresh < shortest:
            continue
        deeper = path[at + 1] if at + 1 < len(path) else None
        if deeper is not None and deeper.users == node.users:
            continue
        if (node.users - 1) * fresh >= worth:
            return node
    return None
