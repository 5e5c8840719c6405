"""The command `helix explain`: options, exit codes, colours, and one text whatever the hash seed."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from explain_support import EXAMPLES, TWICE
from running import Folder, arguments, command, environment

from helix.explain.text import STAGES
from helix.plan_json import from_json


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with the workflow `twice` and its rows."""
    made = Folder(tmp_path)
    made.workflow(TWICE.lstrip())
    made.rows({"text": "It broke"}, {"text": "It is fine"}, {"text": "It is fine"})
    return made


def explain(folder: Folder, *more: str, **options: object) -> subprocess.CompletedProcess[str]:
    return command("explain", "w.helix", *more, cwd=folder.path, **options)  # type: ignore[arg-type]


def test_plain_text_without_a_terminal(folder: Folder) -> None:
    done = explain(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Logical plan\nSink short, title also spare\n")
    assert done.stdout.endswith("(model)\n")
    assert "\x1b" not in done.stdout
    assert "\n\n\n" not in done.stdout


@pytest.mark.parametrize("stage", STAGES)
def test_stages(folder: Folder, stage: str) -> None:
    done = explain(folder, "--stage", stage, "--input", "rows.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_rules_are_chosen_by_name(folder: Folder) -> None:
    only = explain(folder, "--rules", "drop_dead_steps, fold_constants").stdout
    assert "merge_equal_steps" not in only
    assert "drop_dead_steps  drops spare" in only
    assert "merge_equal_steps" not in explain(folder, "--without", "merge_equal_steps").stdout
    assert "Rules: none was to be tried" in explain(folder, "--rules", "none").stdout


def test_the_table_may_come_through_a_pipe(folder: Folder) -> None:
    done = explain(folder, "-i", "-", "--input-format", "csv", "--stage", "cost", input="text\none\ntwo\n")
    assert done.returncode == 0, done.stderr
    assert "Cost, estimated for 2 rows" in done.stdout
    assert explain(folder, "-i", "rows.jsonl", "--limit", "1", "--stage", "cost").stdout.startswith(
        "Cost, estimated for 1 row of rows.jsonl\n"
    )


def test_a_constant_is_given_another_value(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.workflow('workflow w(a: text)\n\nlet tone = "plain"\n\nx = llm { user "{{ tone }} {{ a }}" }\n\noutput x\n')
    assert 'user "warm {a}"' in explain(folder, "--set", "tone=warm", "--stage", "optimized").stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rules", "merge_equal_step"], "there is no rule `merge_equal_step`; did you mean `merge_equal_steps`?"),
        (["--without", "nothing"], "there is no rule `nothing`; rules: "),
        (["--prices", "cheap"], "--prices takes two or three numbers such as 0.15,0.60, found `cheap`"),
        (["--prices", "1"], "prices are two or three numbers: prompt, reply, cached prompt; found 1"),
        (["--format", "html", "--stage", "tree"], "--stage is for the other formats: a page shows all stages"),
        (["--format", "dot", "--stage", "cost"], "there is no graph of the cost"),
        (["--analyze"], "no rows were given"),
        (["--input", "none.csv"], "none.csv"),
        (["--stage", "plan"], "'plan' is not one of 'all', 'logical', 'optimized', 'tree', 'physical', 'cost'"),
        (["--width", "39"], "39 is not in the range x>=40"),
        (["--limit", "-1", "-i", "rows.jsonl"], "--limit must be at least 0, found -1"),
        (["--set", "no=1"], "no"),
    ],
)
def test_wrong_options_are_one_clear_error(folder: Folder, options: list[str], said: str) -> None:
    done = explain(folder, *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_forms(folder: Folder) -> None:
    made = json.loads(explain(folder, "--format", "json").stdout)
    assert made["format"] == "helix-explain"
    assert from_json(made["optimized"]).name == "twice"
    assert explain(folder, "--format", "mermaid").stdout.startswith("flowchart TD\n")
    assert explain(folder, "--format", "dot").stdout.startswith('digraph "twice" {\n')
    assert explain(folder, "--format", "html").stdout.startswith("<!doctype html>\n")


def test_analyze_runs_the_optimized_plan(folder: Folder) -> None:
    done = explain(folder, "-i", "rows.jsonl", "-e", "scripted", "-c", "2", "--analyze", "--stage", "cost")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Measured on scripted, the optimized plan" in done.stdout
    assert "3 rows in" in done.stdout
    assert folder.names == ["rows.jsonl", "w.helix"]


def test_analyze_has_an_estimate_of_each_step(folder: Folder) -> None:
    """Of tools too, and of a loop that was unrolled: the run counts its copies together."""
    folder.write("shop.py", "def find(key):\n    return key\n")
    folder.workflow(
        "workflow w(text: text)\n"
        'tool find(key: text) -> text from python "shop:find" effects read, cost 2s\n'
        'views = for role in ["a lawyer", "a baker"] {\n'
        '  view = llm { user "{{ text }} for {{ role }}" }\n  yield view\n}\n'
        "found = find(text)\noutput views, found\n"
    )
    folder.rows({"text": "one"}, {"text": "two"})
    done = explain(folder, "-i", "rows.jsonl", "-e", "scripted", "--analyze", "--stage", "cost")
    assert done.returncode == 0, done.stderr
    assert re.search(r"views\.view +estimated +4 .*\n +measured +4 ", done.stdout)
    assert re.search(r"found +estimated +2 +4\.0\n +measured +2 ", done.stdout)


def test_analyze_takes_the_engine_of_the_environment(folder: Folder) -> None:
    done = explain(folder, "-i", "rows.jsonl", "--analyze", "--stage", "cost", env={"HELIX_ENGINE": "scripted"})
    assert "Measured on scripted" in done.stdout
    # Without a run nothing is opened, whatever the environment names.
    done = explain(folder, "-i", "rows.jsonl", "--stage", "cost", env={"HELIX_ENGINE": "http://127.0.0.1:9/v1"})
    assert done.returncode == 0


def test_analyze_says_with_its_exit_code_that_rows_failed(folder: Folder) -> None:
    folder.rules({"prompt_match": "fine", "error": 400, "message": "no"})
    done = explain(folder, "-i", "rows.jsonl", "-e", "scripted:replies.toml", "--analyze", "--stage", "cost")
    assert done.returncode == 3
    assert "3 rows, 2 failed in" in done.stdout


def test_an_engine_that_refuses_all(folder: Folder) -> None:
    folder.rules({"error": 401, "message": "no key"})
    done = explain(folder, "-i", "rows.jsonl", "-e", "scripted:replies.toml", "--analyze")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "no key" in done.stderr


def on_a_terminal(folder: Folder, *more: str, **env: str) -> str:
    """What the command prints on a terminal of 64 columns."""
    lead, follow = pty.openpty()
    variables = environment({"COLUMNS": "64", "TERM": "xterm", **env})
    variables = {name: value for name, value in variables.items() if env.get(name, value) != ""}
    with subprocess.Popen(
        arguments("explain", "w.helix", *more), cwd=folder.path, env=variables, stdout=follow, stderr=follow
    ) as running:
        os.close(follow)
        said = b""
        while True:
            try:
                piece = os.read(lead, 65536)
            except OSError:
                break
            if not piece:
                break
            said += piece
        assert running.wait(timeout=30) == 0
    os.close(lead)
    return said.decode("utf-8").replace("\r\n", "\n")


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of this kind are not there")
def test_on_a_terminal_there_are_colours_and_its_width(folder: Folder) -> None:
    said = on_a_terminal(folder, NO_COLOR="")
    assert "\x1b[1mLogical plan\x1b[0m" in said
    plain = on_a_terminal(folder, NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 64
    assert explain(folder, "--width", "64").stdout == plain
    assert "\x1b" not in on_a_terminal(folder, NO_COLOR="", TERM="dumb")


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    triage, trading = EXAMPLES / "triage", EXAMPLES / "trading" / "trading.helix"
    code = (
        "import json\nfrom helix import api\n"
        f"table = api.explain(api.load({str(triage / 'triage.helix')!r}), {str(triage / 'tickets.jsonl')!r})\n"
        f"for made in (table, api.explain(api.load({str(trading)!r}))):\n"
        "    print(made.text(verbose=True), json.dumps(made.to_json()), made.to_html())\n"
        "    print(made.to_mermaid(), made.to_dot(), made.to_mermaid(stage='tree'), made.to_dot(stage='logical'))\n"
    )
    said = []
    for seed in ("1", "4242"):
        variables = environment({"PYTHONHASHSEED": seed})
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, timeout=60, check=True)
        said.append(done.stdout)
    assert len(said[0]) > 50_000
    assert said[0] == said[1]


def test_a_terminal_of_another_encoding_shows_what_it_can(folder: Folder) -> None:
    done = explain(folder, env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0
    assert "llm calls 4 ? 3" in done.stdout
