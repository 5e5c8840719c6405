"""The parallel chains of parallel_chains.helix, written in Python: the same plan. Each chain is a function of its own.

This file takes the place of parallel_chains.helix in the commands at the head of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import helix as hx

main = hx.model(temperature=0, max_tokens=80)


@dataclass
class Point:
    """What a review says about one part of a product."""

    part: str
    good: bool


def extraction(product, review):
    """What the review says about the product, then what the maker could do."""
    points = main(
        system="List the parts of the product that a review talks about. "
        'Reply with a JSON list such as [{"part": "lid", "good": false}, {"part": "colour", "good": true}].',
        user=review,
        returns=list[Point],
    )
    task = main(
        system=f"You work for the maker of the {product}. "
        "What should be done about these points? Reply with one short task, or: nothing",
        user=points,
    )
    return task


def sentiment(review):
    """A label, then the words that show it."""
    mood = main(
        system='How does the writer feel? Reply with JSON: "pleased", "mixed" or "annoyed".',
        user=review,
        returns=Literal["pleased", "mixed", "annoyed"],
        max_tokens=12,
    )
    evidence = main(
        system="Copy the few words of the review that show the mood.",
        user=f"Review: {review}\nMood: {mood}",
    )
    return mood, evidence


def translation(review, language):
    """A first version, then a better one; skipped for English."""
    foreign = language != "en"
    translated = main(system="Translate the review into English.", user=review).when(foreign)
    polished = main(
        system="Improve the English of a translation. Keep what it says. Reply with the text only.",
        user=f"Original: {review}\nTranslation: {translated}",
    ).when(foreign)
    english = hx.step(hx.default(polished, review))
    return english


@hx.workflow
def parallel_chains(id: int, product: str, language: str, review: str):
    task = extraction(product, review)
    mood, evidence = sentiment(review)
    english = translation(review, language)
    card = main(
        system=f"Write a one-line card about a review for the team of the {product}.",
        user=f"Review: {english}\nMood: {mood}\nTask: {task}",
    )
    return hx.output(
        id,
        product,
        mood,
        found={"quote": evidence, "task": task, "english": english},
        card=card,
    )
