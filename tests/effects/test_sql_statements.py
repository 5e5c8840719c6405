"""The class of SQL statements over five dialects, as written down in `sql_statements.txt`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from helix.sql.effects import sql_effect

FILE = Path(__file__).with_name("sql_statements.txt")


def _records() -> list[tuple[str, str, str, str]]:
    found: list[tuple[str, str, str, str]] = []
    dialect = ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            dialect = line[1:-1]
        elif line.strip() and not line.startswith("#"):
            effects, reads, statement = line.split(" | ", 2) if line.count(" | ") >= 2 else (*line.split(" | "), "")
            plain = statement.replace("\\n", "\n").replace("\\r", "\r")
            found.append((dialect, effects.strip(), reads.strip(), plain))
    return found


RECORDS = _records()


def test_there_are_enough() -> None:
    by_dialect = Counter(dialect for dialect, *_ in RECORDS)
    assert len(RECORDS) >= 120
    assert len(by_dialect) >= 5
    assert min(by_dialect.values()) >= 15
    assert {effects.rstrip("!") for _, effects, *_ in RECORDS} == {
        "read",
        "write",
        "idempotent_write",
        "destructive",
        "unknown",
    }


@pytest.mark.parametrize(("dialect", "effects", "reads", "statement"), RECORDS)
def test_class(dialect: str, effects: str, reads: str, statement: str) -> None:
    found = sql_effect(statement, dialect)
    assert found.effects + "!" * found.volatile == effects, found.reason
    if found.effects == "read":
        assert found.reads == tuple(name.strip() for name in reads.split(",") if name.strip())
        assert found.writes == ()
        assert found.harmless is not found.volatile
    else:
        assert found.reads is None
        assert found.writes is None
        assert not found.harmless
        assert found.reason


@pytest.mark.parametrize(("dialect", "effects", "reads", "statement"), RECORDS)
def test_no_other_statement_hides_behind_a_query(dialect: str, effects: str, reads: str, statement: str) -> None:
    assert not sql_effect(f"SELECT 1; {statement}", dialect).harmless or not statement.strip(" ;\n")
    assert not sql_effect(f"{statement}\n; DELETE FROM orders", dialect).harmless


def test_views_are_no_tables() -> None:
    known = frozenset(("orders",))
    assert sql_effect("SELECT * FROM orders", "duckdb", known).effects == "read"
    hidden = sql_effect("SELECT * FROM orders JOIN late USING (id)", "duckdb", known)
    assert hidden.effects == "unknown"
    assert "late" in hidden.reason


def test_dialect_is_mandatory_and_known() -> None:
    with pytest.raises(ValueError, match="sqlight"):
        sql_effect("SELECT 1", "sqlight")
    with pytest.raises(ValueError, match="dialect"):
        sql_effect("SELECT 1", "")


def test_nesting_without_end_is_unknown() -> None:
    assert sql_effect("SELECT " + "(" * 3000 + "1" + ")" * 3000, "sqlite").effects == "unknown"
    assert sql_effect("SELECT 1" + " + 1" * 20000, "sqlite").effects == "unknown"


def test_nothing_is_said_of_what_cannot_be_taken_apart(caplog: pytest.LogCaptureFixture) -> None:
    assert sql_effect("WITH x AS (VACUUM) SELECT 1", "sqlite").effects == "unknown"
    assert caplog.text == ""
