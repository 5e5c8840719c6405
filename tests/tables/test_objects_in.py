from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid

import numpy as np
import pandas as pd
import pytest

from helix.errors import OptionError
from helix.executor.tables import open_rows, scan
from helix.executor.tables.json_values import json_value
from helix.schema import Column
from helix.types import FLOAT, INT, JSON, TEXT, ListOf, Optional

T = Column("t", TEXT)
J = Column("j", JSON)


class Level(enum.IntEnum):
    HIGH = 3


class Word(str):
    __slots__ = ()


CONVERSIONS = [
    ("ไทย", "ไทย"),
    (5, 5),
    (10**30, 10**30),
    (True, True),
    (None, None),
    (1.5, 1.5),
    (float("nan"), None),
    ((1, [2, ("x",)]), [1, [2, ["x"]]]),
    ({"a": (1,), "b": {"c": float("nan")}}, {"a": [1], "b": {"c": None}}),
    (Word("w"), "w"),
    (Level.HIGH, 3),
    (decimal.Decimal("5"), 5),
    (decimal.Decimal("5.10"), 5.1),
    (decimal.Decimal("NaN"), None),
    (dt.date(2020, 1, 2), "2020-01-02"),
    (dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC), "2020-01-02T03:00:00+00:00"),
    (dt.time(1, 2), "01:02:00"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (np.int64(3), 3),
    (np.float64(0.1), 0.1),
    (np.float32(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.array([1.0, np.nan]), [1.0, None]),
    (pd.NA, None),
    (pd.NaT, None),
    (pd.Timestamp("2020-01-01"), "2020-01-01T00:00:00"),
]


@pytest.mark.parametrize(("value", "expected"), CONVERSIONS, ids=[repr(value) for value, _ in CONVERSIONS])
def test_python_values_become_json_values(value, expected) -> None:
    result = json_value(value)
    assert result == expected
    assert type(result) is type(expected)


REFUSED = [
    (b"x", "bytes has no JSON form"),
    ({1, 2}, "set has no JSON form"),
    (dt.timedelta(1), "timedelta has no JSON form"),
    (object(), "object has no JSON form"),
    (1j, "complex has no JSON form"),
    (float("inf"), "an infinite number has no JSON form"),
    (decimal.Decimal("-Infinity"), "an infinite number has no JSON form"),
    ({"a": {1: 2}}, "a record's key is int 1, not text"),
    ([{"a": b"x"}], "bytes has no JSON form"),
    ("ab\ud800", "character 3 of the text is a lone surrogate"),
    ({"\ud800": 1}, "character 1 of the text is a lone surrogate"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_has_no_json_form_is_an_error_of_its_row_alone(tables, value, message, stream) -> None:
    given = [{"j": 1, "t": "x"}, {"j": value, "t": "y"}]
    rows = tables.rows(iter(given) if stream else given, J, T)
    assert rows[0].error is None
    assert rows[1].values == {"j": None, "t": "y"}
    assert (rows[1].error.kind, rows[1].error.message) == ("input.type", f"column `j` does not fit: {message}")


def test_a_value_that_holds_itself_is_refused(tables) -> None:
    endless: list = []
    endless.append(endless)
    (row,) = tables.rows([{"j": endless}], J)
    assert row.error.message == "column `j` does not fit: the value is nested too deeply"


def test_extra_columns_may_hold_anything(tables) -> None:
    rows = [{"t": "x", "y": object(), 5: 1}]
    assert tables.values(rows, T) == [{"t": "x"}]
    assert tables.values(iter(rows), T) == [{"t": "x"}]


@pytest.mark.parametrize("stream", [False, True])
def test_a_row_that_is_no_mapping_is_malformed(tables, stream) -> None:
    given = [{"t": "x"}, ["t", "y"], {"t": "z"}]

    def source():
        return iter(given) if stream else given

    with pytest.raises(Exception, match="expected a mapping of column names to values, found list") as error:
        tables.rows(source(), T)
    assert (error.value.row, error.value.line, error.value.kind) == (1, None, "input.record")
    rows = tables.rows(source(), T, on_bad_row="keep")
    assert [row.values["t"] for row in rows] == ["x", None, "z"]
    assert rows[1].error.kind == "input.record"


def test_a_generator_is_taken_from_once_and_can_be_read_twice() -> None:
    taken = 0

    def given():
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield {"t": f"ไทย {number}", "n": 2**70}

    with open_rows(given(), (T, Column("n", INT))) as rows:
        assert rows.count() is None
        assert taken == 0
        assert rows.scan().rows == 1000
        assert rows.count() == 1000
        for _ in range(2):
            read = [row.values for row in rows]
            assert read == [{"t": f"ไทย {number}", "n": 2**70} for number in range(1000)]
    assert taken == 1000


def test_a_generator_that_raises_shows_its_own_error_and_no_half_table() -> None:
    def given():
        yield {"t": "x"}
        raise LookupError("from the caller")

    with open_rows(given(), (T,)) as rows:
        with pytest.raises(LookupError, match="from the caller"):
            list(rows)
        with pytest.raises(Exception, match="could not all be read the first time"):
            list(rows)


def test_no_row_shares_a_default_with_another(tables) -> None:
    first, second = tables.values([{}, {"x": None}], Column("x", ListOf(INT), default=[1]))
    first["x"].append(2)
    assert second == {"x": [1]}


def test_no_rows(tables) -> None:
    for source in ([], (), iter([])):
        assert tables.rows(source, T) == []


SOURCES = [
    (5, "found builtins.int"),
    (None, "found builtins.NoneType"),
    (b"x", "found builtins.bytes"),
    ({"t": "x"}, "put one row into a list"),
]


@pytest.mark.parametrize(("source", "message"), SOURCES)
def test_what_is_no_table_is_refused(source, message) -> None:
    with pytest.raises(OptionError, match=message):
        open_rows(source, (T,))


def test_a_scan_alone_does_not_use_up_what_can_be_read_once() -> None:
    with pytest.raises(OptionError, match="can be read once only"):
        scan(iter([{"t": "x"}]), (T,))
    assert scan([{"t": "x"}], (T,)).rows == 1


def test_a_data_frame(tables) -> None:
    frame = pd.DataFrame(
        {
            "t": ["x", None, "z"],
            "n": [1, None, 3],
            "f": [0.5, None, 1.5],
            "when": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
            "mixed": ["a", 5, [1, None]],
            "label": pd.Categorical(["p", "q", None]),
        },
        index=[7, 8, 9],
    )
    columns = [Column(name, Optional(kind)) for name, kind in (("t", TEXT), ("n", INT), ("f", FLOAT), ("when", TEXT))]
    values = tables.values(frame, *columns, Column("mixed", JSON), Column("label", Optional(TEXT)))
    assert [list(row.values()) for row in values] == [
        ["x", 1, 0.5, "2020-01-01T00:00:00", "a", "p"],
        [None, None, None, None, 5, "q"],
        ["z", 3, 1.5, "2020-01-03T00:00:00", [1, None], None],
    ]
    assert type(values[0]["n"]) is int
    rows = tables.rows(frame, Column("t", TEXT), Column("mixed", TEXT))
    assert [row.error and row.error.kind for row in rows] == [None, "input.null", "input.type"]
    with open_rows(frame, tuple(columns)) as source:
        assert source.count() == 3
        assert source.scan().rows == 3


def test_a_data_frame_of_other_storage(tables) -> None:
    frame = pd.DataFrame({"t": pd.array(["a", None], dtype="string"), "n": pd.array([1, None], dtype="Int64")})
    assert tables.values(frame, Column("t", Optional(TEXT)), Column("n", Optional(INT))) == [
        {"t": "a", "n": 1},
        {"t": None, "n": None},
    ]
    frame = pd.DataFrame({"n": pd.array([1, None], dtype="int64[pyarrow]")})
    assert tables.values(frame, Column("n", Optional(INT))) == [{"n": 1}, {"n": None}]


def test_whole_floats_are_ints_only_where_pandas_made_them_of_ints(tables) -> None:
    (row,) = tables.rows(pd.DataFrame({"n": [1.0]}), Column("n", INT))
    assert row.error.kind == "input.type"
    rows = tables.rows(pd.DataFrame({"n": [1.0, None, 2.5]}), Column("n", Optional(INT)))
    assert [row.error and row.error.kind for row in rows] == [None, None, "input.type"]


def test_the_columns_of_a_data_frame_are_checked_when_it_is_opened() -> None:
    with pytest.raises(Exception, match="column `t`") as error:
        open_rows(pd.DataFrame({"tt": [1], 5: [2]}), (T,))
    assert error.value.help == "did you mean `tt`? columns: tt"
    with pytest.raises(Exception, match="two columns of the DataFrame are called `t`"):
        open_rows(pd.DataFrame([[1, 2]], columns=["t", "t"]), (T,))


def test_a_data_frame_without_the_optional_columns(tables) -> None:
    assert tables.values(pd.DataFrame({"x": [1, 2]}), Column("t", Optional(TEXT))) == [{"t": None}] * 2
    assert tables.rows(pd.DataFrame({"t": []}), T) == []
