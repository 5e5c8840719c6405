"""Large calls and small ones side by side: large ones that have their share of the cache let small ones go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_baselines import a_call, end, place, taken

from helix.executor.calls import Call
from helix.executor.policies.balance import ENOUGH
from helix.executor.policies.cache_aware import CacheAwareQueue
from helix.executor.policies.helix_policy import Helix
from helix.executor.policies.outline import Outline

# Characters of a prompt, four to a token. The cache holds 4,000, of which 3,800 are planned for.
PART, WHOLE = 80, 640
REPLY = 20


class Stages(Outline):
    """Seven `part`s of a row, then a `whole`. `whole` is what one of these is expected to take of the cache, in tokens,
    times those of its reply.
    """

    def __init__(self, *, part: float = 30 * REPLY, whole: float = 170 * REPLY, returns: bool = False) -> None:
        super().__init__()
        self._hops = {"part": 2, "whole": 1}
        self.stages = {1: (10.0, whole), 2: (70.0, part)}
        self._returns = frozenset({"part"} if returns else ())


def a_queue(outline: Outline, *, balance: bool = True, slots: int = 10) -> CacheAwareQueue:
    return CacheAwareQueue(place(kv=1000, slots=slots), outline=outline, warm_ups=False, balance=balance)


def put(queue: CacheAwareQueue, step: str, *rows: int, size: int) -> list[Call]:
    """Calls of a step with prompts that share nothing."""
    made = []
    for row in rows:
        call = a_call(row, step, chr(ord("a") + row) * size, index=1 if step == "whole" else 0)
        assert call.request is not None
        call.request = replace(call.request, max_tokens=REPLY)
        queue.put(call)
        made.append(call)
    return made


def mixed(queue: CacheAwareQueue, *, part: int = PART, whole: int = WHOLE) -> list[str]:
    """What goes where two parts run, five rows want their whole, and five later ones their parts."""
    put(queue, "part", 0, 1, size=part)
    assert len(taken(queue)) == 2
    put(queue, "whole", *range(2, 7), size=whole)
    put(queue, "part", *range(7, 12), size=part)
    return [call.step for call in taken(queue)]


def test_large_calls_get_their_share_and_small_ones_the_rest() -> None:
    # Shares of 7 * 30 and 170: of 3,800 characters 1,700 for wholes, each of about 700.
    assert mixed(a_queue(Stages())) == ["whole", "whole", *["part"] * 5, "whole"]
    assert mixed(a_queue(Stages(), balance=False)) == [*["whole"] * 5, "part"]


def test_where_only_large_calls_wait_they_take_all() -> None:
    queue = a_queue(Stages())
    put(queue, "part", 0, size=PART)
    put(queue, "whole", *range(2, 7), size=WHOLE)
    assert [call.step for call in taken(queue)] == ["part", *["whole"] * 5]


def test_calls_that_fill_the_cache_by_themselves_take_nobody_s_place() -> None:
    # Ten parts of 400 characters do not fit either: there is no batch that they would fill up.
    assert mixed(a_queue(Stages()), part=400)[:4] == ["whole"] * 4


def test_where_rows_come_back_to_prompts_the_older_rows_go_first() -> None:
    assert mixed(a_queue(Stages(returns=True)))[:4] == ["whole"] * 4


@pytest.mark.parametrize(("ended", "wholes"), [(ENOUGH - 1, 1), (ENOUGH, 2)])
def test_what_calls_took_counts_once_enough_have_ended(ended: int, wholes: int) -> None:
    # By the plan a whole takes next to nothing, so one of them is more than their share.
    queue = a_queue(Stages(whole=1.0), slots=12)
    for row in range(12, 12 + ended):
        (call,) = put(queue, "whole", row, size=WHOLE)
        assert taken(queue) == [call]
        end(queue, call, prompt=WHOLE // 4, reply=REPLY)
        queue.row_ended(row)
    went = mixed(queue)
    assert went[: wholes + 1] == ["whole"] * wholes + ["part"]


def test_without_it_a_run_says_so() -> None:
    assert Helix(("balance",)).name == "helix:no-balance"
    assert "large calls take the cache" in Helix(("balance",)).describe()
