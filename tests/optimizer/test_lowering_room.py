"""The room that rows take, the blocks that follow from it, beginnings computed ahead, and settings wanted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lowering_support import GOLDEN, lowered, phases, questions

from helix.errors import OptionError
from helix.optimizer.lowering import LowerContext
from helix.optimizer.rule import TableStats

# The drafter comes back to its own prompt after the critic.
REVISED = """
    workflow w(q: text)
    draft = llm { system "DDDDDDDDDD" user "{{ q }}" }
    critic = llm { system "CCCCC" user "{{ draft }}" }
    final = llm { system "DDDDDDDDDD" user "{{ q }}" assistant "{{ draft }}" user "{{ critic }}" }
    output final
"""
LOOP = """
    workflow w(q: text)
    said = "-"
    repeat up to 4 {
      pro = llm { system "PPPPP" user "{{ q }}" }
      con = llm { system "CCCCC" user "{{ q }} {{ pro }} {{ said }}" }
      said = con
    }
    output said
"""


def test_what_a_later_phase_continues_is_held() -> None:
    made = lowered(REVISED, questions(50), lengths={"draft": 30, "critic": 7, "final": 40})
    assert phases(made) == [["draft"], ["critic"], ["final"]]
    # Question and draft stay while the critic reads the draft.
    assert made.held_tokens == 26 + 30
    assert made.row_tokens == 26 + 30 + 7 + 40
    assert made.fixed_tokens == 10 + 5
    assert made.call_tokens == 26 + 30 + 7 + 40


@pytest.mark.parametrize(("kv_tokens", "block"), [(10_000, 20), (2000, 18), (1000, 8), (200, 1), (20, 1)])
def test_a_block_holds_what_has_to_stay(kv_tokens: int, block: int) -> None:
    made = lowered(
        REVISED, questions(20), lengths={"draft": 30, "critic": 7, "final": 40}, kv_tokens=kv_tokens, max_running=8
    )
    # 95 % of the cache, less what all rows share, and less the calls that run (at most half of it).
    free = 0.95 * kv_tokens - 15
    free -= min(free / 2, 8 * 103)
    assert made.block == max(1, min(20, int(free / 56))) == block


def test_a_block_of_few_rows_leaves_the_cache_half_empty() -> None:
    lengths = {"draft": 30, "critic": 7, "final": 40}
    # One row holds 56 of the 88 tokens beside the calls that run, and two calls and a half find room.
    made = lowered(REVISED, questions(20), lengths=lengths, kv_tokens=200, max_running=8)
    assert (made.block, made.fills) == (1, False)
    made = lowered(REVISED, questions(20), lengths=lengths, kv_tokens=10_000, max_running=8)
    assert (made.block, made.fills) == (20, True)


def test_blocks_grow_with_the_ranks() -> None:
    lengths = {"draft": 30, "critic": 7, "final": 40}
    one = lowered(REVISED, questions(200), lengths=lengths, kv_tokens=2000, max_running=8)
    four = lowered(REVISED, questions(200), lengths=lengths, kv_tokens=2000, max_running=8, ranks=4)
    assert four.block == 4 * one.block == 72


def test_rounds_of_a_loop_come_back_to_what_they_began_with() -> None:
    made = lowered(LOOP, questions(50), lengths={"pro": 10, "con": 20})
    assert phases(made) == [["pro"], ["con"]]
    # A round of one step alone is followed by the other one: both prompts stay.
    assert made.held_tokens >= 2 * 26


def test_where_nothing_is_held_a_block_is_the_table() -> None:
    assert lowered(GOLDEN, questions(300), kv_tokens=500).block == 300
    many = lowered(GOLDEN, stats=TableStats(rows=1_000_000))
    assert many.block == 4096


# --- beginnings computed ahead ------------------------------------------------------------------------------------

HOUSE, LEFT, RIGHT = "H" * 300, " l" * 40, " r" * 20
NEST = f"""
    workflow w(q: text)
    a = llm {{ system "{HOUSE}{LEFT}" user "{{{{ q }}}}" }}
    b = llm {{ system "{HOUSE}{RIGHT}" user "{{{{ q }}}}" }}
    c = llm {{ system "short" user "{{{{ q }}}}" }}
    output a, b, c
"""


def test_long_beginnings_are_computed_ahead_the_shallow_ones_first() -> None:
    made = lowered(NEST, questions(20))
    both, left = made.warm
    assert both.steps == ("a", "b")
    # The last token before a value may merge with it; here another text follows, split between words.
    assert both.tokens == 300
    assert both.calls == 40
    assert both.messages == (("system", HOUSE),)
    assert both.after is None
    # 80 more tokens are a quarter of 256 or more, 40 are not.
    assert left.steps == ("a",)
    assert left.tokens == 300 + 80
    assert left.after == 0
    assert left.messages == (("system", HOUSE + LEFT), ("user", ""))
    assert left.node == next(step.node for step in made.steps if step.step == "a")


def test_what_only_one_call_begins_with_is_not() -> None:
    assert lowered(NEST, questions(1)).warm[0].calls == 2
    lone = 'workflow w(q: text)\na = llm { system "HOUSE" user "{{ q }}" }\noutput a'.replace("HOUSE", HOUSE)
    assert lowered(lone, questions(1)).warm == ()
    assert [each.tokens for each in lowered(lone, questions(2)).warm] == [300]
    assert lowered(lone, questions(2), theta=301).warm == ()


def test_the_last_token_before_a_value_may_merge_with_it() -> None:
    text = 'workflow w(q: text)\na = llm { system "HOUSE {{ q }}" user "go" }\noutput a'.replace("HOUSE", HOUSE)
    (warm,) = lowered(text, questions(5)).warm
    assert warm.tokens == 300
    assert warm.messages == (("system", HOUSE + " "),)


# --- settings -----------------------------------------------------------------------------------------------------


def settings(**options: object) -> dict[str, str]:
    made = lowered(REVISED, questions(500), lengths={"draft": 30, "critic": 7, "final": 40}, **options)
    assert all(each.why for each in made.advice)
    return {each.flag: each.value for each in made.advice}


def test_settings_follow_the_plan_and_the_cache() -> None:
    free = settings()
    assert free["--schedule-policy"] == "lpm"
    assert free["--radix-eviction-policy"] == "priority"
    assert free["--page-size"] == "1"
    assert free["--enable-cache-report"] == ""
    assert free["--chunked-prefill-size"] == "512"
    assert "--max-running-requests" not in free
    assert "--dp-size" not in free
    assert settings(ranks=4)["--dp-size"] == "4"
    tight = settings(kv_tokens=2000, max_running=64)
    # (0.95 * 2000 - 15) / 103 tokens a call.
    assert tight["--max-running-requests"] == "18"
    assert tight["--radix-eviction-policy"] == "priority"
    ample = settings(kv_tokens=1_000_000, max_running=64)
    assert ample["--max-running-requests"] == "64"
    assert ample["--radix-eviction-policy"] == "lru"


def test_a_plan_without_calls_wants_nothing() -> None:
    made = lowered("workflow w(q: text)\noutput q", questions(3))
    assert made.advice == () == made.steps == made.warm == made.groups
    assert made.kv_wanted == 0


@pytest.mark.parametrize(
    ("name", "value"), [("ranks", 0), ("kv_tokens", 0), ("max_running", -1), ("theta", 0), ("budget", -0.5)]
)
def test_a_context_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name} is .* or more, found {value}"):
        LowerContext(**{name: value})
