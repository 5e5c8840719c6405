"""The measures of a run: its records, with what the engine tells of its tokens and what the optimizer had estimated.

It joins what `helix/api.py` joins, and is kept apart from it for its size alone.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from helix.errors import EngineError
from helix.executor.engines.base import Capabilities, Engine, Message, Request
from helix.executor.records import Recorder
from helix.explain.report import Measured, StepMeasured
from helix.explain.text import measured_rows
from helix.logical import Generate, Invoke, LogicalPlan, every_node
from helix.optimizer.bounds import Bounds, MeasuredCall, MeasuredTool, measured_bounds
from helix.optimizer.cost import Cost, estimate
from helix.optimizer.engine_time import SGLANG_CPU, EngineTime, engine_time
from helix.optimizer.tokens import ESTIMATE, Tokenizer, from_ids
from helix.optimizer.tree import build_tree
from helix.places import static_name
from helix.records import CallKind, CallRecord, SentPrompt
from helix.report.build import Predicted, RunFacts, measure
from helix.report.detail import Detail, Kept, detail_of
from helix.report.measures import Prefixes, RunMeasures
from helix.results import RunReport
from helix.show import plan_text

if TYPE_CHECKING:
    from helix.optimizer.rule import TableStats

# Prompts and texts whose tokens the engine is asked for, how many at once, and the seconds that it may take.
MOST_PROMPTS = 2_000
AT_ONCE = 16
PATIENCE = 15.0
# Cells of a line of the plan on a page.
PAGE_WIDTH = 150
# The model of `helix serve --cpu`, whose times are known.
SMALL = "smollm2"
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run that has ended, its engines still open. `plain` is the plan as it is written, `plan` the one that ran.

    `engines` are those of the run with what they can do, `lanes` how many calls each kind of tool may make at once.
    """

    workflow: str
    plain: LogicalPlan
    plan: LogicalPlan
    report: RunReport
    address: str | None
    engines: Sequence[tuple[Engine, Capabilities]]
    stats: TableStats | None
    plan_seconds: float
    slots: Callable[[str], int]


async def measures_of(ran: Ran, recorder: Recorder) -> RunMeasures:
    """The measures. Asks the engine for tokens, for at most PATIENCE seconds; no failure of the engine is raised."""
    records = list(recorder)
    before, after = _cost(ran.plain, ran.stats), _cost(ran.plan, ran.stats)
    time = _time(ran)
    notes: list[str] = []
    prefixes: Prefixes | None = None
    bounds: Bounds | None = None
    try:
        prefixes, bounds = await _prefixes(ran, recorder, records, time, notes)
    except asyncio.CancelledError:
        # The run itself is done and its rows are written: who cannot wait for the count goes without it.
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        notes.append("distinct prefixes and bounds are not told: interrupted while they were counted")
    asked = after.calls + after.merged
    return measure(
        ran.report,
        records,
        RunFacts(
            workflow=ran.workflow,
            engine=", ".join(dict.fromkeys(engine.name for engine, _ in ran.engines)) or "no engine",
            kinds=_kinds(ran.plan),
            plan_seconds=ran.plan_seconds,
            predicted={step.step: Predicted(length=step.output, source=step.output_source) for step in after.steps},
            typical={step.step: (step.prompt_tokens / step.calls, step.output) for step in after.steps if step.calls},
            time=time,
            prefixes=prefixes,
            bounds=bounds,
            full=recorder.full,
            by_rules=max(1.0, (before.calls + before.merged) / asked) if asked else 1.0,
            notes=tuple(notes),
            detail=_detail(ran, recorder, records, after),
        ),
    )


def _detail(ran: Ran, recorder: Recorder, records: Sequence[CallRecord], cost: Cost) -> Detail:
    """What a page shows besides: with the estimate of each step beside what was measured."""
    kinds = _kinds(ran.plan)
    steps = tuple(
        StepMeasured(step=name, llm=kinds[name] == "llm", report=figures)
        for name, figures in ran.report.steps.items()
        if name in kinds
    )
    measured = Measured(
        cost=cost,
        optimized=True,
        engine="",
        rows=ran.report.rows,
        failed_rows=ran.report.failed_rows,
        seconds=ran.report.seconds,
        steps=steps,
    )
    kept = Kept(
        prompts=recorder.prompts,
        failures=recorder.failures,
        replies=recorder.replies,
        # Shares of several engines' caches are no curve.
        locked=recorder.locked if len(ran.engines) == 1 else (),
    )
    return detail_of(ran.report, records, kept, plan_text(ran.plan, width=PAGE_WIDTH), measured_rows(measured))


def _cost(plan: LogicalPlan, stats: TableStats | None) -> Cost:
    return estimate(plan, build_tree(plan, ESTIMATE), ESTIMATE, stats=stats)


def _kinds(plan: LogicalPlan) -> dict[str, CallKind]:
    kinds: dict[str, CallKind] = {}
    for node in every_node(plan.sink):
        if isinstance(node, Generate | Invoke):
            kinds[static_name(node.step)] = "llm" if isinstance(node, Generate) else "tool"
    return kinds


def _time(ran: Ran) -> EngineTime:
    """The model of the engine's time, with the size of the cache, the batch and the workers that it told."""
    time = engine_time(ran.plan, ran.address)
    if len(ran.engines) != 1:
        return time
    engine, told = ran.engines[0]
    if getattr(engine, "device", "") == "cpu" and SMALL in (told.model or "").lower():
        time = SGLANG_CPU
    batch = told.max_running or time.batch
    if told.decode_ranks:
        # Told are those that run for each rank that prefills; a worker that decodes runs no more than this.
        batch = (batch + 1) * told.ranks // told.decode_ranks
    return replace(
        time,
        capacity=told.kv_tokens or time.capacity,
        batch=batch,
        workers=max(1, told.ranks + told.decode_ranks),
        decoders=told.decode_ranks,
    )


# --- distinct prefixes ---------------------------------------------------------------------------------------------


async def _prefixes(
    ran: Ran, recorder: Recorder, records: Sequence[CallRecord], time: EngineTime, notes: list[str]
) -> tuple[Prefixes | None, Bounds | None]:
    """What had to be prefilled at least, and what no schedule could have beaten."""
    prompts = recorder.prompts[:MOST_PROMPTS]
    if not prompts:
        return None, None
    models = {prompt.model for prompt in prompts}
    if len({engine.name for engine, _ in ran.engines}) != 1 or len(models) != 1:
        notes.append("several models share no prefixes: distinct ones and bounds are only told for one model")
        return None, None
    engine, told = ran.engines[0]
    tokenizer, ids = ESTIMATE, None
    if told.counts_tokens:
        try:
            tokenizer, ids = await _tokens(engine, prompts)
        except (EngineError, TimeoutError) as error:
            notes.append(f"tokens are estimated: {error or 'the engine took too long to tell them'}")
    if ids is not None:
        prompts = prompts[: len(ids)]
    calls = [
        MeasuredCall(
            row=prompt.row,
            step=prompt.name,
            messages=prompt.messages,
            output=prompt.reply if _has_replies(prompts) else "",
            prompt_tokens=prompt.prompt_tokens if ids is None else len(ids[number]),
            output_tokens=ESTIMATE.count(prompt.reply)
            if prompt.completion_tokens is None
            else prompt.completion_tokens,
            prompt_ids=None if ids is None else ids[number],
        )
        for number, prompt in enumerate(prompts)
    ]
    tools = [
        MeasuredTool(row=record.row, step=record.step, seconds=record.ended - record.started, lane=record.lane)
        for record in records
        if record.kind == "tool" and record.sent
    ]
    slots = {tool.lane: ran.slots(tool.lane) for tool in tools}
    bounds = measured_bounds(ran.plan, calls, tokenizer, engine=time, tools=tools, slots=slots)
    fresh: int | None = ran.report.warmup_tokens
    for prompt in prompts:
        if prompt.prompt_tokens is None or prompt.cached_tokens is None:
            fresh = None
            break
        assert fresh is not None
        fresh += prompt.prompt_tokens - prompt.cached_tokens
    prefixes = Prefixes(
        p_min=bounds.p_min,
        prefilled=fresh,
        calls=len(prompts),
        all_calls=recorder.replies,
        exact=tokenizer.exact,
        tokenizer=tokenizer.name,
    )
    return prefixes, bounds


def _has_replies(prompts: Iterable[SentPrompt]) -> bool:
    """Whether a prompt may go on from a reply: then the reply's tokens are in the cache from its decoding."""
    return any(role == "assistant" for prompt in prompts for role, _ in prompt.messages)


async def _tokens(engine: Engine, prompts: Sequence[SentPrompt]) -> tuple[Tokenizer, list[array[int]] | None]:
    """The engine's tokenizer over the texts of these prompts; the tokens of the whole prompts where it tells them.

    Where that takes too long they are those of the first prompts. Raises EngineError, and TimeoutError where the texts
    are not told in time.
    """
    ends = monotonic() + PATIENCE
    whole: Callable[[Sequence[Message]], Awaitable[list[int]]] | None = getattr(engine, "tokenize_prompt", None)
    one: Callable[[str], Awaitable[list[int]]] | None = getattr(engine, "tokenize", None)
    if one is None:
        return ESTIMATE, None
    replies = dict.fromkeys(prompt.reply for prompt in prompts) if _has_replies(prompts) else {}
    if whole is not None:
        ask = whole

        async def ids_of(messages: tuple[tuple[str, str], ...]) -> list[int]:
            return await ask([Message(role=role, content=text) for role, text in messages])

        keys = list(dict.fromkeys(prompt.messages for prompt in prompts))
        found = await _each(keys, ids_of, ends)
        texts = await _each(list(replies), one, ends + PATIENCE)
        if not found or len(texts) < len(replies):
            raise TimeoutError
        told = {key: array("I", ids) for key, ids in found.items()}
        known: list[array[int]] = []
        for prompt in prompts:
            if prompt.messages not in told:
                break
            known.append(told[prompt.messages])
        return from_ids(engine.name, texts.__getitem__, turn=0), known
    keys_ = list(dict.fromkeys([text for prompt in prompts for _, text in prompt.messages] + list(replies)))
    texts = await _each(keys_, one, ends)
    if len(texts) < len(keys_):
        raise TimeoutError
    return from_ids(engine.name, texts.__getitem__, turn=await _turn(engine, prompts[0].model)), None


async def _turn(engine: Engine, model: str | None) -> int:
    """What the chat template spends on a message: two empty ones more against none."""

    async def count(*roles: str) -> int:
        messages = tuple(Message(role=role, content="") for role in roles)
        return await engine.count_tokens(Request(model=model, messages=messages))

    return max(0, await count("user", "assistant", "user") - await count("user")) // 2


async def _each(keys: Sequence[_Key], ask: Callable[[_Key], Awaitable[_Value]], ends: float) -> dict[_Key, _Value]:
    """The answers by key, some asked for at once; those of the first keys where the time is not enough."""
    found: dict[_Key, _Value] = {}
    for first in range(0, len(keys), AT_ONCE):
        if monotonic() > ends:
            break
        some = keys[first : first + AT_ONCE]
        answers = await asyncio.gather(*(ask(key) for key in some), return_exceptions=True)
        for key, answer in zip(some, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            found[key] = answer
    return found
