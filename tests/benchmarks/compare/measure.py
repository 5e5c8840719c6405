"""One run of one method on a cold server, with all that is to be known of it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sglang_cpu import Server

from compare import methods
from compare.calls import Replay
from compare.methods import Outcome, Site
from compare.prefixes import Tokens, least_prefill
from compare.workload import Row, Workload

PROBE = "The cache is empty when these words are not in it. " * 8
_COMPUTED = re.compile(r'^sglang:realtime_tokens_total\{[^}]*mode="prefill_compute"[^}]*\} (\S+)$', re.MULTILINE)


@dataclass(slots=True, kw_only=True)
class Run:
    """A measured run.

    `seconds` is from submit to the last output. `calls` are those that the method sent, `steps` those that its rows
    have: what is missing was merged or fetched. `prompt_tokens` and `cached_tokens` are the server's counters, warm-ups
    included; `prefilled` is their difference, `computed` what the server says it computed, prompts of retracted
    requests again. `least` is P_min. `engine_seconds` is CPU time of the server's processes. `stray_prompts` are
    prompts that were sent and do not follow from the run's own results, or the other way round: 0, or the comparison is
    void. `miscounted` are calls whose tokens differ from the bound's. `load` is the machine's load before the run.
    `flags` are further ones of the server. `texts_hash` stands for texts that are not kept. `machine` tells machines
    apart, in a file with runs of several.
    """

    workload: str
    regime: str
    policy: str
    method: str
    at_once: int | None
    phase: str
    repeat: int
    flags: str = ""
    machine: str = ""
    seconds: float = 0.0
    rows: int = 0
    steps: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled: int = 0
    computed: int = 0
    generated: int = 0
    least: int = 0
    engine_seconds: float = 0.0
    stray_prompts: int = 0
    miscounted: int = 0
    prompts_hash: str = ""
    texts_hash: str = ""
    load: float = 0.0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells runs apart."""
        return (*self.way, self.phase, self.repeat)

    @property
    def way(self) -> tuple[Any, ...]:
        """What repeats have in common."""
        return (self.workload, self.regime, self.policy, self.method, self.at_once, self.flags, self.machine)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def measure(run: Run, server: Server, workload: Workload, rows: Sequence[Row], *, store: Path | None = None) -> Run:
    """Fills in a run: empties the server's cache, runs the method, counts, and checks what it sent."""
    model = str(server.json("/v1/models")["data"][0]["id"])
    _empty(server)
    run.load = os.getloadavg()[0]
    before, cpu = _counters(server), cpu_seconds(server.pid)
    site = Site(address=server.address, model=model, at_once=run.at_once, store=store)
    began = time.perf_counter()
    try:
        outcome = methods.run(run.method, workload, rows, site)
    except Exception as error:
        # A method that breaks down has failed; the comparison goes on.
        failure = f"{type(error).__name__}: {error}"
        outcome = Outcome(seconds=time.perf_counter() - began, failures=[failure])
    run.engine_seconds = cpu_seconds(server.pid) - cpu
    after = _counters(server)
    run.seconds = outcome.seconds
    run.rows, run.steps, run.calls = len(rows), 0, len(outcome.calls)
    run.prompt_tokens, run.cached_tokens, run.generated, run.computed = (
        round(now - then) for now, then in zip(after, before, strict=True)
    )
    run.prefilled = run.prompt_tokens - run.cached_tokens
    run.least, run.miscounted = least_prefill(Tokens(server), outcome.calls)
    run.failures, run.notes = outcome.failures, outcome.notes
    run.texts = {f"{row} {step}": text for (row, step), text in sorted(outcome.texts.items())}
    run.texts_hash = hash_of(run.texts)
    _check_prompts(run, workload, rows, outcome)
    return run


def hash_of(texts: dict[str, str]) -> str:
    """A short hash of the texts of a run."""
    return hashlib.sha256(json.dumps(sorted(texts.items())).encode()).hexdigest()[:16]


def _check_prompts(run: Run, workload: Workload, rows: Sequence[Row], outcome: Outcome) -> None:
    """Works out from a run's results which prompts it must have sent, and compares with those that it did send."""
    replay = Replay(outcome.texts)

    async def again() -> None:
        await asyncio.gather(*(workload.program(row, replay) for row in rows))

    if outcome.failures:
        return
    asyncio.run(again())
    due, sent = Counter(replay.asked), Counter(call.number for call in outcome.calls)
    run.steps = sum(due.values())
    run.stray_prompts = sum((sent - due).values())
    if run.method != "helix":
        run.stray_prompts += sum((due - sent).values())
    elif run.regime != "redundant":
        # Equal calls may be merged, but each prompt is sent; with a store some are known from before.
        run.stray_prompts += len(set(due) - set(sent))
    run.prompts_hash = hashlib.sha256("".join(sorted(due.elements())).encode()).hexdigest()[:16]


def _empty(server: Server) -> None:
    """Empties the cache, and makes sure of it: what was in it is not found again."""
    probe = {"text": PROBE, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    server.json("/generate", probe)
    server.flush()
    found = server.json("/generate", probe)["meta_info"]["cached_tokens"]
    if found:
        raise RuntimeError(f"the server's cache was flushed, but {found} tokens were found in it")
    server.flush()


def _counters(server: Server) -> tuple[float, float, float, float]:
    """Prompt, cached and generated tokens, and tokens computed in prefills, once the server has counted all."""
    last: tuple[float, float, float, float] | None = None
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        text = server.get("/metrics").decode()
        figures = server.metrics()
        names = ("prompt_tokens_total", "cached_tokens_total", "generation_tokens_total")
        prompt, cached, generated = (figures.get(name, 0.0) for name in names)
        now = (prompt, cached, generated, sum(map(float, _COMPUTED.findall(text))))
        if now == last:
            return now
        last = now
        time.sleep(0.5)
    raise RuntimeError("the server goes on counting tokens after the run")


def cpu_seconds(group: int) -> float:
    """CPU time of the processes of a group so far."""
    ticks = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
