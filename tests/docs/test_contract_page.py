"""The page on the contract: every clause has tests, and the page names those that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from running import ROOT

PAGE = ROOT / "docs" / "reference" / "contract.md"
CLAUSES = range(1, 20)
# How a test runs the command: in a process of its own, or inside the test.
_COMMAND = re.compile(r"\b(quick|command|inside|arguments)\(|\b(folder|ready|log)\.(run|start)\(")
_TOLD = re.compile(r"\bcontract (\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)


def clauses_of(path: Path) -> set[int]:
    """The clauses that a file of tests is about: by its name, and by the first words of its docstring."""
    named = re.match(r"test_(\d\d)_", path.name)
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    told = {int(number) for found in _TOLD.findall(docstring) for number in re.findall(r"\d+", found)}
    return told | ({int(named[1])} if named else set())


def files_by_clause() -> dict[int, list[str]]:
    """For each clause the files of its tests, those of the contract first."""
    found: dict[int, list[str]] = {clause: [] for clause in CLAUSES}
    paths = sorted((ROOT / "tests").rglob("test_*.py"), key=lambda path: (path.parent.name != "contract", path))
    for path in paths:
        for clause in sorted(clauses_of(path)):
            found[clause].append(path.relative_to(ROOT).as_posix())
    return found


def filled(text: str) -> str:
    """The page with its last column made anew."""
    tests = files_by_clause()

    def row(found: re.Match[str]) -> str:
        return f"{found[1]}| {', '.join(f'`{path}`' for path in tests[int(found[2])])} |"

    return re.sub(r"^(\| (\d+) \| [^|]+)\|.*$", row, text, flags=re.MULTILINE)


def test_every_clause_has_tests() -> None:
    missing = [clause for clause, paths in files_by_clause().items() if not paths]
    assert missing == []


def test_every_clause_has_a_test_of_its_number_that_goes_through_the_command() -> None:
    found = set()
    for path in (ROOT / "tests" / "contract").glob("test_*.py"):
        text = path.read_text("utf-8")
        if _COMMAND.search(text):
            found |= {int(number) for number in re.findall(r"^def test_(\d\d)_", text, re.MULTILINE)}
    assert sorted(set(CLAUSES) - found) == []


def test_the_page_has_every_clause_once_and_names_its_tests(update_golden: bool) -> None:
    text = PAGE.read_text("utf-8")
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(CLAUSES)
    expected = filled(text)
    if update_golden:
        PAGE.write_text(expected, encoding="utf-8")
    else:
        assert text == expected, "run pytest tests/docs --update-golden"


def test_a_file_of_the_contract_says_which_clause_it_is_of() -> None:
    """By its name or its docstring; the others there are of the command line as a whole."""
    whole = {"test_equivalence.py", "test_exit_codes.py", "test_streams.py"}
    unnamed = {path.name for path in (ROOT / "tests" / "contract").glob("test_*.py") if not clauses_of(path)}
    assert unnamed <= whole
