"""What shells complete: commands, options and values, by click's protocol and in bash itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from running import arguments, command, environment

from helix.cli import cli
from helix.executor.policies.choose import choose_policy
from helix.optimizer.rules import RULES
from helix.options.complete import Completed
from helix.options.completion import VARIABLE

TEXT = (
    'workflow t(a: text)\nlet tone = "plain"\nlet tune = 1\nx = llm { user "{{ a }} {{ tone }}{{ tune }}" }\noutput x'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "w.helix").write_text(TEXT, encoding="utf-8")
    (tmp_path / "rows.csv").write_text("alpha,beta,alps\n1,2,3\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completed(line: str) -> list[str]:
    """What is offered for the last word of a line; `<file>` where the shell is to offer its files."""
    *words, last = line.split(" ")
    found = ShellComplete(cli, {}, "helix", VARIABLE).get_completions(words[1:], last)
    return [f"<{each.type}>" if each.type != "plain" else each.value for each in found]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("helix exp", ["explain"]),
        ("helix cache ", ["clear", "show"]),
        ("helix traces m", ["mine"]),
        ("helix run --progr", ["--progress"]),
        ("helix run --progress ", ["auto", "live", "steps", "plain", "json", "off"]),
        ("helix run ", ["<file>"]),
        ("helix run w.helix -i ro", ["<file>"]),
        ("helix run w.helix --report ", ["<file>"]),
        ("helix run w.helix --store ", ["<file>"]),
        ("helix run w.helix --policy k", ["kvflow"]),
        ("helix run w.helix -e s", ["scripted", "sglang://", "sim:"]),
        ("helix run w.helix --input-format j", ["jsonl", "json"]),
        ("helix run w.helix --rules n", ["none"]),
        ("helix run w.helix --without prune_fields,push_down_f", ["prune_fields,push_down_filters"]),
        ("helix run w.helix --speculate s", ["shadow"]),
        ("helix run w.helix --set t", ["tone=", "tune="]),
        ("helix check w.helix --set to", ["tone="]),
        ("helix show rows.csv --columns al", ["alpha", "alps"]),
        ("helix show rows.csv --columns alpha,b", ["alpha,beta"]),
        ("helix simulate w.helix --gpu h10", ["h100", "h100-nvl", "h100-pcie"]),
        ("helix bench w2-t", ["w2-tatqa"]),
        ("helix bench --regime ample,p", ["ample,pressure"]),
        ("helix completion f", ["fish"]),
    ],
)
def test_values_are_offered(folder: Path, line: str, offered: list[str]) -> None:
    assert completed(line) == offered


@pytest.mark.parametrize(
    "line",
    [
        "helix run none.helix --set t",
        "helix run broken.helix --set t",
        "helix run tool.py --set t",
        "helix run --set t",
        "helix show none.csv --columns a",
        "helix show - --columns a",
        "helix show broken.csv --columns a",
    ],
)
def test_what_cannot_be_found_out_offers_nothing(folder: Path, line: str) -> None:
    (folder / "broken.helix").write_text("workflow (", encoding="utf-8")
    (folder / "broken.csv").write_bytes(b'a,b\n"\xff')
    (folder / "tool.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    assert completed(line) == []
    assert not (folder / "ran").exists()


def test_what_is_offered_is_taken() -> None:
    for policy in completed("helix run w.helix --policy "):
        choose_policy(policy if policy != "cap" else "cap:4")
    assert completed("helix run w.helix --rules ") == ["none", *(rule.__name__ for rule in RULES)]


def commands(group: click.Command) -> list[click.Command]:
    inner = group.commands.values() if isinstance(group, click.Group) else ()
    return [group, *(each for below in inner for each in commands(below))]


def test_whatever_names_a_file_is_completed() -> None:
    """Options whose values are files or folders by their metavar, and arguments that are."""
    for each in commands(cli):
        for parameter in each.params:
            shown = parameter.metavar or (parameter.name or "").upper()
            if shown.partition(".")[0] in ("PATH", "FILE", "FILES", "FOLDER", "SOURCE") and parameter.name != "named":
                known = isinstance(parameter.type, Completed | click.Path)
                assert known, f"{each.name} {parameter.name}"


@pytest.mark.parametrize(
    ("shell", "env", "wanted"),
    [
        ("bash", {"COMP_WORDS": "helix run --policy kv", "COMP_CWORD": "3"}, "plain,kvflow\n"),
        ("zsh", {"COMP_WORDS": "helix run --policy kv", "COMP_CWORD": "3"}, "plain\nkvflow\n_\n"),
        ("fish", {"COMP_WORDS": "helix run --policy kv", "COMP_CWORD": "kv"}, "plain,kvflow\n"),
    ],
)
def test_shells_ask_by_a_variable(folder: Path, shell: str, env: dict[str, str], wanted: str) -> None:
    done = command(cwd=folder, env={VARIABLE: f"{shell}_complete", **env})
    assert done.stdout.replace("kvflow\t", "kvflow") == wanted
    assert done.stderr == ""


@pytest.mark.parametrize(("shell", "line"), [("zsh", "#compdef helix"), ("fish", "--command helix")])
def test_scripts_of_shells_name_the_command(shell: str, line: str) -> None:
    script = command("completion", shell).stdout
    assert line in script
    assert VARIABLE in script
    there = shutil.which(shell)
    if there is None:
        pytest.skip(f"{shell} is not installed: its script was looked at, not read by it")
    subprocess.run([there, "-n", "/dev/stdin"], input=script, text=True, check=True)


def test_bash_completes(folder: Path) -> None:
    """Bash reads the script and asks for what is offered, as when Tab is pressed."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    programs = folder / "bin"
    programs.mkdir()
    helix = programs / "helix"
    line = " ".join(f"'{part}'" for part in arguments())
    helix.write_text(f'#!/bin/sh\nexec {line} "$@"\n', encoding="utf-8")
    helix.chmod(0o755)
    script = (
        'eval "$(helix completion bash)"\ncomplete -p helix\n'
        'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _helix_completion helix; '
        'echo "${COMPREPLY[*]}"; }\n'
        "ask helix exp\nask helix run --policy kv\nask helix show rows.csv --columns al\n"
    )
    env = environment({"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"})
    done = subprocess.run(
        [bash, "--norc", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    registered, *offered = done.stdout.splitlines()
    assert registered.endswith("-F _helix_completion helix")
    assert offered == ["explain", "kvflow", "alpha alps"]


def test_completion_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom helix.cli import cli\nfrom click.shell_completion import ShellComplete\n"
        f"ShellComplete(cli, {{}}, 'helix', {VARIABLE!r}).get_completions(['run', 'w.helix'], '--pro')\n"
        "import json\nheavy = ('openai', 'pyarrow', 'lark', 'rich')\n"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(loaded.stdout) == []
