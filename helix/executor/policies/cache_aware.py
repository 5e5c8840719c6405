"""The queue of an engine with a prefix cache: no beginning is computed twice, and none is evicted before its last use.

Calls keep the order of the plan, and each goes to the rank that holds most of its prompt, unless another one has so
much less to do that computing it again is cheaper. Where calls that wait share a beginning that is not there, it is
computed first, alone, and they follow. A call is held back while the cache has no room for it beside those that run.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from helix.executor.engines.base import Reply, shown
from helix.executor.policies.at_work import AtWork, Replies, Warming, ahead_of, follows, fresh_of, shared_of, warming_of
from helix.executor.policies.balance import Balance
from helix.executor.policies.base import EnginePlace, Warmup
from helix.executor.policies.outline import Outline
from helix.executor.policies.pace import Pace
from helix.executor.policies.prefix_cache import ROLE, TEXT, Node, messages_of, prompt_text
from helix.executor.policies.rank import RECENT, USABLE, Rank, Ticket

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

# Tokens saved that are worth a warm-up, where the engine does not tell what a pass costs it.
WORTH = 64.0
# The share of a cache up to which beginnings larger than `LARGE` of it are computed side by side.
EARLY, LARGE = 0.5, 0.02
# A shorter beginning is computed by each call that has it: many share a word or two by chance.
SHORTEST = 8.0
# Tokens of prefill that moving a call to another rank has to save (scheduling, step 13).
MOVE = 512.0
# Characters of a token until replies have told.
PER_TOKEN = 4.0
# So many warm-ups in a row may fail before no more are made.
FAILURES = 3
# The place of a call's priority behind which it is about one row.
_ROW = 3
# While many replies are decoded, half of each is there in the mean.
HALF = 0.5
# A pass of decoding costs about so many times what a pass of prefill does beside its tokens.
GAIN = 2.0
# The share of a cache that is kept free at most for calls that follow on a beginning.
FOLLOWERS = 0.1
# As much of it at most, in lengths of the beginning: for a short one that is lost no room need be kept.
LOSS = 16.0
# The passes that go by from the end of a call until the engine begins the one that follows on it: those in which the
# call's end is told, the next one is made and sent, and waits for its turn. On SGLang on a CPU, with replies of eight
# tokens, half as many again as it runs were best.
AWAY = 4.0
# The share of the places in a batch that may be empty for it.
EMPTY = 0.1
# The share of a cache that may be held for rows that wait while others go first.
PARKED = 0.1


class CacheAwareQueue:
    """See the module. `outline` says what follows on each call. To show what they are worth, parts can be left out:
    beginnings computed ahead (`warm_ups`), calls held back for want of room (`ledger`), what is held for a row between
    its calls (`holds`), the choice of a rank by what it holds (`affinity`), shares of the cache by stage (`balance`).
    """

    def __init__(
        self,
        place: EnginePlace,
        *,
        outline: Outline | None = None,
        warm_ups: bool = True,
        ledger: bool = True,
        holds: bool = True,
        affinity: bool = True,
        balance: bool = True,
    ) -> None:
        capabilities = place.capabilities
        count = max(1, capabilities.ranks)
        each = max(1, -(-place.slots // count))
        places, kv = itertools.count(1), capabilities.kv_tokens
        self._ranks = [Rank(number, each, kv, bounded=ledger, places=places) for number in range(count)]
        self._holds = holds
        self._affinity = affinity
        self._keeps = capabilities.keeps
        self._at_once = min(each, capabilities.max_running or each)
        self._most = each
        self._reply: float | None = None
        self._outline = outline or Outline()
        self._balance = Balance(self._outline, self._at_once if balance else 0)
        self._worth = capabilities.pass_tokens or WORTH
        self._warms = warm_ups and place.warm is not None
        self._failures = 0
        self._tickets: dict[Call, tuple[Ticket, Rank]] = {}
        self._rows: dict[object, AtWork] = {}
        self._count = 0
        self._warming: dict[Call, Warming] = {}
        self._replies = Replies()
        self._characters = self._tokens = 0.0
        self._per_token = PER_TOKEN
        for rank in self._ranks:
            rank.resize(PER_TOKEN)
            if capabilities.mixes:
                rank.pace = Pace(cost=0.0)
        self.no_room = False
        self._wake: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, wake: Callable[[], None]) -> None:
        """From now on calls are sent together: `wake` has free workers ask again."""
        self._wake = wake

    @property
    def locked(self) -> float | None:
        """The share of the caches that is in use by calls, their replies as expected; None where sizes are unknown."""
        sizes = [rank.cache.capacity for rank in self._ranks]
        total = sum(size for size in sizes if size is not None)
        return sum(rank.cache.pinned + rank.reserved for rank in self._ranks) / total if total else None

    # --- calls in ---

    def put(self, call: Call) -> None:
        request = call.request
        text = None if request is None else prompt_text(request.model or "", request.messages)
        level = self._outline.level(call.node)
        # Within a row the call with the longest rest behind it goes first.
        key = (*call.priority[:_ROW], -level, *call.priority[_ROW:])
        ticket = Ticket(call, key, len(text or ""), level, self._outline.hops(call.node))
        expected = self._replies.expected(call)
        self._reply = expected if self._reply is None else self._reply + (expected - self._reply) / RECENT
        # What a reply holds while it is decoded, in the mean.
        ticket.reserve = HALF * expected * self._per_token
        rank = self._place(call, text)
        row = self._rows.get(call.instance)
        if row is None:
            row = self._added(call.instance, rank)
        row.asks()
        # Turns of an agent that may follow yet stand for as many steps.
        ticket.level *= (turns := row.turns_left(call.node, self._outline.turns(call.node)))
        row.left = self._outline.hops(call.node) - 1 + turns
        if row.free is not None:
            rank.chains.gap(self._now() - row.free)
            row.free = None
        self._enter(ticket, rank, text)
        rank.push(ticket)

    def _added(self, instance: object, rank: Rank) -> AtWork:
        self._count += 1
        row = self._rows[instance] = AtWork(rank, self._count)
        return row

    def _enter(self, ticket: Ticket, rank: Rank, text: str | None) -> None:
        ticket.load = ticket.reserve
        if text is not None:
            ticket.load += len(text) - rank.cache.matched(text, expected=True)
            ticket.node = rank.cache.add(text)
        rank.load += ticket.load
        self._tickets[ticket.call] = (ticket, rank)

    def _place(self, call: Call, text: str | None) -> Rank:
        """The rank of a call: that of its row; for a new row the one that is done with it first."""
        if len(self._ranks) == 1:
            return self._ranks[0]
        if not self._affinity:
            return min(self._ranks, key=lambda each: (each.load, each.number))
        row = self._rows.get(call.instance)
        if row is not None:
            return row.rank
        length = 0 if text is None else len(text)

        def cost(rank: Rank) -> float:
            found = 0 if text is None else rank.cache.matched(text, expected=True)
            return rank.load + length - found

        return min(self._ranks, key=lambda each: (cost(each), each.number))

    # --- calls out ---

    def take(self) -> Call | Warmup | None:
        now = asyncio.get_running_loop().time() if self._wake is not None else 0.0
        for rank in sorted(self._ranks, key=lambda each: (each.running - each.slots, each.number)):
            if self._wake is not None and not self._opens(rank, now):
                continue
            rank.slots = self._slots()
            if rank.running < rank.slots:
                job = self._next(rank)
                if job is None and not len(rank) and self._steal(rank):
                    job = self._next(rank)
                if job is not None:
                    return job
            rank.pace.close(now, full=len(rank) > 0)
        return None

    def _slots(self) -> int:
        """The calls in flight on a rank: as many as it runs, and those that end while the engine hears of what follows
        on others, so that it always has one to go on with. Where rows come back to their prompts more of them at once
        would push these out.
        """
        share = 0.0 if self._reply is None or self._outline.returning else AWAY / (1 + self._reply)
        return min(self._most, self._at_once + int(self._at_once * share)) if share >= EMPTY else self._at_once

    def _opens(self, rank: Rank, now: float) -> bool:
        """Whether calls of a rank may go now; else they are asked for again when they may."""
        left = rank.pace.left(now, len(rank), rank.running)
        if left is not None and left <= 0:
            rank.pace.open = True
            rank.wide = self._wide(rank, now)
        elif left is not None and (self._timer is None or self._timer.when() > now + left):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(left, self._due)
        return rank.pace.open

    def _now(self) -> float:
        return 0.0 if self._wake is None else asyncio.get_running_loop().time()

    def _due(self) -> None:
        self._timer = None
        if self._wake is not None:
            self._wake()

    def _next(self, rank: Rank) -> Call | Warmup | None:
        job = self._try(rank, wide=rank.wide)
        if job is None and self.no_room:
            # Where the call whose turn it is finds no room, the first by the other order may. Not for ever, and none of
            # a dialogue, which wants more room with each turn; where the longest chains go first and no row is left to
            # begin, the run waits for these, and only a dialogue may, whose prompt is there.
            waits, other = rank.first(wide=rank.wide), rank.first(wide=not rank.wide)
            if waits is None or other is None or waits.passed >= self._at_once:
                return None
            dialogue, late = self._outline.continues(other.call.node), rank.wide and not rank.fresh
            if (dialogue and not rank.wide) or (late and not dialogue):
                return None
            job = self._try(rank, wide=not rank.wide)
            waits.passed += job is not None
        return job

    def _wide(self, rank: Rank, now: float) -> bool:
        """Whether calls with the longest rest behind them go first: near the end, so that the last ones are short and
        many, where the cache has room for as many or few rows are left to begin, and little is held for rows meanwhile;
        and where the run waits for the longest chain of a row anyway. Rows at work are half done in the mean, so with
        half as many to begin there is as much to do as keeps the rank busy while the last one goes through its steps.
        """
        capacity = rank.cache.capacity
        if not rank.fresh and rank.chains.bind(now, (row.left for row in self._rows.values() if row.rank is rank)):
            return True
        near = rank.fresh <= HALF * self._at_once
        if capacity is None or not near:
            return near
        # Rows that go on side by side want all their prompts at once.
        few = rank.fresh <= HALF * rank.begun
        return (few or rank.cache.wanted <= capacity) and rank.cache.parked <= PARKED * capacity

    def _try(self, rank: Rank, *, wide: bool) -> Call | Warmup | None:
        self.no_room = False
        while (ticket := self._balance.first(rank, self._per_token, wide=wide)) is not None:
            if not ticket.call.wanted():
                rank.remove(ticket)
                # Taken like one that is made, so that both end alike.
                self._begin(ticket, rank)
                return ticket.call
            warming = warming_of(ticket)
            if warming is not None:
                rank.remove(ticket)
                warming.held.append(ticket)
                continue
            target = self._target(ticket)
            ahead = None if target is None else ahead_of(ticket)
            if ahead is not None:
                rank.remove(ticket)
                ahead.held.append(ticket)
                continue
            more = 0.0 if target is None else self._followers(ticket, target, rank)
            more += self._owed(ticket, rank)
            if target is not None and self._busy(ticket, target, rank, more):
                return None
            if not rank.fits(ticket, more) and not self._make_room(ticket, rank, more):
                self.no_room = True
                return None
            rank.remove(ticket)
            if target is not None and (warmup := self._warm(ticket, target, rank, more)) is not None:
                return warmup
            self._begin(ticket, rank)
            return ticket.call
        return None

    def _begin(self, ticket: Ticket, rank: Rank) -> None:
        ticket.queued = rank.running >= self._at_once
        ticket.began = self._now()
        rank.begin(ticket)
        if len(self._ranks) > 1:
            ticket.call.rank = rank.number
        ticket.call.keep = self._keep(ticket.call)
        row = self._rows.get(ticket.call.instance)
        if row is None or row.rank is not rank:
            return
        row.begin()
        if ticket.node is not None and self._holds:
            row.hold(ticket.node, whole=self._outline.continues(ticket.call.node))

    def _keep(self, call: Call) -> int | None:
        """How long an engine that heeds it is to keep a prompt, against those of others: where the row comes back to
        some of its prompts, these outlive all that rows which began later do not come back to.
        """
        row = self._rows.get(call.instance)
        if row is None or not (self._keeps and self._outline.keeps):
            return None
        return row.number + (self._outline.window if self._outline.returns(call.node) else 0)

    def _followers(self, ticket: Ticket, target: Node, rank: Rank) -> float:
        """The room that the calls want which follow once a beginning is there: as many as the rank may run besides
        those that run already. Half of it: they do not all begin before the first ones end.
        """
        own = ticket.size - sum(len(each.text) for each in target.path())
        more = HALF * max(0, min(target.users - 1, self._at_once - rank.running)) * (own + ticket.reserve)
        if rank.cache.capacity is None:
            return more
        return min(more, FOLLOWERS * rank.cache.capacity, LOSS * fresh_of(target))

    def _owed(self, ticket: Ticket, rank: Rank) -> float:
        """What rows that have begun and wait for a tool will want after it, where another row is about to begin."""
        row = self._rows.get(ticket.call.instance)
        return 0.0 if row is None or row.begun else rank.idle * rank.own

    def _busy(self, ticket: Ticket, target: Node, rank: Rank, more: float) -> bool:
        """Whether another beginning has to wait for those that are being computed: where the calls that run and those
        that follow fill the rank, or much of the cache. What was opened is then used before it is pushed out.
        """
        others = [each for each in self._warming.values() if each.rank is rank]
        opening = sum(each.node.users for each in others)
        promised = sum(each.more for each in others)
        large = rank.cache.capacity is not None and fresh_of(target) > LARGE * rank.cache.capacity
        share = EARLY if large else USABLE
        return opening > 0 and (
            rank.running + opening >= rank.slots or not rank.fits(ticket, more + promised, share=share)
        )

    def _make_room(self, ticket: Ticket, rank: Rank, more: float) -> bool:
        """Lets go of what is held for rows that wait for a tool, the newest first, where another call beside those that
        run saves more than computing it again costs: each token of a reply takes a pass that all of them share.
        """
        most = GAIN * self._worth * self._replies.mean() * self._per_token / max(1, rank.running)
        for row in reversed(self._rows.values()):
            if row.rank is rank and row.held is not None and not row.calls and rank.cache.only(row.held) <= most:
                rank.cache.unpin(row.held, park=True)
                row.held = None
                if rank.fits(ticket, more):
                    return True
        return False

    def _steal(self, thief: Rank) -> bool:
        """Takes a call over from the rank with the longest line, where waiting there costs more than computing here."""
        owner = max(self._ranks, key=lambda each: (len(each), -each.number))
        waits = owner.first(wide=owner.wide)
        if owner is thief or len(owner) < 2 or waits is None or (owner.running < owner.slots and owner.fits(waits)):
            return False
        ticket = owner.take_last()
        text = None if ticket.node is None else ticket.node.prompt()
        moved = 0 if text is None else owner.cache.matched(text) - thief.cache.matched(text)
        if owner.load - thief.load < moved + MOVE * self._per_token:
            owner.push(ticket)
            return False
        self._leave(ticket, owner)
        row = self._rows.get(ticket.call.instance)
        if row is not None and row.held is None and not row.running:
            row.move(thief)
        self._enter(ticket, thief, text)
        thief.push(ticket)
        return True

    def _leave(self, ticket: Ticket, rank: Rank) -> None:
        """A call leaves a rank's tree and load."""
        rank.load -= ticket.load
        if ticket.node is not None:
            rank.cache.drop(ticket.node)
            ticket.node = None
        self._tickets.pop(ticket.call, None)

    # --- warm-ups ---

    def _target(self, ticket: Ticket) -> Node | None:
        """The beginning of a prompt that is to be computed ahead of it, if any is."""
        return shared_of(ticket, self._worth * self._per_token, SHORTEST * self._per_token) if self._warms else None

    def _warm(self, ticket: Ticket, node: Node, rank: Rank, more: float) -> Warmup | None:
        """Has a beginning computed; the call waits for it. None where it ends before the first message."""
        request = ticket.call.request
        messages = messages_of(node.prompt())
        if request is None or not messages or (len(messages) == 1 and not messages[0].content):
            return None
        warming = self._warming[ticket.call] = Warming(node, rank, more)
        warming.held.append(ticket)
        rank.running += 1
        rank.cache.pin(node)
        for each in node.path():
            if not each.sure:
                each.warm = warming
        number = rank.number if len(self._ranks) > 1 else None
        keep = self._keep(ticket.call)
        start = replace(
            request, messages=messages, schema=None, rank=number, follows=follows(node), priority=keep
        )  # fmt: skip
        return Warmup(start, ticket.call, rank.number)

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        warming = self._warming.pop(warmup.call)
        rank, node = warming.rank, warming.node
        rank.running -= 1
        for each in node.path():
            if each.warm is warming:
                each.warm = None
                if reply is not None:
                    each.computing = None
        if reply is not None:
            self._failures = 0
            rank.cache.computed(node)
        else:
            self._failures += 1
            self._warms = self._failures < FAILURES
        for ticket in warming.held:
            row = self._rows.get(ticket.call.instance)
            if self._holds and row is not None and row.rank is rank and row.held is None:
                # Held for its calls from now on, so that nothing that is opened later pushes it out before.
                rank.cache.pin(node, park=True)
                row.held = node
            rank.push(ticket)
        rank.pace.ended(len(warming.held))
        rank.cache.unpin(node)

    # --- calls done ---

    def ended(self, call: Call, outcome: Outcome) -> None:
        ticket, rank = self._tickets[call]
        node, reply = ticket.node, call.reply
        if node is not None and outcome.text is not None:
            said = outcome.text if reply is None else shown(reply.text, reply.calls)
            end = rank.cache.extend(node, f"{ROLE}assistant{TEXT}{said}")
            row = self._rows.get(call.instance)
            if end is not None and row is not None and row.held is node and self._outline.continues(call.node):
                row.hold_at(end)
        elif node is not None:
            rank.cache.forget(node, ticket.expected)
        if reply is not None and reply.completion_tokens is not None:
            self._replies.add(call, reply.completion_tokens)
            self._balance.ended(ticket, reply.completion_tokens)
        if reply is not None and reply.prompt_tokens and node is not None:
            self._characters += ticket.size
            self._tokens += reply.prompt_tokens
            self._per_token = self._characters / self._tokens
            for each in self._ranks:
                each.resize(self._per_token)
            if reply.cached_tokens is not None:
                rank.learn(ticket, reply.prompt_tokens, reply.cached_tokens, self._per_token)
        rank.chains.call(ticket.began, self._now())
        self._end(ticket, rank)

    def dropped(self, call: Call) -> None:
        ticket, rank = self._tickets[call]
        if ticket.node is not None:
            rank.cache.forget(ticket.node, ticket.expected)
        self._end(ticket, rank)

    def _end(self, ticket: Ticket, rank: Rank) -> None:
        rank.end(ticket)
        for each in ticket.held:
            rank.push(each)
        self._leave(ticket, rank)
        row = self._rows.get(ticket.call.instance)
        if row is not None:
            row.answered(self._now())
            if row.rank is rank and row.running:
                row.running -= 1

    def row_began(self, row: object, rank: int) -> None:
        if self._affinity and 0 <= rank < len(self._ranks):
            self._added(row, self._ranks[rank])

    def row_ended(self, row: object) -> None:
        done = self._rows.pop(row, None)
        if done is not None:
            done.end()

    def drain(self) -> list[Call]:
        made: list[Ticket] = []
        for rank in self._ranks:
            waiting = rank.drain()
            for ticket in waiting:
                self._leave(ticket, rank)
            made += waiting
        return [ticket.call for ticket in sorted(made, key=lambda each: each.key)]
