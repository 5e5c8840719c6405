"""The whole of a simulation: the plan that is asked about, the plain one beside it, and other GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from helix.dsl import Workflow
from helix.errors import OptionError, name_help
from helix.executor.policies.choose import choose_policy
from helix.forecast.measures import Case, Forecast, Trial
from helix.logical import Generate, Invoke, every_node
from helix.prepared import check
from helix.simulating.profile import AnyEngine, any_engine
from helix.simulating.rows import kept_rows
from helix.simulating.trial import TrialRun
from helix.simulating.wanted import Places, Ranks, Wanted
from helix.simulation.gpus import gpus_of
from helix.simulation.providers import cost_note


def simulate_workflow(workflow: Workflow, wanted: Wanted) -> Forecast:
    """The forecast. Raises SourceErrors, InputError and OptionError."""
    began = time.perf_counter()
    bound = check(workflow, set=wanted.set)
    nodes = list(every_node(bound.plan.sink))
    _check_options(wanted, [node.step for node in nodes if isinstance(node, Generate)])
    choose_policy(wanted.policy)
    places = Places(wanted, bound.plan)
    prices, cases = _prices(wanted, places), places.cases()
    profile = any_engine(wanted.store)
    try:
        with kept_rows(wanted.rows, wanted.input_format) as (rows, form, name):
            wanted = replace(wanted, rows=rows, input_format=form)
            main = TrialRun(workflow, wanted, places.main(), "optimized", profile=profile)
            plain: Trial | None = None
            if wanted.plain:
                plain = TrialRun(
                    workflow, wanted, places.main(), "plain", profile=profile, keep=False, lengths=main.lengths
                ).trial
            done = tuple(_case(workflow, wanted, places, main, profile, gpu, ranks) for gpu, ranks in cases)
    finally:
        if profile is not None:
            profile.close()
    tools = any(isinstance(node, Invoke) for node in nodes)
    return Forecast(
        workflow=workflow.name,
        table=name,
        optimized=main.trial,
        plain=plain,
        cases=done,
        prices=prices,
        currency=wanted.currency,
        seconds=time.perf_counter() - began,
        notes=tuple(_notes(places, main, tools)),
    )


def _case(
    workflow: Workflow,
    wanted: Wanted,
    places: Places,
    main: TrialRun,
    profile: AnyEngine | None,
    gpu: str | None,
    ranks: Ranks,
) -> Case:
    """One row of the what-if table; the engine that was asked for is not simulated again."""
    here = Case(
        gpu=gpu or "the measured engine",
        ranks=ranks.all,
        decode_ranks=ranks.decode,
        gpus=ranks.all * wanted.tp,
        trial=main.trial,
    )
    if (gpu, ranks) == (places.gpu, places.ranks):
        return here
    try:
        place = places.at(gpu, ranks)
    except OptionError as error:
        # A GPU that the model does not fit on is a row of the table; what is no GPU was found before.
        return replace(here, trial=None, problem=_short(str(error)))
    trial = TrialRun(workflow, wanted, place, "optimized", profile=profile, keep=False, lengths=main.lengths).trial
    bounds = None if main.bounds_of is None else main.bounds_of.on(place.time)
    return replace(here, trial=replace(trial, bounds=bounds))


def _short(message: str) -> str:
    return message.partition(";")[0].partition(":")[0]


def _notes(places: Places, main: TrialRun, tools: bool) -> Iterator[str]:
    yield from places.notes
    note = cost_note(main.place.cost)
    if note is not None:
        yield note
    if tools:
        yield "tools are simulated: none is called, each takes the time that it declares"
    sources = {step.source for step in main.trial.steps}
    if "assumed" in sources or "declared" in sources:
        yield "lengths of replies are guessed; --output-tokens or a store of earlier runs (--store) tells them"


def _check_options(wanted: Wanted, steps: list[str]) -> None:
    """Raises OptionError for lengths that are none."""
    tokens = wanted.output_tokens
    if isinstance(tokens, Mapping):
        for name in tokens:
            if name not in steps:
                help = name_help(name, steps, "llm steps")
                raise OptionError(f"there is no llm step `{name}` to give output tokens for; {help}")
    values = list(tokens.values()) if isinstance(tokens, Mapping) else [] if tokens is None else [tokens]
    if any(value < 1 for value in values):
        raise OptionError(f"output tokens are 1 or more, found {min(values)}")


def _prices(wanted: Wanted, places: Places) -> dict[str, float]:
    """Prices by GPU; a single one is that of the GPU that was asked for. Raises OptionError."""
    given = wanted.price
    if given is None:
        return {}
    if isinstance(given, Mapping):
        made = {gpus_of(name)[0].name: float(price) for name, price in given.items()}
    else:
        # A measured engine has no GPU by name.
        made = {places.gpu or "": float(given)}
    for name, price in made.items():
        if not 0 <= price < float("inf"):
            raise OptionError(f"the price of an hour of {name or 'a GPU'} is 0 or more, found {price:g}")
    return made
