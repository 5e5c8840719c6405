"""Contract 9: what stands under the name of the output is replaced only by a whole result, and never by mistake."""

from __future__ import annotations

import os

from running import Folder

TEXT = 'workflow w(a: text)\nx = llm { user "{{ a }}" }\noutput x\n'


def test_09_the_output_is_never_the_input(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows({"a": "v"})
    before = (folder.path / "rows.jsonl").read_bytes()
    os.symlink("rows.jsonl", folder.path / "other.jsonl")
    for target in ("rows.jsonl", "./rows.jsonl", "other.jsonl"):
        done = folder.run("-o", target)
        assert done.returncode == 2
        assert "is the input; write the result to another file" in done.stderr
    assert (folder.path / "rows.jsonl").read_bytes() == before


def test_09_a_workflow_or_a_program_is_not_replaced(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows({"a": "v"})
    (folder.path / "tools.py").write_text("kept = 1\n")
    for target in ("w.helix", "tools.py"):
        done = folder.run("-o", target, "--output-format", "jsonl")
        assert done.returncode == 2
        assert f"the output {target} would replace a" in done.stderr
    assert (folder.path / "tools.py").read_text() == "kept = 1\n"


def test_09_a_wrong_option_is_told_before_the_input_is_read(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows({"a": ""}, {"a": "v"})
    for wrong in (("-e", "scriptd"), ("-o", "no/such.jsonl"), ("-o", "out.xyz")):
        done = folder.run(*wrong)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
