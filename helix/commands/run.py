"""The command `helix run`: options to settings, Ctrl+C, progress and the closing words."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.api import Prepared
from helix.dsl import Workflow
from helix.durations import duration
from helix.errors import InputError, OptionError
from helix.executor.engines import loop_factory
from helix.executor.settings import RunSettings
from helix.executor.tables import ScanReport
from helix.executor.values import CUT_SHORT
from helix.progress import Progress, cost_of, count, kind_of, money, sayer
from helix.report.files import read_report, refuse_report, write_report
from helix.report.speculation import speculation_lines
from helix.results import RunReport

if TYPE_CHECKING:
    from helix.executor.observe import Observer
    from helix.executor.store.settings import StoreSettings
    from helix.optimizer.cost import Prices
    from helix.report.measures import RunMeasures

WELL, WRONG, FAILED, INTERRUPTED = 0, 2, 3, 130
SHOWN_ERRORS = 5
SHOWN_WARNINGS = 20
SHOWN_TRACEBACKS = 3


def run_command(
    workflow: Workflow,
    source: str | None,
    target: str,
    *,
    constants: dict[str, str],
    quiet: bool,
    input_format: str | None,
    output_format: str | None,
    engine: str | None,
    model: str | None,
    call_timeout: str | None,
    run_timeout: str | None,
    wait_limit: str | None,
    max_failed: str | None,
    no_merge: bool,
    rules: str | None,
    without: str | None,
    store: Path | None,
    no_store: bool,
    store_size: str | None,
    fresh: bool,
    retry_failed: bool,
    report: str | None,
    compare: str | None = None,
    prices: str | None = None,
    observers: Sequence[Observer] = (),
    progress: str = "auto",
    trace: str | None = None,
    lane: tuple[str, ...] = (),
    allow_host: tuple[str, ...] = (),
    trust_server: tuple[str, ...] = (),
    secrets: str | None = None,
    **settings: Any,
) -> int:
    """Runs a workflow and gives the exit code. `progress` says how it is shown how far it is.

    Raises HelixError for what is wrong before the first call.
    """
    failures, percent = _failures(max_failed)
    # A simulation keeps nothing, and finds nothing that an earlier one kept, unless a folder is named.
    simulated = store is None and not (no_store or fresh or retry_failed) and loop_factory(engine) is not None
    on_terminal = target == "-" and sys.stdout is not None and sys.stdout.isatty()
    kind_of(progress, quiet=quiet, shared=on_terminal)
    priced = _prices(prices)
    written = _Written.wanted(report, compare, priced, source, target, str(workflow.path))
    prepared = Prepared(
        workflow,
        source,
        output=target,
        engine=engine,
        model=model,
        api_key=None,
        set=constants,
        settings=_settings(
            call_timeout=_seconds("--call-timeout", call_timeout),
            run_timeout=_seconds("--run-timeout", run_timeout),
            wait_limit=_seconds("--wait-limit", wait_limit) or 0.0,
            max_failed=failures,
            max_failed_percent=percent,
            merge=not no_merge,
            lanes=_lanes(lane),
            allow_hosts=allow_host or None,
            trust_servers=trust_server,
            secrets=secrets,
            **settings,
        ),
        input_format=input_format,
        output_format=output_format,
        quiet=quiet,
        rules=rule_names(rules),
        without=rule_names(without) or (),
        store=_kept(store, no_store or simulated, store_size, fresh, retry_failed),
        report=report is not None,
        observers=observers,
        trace=trace,
    )
    speaker = _Speaker(quiet, sayer(progress), priced)
    if not quiet:
        warnings = prepared.bound.warnings
        for warning in warnings[:SHOWN_WARNINGS]:
            speaker.say(f"warning: {warning.message}" + (f" ({warning.span})" if warning.span else ""))
        if len(warnings) > SHOWN_WARNINGS:
            speaker.say(f"... {count(len(warnings), 'warning')} in all; `helix check` shows them")
    try:
        scanned = prepared.scan()
    except BaseException:
        prepared.close()
        raise
    speaker.input(scanned)
    shown = Progress(scanned.rows, quiet=quiet, mode=progress, shared=on_terminal, prices=priced)
    with asyncio.Runner(loop_factory=loop_factory(*prepared.made.values())) as runner:
        return runner.run(_run(prepared, shown, speaker, written))


async def _run(prepared: Prepared, progress: Progress, speaker: _Speaker, written: _Written | None) -> int:
    task = asyncio.current_task()
    assert task is not None
    presses = 0

    def stop() -> None:
        nonlocal presses
        presses += 1
        if presses == 1 and prepared.active is not None and prepared.active.running:
            waiting = prepared.active.in_flight
            speaker.say(f"stopping: waiting for {count(waiting, 'call')} in flight; Ctrl+C again stops at once")
            prepared.active.interrupt()
        else:
            task.cancel()

    def started() -> None:
        for line in prepared.known_before:
            speaker.say(line)
        progress.start()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        with progress:
            try:
                result = await prepared.run(progress=progress.update, started=started)
            finally:
                if prepared.active is not None:
                    progress.end(prepared.active.report)
    except asyncio.CancelledError:
        speaker.say("interrupted" + _partial(prepared) + _resumable(prepared))
        return INTERRUPTED
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    speaker.report(result.report)
    if result.report.speculation is not None and (written is None or result.run_report is None):
        for line in speculation_lines(result.report.speculation):
            speaker.say(line)
    code = _exit_code(result.report)
    if written is not None and result.run_report is not None:
        speaker.say(result.run_report.text())
        try:
            written.write(result.run_report)
        except InputError as error:
            speaker.say(error.render(), always=True)
            return code or FAILED
        speaker.say(f"the report is in {written.file}")
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The report that is wanted: its file, the report to compare with, prices of tokens."""

    file: str
    earlier: Mapping[str, Any] | None
    prices: Prices | None

    @staticmethod
    def wanted(report: str | None, compare: str | None, prices: Prices | None, *others: str | None) -> _Written | None:
        """Reads what the report needs before the first call. Raises OptionError for what does not fit."""
        if report is None:
            if compare is not None:
                raise OptionError("--compare is part of a report: give --report FILE.html too")
            return None
        refuse_report(report, *others)
        if compare is not None and not report.endswith(".html"):
            raise OptionError(f"--compare is shown on a page: --report takes a .html file then, found `{report}`")
        # The file may be the one that is written over in the end.
        earlier = None if compare is None else read_report(compare)
        return _Written(file=report, earlier=earlier, prices=prices)

    def write(self, measures: RunMeasures) -> None:
        """Raises InputError where that fails."""
        write_report(self.file, measures if self.prices is None else measures.priced(self.prices), self.earlier)


def _prices(given: str | None) -> Prices | None:
    """`--prices`. Raises OptionError."""
    if given is None:
        return None
    from helix.commands.explain import price_list
    from helix.explaining import prices_of

    return prices_of(price_list(given))


def _partial(prepared: Prepared) -> str:
    return f"; {prepared.partial}" if prepared.partial else ""


def _resumable(prepared: Prepared) -> str:
    return "; the same command goes on from here" if prepared.resumable else ""


def _exit_code(report: RunReport) -> int:
    if report.interrupted:
        return INTERRUPTED
    if report.nothing_done:
        return WRONG
    return FAILED if report.stopped is not None or report.failed_rows else WELL


class _Speaker:
    """Says things to the person, on standard error."""

    def __init__(self, quiet: bool, tell: Callable[[str], None], prices: Prices | None) -> None:
        self.quiet = quiet
        self._prices = prices
        self._tell = tell

    def say(self, text: str, *, always: bool = False) -> None:
        """One message; an error is said even where the run is to be quiet."""
        if always or not self.quiet:
            self._tell(text)

    def input(self, scanned: ScanReport) -> None:
        """What is wrong with the input, before the first call."""
        if scanned.failed:
            self.say(f"{scanned.failed} of {count(scanned.rows, 'row')} cannot be used and will not be called:")
        for kind, number in scanned.errors.items():
            index, error = scanned.first[kind]
            place = f" ({scanned.places[kind]})" if kind in scanned.places else ""
            self.say(f"  {kind}: {count(number, 'row')}, the first is row {index}{place}: {error.message}")
        for name in scanned.absent:
            self.say(f"note: no row has the optional column `{name}`")

    def report(self, report: RunReport) -> None:
        """The closing words: what was done, what failed, why it ended early."""
        if report.reader_gone:
            return
        if report.nothing_done:
            self.say(f"error: {report.stopped}", always=True)
            return
        # Why the run ended early is said once, not for each row that it left undone.
        undone = [error for error in report.errors if report.stopped is not None and error[2] in CUT_SHORT]
        shown = [error for error in report.errors if error not in undone[1:]]
        for row, step, kind, message in shown[:SHOWN_ERRORS]:
            where = f", step {step}" if step else ""
            self.say(f"row {row}{where}: {kind}: {message}")
        if report.failed_rows > len(shown[:SHOWN_ERRORS]):
            self.say(f"... {count(report.failed_rows, 'row')} failed in all; `_error` in the result says why")
        for step, trace in list(report.tracebacks.items())[:SHOWN_TRACEBACKS]:
            self.say(f"traceback of step {step}:\n{trace.rstrip()}")
        for note in report.notes:
            self.say(f"note: {note}")
        self._counted(report, "truncated_prompts", "prompt", "cut to fit the model")
        self._counted(report, "cut_replies", "text", "ended at max_tokens")
        self._counted(report, "at_limit", "agent", "came to a limit before it had an answer")
        if report.stopped is not None:
            self.say(f"stopped early: {report.stopped}", always=report.fatal)
        parts = [count(report.output_rows, "row")]
        if report.failed_rows:
            parts.append(f"{report.failed_rows:,} failed")
        parts.append(count(report.calls, "call"))
        if report.fetched:
            parts.append(f"{report.fetched:,} fetched")
        if report.merged:
            parts.append(f"{report.merged:,} more merged with equal ones")
        tokens = report.total("prompt_tokens"), report.total("completion_tokens")
        if any(tokens):
            parts.append(count(tokens[0], "prompt token") + _cached(report))
            parts.append(f"{tokens[1]:,} generated")
        if report.warmups:
            parts.append(f"{report.warmup_tokens:,} computed ahead by {count(report.warmups, 'warm-up')}")
        cost = cost_of(report, self._prices)
        if cost is not None and self._prices is not None:
            parts.append(money(cost, self._prices.currency))
        self.say(f"{', '.join(parts)} in {report.seconds:.1f} s")

    def _counted(self, report: RunReport, figure: str, noun: str, what: str) -> None:
        """One note of something that happened at some steps."""
        steps = {step: getattr(figures, figure) for step, figures in report.steps.items() if getattr(figures, figure)}
        if not steps:
            return
        most = max(steps, key=lambda step: steps[step])
        where = f"step {most}" if len(steps) == 1 else f"{len(steps)} steps, most of them of {most},"
        self.say(f"note: {count(sum(steps.values()), noun)} of {where} {what}")


def _cached(report: RunReport) -> str:
    """What the engine told of its cache, in brackets; nothing where some replies told nothing."""
    cached, prompt = report.total("cached_tokens"), report.total("prompt_tokens")
    if report.total("untold") or not prompt:
        return f" ({cached:,} cached)" if cached else ""
    fresh = report.total("prefilled_tokens")
    return f" ({cached:,} cached, {fresh:,} prefilled, hit rate {cached / prompt:.0%})"


def rule_names(given: str | None) -> list[str] | None:
    """The names in `--rules` and `--without`; `none` is no rule at all, None that the option was not given."""
    if given is None or given == "none":
        return None if given is None else []
    return [name.strip() for name in given.split(",") if name.strip()]


def _failures(text: str | None) -> tuple[float | None, bool]:
    """`--max-failed`: a number of rows, or a share of them."""
    if text is None:
        return None, False
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise OptionError(f"--max-failed takes a number of rows or a share such as 5%, found `{text}`")
    return number, text.endswith("%")


def _lanes(given: tuple[str, ...]) -> dict[str, int]:
    """`--lane NAME=N`, each a lane of tools and how many calls it makes at once."""
    sizes: dict[str, int] = {}
    for each in given:
        name, equals, size = (part.strip() for part in each.partition("="))
        if not equals or not name or not size.isdecimal() or int(size) < 1:
            raise OptionError(f"--lane takes a name and a number of at least 1, such as db=4, found `{each}`")
        sizes[name] = int(size)
    return sizes


def _kept(
    store: Path | None, no_store: bool, store_size: str | None, fresh: bool, retry_failed: bool
) -> StoreSettings | None:
    """What the run keeps, and where. Raises OptionError for options that do not fit together."""
    from helix.commands.cache import size_in_bytes
    from helix.executor.store.results import DEFAULT_BYTES
    from helix.executor.store.settings import FOLDER, StoreSettings

    if no_store:
        given = {"--store": store, "--store-size": store_size, "--fresh": fresh, "--retry-failed": retry_failed}
        odd = next((name for name, value in given.items() if value), None)
        # A folder from the environment is a default, which --no-store switches off.
        if odd is not None and not (odd == "--store" and os.environ.get("HELIX_STORE")):
            raise OptionError(f"{odd} has no meaning with --no-store")
        return None
    if fresh and retry_failed:
        raise OptionError("--fresh makes every call again, those that failed among them; leave out --retry-failed")
    return StoreSettings(
        folder=store or FOLDER,
        named=store is not None,
        fresh=fresh,
        retry_failed=retry_failed,
        most=DEFAULT_BYTES if store_size is None else size_in_bytes(store_size),
    )


def _settings(**given: Any) -> RunSettings:
    """The settings of the run. Raises OptionError, which calls them as the command line does."""
    try:
        return RunSettings(**given)
    except OptionError as error:
        name, _, rest = str(error).partition(" ")
        raise OptionError(f"--{name.replace('_', '-')} {rest}" if name in given else str(error)) from None


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = duration(float(text))
    except ValueError:
        seconds = duration(text)
    if seconds is None:
        raise OptionError(f"{option} takes a time such as 30s, 5m or 90, found `{text}`")
    return seconds
