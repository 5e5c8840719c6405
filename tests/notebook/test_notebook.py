"""The notebook of the examples: it runs from top to bottom, and its outputs are those in the file, but for times."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "helix.ipynb"
# Runs apart: what the client warns of is not ours, and its loop and sockets end with the process.
RUNNER = """
import sys
import nbclient
import nbformat
notebook = nbformat.read(sys.argv[1], 4)
client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False,
                                 resources={"metadata": {"path": sys.argv[2]}})
client.execute()
nbformat.write(notebook, sys.argv[3])
"""


class Outline(HTMLParser):
    """The headings of an element, those of tables among them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag in ("h1", "h2") or (tag == "th" and ("scope", "col") in attrs)
        if self._inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("h1", "h2", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] += data


def outputs(cell: Any) -> list[Any]:
    """What a cell gives: texts without times and white space at the ends of lines, of pages their headings."""
    shown: list[Any] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            shown.append((output.name, masked(output.text)))
            continue
        assert output.output_type in ("execute_result", "display_data"), output
        made = output.data
        plain = "" if "times" in cell.metadata.get("tags", ()) else masked(made.get("text/plain", ""))
        shown.append((sorted(made), plain, Outline(made.get("text/html", "")).found))
    return shown


def masked(text: str) -> str:
    """A text without times."""
    return re.sub(r"\d+(\.\d+)?(?= m?s\b)", "N", "\n".join(line.rstrip() for line in text.splitlines()))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_has_shown(tmp_path: Path, update_golden: bool) -> None:
    ran = tmp_path / "ran.ipynb"
    folder = tmp_path / "folder"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELIX_", "JUPYTER_", "PYTEST_"))}
    places = {name: str(tmp_path / name) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(NOTEBOOK), str(folder), str(ran)],
        env={**kept, **places, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = nbformat.read(ran, 4)
    if update_golden:
        nbformat.write(found, NOTEBOOK)
    expected = nbformat.read(NOTEBOOK, 4)
    for before, after in zip(code_cells(expected), code_cells(found), strict=True):
        assert outputs(after) == outputs(before), after.source


def test_the_notebook_is_committed_with_its_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.outputs for cell in cells)
    assert NOTEBOOK.stat().st_size < 400_000
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r"/home/|/tmp/|/root/|/work/|[Ii]pykernel_\d", text)
    # Each kind of thing that has a display of its own is in it.
    pages = [
        output.data["text/html"] for cell in cells for output in cell.outputs if "text/html" in output.get("data", {})
    ]
    titles = " ".join(" ".join(Outline(page).found) for page in pages)
    for expected in ("reviews(title: text, review: text)", "Plan", "mood", "prompt tokens", "What it took"):
        assert expected in titles
