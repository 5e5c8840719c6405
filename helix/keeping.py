"""What a run takes from earlier ones and keeps for later ones: joins the store to the optimizer, as `helix.api` does.

Kept apart from `api.py` for its size alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix.canonical import canonical_text
from helix.errors import OptionError
from helix.executor.engines.base import Capabilities, Engine
from helix.executor.equipment import Equipment
from helix.executor.prompts import Prompt
from helix.executor.settings import RunSettings
from helix.executor.store.asking import llm_asking
from helix.executor.store.keys import Asking
from helix.executor.store.known import KnownCalls, ProfileKey
from helix.executor.store.profiles import LengthProfiles
from helix.executor.store.results import Damaged, Results
from helix.executor.store.rows import RowPrints
from helix.executor.store.runs import RunKey
from helix.executor.store.settings import FOLDER, StoreSettings
from helix.executor.tables import RowSource
from helix.logical import Generate, LogicalPlan, every_node
from helix.optimizer.lengths import Lengths, sampling, signature
from helix.optimizer.tree import resolve_plan
from helix.prefixes import literal_messages


def store_settings(
    store: str | os.PathLike[str] | bool | None, resume: bool, fresh: bool, retry_failed: bool
) -> StoreSettings | None:
    """The settings of a run that Python starts: nothing is kept unless it is asked for. Raises OptionError."""
    if store is None or store is False:
        if resume or retry_failed:
            store = True
        elif fresh:
            raise OptionError("`fresh` is for runs that keep something; give a folder as `store`, or `resume`")
        else:
            return None
    folder = FOLDER if isinstance(store, bool) else Path(store)
    resume = resume or retry_failed
    return StoreSettings(folder=folder, named=True, resume=resume, fresh=fresh, retry_failed=retry_failed)


class Keeping:
    """What one run keeps and knows, from before its input is looked at until it has ended."""

    def __init__(self, settings: StoreSettings) -> None:
        self._rows = RowPrints() if settings.resume else None
        self.known = KnownCalls(settings, self._rows)
        self.row_seen = None if self._rows is None else self._rows.add
        self._profile: EarlierRuns | None = None

    def lengths(self, bound: LogicalPlan, engine: str | None, model: str | None) -> Lengths:
        """How long replies of earlier runs were."""
        if self._profile is None:
            self._profile = earlier_runs(self.known.settings.folder, bound, engine, model)
        return Lengths(profile=self._profile)

    def close(self) -> None:
        """Closes what is open; the run, where there was one, has closed its part before."""
        self.known.close(finished=False)
        if self._profile is not None:
            self._profile.close()

    def opened(
        self,
        equipment: Equipment,
        bound: LogicalPlan,
        *,
        source: RowSource,
        path: str | None,
        engine: str | None,
        model: str | None,
        improved: Callable[[StoredReplies], LogicalPlan],
    ) -> LogicalPlan:
        """Opens what is kept, once the engines tell what they are; gives the plan in which known replies are fetched.

        `bound` is the plan as it was written, which a run is found again by. `path` is where the input lies, where it
        has a path. `engine` and `model` override those of the workflow.
        """
        askings = {node.id: equipment.asking(node, _bare(node, model)) for node in _calls(bound)}
        identities = sorted({asking.model for asking in askings.values() if asking is not None})
        if path is not None:
            where = os.path.realpath(path)
        else:
            where = f"rows {self._rows.content}" if self._rows is not None else ""
        self.known.open(
            RunKey(plan=bound.id, input=where, models=tuple(identities)), workflow=bound.name, input=source.name
        )
        improved_plan = improved(StoredReplies(equipment.asking, self.known.reply, model))
        self.known.profiles = profile_keys(improved_plan, engine, model)
        return improved_plan


class StoredReplies:
    """What a result store tells the optimizer: replies to prompts that no row changes.

    `asking` says what a step asks (None: it is not known what of), `stored` what there is for a prompt.
    """

    def __init__(
        self,
        asking: Callable[[Generate, Prompt], Asking | None],
        stored: Callable[[Asking, list[list[str]]], str | None],
        model: str | None,
    ) -> None:
        self._asking = asking
        self._stored = stored
        self._model = model

    def reply(self, step: Generate) -> str | None:
        """The text of the reply to a prompt of literal text, or None."""
        messages = literal_messages(step)
        if messages is None or step.on_overflow is not None:
            return None
        asking = self._asking(step, _bare(step, self._model))
        return None if asking is None else self._stored(asking, [[role, content] for role, content in messages])


def _calls(plan: LogicalPlan) -> list[Generate]:
    return [node for node in every_node(plan.sink) if isinstance(node, Generate)]


def _bare(node: Generate, model: str | None) -> Prompt:
    """The prompt of a step without its messages: for what it asks besides them."""
    return Prompt(replace(node, prompt=(), on_overflow=None), {}, model)


# --- lengths of replies ---------------------------------------------------------------------------------------------


def profile_model(node: Generate, engine: str | None, model: str | None) -> str:
    """Whose replies are counted together: those of one model at one engine, as they are named."""
    return canonical_text([engine or node.model.engine or "embedded", model or node.model.name])


def profile_keys(plan: LogicalPlan, engine: str | None, model: str | None) -> Mapping[str, ProfileKey]:
    """What the lengths of each llm step's replies are counted under, by the id of the step."""
    found: dict[str, ProfileKey] = {}
    for site in resolve_plan(plan).calls:
        node = site.node
        if isinstance(node, Generate):
            key = (signature(site), profile_model(node, engine, model), sampling(node.model))
            found.setdefault(node.id, key)
    return found


class EarlierRuns:
    """The lengths of replies in a store, as the cost model asks for them; and its replies, for the optimizer."""

    def __init__(self, folder: Path, plan: LogicalPlan, engine: str | None, model: str | None) -> None:
        self._profiles = LengthProfiles(folder)
        named: dict[str | None, str] = {}
        for node in _calls(plan):
            named.setdefault(node.model.name, profile_model(node, engine, model))
        self._models = named

    def lengths(self, signature: str, model: str | None, sampling: str) -> list[tuple[int, bool]]:
        """The lengths of earlier replies in tokens, each with whether the limit cut it off."""
        return self._profiles.lengths(signature, self._models.get(model, ""), sampling)

    def replies(
        self, engine: Engine, address: str | None, capabilities: Capabilities, settings: RunSettings, model: str | None
    ) -> StoredReplies | None:
        """The replies of an open engine; `address` is the one that the workflow has for it, where it has several."""
        database = self._profiles.database
        if database is None:
            return None
        results = Results(database)

        def asking(node: Generate, prompt: Prompt) -> Asking | None:
            return llm_asking(node, prompt, engine, capabilities, settings) if node.model.engine == address else None

        def stored(asking: Asking, messages: list[list[str]]) -> str | None:
            asked = asking.call(messages, 0, row=0, place="", turns=(), shared=b"")
            try:
                found = results.get(asked.key, asking) if asking.stored else None
            except Damaged:
                return None
            return None if found is None else found[1]

        return StoredReplies(asking, stored, model)

    def close(self) -> None:
        """Closes the store."""
        self._profiles.close()


def earlier_runs(
    store: str | os.PathLike[str], plan: LogicalPlan, engine: Any, model: str | None
) -> EarlierRuns | None:
    """What a store tells of earlier runs; None where there is none."""
    name = engine if engine is None or isinstance(engine, str) else engine.name
    folder = Path(store)
    if not LengthProfiles.there(folder):
        return None
    return EarlierRuns(folder, plan, name, model)
