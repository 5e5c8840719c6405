"""What the miner learns from sessions, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mining_sessions import CITIES, Talk, asked, customer, shop, shops

from helix.errors import OptionError
from helix.mining import History, Miner, MinerSettings, ToolFacts
from helix.mining.control import SAY, Trie
from helix.mining.history import call_key
from helix.mining.listing import known_patterns
from helix.mining.miner import ENOUGH, decisions_of
from helix.traces import LlmEvent, Session, ToolEvent
from helix.traces.canonical import hide_secrets


def mined(sessions, **settings):
    miner = Miner(MinerSettings(half_life=None, **settings))
    miner.mine(sessions)
    return miner


@pytest.fixture(scope="module")
def miner():
    return mined(shops(30))


def test_a_new_customer_is_looked_up_by_what_the_user_says(miner):
    first = miner.predict(asked(77))[0]
    assert (first.tool, first.args) == ("get_customer", {"customer_id": customer(77)[0]})
    assert first.key == call_key(first.tool, first.args)
    assert first.p > 0.8
    assert 0.5 < first.p_low <= first.p
    assert first.chances >= 20
    assert first.hits == first.chances
    assert first.text.startswith("after a text of the user: get_customer(customer_id = ")


def test_orders_are_taken_from_the_list_one_after_another(miner):
    orders = customer(77)[1]
    for seen in (1, 2, 3):
        first = miner.predict(asked(77, seen))[0]
        assert (first.tool, first.args) == ("get_order", {"order_id": orders[seen - 1]})
        assert first.p > 0.5
    tools = miner.next_tools(asked(77, 4))
    assert tools[0][0] == SAY
    assert sum(p for _, p in tools) == pytest.approx(1.0)


def test_before_a_call_is_likely_nothing_is(miner):
    history = History()
    history.user("Hello, where is my parcel?")
    assert miner.next_tools(history)[0][0] == SAY
    assert all(each.p < 0.2 for each in miner.predict(history))


def test_probabilities_are_those_of_one_outcome(miner):
    for seen in range(5):
        found = miner.predict(asked(5, seen), most=100)
        assert sum(each.p for each in found) <= 1.0
        assert [each.p for each in found] == sorted((each.p for each in found), reverse=True)
        assert len({each.key for each in found}) == len(found)
        assert all(0.0 <= each.p_low <= each.p <= 1.0 for each in found)
        assert miner.predict(asked(5, seen), most=2) == found[:2]


def test_only_tools_on_offer_are_predicted(miner):
    found = miner.predict(asked(77), tools={"get_order"})
    assert {each.tool for each in found} <= {"get_order"}
    assert miner.predict(asked(77), tools=set()) == []


def test_asking_changes_nothing(miner):
    before = miner.predict(asked(3))
    miner.predict(History())
    assert miner.predict(asked(3)) == before


def test_a_miner_that_knows_nothing_says_nothing():
    assert Miner().predict(asked(1)) == []
    assert Miner().next_tools(asked(1)) == []


def test_one_by_one_is_as_all_at_once():
    one = Miner(MinerSettings(half_life=None))
    for session in shops(12):
        one.observe(session)
    assert one.predict(asked(77)) == mined(shops(12)).predict(asked(77))


def test_the_tries_of_one_task_are_no_evidence_for_each_other():
    apart, together = mined(shops(8)), mined([shop(number, group="one") for number in range(8)])
    # Nothing was known before the group, so that nothing of it was a chance.
    assert together.chances == {}
    assert apart.chances
    assert together.predict(asked(9))[0].args == apart.predict(asked(9))[0].args


def test_chances_count_what_was_not_launched_and_only_what_was_not_known():
    seen = []
    miner = Miner(MinerSettings(half_life=None))
    miner.mine(shops(6), heard=lambda session, calls, found: seen.append((session.id, len(calls), len(found))))
    # The first session is not predicted: nothing was known. The others have six decisions each.
    assert [each[0] for each in seen] == [f"s{number}" for number in range(1, 6) for _ in range(6)]
    assert sum(each[1] for each in seen) == 20
    assert all(0 <= hits <= chances for chances, hits in miner.chances.values())


def test_what_is_old_fades():
    def other(number):
        talk = Talk(f"o{number}")
        talk.user("Hello, where is my parcel?")
        talk.decide(("track", {"what": "all"}, {}))
        talk.decide(text="there")
        return talk.session()

    def likely(half_life):
        miner = Miner(MinerSettings(half_life=half_life, order=1, words=False))
        miner.mine([*shops(40), *(other(number) for number in range(12))])
        history = History()
        history.user("Hello, where is my parcel?")
        return dict(miner.next_tools(history))["track"]

    assert likely(3.0) > likely(None) + 0.05


def test_correlated_arguments_come_from_one_record():
    def fly(number):
        talk = Talk(f"f{number}")
        legs = [
            {"flight": f"HX{number:02}{place}", "gate": f"G{place}{number % 7}Q", "date": f"2024-03-{place + 11}"}
            for place in range(3)
        ]
        talk.user("Which gate?")
        talk.decide(("list_legs", {}, {"legs": legs}))
        leg = legs[number % 3]
        talk.decide(text="Which of them?")
        talk.user(f"The one on {leg['date']}, please.")
        talk.decide(("get_gate", {"date": leg["date"], "flight": leg["flight"]}, {}))
        return talk.session(), leg

    sessions = [fly(number)[0] for number in range(40)]
    joint = mined(sessions)
    right = {True: 0, False: 0}
    for number in range(41, 59):
        session, leg = fly(number)
        history = History.of(session.events[:3])
        history.user(session.events[3].user[0])
        for settings, miner in ((True, joint), (False, mined(sessions, joint=False))):
            found = miner.predict(history)
            right[settings] += bool(found) and found[0].args == {"date": leg["date"], "flight": leg["flight"]}
        if number > 44:
            break
    assert right[True] == 5
    assert right[True] >= right[False]


def test_dates_are_read_in_words():
    def session(number, day, said):
        talk = Talk(f"d{number}")
        talk.user("Hello")
        talk.decide(("today", {}, {"date": f"2024-05-{number % 9 + 1:02}"}))
        talk.decide(text="When?")
        talk.user(said)
        talk.decide(("search", {"on": f"2024-05-{day:02}"}, {}))
        return talk.session()

    forms = ["On May {d}.", "the {d}th of May", "May {d}th, 2024 please", "2024-05-{d}"]
    sessions = [session(n, 10 + n % 18, forms[n % 4].format(d=10 + n % 18)) for n in range(24)]
    history = History()
    history.user("Hello")
    history.called("today", {}, {"date": "2024-05-03"})
    history.said("When?")
    history.user("How about May 30?")
    wanted = {"on": "2024-05-30"}
    assert mined(sessions).predict(history)[0].args == wanted
    assert all(each.args != wanted for each in mined(sessions, dates=False).predict(history))


def test_absence_is_an_outcome():
    def session(number):
        talk = Talk(f"a{number}")
        talk.user("Search cheap ones" if number % 2 else "Search all")
        talk.decide(("search", {"sort": "price"} if number % 2 else {}, {}))
        return talk.session()

    found = mined([session(number) for number in range(20)])
    history = History()
    history.user("Search all")
    assert {"{}" if not each.args else "sort" for each in found.predict(history)} == {"{}", "sort"}


def test_a_secret_is_never_mapped():
    def session(number):
        talk = Talk(f"x{number}")
        talk.user("log me in")
        talk.decide(("login", hide_secrets({"user": "ann", "password": "p"}, ["password"], b"k"), {"token": "t"}))
        return talk.session()

    history = History()
    history.user("log me in")
    found = mined([session(number) for number in range(10)])
    assert all("$secret" not in each.key for each in found.predict(history))
    history = History()
    history.called("login", hide_secrets({"password": "p"}, ["password"], b"k"), hide_secrets({"a": 1}, ["a"], b"k"))
    assert history.argument("login", "password") is None
    assert history.calls[0].found() == []


def test_parallel_calls_and_calls_of_a_plan_are_learned():
    def session(number):
        talk = Talk(f"p{number}")
        talk.user("all")
        talk.decide(("first", {}, 1), ("second", {}, 2))
        return talk.session()

    found = mined([session(number) for number in range(10)])
    history = History()
    history.user("all")
    assert {each.tool for each in found.predict(history)[:2]} == {"first", "second"}
    alone = Session(
        id="s",
        group="s",
        events=(ToolEvent(session="s", id="plan.0", step=0, tool="f", args={}), LlmEvent(session="s", id="1", step=1)),
    )
    assert [[call.tool for call in calls] for _, calls in decisions_of(alone)] == [["f"], []]


def test_facts_are_labels():
    miner = Miner(tools={"get_order": ToolFacts(effects="read", schema="h")})
    miner.mine(shops(3))
    assert miner.tools["get_order"].effects == "read"


@pytest.mark.parametrize("wrong", [{"order": 0}, {"least_seen": True}, {"tools_tried": 1.5}, {"half_life": 0}])
def test_settings_that_do_not_fit(wrong):
    with pytest.raises(OptionError):
        MinerSettings(**wrong)


def test_the_trie_backs_off_from_contexts_seen_too_rarely():
    trie = Trie(3)
    for _ in range(2):
        trie.learn(("a", "b", "c"), "x")
    trie.learn(("q", "b", "c"), "y")
    trie.learn(("q", "r", "c"), SAY)
    assert trie.back_off(("a", "b", "c")) == (("b", "c"), {"x": 2.0, "y": 1.0})
    assert trie.rank(("a", "b", "c")) == [("x", 2 / 3), ("y", 1 / 3)]
    assert trie.back_off(("n", "n", "c"))[0] == ("c",)
    assert trie.rank(("n", "n", "n"), say=True) == [("x", 0.5), (SAY, 0.25), ("y", 0.25)]
    levels = trie.smoothed(("a", "b", "c"), ["SAY", "x", "y"])
    assert all(sum(level) == pytest.approx(1.0) for level in levels)


_SEEDED = """
import sys; sys.path.insert(0, sys.argv[1])
from mining_sessions import asked, shops
from helix.mining import Miner
miner = Miner(); miner.mine(shops(8)); miner.save(sys.argv[2])
print(miner.predict(asked(77, 2)))
"""


def test_nothing_depends_on_the_hash_seed(tmp_path):
    found = []
    for seed in ("0", "1"):
        path = tmp_path / f"{seed}.json"
        done = subprocess.run(
            [sys.executable, "-c", _SEEDED, str(Path(__file__).parent), str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append((done.stdout, path.read_bytes()))
    assert found[0] == found[1]


def test_words_stand_for_values():
    def session(number):
        talk = Talk(f"w{number}")
        city = sorted(CITIES)[number % 3]
        talk.user(f"Any flights to {city} today?")
        talk.decide(("search", {"to": CITIES[city]}, {}))
        return talk.session()

    found = mined([session(number) for number in range(30)])
    for city, code in CITIES.items():
        history = History()
        history.user(f"Any flights to {city} today?")
        assert found.predict(history)[0].args == {"to": code}


def test_a_pattern_with_few_chances_is_judged_by_the_same_one_after_any_event():
    few, many = Miner(), Miner()
    few.mine(shops(20))
    many.mine(shops(60))
    judged, alone = few.predict(asked(99, 1))[0], many.predict(asked(99, 1))[0]
    assert judged.tool == alone.tool == "get_order"
    assert judged.text.startswith("after any event: ")
    assert alone.text.startswith("after get_customer: ")
    own = few.chances_of(alone.pattern)
    assert own[0] < ENOUGH < judged.chances
    assert few.chances_of(judged.pattern)[0] == judged.chances
    assert judged.p_low <= judged.p
    assert judged.pattern in {each.name for each in known_patterns(few, ["get_order"])}
