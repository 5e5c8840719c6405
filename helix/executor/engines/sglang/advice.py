"""What the flags that a server runs with keep from being used, said in plain words with the flag that would help."""

from __future__ import annotations

from helix.executor.engines.sglang.facts import Facts

# With more requests waiting than this, the policies that look at the cache fall back to first come, first served.
LOOKED_AT = 128
CACHE_AWARE = ("lpm", "dfs-weight")


def advice(facts: Facts, name: str, *, concurrency: int, ranks: int) -> list[str]:
    """The notes on one kind of server; `name` is how the engine is called, `concurrency` the calls made at once."""
    notes = []
    if not facts.prefix_cache:
        notes.append("its prefix cache is off, so calls share nothing; start it without --disable-radix-cache")
    elif facts.policy == "fcfs" and not facts.orders_by_priority:
        notes.append(
            "it takes waiting calls in the order they come, whatever its cache holds; --schedule-policy lpm takes "
            "those first whose beginning is cached"
        )
    if facts.prefix_cache and facts.policy in CACHE_AWARE and facts.max_running is not None:
        most = ranks * (LOOKED_AT + facts.max_running)
        if concurrency > most:
            notes.append(
                f"with more than {LOOKED_AT} calls waiting at a rank --schedule-policy {facts.policy} falls back to "
                f"fcfs; --concurrency {most} or less keeps that from happening"
            )
    if facts.max_running is not None and ranks * facts.max_running < concurrency:
        notes.append(
            f"it runs {ranks * facts.max_running} calls at once and the others of {concurrency} wait in it; "
            "raise --max-running-requests where its memory allows, or lower --concurrency"
        )
    if facts.preempts:
        notes.append(
            "a call of higher priority throws out running ones, which then start again; "
            "--disable-priority-preemption keeps them"
        )
    return [f"{name}: {note}" for note in notes]


def no_pins(name: str, facts: Facts) -> str:
    """The note where a plan has priorities that the server does not take."""
    what = "--radix-eviction-policy priority" if facts.prefix_cache else "a prefix cache"
    return f"{name}: it does not hold on to the prefixes that the plan wants kept; that takes {what}"


def no_seeds(name: str) -> str:
    """The note where a seed is given and does nothing."""
    return f"{name}: seeds do not make replies repeat; that takes --enable-deterministic-inference"


def through_chat(name: str, why: str) -> str:
    """The note where prompts go through the chat endpoint, which is slower for the server but right in every case."""
    return f"{name}: prompts go through /v1/chat/completions, since {why}"
