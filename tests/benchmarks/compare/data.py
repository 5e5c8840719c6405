"""Real texts out of the shared data folder: reports with questions, meetings with queries, product reviews."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

# So long that their prefill counts and short enough that a run takes minutes: about 400 to 1,000 tokens.
REPORT_CHARACTERS = range(1100, 3000)
TURN_CHARACTERS = 40
CHUNK_CHARACTERS = 900
REVIEW_CHARACTERS = 420


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A text that several rows ask about, whole or in parts, and what they ask."""

    parts: tuple[str, ...]
    questions: tuple[str, ...]


def reports(folder: Path) -> list[Topic]:
    """A table and paragraphs of an annual report, with six questions each (TAT-QA)."""
    found = []
    for report in json.loads((folder / "text" / "tatqa_dev_100ctx.json").read_text("utf-8")):
        table = "\n".join(" | ".join(cells) for cells in report["table"]["table"])
        text = "\n\n".join([table, *(paragraph["text"] for paragraph in report["paragraphs"])])
        if len(text) in REPORT_CHARACTERS:
            questions = tuple(question["question"] for question in report["questions"])
            found.append(Topic(parts=(text,), questions=questions))
    return found


def meetings(folder: Path, chunks: int) -> list[Topic]:
    """Stretches of meetings, in so many chunks, with the queries about each meeting (QMSum)."""
    found = []
    for line in (folder / "text" / "qmsum_test_20meetings.jsonl").read_text("utf-8").splitlines():
        meeting = json.loads(line)
        turns = [
            f"{turn['speaker']}: {turn['content']}"
            for turn in meeting["meeting_transcripts"]
            if len(turn["content"]) >= TURN_CHARACTERS
        ]
        text = "\n".join(turns)[: chunks * CHUNK_CHARACTERS]
        parts = tuple(text[at * CHUNK_CHARACTERS :][:CHUNK_CHARACTERS].strip() for at in range(chunks))
        queries = tuple(query["query"] for query in meeting["specific_query_list"])
        found.append(Topic(parts=parts, questions=queries))
    return found


ASPECTS = (
    "the price",
    "the build",
    "ease of use",
    "the battery",
    "the display",
    "customer service",
    "the manual",
    "size",
)


def reviews(folder: Path, batches: int, batch: int) -> list[Topic]:
    """Customers' reviews in batches, with aspects to sum them up by (Hu and Liu's product reviews)."""
    texts = []
    for file in sorted((folder / "text" / "product_reviews").glob("*.txt")):
        if file.name == "README.txt":
            continue
        _, *each = re.split(r"^\[t\]", file.read_text("utf-8", "replace"), flags=re.MULTILINE)
        for review in each:
            # Before `##` stand the annotations of a sentence.
            lines = [line.rpartition("##")[2].strip() for line in review.splitlines()]
            text = " ".join(line for line in lines if line)[:REVIEW_CHARACTERS].strip()
            if len(text) > REVIEW_CHARACTERS // 2:
                texts.append(text)
    size = batches * batch
    topics = []
    for at in range(0, len(texts) - size + 1, size):
        parts = ("\n".join(f"- {text}" for text in texts[at + n * batch :][:batch]) for n in range(batches))
        topics.append(Topic(parts=tuple(parts), questions=ASPECTS))
    return topics
