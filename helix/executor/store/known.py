"""Outcomes from before a run: of the run that is resumed, then of the result store; and where new ones go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helix.errors import StoreError
from helix.executor.calls import Call, Outcome
from helix.executor.engines.base import Capabilities, Engine
from helix.executor.memo import Memo
from helix.executor.prompts import Prompt
from helix.executor.settings import RunSettings
from helix.executor.store.asking import ToolVersions, llm_asking
from helix.executor.store.database import make_folder
from helix.executor.store.journal import Record
from helix.executor.store.keys import Asked, Asking
from helix.executor.store.profiles import length_class
from helix.executor.store.results import ResultStore
from helix.executor.store.rows import RowPrints
from helix.executor.store.runs import KeptRun, RunKey
from helix.executor.store.settings import StoreSettings
from helix.logical import Generate, Tool

# Kinds of failures that the end of a run may have caused.
_OF_ENGINES = ("engine", "timeout")
ProfileKey = tuple[str, str, str]


class KnownCalls:
    """What a run knows from before, asked by the dispatcher. `open` comes after the engines are open.

    `said` are the words for a person before the first call, `notes` those at the end; `resumable` says that the run can
    go on where it ended. `stop` ends the run where a call
    can no longer be made durable, `stopped` tells whether it has ended early.
    """

    def __init__(self, settings: StoreSettings, rows: RowPrints | None) -> None:
        self.settings = settings
        self.rows = rows
        self.said: list[str] = []
        self.stop: Callable[[str], None] = lambda reason: None
        self.stopped: Callable[[], bool] = lambda: False
        self.profiles: Mapping[str, ProfileKey] = {}
        self._store: ResultStore | None = None
        self._run: KeptRun | None = None
        self._versions: ToolVersions | None = None
        self._ordinals = Memo()
        self._notes: list[str] = []
        self.resumable = False

    @property
    def notes(self) -> list[str]:
        """What a person should know of what is kept."""
        return [*self._notes, *(() if self._store is None else self._store.notes)]

    # --- before the first call ---

    def open(self, key: RunKey, *, workflow: str, input: str) -> None:
        """Opens the store, and the journal where runs are resumed. Raises StoreError where either may not be used."""
        settings = self.settings
        try:
            make_folder(settings.folder)
        except StoreError as error:
            if settings.named:
                raise
            self.said.append(f"note: {error}; this run cannot be resumed")
            return
        self._store = ResultStore(settings.folder, most=settings.most)
        if not settings.resume or self.rows is None:
            return
        self._run = run = KeptRun(
            settings.folder,
            key,
            self.rows,
            workflow=workflow,
            input=input,
            anew=settings.fresh,
            retry=settings.retry_failed,
        )
        self.resumable = True
        self.said += _words(run, input)

    def llm(
        self, node: Generate, prompt: Prompt, engine: Engine, capabilities: Capabilities, settings: RunSettings
    ) -> Asking:
        """What an llm step asks."""
        asking = llm_asking(node, prompt, engine, capabilities, settings)
        asking.profile = self.profiles.get(node.id)
        return asking

    def tool(
        self,
        tool: Tool,
        step: str,
        callables: Mapping[str, Callable[..., Any]],
        folder: Path | None,
        settings: RunSettings,
    ) -> Asking:
        """What the calls of a tool ask that a step makes."""
        if self._versions is None:
            self._versions = ToolVersions(callables, folder)
        return self._versions.asking(tool, step, settings)

    def reply(self, asking: Asking, messages: list[list[str]]) -> str | None:
        """The reply that the store has for a prompt that no row changes."""
        if self._store is None or self.settings.fresh or not asking.stored:
            return None
        asked = asking.call(messages, 0, row=0, place="", turns=(), shared=b"")
        return self._store.get(asked.key, asking)

    # --- the calls ---

    def find(self, call: Call) -> Outcome | None:
        """The outcome of an equal call made before; asked once, when the call is ready."""
        asked = call.asked
        if asked is None:
            return None
        record = None if self._run is None else self._run.journal.find(self._place(asked))
        if record is not None:
            return Outcome(record.text, record.failure, fetched=True)
        if asked.shared is None and asked.stored:
            asked.ordinal = self._next_ordinal(asked)
        if self._store is None or self.settings.fresh or not asked.stored or not _unchanged(asked):
            return None
        text = self._store.get(asked.key, asked.asking)
        if text is None:
            return None
        if self._run is not None:
            # Safe in the store, but that may let go of it or hold another one by the time the run is resumed.
            self._run.journal.note(self._record(asked, text))
        return Outcome(text, fetched=True)

    async def keep(self, call: Call, outcome: Outcome) -> None:
        """Keeps the outcome of a call that was made: on return it is durable."""
        asked, failure = call.asked, outcome.failure
        if asked is None or (failure is not None and self._was_cut(outcome)):
            return
        if self._run is not None:
            try:
                await self._run.journal.keep(self._record(asked, outcome.text, outcome))
            except StoreError as error:
                self.stop(str(error))
        if outcome.text is None or self._store is None:
            return
        if asked.stored and _unchanged(asked):
            self._store.put(asked.key, asked.asking, outcome.text)
        profile, reply = asked.asking.profile, call.reply
        if profile is not None and reply is not None and reply.completion_tokens is not None:
            self._store.add_length(*profile, length_class(reply.completion_tokens), reply.finish == "length")

    def _was_cut(self, outcome: Outcome) -> bool:
        """Whether a call failed since the run ended: then it is made again when the run is resumed."""
        failure = outcome.failure
        assert failure is not None
        return failure.cut_short or failure.passing or (failure.kind in _OF_ENGINES and self.stopped())

    def _place(self, asked: Asked) -> bytes:
        row = b""
        if asked.shared is None and self.rows is not None:
            row = self.rows.identity(asked.row)
        return asked.in_run(row)

    def _record(self, asked: Asked, text: str | None, outcome: Outcome | None = None) -> Record:
        numbered = asked.shared is None and asked.stored
        return Record(
            self._place(asked),
            text,
            None if outcome is None else outcome.failure,
            prompt=asked.content if numbered else None,
            ordinal=asked.ordinal,
        )

    def _next_ordinal(self, asked: Asked) -> int:
        """The first ordinal that no equal prompt of this run has, those of its journal among them."""
        used = self._ordinals.get(asked.content)
        ordinal = 0 if used is None else int(str(used)) + 1
        if self._run is not None:
            while self._run.journal.uses(asked.content, ordinal):
                ordinal += 1
        self._ordinals.put(asked.content, str(ordinal))
        return ordinal

    def close(self, *, finished: bool) -> None:
        """Writes what waits and closes the files; safe to call twice."""
        run, self._run = self._run, None
        if run is not None:
            run.close(finished=finished)
        store, self._store = self._store, None
        if store is not None:
            store.close()
            self._notes += store.notes
        self._ordinals.close()
        if self.rows is not None:
            self.rows.close()
            self.rows = None


def _unchanged(asked: Asked) -> bool:
    seen = asked.asking.seen
    return seen is None or seen.unchanged()


def _words(run: KeptRun, input: str) -> list[str]:
    """What is said of a run that goes on."""
    said: list[str] = []
    journal = run.journal
    if journal.damaged:
        said.append(f"note: {journal.damaged:,} bytes of the journal are damaged; the calls in there are made again")
    if journal.calls and run.began is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
        calls = f"{journal.calls:,} {'call is' if journal.calls == 1 else 'calls are'} known"
        failed = f", {journal.failures:,} of them failed (--retry-failed makes those again)" if journal.failures else ""
        what = "this was run before," if run.finished else "goes on with the run begun"
        said.append(f"{what} {when}: {calls}{failed}; --fresh makes every call again")
    if run.changes:
        said.append(run.changes.words(input))
    return said
