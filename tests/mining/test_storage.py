"""Patterns in files: what was saved is loaded, and what is no pattern file is refused."""

from __future__ import annotations

import copy
import json
import random

import pytest
from mining_sessions import asked, shops

from helix.errors import InputError
from helix.mining import Miner, MinerSettings, ToolFacts
from helix.mining.storage import MOST_BYTES, load, pattern_file, save


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file, and the miner that wrote it."""
    path = tmp_path_factory.mktemp("patterns") / "p.json"
    miner = Miner(tools={"get_order": ToolFacts(effects="read")})
    miner.mine(shops(12))
    miner.save(path, tenant="acme", schemas={"get_order": "one", "get_customer": "two"})
    return path, miner


def test_what_was_saved_is_loaded(saved, tmp_path):
    path, miner = saved
    again = Miner.load(path, tenant="acme")
    for seen in range(5):
        assert again.predict(asked(50, seen)) == miner.predict(asked(50, seen))
    assert again.tools == miner.tools
    assert again.tools["get_order"] == ToolFacts(effects="read", schema="one")
    again.save(tmp_path / "q.json", tenant="acme")
    assert (tmp_path / "q.json").read_bytes() == path.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == ["p.json"]


def test_a_loaded_miner_learns_on(saved, tmp_path):
    path, _ = saved
    whole, again = Miner(), Miner.load(path, tenant="acme")
    whole.mine(shops(12))
    whole.save(tmp_path / "w.json")
    for miner in (whole, again):
        for session in shops(16)[12:]:
            miner.observe(session)
    assert again.predict(asked(50, 2)) == whole.predict(asked(50, 2))


def test_patterns_belong_to_a_tenant(saved, tmp_path):
    path, _ = saved
    for other in (None, "evil"):
        with pytest.raises(InputError, match="another tenant"):
            Miner.load(path, tenant=other)
    assert pattern_file("f", "a") != pattern_file("f", "b") != pattern_file("f", None)
    assert pattern_file("f", "../../x").parent == pattern_file("f", None).parent


def test_a_changed_schema_makes_patterns_stale(saved):
    path, _ = saved
    miner = Miner.load(path, tenant="acme", schemas={"get_order": "other", "get_customer": "two"})
    assert miner.stale == {"get_order"}
    assert all(each.stale == (each.tool == "get_order") for each in miner.predict(asked(50, 1)))


@pytest.mark.parametrize("version", [0, 2, "1", True, None])
def test_other_versions_are_refused(saved, tmp_path, version):
    held = json.loads(saved[0].read_text(encoding="utf-8"))
    held["helix_patterns"] = version
    path = tmp_path / "p.json"
    path.write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(InputError, match=r"version .* of patterns is not known; this Helix reads 1"):
        Miner.load(path, tenant="acme")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"helix_patterns": 1}', "\x80\x04\x95pickle", "{" * 9000, "NaN"]
)
def test_what_is_no_pattern_file_is_refused(tmp_path, text):
    path = tmp_path / "p.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        Miner.load(path)
    assert str(path) in caught.value.render()


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "p.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(InputError, match="larger than"):
        Miner.load(path)
    with pytest.raises(InputError, match="cannot be read"):
        Miner.load(tmp_path / "none.json")


def places(held, path=()):
    """All places in a JSON value."""
    yield path
    inner = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for name, value in inner:
        yield from places(value, (*path, name))


JUNK = [None, True, -1, 1e400, 10**400, "x", "", [], {}, [[]], {"a": 1}, -0.5, "const", ["const", "{"], 2**63]


def test_a_file_that_somebody_changed_is_refused_or_harmless(saved, tmp_path):
    """Each part in turn is put in place of another: it loads and predicts, or it is refused in words."""
    source = json.loads(saved[0].read_text(encoding="utf-8"))
    everywhere = [place for place in places(source) if place]
    draw = random.Random(1)
    path = tmp_path / "p.json"
    refused = 0
    for _ in range(400):
        held = copy.deepcopy(source)
        *way, last = draw.choice(everywhere)
        inner = held
        for name in way:
            inner = inner[name]
        inner[last] = draw.choice(JUNK)
        path.write_text(json.dumps(held, allow_nan=True), encoding="utf-8")
        try:
            found = load(path, tenant="acme").predict(asked(50, 1))
        except InputError:
            refused += 1
        else:
            assert all(0 <= each.p_low <= each.p <= 1 for each in found)
    assert refused > 200


def test_patterns_are_pruned_to_the_size_that_is_allowed(saved, tmp_path):
    miner = Miner()
    miner.mine(shops(12))
    path = tmp_path / "p.json"
    save(miner, path)
    whole = path.stat().st_size
    save(miner, path, most=whole // 2)
    assert path.stat().st_size <= whole // 2
    assert load(path).predict(asked(50, 1)) == miner.predict(asked(50, 1))
    with pytest.raises(InputError, match="do not fit into"):
        save(miner, path, most=10)
    # The file that was there stays.
    assert load(path).sessions == 12


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        Miner().save(tmp_path / "none" / "p.json")


def test_settings_may_be_others(saved):
    path, _ = saved
    miner = Miner.load(path, tenant="acme", settings=MinerSettings(tools_tried=1, sets_tried=1))
    assert len(miner.predict(asked(50, 1))) == 1
