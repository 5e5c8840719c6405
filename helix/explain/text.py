"""The report as text for a terminal: sections in a fixed order, those left out that have nothing to say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar, get_args

from helix.explain.figures import ARROW, cost_title, figures, notes, number, savings, seconds
from helix.explain.layout import fits, padded, paint, shortened, table, wrapped
from helix.explain.report import ExplainReport, Measured, RuleFired
from helix.explain.schedule import advice_lines, schedule_lines, schedule_notes, short_lines, title, worth_telling
from helix.optimizer.cost import Cost, StepCost, ToolCost
from helix.optimizer.tree import Hole, Static, Tree, tree_text
from helix.places import static_name
from helix.results import StepReport
from helix.show import cells, plan_text
from helix.summary import plan_summary

Stage = Literal["all", "logical", "optimized", "tree", "physical", "cost"]
STAGES: tuple[Stage, ...] = get_args(Stage)

# Where nothing says how wide the text may be, paragraphs and trees are still to be read.
_WIDTH = 100
_NARROWEST = 40
# A rule's name and what it did share a line where this much is left for the words.
_ROOM = 34
# Tokens that several prompts have in common before the tree is worth a person's time.
_WORTH_SHOWING = 4


def report_text(
    report: ExplainReport,
    *,
    stage: Stage = "all",
    width: int | None = None,
    color: bool = False,
    verbose: bool = False,
) -> str:
    """The report, or one stage of it, ending in a line break.

    No line is wider than `width` cells (40 at least; None: plans are not broken, the rest is 100 wide). `verbose` adds
    to each rule its law and when it is sound, and names the rules that changed nothing.
    """
    made = _Text(report, width, color, verbose)
    sections = [section for section in getattr(made, stage if stage != "all" else "whole")() if section]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


class _Text:
    def __init__(self, report: ExplainReport, width: int | None, color: bool, verbose: bool) -> None:
        self._report = report
        self._limit = None if width is None else max(width, _NARROWEST)
        self._width = self._limit or _WIDTH
        self._color = color
        self._verbose = verbose

    # --- stages ---

    def whole(self) -> Iterator[list[str]]:
        """All sections."""
        report = self._report
        full = report.changed and not report.same_calls
        yield self._plain("Logical plan" if full else "Plan", summary=not full)
        yield self._warnings()
        yield self._rules()
        if full:
            yield self._better()
        if _shares(report.tree) or (self._verbose and report.tree.ops):
            yield self._tree()
        if worth_telling(report.physical):
            yield self._schedule()
        yield self._speculation()
        yield self._costs()
        yield self._measured()

    def logical(self) -> Iterator[list[str]]:
        """The plan as it is written."""
        yield self._plain("Logical plan", summary=True)
        yield self._warnings()

    def optimized(self) -> Iterator[list[str]]:
        """The rules, and the plan after them."""
        yield self._rules()
        yield self._better()

    def tree(self) -> Iterator[list[str]]:
        """The prompts as a tree."""
        yield self._tree()

    def physical(self) -> Iterator[list[str]]:
        """How the plan is run."""
        plan = self._report.physical
        lines = schedule_lines(plan, self._width, color=self._color, verbose=self._verbose)
        notes = [line for note in schedule_notes(plan) for line in self._paragraph(note, style="quiet")]
        yield [self._heading("Physical plan", title(plan)), *lines, *notes]
        if plan.advice:
            yield [self._heading("Wanted of an SGLang server"), *advice_lines(plan, self._width, color=self._color)]
        yield self._speculation()

    def cost(self) -> Iterator[list[str]]:
        """What the plan costs."""
        yield self._costs()
        yield self._measured()

    # --- sections ---

    def _heading(self, text: str, said: str = "") -> str:
        shown = shortened(said, self._width - cells(text) - 1)
        return paint(text, "heading", self._color) + (f" {paint(shown, 'quiet', self._color)}" if shown else "")

    def _paragraph(self, text: str, *, first: str = "  ", style: str = "") -> list[str]:
        lines = wrapped(text, self._width, first=first)
        return [paint(line, style, self._color) for line in lines] if style else lines

    def _plain(self, title: str, *, summary: bool) -> list[str]:
        shown = plan_text(self._report.plain, width=self._limit, color=self._color).splitlines()
        return [self._heading(title), *shown, *self._summary(summary, optimized=False)]

    def _better(self) -> list[str]:
        shown = plan_text(self._report.plan, width=self._limit, color=self._color).splitlines()
        return [self._heading("Optimized plan"), *shown, *self._summary(True, optimized=True)]

    def _summary(self, wanted: bool, *, optimized: bool) -> list[str]:
        if not wanted:
            return []
        plan = self._report.plan if optimized else self._report.plain
        facts = [fact for fact in plan_summary(plan).splitlines() if self._verbose or not fact.startswith("operators:")]
        return ["", *(line for fact in facts for line in wrapped(fact, self._width, then="    "))]

    def _warnings(self) -> list[str]:
        return [
            line
            for each in self._report.warnings
            for line in self._paragraph(f"warning: {each}", first="", style="warning")
        ]

    def _rules(self) -> list[str]:
        report = self._report
        if not report.fired:
            tried = len(report.idle)
            lines = [self._heading("Rules:", "none applies" if tried else "none was to be tried")]
        else:
            lines = [self._heading("Rules", f"(estimates for {'the table' if report.table else 'one row'})")]
        size = max((cells(rule.name) for rule in report.fired), default=0)
        for rule in report.fired:
            lines += self._rule(rule, size)
        if report.fired and report.same_calls:
            lines += self._paragraph(
                "The optimized plan makes the same calls (--stage optimized shows it).", style="quiet"
            )
        if self._verbose and report.idle:
            lines += self._paragraph(f"changed nothing: {', '.join(report.idle)}", style="quiet")
        return lines

    def _rule(self, rule: RuleFired, size: int) -> list[str]:
        said = "; ".join(change.text() for change in rule.changes)
        if rule.lossy:
            said = f"LOSSY, may change answers: {said}"
        beside = self._width - size - 4 >= _ROOM
        lead = "  " + (padded(rule.name, size) + "  " if beside else "")
        hang = " " * (size + 4) if beside else "    "
        lines = [] if beside else [f"  {paint(shortened(rule.name, self._width - 2), 'name', self._color)}"]
        shown = wrapped(said, self._width, first=lead if beside else hang, then=hang)
        if beside:
            shown[0] = shown[0].replace(rule.name, paint(rule.name, "name", self._color), 1)
        lines += shown
        saved = savings(rule.before, rule.after)
        if saved:
            lines += [
                paint(line, "good", self._color)
                for line in wrapped("; ".join(each.text for each in saved), self._width, first=hang)
            ]
        if self._verbose:
            for name, text in (("law", rule.law), ("sound", rule.sound), ("pays", rule.pays)):
                if text:
                    lines += [
                        paint(line, "quiet", self._color)
                        for line in wrapped(f"{name}: {text}", self._width, first=hang)
                    ]
        return lines

    def _tree(self) -> list[str]:
        shown = tree_text(self._report.tree, self._width, sizes=self._report.sizes, color=self._color)
        return [self._heading("Prompts", "(what they share)"), *shown.splitlines()]

    def _schedule(self) -> list[str]:
        plan = self._report.physical
        return [self._heading("Schedule", title(plan)), *short_lines(plan, self._width)]

    def _costs(self) -> list[str]:
        report = self._report
        found = figures(report)
        if all(figure.nothing for figure in found):
            return [self._heading("Cost:", "no calls")]
        lines = [self._heading(cost_title(report))]
        if all(figure.plain == figure.optimized for figure in found):
            rows = [["", ""], *([figure.name, figure.plain] for figure in found)]
            lines += table(rows, self._width)[1:]
        else:
            rows = [[figure.name, figure.plain, figure.optimized, figure.saving] for figure in found]
            heads = ["", "plain", "optimized", "saved"]
            if not fits([heads, *rows], self._width):
                heads = ["", f"plain {ARROW} optimized"]
                rows = [
                    [name, before if before == after else f"{before} {ARROW} {after}"]
                    for name, before, after, _ in rows
                ]
            lines += table([heads, *rows], self._width, color=self._color)
        return lines + self._paragraph("; ".join(self._notes()), style="quiet")

    def _notes(self) -> Sequence[str]:
        table_facts = self._report.table
        failed = []
        if table_facts is not None and table_facts.failed:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in table_facts.failed)
            total = sum(count for _, count in table_facts.failed)
            failed.append(f"{total:,} of {table_facts.rows:,} rows cannot be used and are not called ({kinds})")
        return [*failed, *notes(self._report)]

    # --- speculation ---

    def _speculation(self) -> list[str]:
        """What patterns would make ahead of the decisions of agents."""
        lines: list[str] = []
        for agent in self._report.patterns or ():
            lines += [self._heading("Speculation", f"on what `{agent.step}` will ask for")]
            heads = ["pattern", "chances", "p", "p_low", "hides", "value"]
            rows = [
                [each.text, f"{each.chances:,.0f}", f"{each.p:.2f}", f"{each.p_low:.2f}", f"{each.hides:.2g} s",
                 f"{each.value:.2g} s"]
                for each in (agent.shown if self._verbose else agent.shown[:_PATTERNS])
            ]  # fmt: skip
            if rows:
                lines += table([heads, *rows], self._width, color=self._color)
            left = len(agent.shown) - len(rows)
            notes = [*([f"{left:,} more; --verbose shows them"] if left else []), *agent.notes]
            lines += self._paragraph("; ".join(notes), style="quiet") if notes else []
        return lines

    # --- measured ---

    def _measured(self) -> list[str]:
        measured = self._report.measured
        if measured is None:
            return []
        said = f"on {measured.engine}, the {'optimized' if measured.optimized else 'plain'} plan"
        lines = [self._heading("Measured", said)]
        lines += table(measured_rows(measured), self._width, color=self._color)
        for text in measured_notes(measured):
            lines += self._paragraph(text, style="quiet")
        return lines


# Patterns that are shown of an agent, unless all are asked for.
_PATTERNS = 12
_HEADS = ("step", "", "calls", "merged", "prompt", "cached", "generated", "seconds")


def measured_rows(measured: Measured) -> list[list[str]]:
    """Two rows for each step, what was estimated and what was measured; the first row holds the heads."""
    estimates = _estimates(measured.cost)
    rows: list[list[str]] = []
    for step in measured.steps:
        guess = estimates.get(step.step)
        if guess is not None:
            rows.append([step.step, "estimated", *guess])
        rows.append([step.step if guess is None else "", "measured", *_found(step.report, step.llm)])
    if len(measured.steps) > 1:
        cost = measured.cost
        counts = (cost.calls + cost.tool_calls, cost.merged, cost.prompt_tokens, cost.cached_tokens, cost.output_tokens)
        rows.append(["all", "estimated", *(number(value) for value in counts), seconds(cost.seconds)])
        sums = [sum(getattr(step.report, name) for step in measured.steps) for name in _FIELDS]
        rows.append(["", "measured", *(f"{value:,}" for value in sums), seconds(measured.seconds)])
    return [list(_HEADS), *rows]


_FIELDS = ("calls", "merged", "prompt_tokens", "cached_tokens", "completion_tokens")


def _estimates(cost: Cost) -> dict[str, list[str]]:
    """What was estimated of each step, as reports name them: the copies of an unrolled loop together."""
    made: dict[str, list[str]] = {}
    called = _by_name(cost.tools)
    for name, steps in _by_name(cost.steps).items():
        figures = [
            (each.calls, each.merged, each.prompt_tokens, each.cached_tokens, each.output_tokens) for each in steps
        ]
        counts = [sum(values) for values in zip(*figures, strict=True)]
        # What an agent asks of tools is told with its turns, as the run counts it.
        counts[0] += sum(each.calls for each in called.pop(name, ()))
        made[name] = [*map(number, counts), ""]
    for name, tools in called.items():
        spent = sum(each.seconds for each in tools)
        made[name] = [number(sum(each.calls for each in tools)), "", "", "", "", seconds(spent) if spent else ""]
    return made


_Part = TypeVar("_Part", StepCost, ToolCost)


def _by_name(parts: Iterable[_Part]) -> dict[str, list[_Part]]:
    made: dict[str, list[_Part]] = {}
    for each in parts:
        made.setdefault(static_name(each.step), []).append(each)
    return made


def _found(report: StepReport, llm: bool) -> list[str]:
    counts = [f"{getattr(report, name):,}" for name in _FIELDS]
    if not llm:
        counts[2:] = ["", "", ""]
    return [*counts, seconds(report.seconds)]


def measured_notes(measured: Measured) -> list[str]:
    """What is to be said below the table of a run."""
    made: list[str] = []
    rows = f"{measured.rows:,} row{'' if measured.rows == 1 else 's'}"
    failed = f", {measured.failed_rows:,} failed" if measured.failed_rows else ""
    made.append(f"{rows}{failed} in {seconds(measured.seconds)} s; seconds of a step are summed over its calls")
    if measured.stopped:
        made.append(f"stopped early: {measured.stopped}")
    bounds = measured.bounds
    if bounds is not None:
        prompt = sum(step.report.prompt_tokens for step in measured.steps)
        cached = sum(step.report.cached_tokens for step in measured.steps)
        kind = "estimated" if bounds.estimated else "exact"
        text = f"distinct prefixes of the calls made: {number(bounds.p_min)} tokens ({kind})"
        if bounds.p_min and prompt:
            text += f"; prefilled {prompt - cached:,}, {(prompt - cached) / bounds.p_min:.2f} times as many"
        made.append(text)
        # Bounds that the run has beaten are those of another, slower engine: they tell nothing of this one.
        if 0 < bounds.lower_bound <= measured.seconds:
            others = ", ".join(
                f"{name} {seconds(value)} s" for name, value in bounds.all if name != bounds.binder and value
            )
            made.append(
                f"no schedule on {bounds.engine_name} takes less than {seconds(bounds.lower_bound)} s, "
                f"by {bounds.binder}{f' ({others})' if others else ''}; "
                f"this run took {measured.seconds / bounds.lower_bound:.1f} times that"
            )
    made.extend(measured.notes)
    return made


def _shares(tree: Tree) -> bool:
    """Whether prompts share more than the mark of their first message and a word or two."""
    for node in range(1, len(tree)):
        label = tree.label(node)
        words = sum(segment.tokens for segment in label if isinstance(segment, Static))
        if tree.ops_below(node) > 1 and (
            words >= _WORTH_SHOWING or any(isinstance(segment, Hole) for segment in label)
        ):
            return True
    return False
