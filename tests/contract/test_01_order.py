"""Contract 1: every row has a stable index; the result follows the order of the input, whatever ran first."""

from __future__ import annotations

import random
from typing import Any

import pytest
from running import Folder, run, user_text

TEXT = """workflow t(a: text, n: int)
x = llm { user "x {{ a }}" }
y = llm { user "y {{ x }}" }
output a, y"""
ROWS = [{"a": f"row {number}", "n": number % 3} for number in range(60)]


def scattered(seed: int) -> Any:
    """Replies after a delay that is drawn for each prompt."""

    async def reply(request: Any) -> str:
        import asyncio

        text = user_text(request)
        await asyncio.sleep(random.Random(f"{seed}{text}").random() * 0.02)
        return text.upper()

    return reply


@pytest.mark.parametrize("concurrency", [1, 5, 64])
def test_01_rows_keep_their_order_and_index_under_random_delays(concurrency: int) -> None:
    ran = run(TEXT, ROWS, reply=scattered(concurrency), concurrency=concurrency)
    assert [(row["_row"], row["a"], row["y"]) for row in ran.rows] == [
        (number, f"row {number}", f"Y X ROW {number}") for number in range(60)
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("keep when n != 1", [number for number in range(60) if number % 3 != 1]),
        ('spread split(a, " ") as word', [number for number in range(60) for _ in range(2)]),
        ("sort by n desc", sorted(range(60), key=lambda number: -(number % 3))),
        ("limit 7", list(range(7))),
        ("keep when n == 0\nlimit 3", [0, 3, 6]),
        ("sort by n\nlimit 25\nkeep when n == 1", [1, 4, 7, 10, 13]),
    ],
)
def test_01_after_filters_spreads_sorts_and_limits_the_order_follows_the_input(body: str, expected: list[int]) -> None:
    text = TEXT.replace("\noutput", f'\n{body}\nz = llm {{ user "z {{{{ y }}}}" }}\noutput').replace("a, y", "a, z")
    ran = run(text, ROWS, reply=scattered(1))
    assert [row["_row"] for row in ran.rows] == expected
    assert all(row["z"] == f"Z Y X {row['a'].upper()}" for row in ran.rows)


def test_01_groups_come_in_the_order_of_their_first_rows() -> None:
    text = TEXT.replace("output a, y", "group by n { first = rows[0].a, c = len(rows) }\noutput n, first, c")
    ran = run(text, ROWS, reply=scattered(2))
    assert [(row["_row"], row["n"], row["first"], row["c"]) for row in ran.rows] == [
        (number, number, f"row {number}", 20) for number in range(3)
    ]


def test_01_from_the_command_line(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    slow = [{"match": f"row {number}$", "delay": (number * 7 % 11) / 300} for number in range(11)]
    folder.rules(*slow, {"reply": "quick"})
    done = folder.run("-o", "out.jsonl", "-c", "8")
    assert done.returncode == 0
    assert [(row["_row"], row["a"]) for row in folder.read()] == [(number, f"row {number}") for number in range(60)]
