"""The reference pages list what there is: all of it, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from docs_markdown import ROOT, pages

import helix
from helix import api, dsl
from helix.cli import cli
from helix.errors import SourceErrors
from helix.executor.engines import FORMS
from helix.executor.engines.scripted_rules import Rule, Settings
from helix.executor.operators import MAX_ITEMS
from helix.executor.settings import RunSettings
from helix.executor.tables.formats import INPUT_FORMATS, OUTPUT_FORMATS, SUFFIXES
from helix.executor.tables.result_columns import ERROR_TYPE
from helix.executor.tables.rows import ERROR_KINDS
from helix.executor.tools.sql import MAX_ROWS
from helix.functions import ALIASES, FUNCTIONS
from helix.grammar.bind_steps import MAX_ROUNDS
from helix.grammar.declare import MODEL_OPTIONS, STEP_OPTIONS
from helix.grammar.parse import MAX_BYTES, MAX_DEPTH
from helix.results import RunReport
from helix.templates.jinja import environment
from helix.types import SCALARS
from helix.words import RESERVED

REFERENCE = ROOT / "docs" / "reference"
TEXTS = {page.name: page.path.read_text(encoding="utf-8") for page in pages()}


def reference(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next of its level."""
    level = heading.partition(" ")[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^{level} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def first_cells(text: str, column: str) -> list[str]:
    """The first cells of the table whose first column has this head."""
    table = re.search(rf"^\| {re.escape(column)} \|.*\n\|[-|]+\n((?:\|.*\n)*)", text, re.MULTILINE)
    assert table is not None, column
    return [re.split(r"(?<!\\)\|", line)[1].strip() for line in table[1].splitlines()]


def words(cell: str) -> list[str]:
    """The first words of a cell's stretches of code: names without what they take."""
    return [re.split(r"[ (]", code)[0] for code in re.findall(r"`([^`]+)`", cell)]


# --- the command line ---------------------------------------------------------------------------------------------


def documented_options(command: str) -> set[str]:
    text = section(reference("cli.md"), f"## helix {command}")
    return {word for cell in first_cells(text, "option") for word in words(cell)} if "| option |" in text else set()


def parameters(command: click.Command) -> list[click.Parameter]:
    """The parameters of a command, those of its own commands among them."""
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(parameter for each in inner for parameter in parameters(each))]


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_options_of_commands(command: str) -> None:
    known = {
        name
        for parameter in parameters(cli.commands[command])
        if isinstance(parameter, click.Option)
        for name in parameter.opts
    }
    assert documented_options(command) == known


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_defaults_of_options(command: str) -> None:
    text = section(reference("cli.md"), f"## helix {command}")
    for parameter in parameters(cli.commands[command]):
        if isinstance(parameter, click.Option) and parameter.show_default:
            (line,) = (line for line in text.splitlines() if line.startswith(f"| `{parameter.opts[0]} "))
            assert f"(default {parameter.default})" in line


def test_commands() -> None:
    assert set(re.findall(r"^## helix (\w+)$", reference("cli.md"), re.MULTILINE)) == set(cli.commands)


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_pages_name_options_that_there_are(page: str) -> None:
    known = {name for parameter in parameters(cli) for name in parameter.opts}
    if page in ("docs/reference/benchmarks.md", "docs/reference/benchmark-tables.md"):
        for program in ("engine_compare.py", "policy_tables.py"):
            known |= set(re.findall(r'"(--[a-z-]+)"', (ROOT / "tests/benchmarks" / program).read_text("utf-8")))
    if page in (
        "docs/reference/benchmarks.md",
        "docs/explanation/simulator.md",
        "docs/explanation/scheduling.md",
        "docs/how-to/serve-with-sglang.md",
    ):
        # Options of SGLang.
        known |= {"--schedule-policy", "--radix-eviction-policy", "--disable-overlap-schedule", "--enable-mixed-chunk"}
    named = set(re.findall(r"`(?:helix \w+ )?(--[a-z][a-z-]*)", TEXTS[page]))
    assert named - known - {"--help", "--update-golden"} == set()


def test_environment() -> None:
    text = section(reference("cli.md"), "## Environment")
    documented = {
        word for cell in first_cells(text, "variable") for word in words(cell) if "API_KEY" in word or "HELIX" in word
    }
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(helix.__file__).parent.rglob("*.py"))
    assert documented == set(re.findall(r"\bHELIX_[A-Z_]+\b", source)) | {"OPENAI_API_KEY"}


# --- the language -------------------------------------------------------------------------------------------------


def test_options_of_models_and_steps() -> None:
    text = reference("language.md")
    models = {word for cell in first_cells(section(text, "## Models"), "option") for word in words(cell)}
    steps = {word for cell in first_cells(section(text, "## LLM steps"), "option") for word in words(cell)}
    assert models | steps == MODEL_OPTIONS.keys() | STEP_OPTIONS.keys() | {"on_overflow"}
    assert steps == STEP_OPTIONS.keys() - models | {"on_overflow"}


def test_functions() -> None:
    aliases: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        aliases.setdefault(name, []).append(alias)
    expected = []
    for name, function in sorted(FUNCTIONS.items()):
        rest = [f"{each}{'?' if place >= function.required else ''}" for place, each in enumerate(function.parameters)][
            1:
        ]
        shown = f"`{name}({', '.join(rest)})`" if rest else f"`{name}`"
        expected.append((shown, ", ".join(f"`{alias}`" for alias in sorted(aliases.get(name, [])))))
    text = section(reference("expressions.md"), "## Functions")
    rows = [re.split(r"(?<!\\)\|", line)[1:3] for line in text.splitlines() if line.startswith("| `")]
    assert [(name.strip(), also.strip()) for name, also in rows] == expected


def test_filters_of_templates_only() -> None:
    text = (
        section(reference("prompts.md"), "## Filters").partition("Jinja2's filters")[2].partition(", and its tests")[0]
    )
    assert re.findall(r"`(\w+)`", text) == sorted(environment().filters.keys() - FUNCTIONS.keys() - ALIASES.keys())


def test_types() -> None:
    cells = first_cells(section(reference("expressions.md"), "## Types"), "type")
    assert {word for cell in cells for word in words(cell)} >= SCALARS.keys()


def test_traits() -> None:
    tool = 'workflow demo(a: text)\ntool t(a: text) -> text from python "m:f" nonsense 1\nb = t(a)\noutput b\n'
    with pytest.raises(SourceErrors) as caught:
        api.loads(tool).check()
    known = str(caught.value.errors[0].help).partition("traits: ")[2].split(", ")
    assert sorted(word for cell in first_cells(reference("tools.md"), "trait") for word in words(cell)) == known


def test_names_and_limits() -> None:
    text = reference("language.md")
    named = section(text, "## Names").partition("Reserved are `")[2].partition("`")[0]
    assert frozenset(named.split()) == RESERVED
    assert f"at most {MAX_ROUNDS:,} rounds" in text
    assert f"`spread` at most {MAX_ITEMS:,} items" in text
    assert f"at most {MAX_BYTES >> 20} MiB and {MAX_DEPTH} levels" in " ".join(text.split())
    assert f"`max_rows` rows ({MAX_ROWS:,})" in reference("tools.md")


# --- Python -------------------------------------------------------------------------------------------------------


def test_public_names() -> None:
    text = reference("python.md") + reference("running.md")
    named = set(re.findall(r"\bhx\.(\w+)", text))
    assert {*dsl.__all__, *dir(helix)} - {"__version__"} <= named
    assert named <= set(dir(helix))


def test_settings_and_report() -> None:
    text = reference("running.md")
    for name in RunSettings.__slots__:
        assert f"`{name}`" in text or f"`{name}=" in text, name
    for name in (*RunReport.__slots__, "outcome", "calls", "merged"):
        if name not in ("done_rows", "interrupted", "fatal", "reader_gone"):
            assert f"`{name}`" in text or f"`{name}[" in text, name


# --- tables and engines -------------------------------------------------------------------------------------------


def test_error_kinds() -> None:
    documented = [word for cell in first_cells(reference("results.md"), "kind") for word in words(cell)]
    files = [*(ROOT / "helix").glob("*.py"), *(ROOT / "helix" / "executor").rglob("*.py")]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files if path.name != "schema_value.py")
    raised = re.findall(
        r"Failure\(\s*\"([a-z_.]+)\"|\bkind(?:: str)? = \"([a-z_.]+)\"(?! if)|kind=\"([a-z_.]+)\"", source
    )
    inside = {"dropped"}  # the mark of a row that a filter left out: no error
    kinds = {kind for found in raised for kind in found if kind} - inside
    assert kinds | set(ERROR_KINDS) == set(documented)


def test_error_record() -> None:
    text = section(reference("results.md"), "## The result")
    assert re.findall(r'^  "(\w+)": ', text, re.MULTILINE) == [name for name, _ in ERROR_TYPE.fields]


def test_formats() -> None:
    text = section(reference("results.md"), "## Formats")
    assert {word for line in text.splitlines() for word in re.findall(r"`(\.[a-z]+)`", line)} == set(SUFFIXES)
    run = section(reference("cli.md"), "## helix run")
    for option, formats in (("--input-format", INPUT_FORMATS), ("--output-format", OUTPUT_FORMATS)):
        (line,) = (line for line in run.splitlines() if line.startswith(f"| `{option} "))
        assert re.findall(r"`(\w+)`", line) == list(formats)


def test_rules_of_the_scripted_engine() -> None:
    text = section(reference("engines.md"), "## Scripted")
    rules = "".join(re.findall(r"^```toml[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    keys = set(re.findall(r"^(\w+) = ", rules, re.MULTILINE))
    assert keys == {*Rule.__slots__, *Settings.__slots__}


def test_addresses() -> None:
    cells = first_cells(reference("engines.md"), "address")
    assert {code for cell in cells for code in re.findall(r"`([^`]+)`", cell)} == set(FORMS)
