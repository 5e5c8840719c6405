"""What a run gives back: the table, and what it took to make it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow

    from helix.executor.tables import MemorySink
    from helix.report.measures import RunMeasures

Outcome = Literal["complete", "failed_rows", "stopped", "interrupted"]


@dataclass(slots=True, kw_only=True)
class StepReport:
    """What one step took, over all rows. Tokens are the engine's counts, 0 where it tells none; seconds are summed.

    `calls` counts attempts, `done` the calls that gave a value, `merged` those that took over an equal call's outcome,
    `fetched` those whose outcome was known from before the run.
    `truncated_prompts` were cut to fit the model, `cut_replies` are texts that ended at `max_tokens`.
    `prefilled_tokens` had to be computed; `untold` are the replies that do not tell how much of their prompt was
    cached. Of an agent `turns` are the replies of its model, `tool_calls` those that it asked for, of which
    `tool_errors` gave no result, and `at_limit` the rows in which a limit made it answer or fail.
    """

    calls: int = 0
    done: int = 0
    merged: int = 0
    fetched: int = 0
    retries: int = 0
    reasks: int = 0
    failed: int = 0
    truncated_prompts: int = 0
    cut_replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    untold: int = 0
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    at_limit: int = 0
    seconds: float = 0.0

    def count_tokens(self, prompt: int | None, completion: int | None, cached: int | None) -> None:
        """Counts a reply's tokens, as the engine tells them."""
        self.completion_tokens += completion or 0
        if prompt is None or cached is None:
            self.prompt_tokens += prompt or 0
            self.cached_tokens += cached or 0
            self.untold += 1
        else:
            self.prompt_tokens += prompt
            self.cached_tokens += cached
            self.prefilled_tokens += prompt - cached


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """How far the rows are between one group, sort or limit of a plan and the next: `done` of `all` (None: not known
    yet) are through, `known` of them at once, on results from before the run; `over`: no more will come.
    """

    done: int
    known: int
    all: int | None
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a run is doing just now.

    `in_flight` calls are being made, `tools` of them of tools; `queued` calls are in line. `paused` are the seconds
    that an overloaded engine still wants to be left alone, `no_room` says that calls wait for room in its cache.
    `failed` rows have surely failed, also those that are not in the output yet.
    """

    in_flight: int
    queued: int
    tools: int
    paused: float
    no_room: bool
    failed: int
    phases: tuple[Phase, ...]


@dataclass(slots=True, kw_only=True)
class RunReport:
    """What a run took. `stopped` says why it ended early; `notes` are things a person should know once.

    `rows` are the input rows begun, `done_rows` those of them that are through their last step before a `group`, `sort`
    or the output, `output_rows` the rows of the result. `errors` holds the first failed rows: row, step, kind, message;
    `tracebacks` for each step whose tool raised the first one. `policy` is the one that released the calls; `warmups`
    beginnings of prompts were computed ahead of them, `warmup_tokens` of these were not in the cache. `plan_seconds`
    went into the schedule. `fatal` says that the engine refuses every call,
    `reader_gone` that nobody reads the output any more; `waiting` says what the run waits for just now, if anything,
    `activity` what it is doing (None where nobody looks on).
    `speculation` is what guesses at calls of tools have saved, as in docs/reference/report.md; None without any.
    """

    rows: int = 0
    done_rows: int = 0
    output_rows: int = 0
    failed_rows: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    interrupted: bool = False
    fatal: bool = False
    policy: str = ""
    warmups: int = 0
    warmup_tokens: int = 0
    plan_seconds: float = 0.0
    reader_gone: bool = False
    waiting: str | None = None
    activity: Activity | None = None
    steps: dict[str, StepReport] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    errors: list[tuple[int, str, str, str]] = field(default_factory=list)
    tracebacks: dict[str, str] = field(default_factory=dict)
    speculation: dict[str, Any] | None = None

    def total(self, name: str) -> int:
        """A figure of the steps summed up: `calls`, `merged`, `prompt_tokens`, ..."""
        return sum(int(getattr(step, name)) for step in self.steps.values())

    @property
    def calls(self) -> int:
        """Calls made to engines and tools, re-asks and retries included."""
        return self.total("calls")

    @property
    def merged(self) -> int:
        """Calls that were not made, since an equal one was."""
        return self.total("merged")

    @property
    def fetched(self) -> int:
        """Calls that were not made, since their outcomes were known from before the run."""
        return self.total("fetched")

    @property
    def nothing_done(self) -> bool:
        """Whether the engine refused every call, so that there is no result worth keeping."""
        return self.fatal and self.output_rows == self.failed_rows and self.total("done") + self.fetched == 0

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        if self.interrupted:
            return "interrupted"
        if self.stopped is not None:
            return "stopped"
        return "failed_rows" if self.failed_rows else "complete"

    def _repr_html_(self) -> str:
        from helix.notebook import report_html

        return report_html(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from helix.notebook import bundle, counted

        return bundle(f"<RunReport: {counted(self)}>", self._repr_html_(), include, exclude)


class RunResult:
    """A finished run: the report, and the rows where they were kept in memory rather than written to a file.

    Each row is a dict of `_row` (the index of the input row), the columns of `output`, and `_error` (None, or a dict).
    `run_report` says what the run took, with `to_json()` and as text; None unless it was asked for (`report=True`).
    """

    def __init__(
        self,
        report: RunReport,
        *,
        kept: MemorySink | None = None,
        path: str | None = None,
        measures: RunMeasures | None = None,
    ) -> None:
        self.report = report
        self.run_report = measures
        self.path = path
        self._kept = kept

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts. Raises ValueError where they were written to a file."""
        return self._memory().to_dicts()

    @property
    def table(self) -> pyarrow.Table:
        """The rows as an Arrow table. Raises ValueError where they were written to a file."""
        return self._memory().to_arrow()

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame. Raises ValueError where they were written to a file."""
        return self.table.to_pandas()

    def _memory(self) -> MemorySink:
        if self._kept is None:
            raise ValueError(f"the rows were written to {self.path}")
        return self._kept

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return self.report.output_rows

    def __repr__(self) -> str:
        report = self.report
        where = f" in {self.path}" if self.path is not None else ""
        return f"<RunResult: {report.output_rows} rows{where}, {report.failed_rows} failed, {report.calls} calls>"

    def _repr_html_(self) -> str:
        from helix.notebook import result_html

        return result_html(self)
