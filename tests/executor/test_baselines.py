"""What other systems do with their calls, by hand: one queue at a time, on a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from helix.executor.calls import Call, Outcome
from helix.executor.engines.base import Capabilities, Hint, Load, Message, Reply, Request
from helix.executor.engines.sim import run_virtual
from helix.executor.policies.base import CallQueue, EnginePlace, Warmup
from helix.executor.policies.concur import ConcurQueue
from helix.executor.policies.helium import WAITING, Helium, HeliumQueue
from helix.executor.policies.kvflow import KVFlow, KVFlowQueue
from helix.executor.policies.literals import segments_of
from helix.executor.policies.parrot import Parrot, ParrotQueue
from helix.executor.policies.thunder_agent import ThunderAgentQueue
from helix.logical import LogicalPlan
from helix.physical import PhysicalPlan, PhysicalStep, WarmPrefix


async def never(call: Call) -> Outcome:
    raise AssertionError("the queue makes no call")


def a_call(row: int, step: str, text: str, *, index: int = 0, phase: int = 0) -> Call:
    """A call of a row's step with a prompt of one message."""
    return Call(
        step=step,
        order=(index,),
        priority=(0, phase, row, index, 0),
        key=None,
        lane="",
        make=never,
        settle=lambda outcome: None,
        wanted=lambda: True,
        row=row,
        request=Request(model=None, messages=(Message(role="user", content=text),)),
        instance=row,
        node=step,
    )


def place(*, kv: int | None = None, ranks: int = 1, slots: int = 64, **more: Any) -> EnginePlace:
    capabilities = Capabilities(ranks=ranks, kv_tokens=kv, prefix_cache=True, max_running=slots // ranks)
    return EnginePlace(name="made up", capabilities=capabilities, slots=slots, **more)


def taken(queue: CallQueue) -> list[Call]:
    """All that may go now."""
    found: list[Call] = []
    while (job := queue.take()) is not None:
        assert isinstance(job, Call)
        found.append(job)
    return found


def rows_of(calls: Iterable[Call]) -> list[int]:
    return [call.row for call in calls]


def end(queue: CallQueue, call: Call, *, prompt: int, reply: int = 50, cached: int = 0) -> None:
    call.reply = Reply(text="", prompt_tokens=prompt, completion_tokens=reply, cached_tokens=cached)
    queue.ended(call, Outcome(""))


def timed(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(work())


# --- ThunderAgent -------------------------------------------------------------------------------------------------


def own(row: int, tokens: int) -> str:
    """A prompt of so many tokens that shares nothing with those of other rows."""
    return chr(ord("a") + row) * (4 * tokens)


def test_programs_go_on_while_their_contexts_fit() -> None:
    async def work() -> None:
        queue = ThunderAgentQueue(place(kv=1000))
        for row in range(3):
            queue.put(a_call(row, "s", own(row, 400)))
        # 400 tokens and 100 for each: two of them fit.
        first = taken(queue)
        assert rows_of(first) == [0, 1]
        end(queue, first[0], prompt=400)
        # Nothing changes but every five seconds.
        assert taken(queue) == []
        await asyncio.sleep(4.9)
        assert taken(queue) == []
        await asyncio.sleep(0.2)
        # 550 and 500 are too many: the one that waits for its tool is paused, and the new one has its place.
        assert [program.active for program in queue.programs.values()] == [False, True, True]
        assert rows_of(taken(queue)) == [2]
        # What comes back waits for room, though its call is there.
        queue.put(a_call(0, "s", own(0, 480)))
        await asyncio.sleep(5)
        assert taken(queue) == []
        end(queue, first[1], prompt=400)
        queue.row_ended(1)
        await asyncio.sleep(5)
        # 480 and 100 do not fit beside 500.
        assert taken(queue) == []
        queue.row_ended(2)
        await asyncio.sleep(5)
        assert rows_of(taken(queue)) == [0]

    timed(work)


def test_programs_that_think_are_paused_when_their_call_ends() -> None:
    async def work() -> None:
        queue = ThunderAgentQueue(place(kv=1000))
        for row in range(2):
            queue.put(a_call(row, "s", own(row, 300)))
        for call in taken(queue):
            end(queue, call, prompt=300)
        for row, tokens in ((0, 700), (1, 600)):
            queue.put(a_call(row, "s", own(row, tokens)))
        running = taken(queue)
        assert rows_of(running) == [0, 1]
        await asyncio.sleep(5.1)
        # 800 and 700 are too many, and none waits for a tool: the smaller one is marked, and ends its call first.
        assert [program.leaving for program in queue.programs.values()] == [False, True]
        assert queue.programs[1].active
        end(queue, running[1], prompt=600)
        assert not queue.programs[1].active
        queue.put(a_call(1, "s", own(1, 650)))
        assert taken(queue) == []
        assert rows_of(queue.drain()) == [1]

    timed(work)


def test_what_programs_share_counts_once() -> None:
    async def work() -> None:
        queue = ThunderAgentQueue(place(kv=1000))
        for row in range(4):
            queue.put(a_call(row, "s", "same" * 300 + own(row, 100)))
        # 500 for the first, 200 for each of the others: three make 900, four 1,100.
        assert rows_of(taken(queue)) == [0, 1, 2]
        assert queue.used(0) == pytest.approx(900, abs=5)

    timed(work)


def test_one_that_is_too_large_goes_alone_and_ranks_are_filled_by_the_best_fit() -> None:
    async def work() -> None:
        alone = ThunderAgentQueue(place(kv=100))
        alone.put(a_call(0, "s", own(0, 400)))
        alone.put(a_call(1, "s", own(1, 500)))
        assert rows_of(taken(alone)) == [0]
        two = ThunderAgentQueue(place(kv=1000, ranks=2))
        for row, tokens in ((0, 300), (1, 800), (2, 500)):
            two.put(a_call(row, "s", own(row, tokens)))
        # The largest first: 900 | 600 + 400.
        first = taken(two)
        assert {call.row: call.rank for call in first} == {1: 0, 2: 1, 0: 1}
        even = ThunderAgentQueue(place(kv=1000, ranks=2))
        for row in range(4):
            even.put(a_call(row, "s", own(row, 100)))
        assert [call.rank for call in taken(even)] == [0, 1, 0, 1]


def test_programs_that_come_back_fill_the_fuller_rank() -> None:
    async def work() -> None:
        queue = ThunderAgentQueue(place(kv=1000, ranks=2))
        for row, tokens in ((0, 500), (1, 400), (2, 300)):
            queue.put(a_call(row, "s", own(row, tokens)))
        calls = {call.row: call for call in taken(queue)}
        assert {row: call.rank for row, call in calls.items()} == {0: 0, 1: 1, 2: 1}
        # It is paused by hand, and comes back: 400 are left beside the first, 500 beside the second.
        end(queue, calls[2], prompt=200, reply=0)
        queue.pause(queue.programs[2])
        queue.put(a_call(2, "s", own(2, 200)))
        await asyncio.sleep(5.1)
        assert [call.rank for call in taken(queue)] == [0]

    timed(work)


def test_one_that_is_alone_is_never_paused() -> None:
    async def work() -> None:
        queue = ThunderAgentQueue(place(kv=100))
        queue.put(a_call(0, "s", own(0, 90)))
        (call,) = taken(queue)
        end(queue, call, prompt=90)
        await asyncio.sleep(5.1)
        assert queue.programs[0].active

    timed(work)


# --- CONCUR -------------------------------------------------------------------------------------------------------


def test_the_window_grows_while_there_is_room_and_is_halved_under_pressure() -> None:
    held = [0.1]

    async def load() -> tuple[Load, ...]:
        return (Load(rank=0, running=0, waiting=0, held=held[0]),)

    async def work() -> None:
        queue = ConcurQueue(place(kv=1000, load=load))
        woken: list[float] = []
        queue.attach(lambda: woken.append(asyncio.get_running_loop().time()))
        for row in range(14):
            queue.put(a_call(row, "s", f"prompt {row}"))
        running = taken(queue)
        assert rows_of(running) == list(range(8))
        await asyncio.sleep(2.1)
        assert (queue.window, len(woken)) == (10, 1)
        running += taken(queue)
        assert rows_of(running) == list(range(10))
        # Much in use and much found: it stays.
        held[0] = 0.6
        end(queue, running[0], prompt=100, cached=50)
        await asyncio.sleep(2)
        assert queue.window == 10
        # Much in use and little found: half of it. Who runs ends first, who is between two calls is paused at once.
        end(queue, running[1], prompt=100, cached=10)
        end(queue, running[2], prompt=100, cached=10)
        await asyncio.sleep(2)
        assert queue.window == 5
        assert [row for row, program in queue.programs.items() if not program.active] == [0, 1, 2, 10, 11, 12, 13]
        for call in running[6:8]:
            end(queue, call, prompt=100, cached=50)
        assert not queue.programs[6].active
        assert not queue.programs[7].active
        # They go on in the order in which they came, once there is a place.
        for row in (7, 6, 0):
            queue.put(a_call(row, "s", "next"))
        assert taken(queue) == []
        queue.row_ended(9)
        assert rows_of(taken(queue)) == [0]

    timed(work)


# --- Parrot -------------------------------------------------------------------------------------------------------


def test_last_calls_go_first_and_gangs_go_together() -> None:
    policy = Parrot()
    policy.readers = {"view": ("sum",), "note": ("other",)}
    queue = ParrotQueue(policy, place(slots=4))
    for row in range(2):
        for number in range(3):
            queue.put(a_call(row, "view", f"{row} {number}", index=number))
    # Three of four places: the second gang has no room until two of the first have ended.
    first = taken(queue)
    assert rows_of(first) == [0, 0, 0]
    end(queue, first[0], prompt=10)
    assert taken(queue) == []
    queue.put(a_call(5, "sum", "last"))
    assert rows_of(taken(queue)) == [5]
    for call in first[1:]:
        end(queue, call, prompt=10)
    assert rows_of(taken(queue)) == [1, 1, 1]


def test_a_gang_larger_than_the_engine_goes_when_nothing_runs() -> None:
    policy = Parrot()
    policy.readers = {"view": ("sum",)}
    queue = ParrotQueue(policy, place(slots=2))
    for number in range(3):
        queue.put(a_call(0, "view", str(number), index=number))
    assert len(taken(queue)) == 2
    assert len(queue.drain()) == 1


def test_calls_go_where_most_segments_of_their_prompt_were_sent() -> None:
    policy = Parrot()
    policy.literals = {"s": (("Read this: ", " Answer: "),)}
    queue = ParrotQueue(policy, place(slots=8, ranks=2))
    ranks = {}
    for row, (text, question) in enumerate([("one", "a"), ("two", "b"), ("one", "c"), ("two", "d"), ("one", "e")]):
        queue.put(a_call(row, "s", f"Read this: {text} Answer: {question}"))
        (call,) = taken(queue)
        ranks[row] = call.rank
    # The literal beginning was on the first rank when the second came: that outweighs that the other has nothing to do.
    assert ranks == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1}


def test_a_worker_whose_cache_is_full_takes_no_more() -> None:
    queue = ParrotQueue(Parrot(), place(kv=1000, ranks=2, slots=64))
    for row in range(6):
        queue.put(a_call(row, "s", "same" * 300 + own(row, 100)))
    # All begin alike: the first worker takes them while less than its cache is in flight there.
    found = taken(queue)
    assert [call.rank for call in found] == [0, 0, 0, 1, 1, 1]
    end(queue, found[0], prompt=400)
    queue.put(a_call(6, "s", "same" * 300))
    assert [call.rank for call in taken(queue)] == [0]


def test_prompts_are_cut_where_values_begin_and_end() -> None:
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="On tea: hot. Say yes."))
    cut = segments_of(messages, (("Be brief.",), ("On ", ": ", " Say yes.")))
    assert cut[1::1] == ["Be brief.", "\x1euser\x1f", "On ", "tea", ": ", "hot.", " Say yes."]


# --- KVFlow -------------------------------------------------------------------------------------------------------


class Hinted:
    """Keeps the hints that it is given, as step and steps."""

    def __init__(self) -> None:
        self.told: list[dict[str, int]] = []

    def take_hints(self) -> None:
        """Nothing to do."""

    def hint(self, hints: Iterable[Hint]) -> None:
        self.told.append({hint.messages[0].content: hint.steps for hint in hints})


def test_steps_to_the_next_use_are_the_least_over_rows() -> None:
    policy = KVFlow()
    policy.needs = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
    policy.beginnings = {
        step: Hint(messages=(Message(role="system", content=step),), steps=0) for step in ("a", "b", "d")
    }
    engine = Hinted()
    queue = KVFlowQueue(policy, engine)
    queue.put(a_call(0, "a", "x"))
    assert engine.told[-1] == {"a": 0, "b": 1, "d": 2}
    (call,) = taken(queue)
    end(queue, call, prompt=10)
    # a is not used again, its readers come next.
    assert engine.told[-1] == {"b": 1, "d": 2}
    queue.put(a_call(0, "b", "x"))
    queue.put(a_call(0, "c", "x"))
    assert engine.told[-1] == {"b": 0, "d": 1}
    # Another row begins: a is wanted at once.
    queue.put(a_call(1, "a", "y"))
    assert engine.told[-1] == {"a": 0, "b": 0, "d": 1}
    count = len(engine.told)
    queue.put(a_call(2, "a", "z"))
    assert len(engine.told) == count, "nothing has changed"
    queue.row_ended(0)
    assert engine.told[-1] == {"a": 0, "b": 1, "d": 2}


# --- Helium -------------------------------------------------------------------------------------------------------


def physical(rows: float, warm: tuple[WarmPrefix, ...] = ()) -> PhysicalPlan:
    step = PhysicalStep(
        node="a", step="a", phase=0, rank_up=0, calls=rows, prompt_tokens=1, private_tokens=1, output_tokens=1,
        output_p90=1, source="assumed",
    )  # fmt: skip
    plan: Any = LogicalPlan.__new__(LogicalPlan)
    return PhysicalPlan(plan=plan, steps=(step,), warm=warm, rows=rows, ranks=2)


def test_workers_have_equal_parts_and_calls_go_in_the_order_of_the_plan() -> None:
    policy = Helium()
    policy.physical = physical(5)
    queue = HeliumQueue(policy, place(ranks=2, slots=64))
    for row in range(5):
        queue.put(a_call(row, "b", "later", index=1, phase=1))
        queue.put(a_call(row, "a", "first"))
    found = taken(queue)
    by_rank = {rank: [(call.row, call.step) for call in found if call.rank == rank] for rank in range(2)}
    # The first phase for all rows of a worker, then the second.
    assert by_rank == {
        0: [(0, "a"), (1, "a"), (2, "a"), (0, "b"), (1, "b"), (2, "b")],
        1: [(3, "a"), (4, "a"), (3, "b"), (4, "b")],
    }


def test_no_more_than_ten_wait_on_a_worker() -> None:
    waiting = [0]

    async def load() -> tuple[Load, ...]:
        return (Load(rank=0, running=0, waiting=waiting[0]),)

    async def work() -> None:
        policy = Helium()
        policy.physical = physical(100)
        queue = HeliumQueue(policy, place(slots=4096, load=load))
        for row in range(100):
            queue.put(a_call(row, "a", "x"))
        assert len(taken(queue)) == WAITING + 1
        waiting[0] = 9
        await asyncio.sleep(0.05)
        assert len(taken(queue)) == 2
        waiting[0] = 11
        await asyncio.sleep(0.05)
        assert taken(queue) == []

    timed(work)


def test_what_no_row_changes_is_computed_on_each_worker_first() -> None:
    async def warmed(request: Request) -> Reply | None:
        return None

    short = WarmPrefix(steps=("a",), text="", tokens=300, calls=5, messages=(("system", "House"),), node="a")
    long = WarmPrefix(
        steps=("a",), text="", tokens=600, calls=5, messages=(("system", "House rules"),), node="a", after=0
    )
    policy = Helium()
    policy.physical = physical(5, (short, long))
    queue = HeliumQueue(policy, place(ranks=2, warm=warmed))
    assert queue.take() is None
    queue.put(a_call(0, "a", "x"))
    jobs: list[Warmup] = []
    while isinstance(job := queue.take(), Warmup):
        jobs.append(job)
    assert [(job.rank, job.request.messages[0].content) for job in jobs] == [(0, "House"), (1, "House")]
    queue.warmed(jobs[0], Reply(text=""))
    job = queue.take()
    assert isinstance(job, Warmup)
    assert (job.rank, job.request.messages[0].content) == (0, "House rules")
    queue.warmed(jobs[1], Reply(text=""))
    last = queue.take()
    assert isinstance(last, Warmup)
    assert queue.take() is None
    queue.warmed(job, Reply(text=""))
    queue.warmed(last, None)
    assert rows_of(taken(queue)) == [0]
