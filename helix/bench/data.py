"""Real texts for the workloads out of a data folder: TAT-QA, MMLU, product reviews and share prices.

Groups beyond what the folder holds begin again with its first text, under a number of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helix.bench.texts import Find, dice
from helix.errors import OptionError

REVIEWS_A_STEP, REVIEWS_DRAWN = 10, 60
LINES_A_TABLE = (900, 1010)


def real_texts(folder: Path, seed: int) -> dict[str, Find]:
    """Who finds real texts, by the kind of text. Raises OptionError where the folder lacks them."""
    text = folder / "text"
    try:
        reports = json.loads((text / "tatqa_dev_100ctx.json").read_text("utf-8"))
        exams = [json.loads(line) for line in (text / "mmlu_test_25_per_subject.jsonl").read_text("utf-8").splitlines()]
        reviews = _reviews(text / "product_reviews")
        prices = [file.read_text("utf-8").splitlines() for file in sorted((text / "finance").glob("*_price.csv"))]
    except OSError as error:
        raise OptionError(f"--data: {error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError) as error:
        raise OptionError(f"--data: a file of {text} is not what it should be: {error}") from None
    if not (reports and exams and reviews and prices):
        raise OptionError(f"--data: {text} lacks reports, exam questions, reviews or prices")
    dice(seed, "reports").shuffle(reports)
    dice(seed, "exams").shuffle(exams)

    def report(group: int, item: int) -> str:
        found = reports[group % len(reports)]
        table = "\n".join(" | ".join(cells) for cells in found["table"]["table"])
        return _numbered(group, reports, f"{table} {' '.join(each['text'] for each in found['paragraphs'])}")

    def question(group: int, item: int) -> str:
        asked = reports[group % len(reports)]["questions"]
        return str(asked[item % len(asked)]["question"])

    def exam(group: int, item: int) -> str:
        found = exams[group % len(exams)]
        choices = " ".join(f"({letter}) {found[f'choice{at}']}" for at, letter in enumerate("ABCD"))
        return _numbered(group, exams, f"{found['question']} {choices}")

    def review(group: int, item: int) -> str:
        drawn = dice(seed, "reviews", group).sample(reviews, min(REVIEWS_DRAWN, len(reviews)))
        return " ".join(drawn[item * REVIEWS_A_STEP :][:REVIEWS_A_STEP])

    def market(group: int, item: int) -> str:
        header, *lines = prices[group % len(prices)]
        count = LINES_A_TABLE[item % 2]
        first = dice(seed, "market", group, item).randrange(max(1, len(lines) - count))
        return "; ".join([header, *lines[first : first + count]])

    return {"report": report, "question": question, "exam": exam, "reviews": review, "market": market}


def _numbered(group: int, found: Sequence[Any], text: str) -> str:
    turn = group // len(found)
    return f"{turn}. {text}" if turn else text


def _reviews(folder: Path) -> list[str]:
    """The reviews of a folder of files without their annotations, which end in `##`."""
    found: list[str] = []
    for file in sorted(folder.glob("*.txt")):
        _, *each = re.split(r"^\[t\]", file.read_text("utf-8", "replace"), flags=re.MULTILINE)
        for review in each:
            lines = [line.rpartition("##")[2].strip() for line in review.splitlines()]
            text = " ".join(line for line in lines if line)
            if text:
                found.append(text[:1200])
    return found
