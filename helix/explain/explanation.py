"""What `workflow.explain()` gives in Python: text when printed, a page in a notebook."""

from __future__ import annotations

from typing import Any

from helix.explain.as_json import report_json
from helix.explain.report import ExplainReport
from helix.explain.text import Stage, report_text
from helix.logical import LogicalPlan
from helix.notebook import bundle


class Explanation:
    """What a workflow will do, as text, JSON, a graph or a page. `report` holds it all."""

    def __init__(self, report: ExplainReport, *, width: int | None = None) -> None:
        """`width` is how many terminal cells the text may take (None: plans are not broken)."""
        self.report = report
        self._width = width

    @property
    def plan(self) -> LogicalPlan:
        """The optimized plan."""
        return self.report.plan

    def text(
        self, *, stage: Stage = "all", width: int | None = None, color: bool = False, verbose: bool = False
    ) -> str:
        """The explanation as text, or one stage of it, such as `tree` or `cost`."""
        return report_text(self.report, stage=stage, width=width or self._width, color=color, verbose=verbose)

    def to_json(self, *, stage: Stage = "all") -> dict[str, Any]:
        """The explanation as JSON values."""
        return report_json(self.report, stage=stage)

    def to_mermaid(self, *, stage: Stage = "all") -> str:
        """The optimized plan as a Mermaid flowchart; with `logical` the plain one, with `tree` the tree of prompts."""
        from helix.explain.mermaid import report_mermaid

        return report_mermaid(self.report, stage=stage)

    def to_dot(self, *, stage: Stage = "all") -> str:
        """The same as a graph for Graphviz."""
        from helix.explain.dot import report_dot

        return report_dot(self.report, stage=stage)

    def to_html(self) -> str:
        """The explanation as a page of its own, which needs nothing else."""
        from helix.explain.html import report_page

        return report_page(self.report)

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from helix.explain.html import report_fragment

        return report_fragment(self.report)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return bundle(str(self), self._repr_html_(), include, exclude)
