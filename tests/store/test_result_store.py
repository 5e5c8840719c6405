"""Contract 6: the store keeps successes as bytes, bounded in size, safe with several processes, and is never wrong."""

from __future__ import annotations

import sqlite3
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from running import ROOT, environment
from store_support import asked, asking, found, stored

from helix.errors import StoreError
from helix.executor.store.database import FILE
from helix.executor.store.results import ENTRY_BYTES, ResultStore


def test_a_value_comes_back_as_it_was(tmp_path: Path) -> None:
    texts = {"a": "b", "empty": "", "odd": "\ud800 \x00 é 漢", "long": "x" * 100_000}
    stored(tmp_path, texts)
    assert found(tmp_path, *texts, "unknown") == [*texts.values(), None]


def test_a_later_value_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    stored(tmp_path, {"a": "first"})
    stored(tmp_path, {"a": "second"})
    assert found(tmp_path, "a") == ["second"]


def test_what_was_asked_is_checked_on_a_hit(tmp_path: Path) -> None:
    stored(tmp_path, {"a": "b"})
    store = ResultStore(tmp_path)
    assert store.get(asked("a").key, asking({"temperature": 1})) is None
    assert "damaged" in store.notes[0]
    store.close()


def test_results_hold_as_long_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ResultStore(tmp_path)
    call = asked("a", asking(holds=60.0))
    store.put(call.key, call.asking, "b")
    store.close()
    store = ResultStore(tmp_path)
    assert store.get(call.key, call.asking) == "b"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert store.get(call.key, call.asking) is None
    store.close()


def test_the_folder_is_kept_out_of_version_control(tmp_path: Path) -> None:
    stored(tmp_path / "new" / "store", {})
    assert (tmp_path / "new" / "store" / ".gitignore").read_text() == "*\n"


# --- size ---


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    most = 4 * (ENTRY_BYTES + 100)
    for number in range(4):
        stored(tmp_path, {f"prompt {number}": "x" * 100}, most=most)
    # The first is used again, so that the second is the oldest.
    assert found(tmp_path, "prompt 0", most=most) == ["x" * 100]
    stored(tmp_path, {"prompt 4": "x" * 100}, most=most)
    assert [text is not None for text in found(tmp_path, *(f"prompt {n}" for n in range(5)), most=most)] == [
        True,
        False,
        True,
        True,
        True,
    ]


def test_a_store_never_grows_beyond_its_bound(tmp_path: Path) -> None:
    most = 50_000
    for number in range(5):
        stored(tmp_path, {f"{number} {each}": "x" * 500 for each in range(100)}, most=most)
        database = sqlite3.connect(tmp_path / FILE)
        total = database.execute("SELECT value FROM totals WHERE name = 'bytes'").fetchone()[0]
        held, entries = database.execute("SELECT total(size), count(*) FROM results").fetchone()
        assert total == held <= most
        assert entries == database.execute("SELECT value FROM totals WHERE name = 'entries'").fetchone()[0] > 50
        database.close()
    assert (tmp_path / FILE).stat().st_size < 6 * most


# --- files that are no store ---


def refusal(folder: Path) -> str:
    before = (folder / FILE).read_bytes()
    with pytest.raises(StoreError) as caught:
        ResultStore(folder)
    assert (folder / FILE).read_bytes() == before
    assert "left as it is" in str(caught.value) or "it was left" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"x" * 10_000, b"SQLite format 3\x00"])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert "is no result store of Helix" in refusal(tmp_path)


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / FILE)
    database.execute("CREATE TABLE t (a)")
    database.commit()
    database.close()
    assert "is a database, but no result store of Helix" in refusal(tmp_path)


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    stored(tmp_path, {"a": "b"})
    data = bytearray((tmp_path / FILE).read_bytes())
    data[60:64] = struct.pack(">I", 7)
    (tmp_path / FILE).write_bytes(data)
    assert "newer version of Helix (format 7; this one knows 1)" in refusal(tmp_path)


def test_a_store_that_was_cut_off_is_refused_and_left_alone(tmp_path: Path) -> None:
    stored(tmp_path, {str(number): "x" * 1000 for number in range(50)})
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data[: len(data) // 2])
    assert "missing at its end" in refusal(tmp_path)


@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_is_refused_or_found_or_does_no_harm(tmp_path: Path, seed: int) -> None:
    """Never a wrong answer: what is given is what was stored, or nothing."""
    import random

    texts = {f"prompt {number}": f"reply {number} " * 60 for number in range(60)}
    stored(tmp_path, texts)
    drawn = random.Random(seed)
    data = bytearray((tmp_path / FILE).read_bytes())
    for _ in range(drawn.randrange(1, 30)):
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
    (tmp_path / FILE).write_bytes(data)
    refused = ""
    answers: list[str | None] = []
    try:
        answers = found(tmp_path, *texts)
    except StoreError as error:
        refused = str(error)
    if refused:
        assert FILE in refused
        assert (tmp_path / FILE).read_bytes() == data
    else:
        assert all(answer in (None, text) for answer, text in zip(answers, texts.values(), strict=True))


def test_a_store_that_breaks_on_the_way_is_used_no_more(tmp_path: Path) -> None:
    stored(tmp_path, {"a": "b" * 3000, "c": "d" * 3000})
    data = (tmp_path / FILE).read_bytes()
    # Values are not covered by the checks of the database: only the digest tells.
    (tmp_path / FILE).write_bytes(data.replace(b"b" * 100, b"b" * 99 + b"x", 1))
    store = ResultStore(tmp_path)
    assert store.get(asked("a").key, asked("a").asking) is None
    assert store.get(asked("c").key, asked("c").asking) is None
    store.put(asked("e").key, asked("e").asking, "f")
    store.close()
    assert len(store.notes) == 1
    assert "the run goes on without it" in store.notes[0]
    assert found(tmp_path, "e") == [None]


def test_a_full_disk_is_said_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ResultStore(tmp_path)

    def full(database: sqlite3.Connection, batch: list[object]) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "_write", full)
    for number in range(3):
        store.put(asked(str(number)).key, asked(str(number)).asking, "x")
    store.close()
    assert store.notes == [
        f"the result store {tmp_path / FILE} cannot be written: database or disk is full; the run goes on without it"
    ]


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="results cannot be kept in"):
        ResultStore(tmp_path / "file" / "store")


# --- several at once ---


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path[:0] = [{str(ROOT / 'tests' / 'store')!r}, {str(ROOT)!r}]\n"
        "from store_support import stored\n"
        "for turn in range(5):\n"
        "  stored(Path(sys.argv[1]), {f'{sys.argv[2]} {turn} {n}': sys.argv[2] for n in range(200)})\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path, name], env=environment(None), stderr=subprocess.PIPE)
        for name in ("one", "other")
    ]
    for process in processes:
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, b"")
    for name in ("one", "other"):
        assert found(tmp_path, *(f"{name} {turn} {n}" for turn in range(5) for n in range(200))) == [name] * 1000


def test_many_that_make_the_store_at_once_find_one_whole(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def make(number: int) -> None:
        try:
            stored(tmp_path, {f"prompt {number}": "x"})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert found(tmp_path, *(f"prompt {number}" for number in range(8))) == ["x"] * 8
