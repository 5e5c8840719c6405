"""Contract 8: what the journal holds is found again, whatever a crash or a power cut did to its end."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from store_support import kept, key

from helix.errors import StoreError
from helix.executor.store.journal import HEAD, Journal, Record
from helix.executor.values import Failure

RECORDS = [Record(key(number), f"reply {number} " * (number % 7)) for number in range(50)]


def read(path: Path, **options: Any) -> dict[int, Any]:
    """What a journal has of the records: their texts or their failures."""
    journal = Journal(path, **options)
    found = {number: journal.find(key(number)) for number in range(100)}
    journal.close()
    return {
        number: record.text if record.failure is None else record.failure for number, record in found.items() if record
    }


def texts(count: int = 50) -> dict[int, str]:
    return {number: str(RECORDS[number].text) for number in range(count)}


def test_outcomes_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    failure = Failure(
        "schema", "no \ud800", step="x[1]", order=(1, 2), attempts=3, raw="raw \x00 é", traceback="Traceback"
    )
    kept(path, *RECORDS, Record(key(60), None, failure), Record(key(61), "\ud800 漢 \x00"))
    found = read(path)
    assert {number: found[number] for number in range(50)} == texts()
    assert found[60].parts() == failure.parts()
    assert found[61] == "\ud800 漢 \x00"
    assert len(found) == 52


def test_the_last_outcome_of_a_call_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    kept(path, Record(key(1), "first"), Record(key(2), "other"))
    kept(path, Record(key(1), "second"))
    assert read(path) == {1: "second", 2: "other"}


def test_what_is_added_now_is_not_found_in_this_run(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Journal(tmp_path / "journal")
        await journal.keep(Record(key(1), "x"))
        assert journal.find(key(1)) is None
        assert (journal.calls, journal.added) == (0, 1)
        journal.close()

    asyncio.run(main())


def test_a_journal_begun_anew_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    kept(path, *RECORDS)
    kept(path, Record(key(70), "x"), anew=True)
    assert read(path) == {70: "x"}


def test_failures_are_dropped_where_they_are_to_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    failure = Failure("engine", "down", step="x")
    kept(path, Record(key(1), "x"), Record(key(2), None, failure), Record(key(3), None, failure))
    kept(path, Record(key(3), "now"))
    assert read(path, retry=True) == {1: "x", 3: "now"}
    assert set(read(path)) == {1, 2, 3}


def test_ordinals_of_equal_prompts_are_known(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    prompt, other = b"p" * 32, b"q" * 32
    failed = Failure("engine", "down", step="x")
    kept(
        path,
        Record(key(1), "a", prompt=prompt, ordinal=0),
        Record(key(2), "b", prompt=prompt, ordinal=2),
        Record(key(3), None, failed, prompt=prompt, ordinal=3),
    )
    journal = Journal(path)
    assert [journal.uses(prompt, ordinal) for ordinal in range(5)] == [True, False, True, False, False]
    assert not journal.uses(other, 0)
    record = journal.find(key(2))
    assert record is not None
    assert (record.prompt, record.ordinal) == (prompt[:16], 2)
    journal.close()


# --- durability ---


def test_a_call_counts_only_once_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls that end together share a sync, and none is told before it."""
    syncs: list[int] = []
    allowed = threading.Event()

    def slow(file: int) -> None:
        allowed.wait(10)
        syncs.append(os.fstat(file).st_size)

    async def main() -> None:
        journal = Journal(tmp_path / "journal")
        monkeypatch.setattr("helix.executor.store.journal._sync", slow)
        tasks = [asyncio.create_task(journal.keep(record)) for record in RECORDS]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in tasks)
        allowed.set()
        await asyncio.gather(*tasks)
        journal.close()

    asyncio.run(main())
    assert len(syncs) <= 3
    assert syncs[-1] == (tmp_path / "journal").stat().st_size
    assert read(tmp_path / "journal") == texts()


def test_a_full_disk_is_told_to_each_call_and_leaves_no_half_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    kept(path, *RECORDS[:10])
    whole = path.stat().st_size
    write = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if at > whole:
            raise OSError(28, "No space left on device")
        return write(file, data[:7], at)

    async def main() -> None:
        journal = Journal(path)
        monkeypatch.setattr(os, "pwrite", full)
        for record in RECORDS[10:12]:
            with pytest.raises(StoreError, match=r"the journal .* cannot be written: No space left on device"):
                await journal.keep(record)
        journal.close()

    asyncio.run(main())
    monkeypatch.undo()
    assert path.stat().st_size == whole
    assert read(path) == texts(10)


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_a_torn_end_costs_what_was_torn(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal"
    kept(path, *RECORDS)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    found = read(path)
    assert found == texts(len(found))
    assert len(found) >= 50 - cut // 40 - 2
    # What comes next stands behind what is whole.
    kept(path, Record(key(80), "next"))
    assert read(path) == {**texts(len(found)), 80: "next"}


@pytest.mark.parametrize("tail", [bytes(5000), b"\xf5HxJ" * 100, b"\xf5HxJ\xff\xff\xff\xff" + bytes(40), b"x"])
def test_what_a_power_cut_leaves_at_the_end_is_cut_away(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "journal"
    kept(path, *RECORDS)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    assert read(path) == texts()
    assert path.stat().st_size == size


@pytest.mark.parametrize("seed", range(30))
def test_damage_in_the_middle_costs_what_it_hits(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "journal"
    kept(path, *RECORDS)
    drawn = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(3):
        data[drawn.randrange(len(HEAD), len(data))] ^= 1 << drawn.randrange(8)
    path.write_bytes(data)
    found = read(path)
    assert len(found) >= 50 - 3 * 2
    assert all(texts()[number] == text for number, text in found.items())


def test_damage_in_the_middle_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    kept(path, *RECORDS)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    journal = Journal(path)
    assert journal.calls == 49
    assert 40 < journal.damaged < 200
    journal.close()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"something else", "is no journal of Helix"), (b"helix journal 2\n....", "newer version of Helix")],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=said):
        Journal(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("length", range(len(HEAD)))
def test_a_journal_that_was_cut_off_in_its_head_is_empty(tmp_path: Path, length: int) -> None:
    path = tmp_path / "journal"
    path.write_bytes(HEAD[:length])
    assert read(path) == {}
    kept(path, *RECORDS)
    assert read(path) == texts()


def test_records_larger_than_a_block_are_read(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    kept(path, Record(key(1), "x" * 3_000_000), Record(key(2), "y"), Record(key(3), "z" * 1_500_000))
    found = read(path)
    assert (len(found[1]), found[2], len(found[3])) == (3_000_000, "y", 1_500_000)
