"""Contract 3: what is wrong with a workflow is found before any call."""

from __future__ import annotations

import pytest
from running import Folder, command, run

from helix.errors import SourceErrors
from helix.executor.engines.scripted import ScriptedEngine


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('x = llm { user "a" }\nx = llm { user "b" }\noutput x', "`x` is already set"),
        ('x = llm { user "{{ y }}" }\ny = llm { user "{{ x }}" }\noutput y', "a cycle"),
        ('x = llm { user "{{ b }}" }\noutput x', "unknown name `b`"),
        ("x = a + 1\noutput x", "found text and int"),
    ],
)
def test_03_mistakes_are_found_before_any_call(body: str, message: str) -> None:
    engine = ScriptedEngine()
    with pytest.raises(SourceErrors) as caught:
        run(f"workflow t(a: text)\n{body}", [{"a": "v"}], engine=engine)
    assert message in str(caught.value)
    assert (engine.calls, engine.opened) == (0, 0)


def test_03_from_the_command_line(folder: Folder) -> None:
    folder.workflow('workflow t(a: text)\nx = llm { user "{{ b }}" }\noutput c')
    folder.rows({"a": "v"})
    done = folder.run("-o", "out.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "w.helix:2:" in done.stderr
    assert "w.helix:3:" in done.stderr
    assert "2 errors" in done.stderr
    assert folder.names == ["rows.jsonl", "w.helix"]


def test_03_check_reads_the_modules_of_tools_and_runs_none(folder: Folder) -> None:
    folder.workflow(
        'workflow t(a: text)\ntool find(key: text) -> json from python "shop:find" effects read\nx = find(a)\noutput x'
    )
    (folder.path / "shop.py").write_text("def fond(key):\n    return key\n\nopen('ran.txt', 'w')\n")
    done = command("check", "w.helix", cwd=folder.path)
    assert done.returncode == 2
    assert "`shop.py` has no function `find`; did you mean `fond`?" in done.stderr
    (folder.path / "shop.py").write_text("def find(key):\n    return key\n\nopen('ran.txt', 'w')\n")
    assert command("check", "w.helix", cwd=folder.path).returncode == 0
    assert folder.names == ["shop.py", "w.helix"]
