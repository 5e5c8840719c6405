"""Contract 4: an equal step on equal inputs is called once where it is deterministic."""

from __future__ import annotations

from running import Folder, run, said_calls

TEXT = """workflow t(a: text)
first = llm { user "say {{ a }}" }
second = llm { user "say {{ a }}" }
output first, second"""
ROWS = [{"a": word} for word in ("red", "blue", "red", "red", "blue", "green")]


def test_04_equal_calls_are_made_once_across_rows_and_steps() -> None:
    assert run(TEXT, ROWS).engine.calls == 3
    ran = run(TEXT, ROWS, plain=True)
    assert ran.engine.calls == 3
    assert ran.report.merged == 9
    assert sorted(request.messages[0].content for request in ran.engine.requests) == [
        "say blue",
        "say green",
        "say red",
    ]
    assert all(row["first"] == row["second"] for row in ran.rows)
    assert ran.rows[0]["first"] == ran.rows[2]["first"] != ran.rows[1]["first"]


def test_04_cache_off_and_no_merge_make_every_call() -> None:
    assert run(TEXT.replace("first = llm", "first = llm(cache: off)"), ROWS).engine.calls == 6 + 3
    assert run(TEXT, ROWS, merge=False).engine.calls == 12


def test_04_sampled_calls_are_never_merged() -> None:
    assert run(TEXT.replace("llm {", "llm(temperature: 0.8) {"), ROWS).engine.calls == 12
    assert run(TEXT.replace("llm {", "llm(temperature: null) {"), ROWS).engine.calls == 12
    assert run(TEXT.replace("llm {", "llm(temperature: 0.8, seed: 5) {"), ROWS).engine.calls == 3


def test_04_merging_is_the_same_in_memory_and_on_disk(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from helix.executor import memo

    monkeypatch.setattr(memo.Memo.__init__, "__defaults__", (5, 200))
    monkeypatch.setattr(memo, "_BATCH", 5)
    rows = [{"a": f"word {number % 40}"} for number in range(200)]
    ran = run(TEXT, rows)
    assert ran.engine.calls == 40
    assert ran.rows[0]["first"] == ran.rows[40]["first"] == ran.rows[160]["second"]


def test_04_from_the_command_line(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    done = folder.run("-o", "out.jsonl")
    assert done.returncode == 0
    assert said_calls(done.stderr) == 3
    # The plan has one step for both; what is left to merge are equal rows.
    assert "3 more merged with equal ones" in done.stderr
    done = folder.run("-o", "out.jsonl", "--rules", "none", "--fresh")
    assert said_calls(done.stderr) == 3
    assert "9 more merged with equal ones" in done.stderr
    merged = (folder.path / "out.jsonl").read_bytes()
    done = folder.run("-o", "out.jsonl", "--no-merge", "--fresh")
    assert said_calls(done.stderr) == 12
    assert (folder.path / "out.jsonl").read_bytes() == merged
