from __future__ import annotations

import datetime as dt
import decimal
import uuid

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from helix.executor.tables import open_rows
from helix.executor.tables.arrow_values import column_values
from helix.schema import Column
from helix.types import FLOAT, INT, JSON, TEXT, ListOf, Optional

A = Column("a", JSON)


def write(path, table: pa.Table, name: str) -> str:
    target = str(path / name)
    if name.endswith(".parquet"):
        pq.write_table(table, target, row_group_size=3000)
    elif name.endswith(".feather"):
        pyarrow.feather.write_feather(table, target)
    else:
        opener = pa.ipc.new_stream if name.startswith("stream") else pa.ipc.new_file
        with opener(target, table.schema) as writer:
            writer.write_table(table)
    return target


NAMES = ["x.parquet", "x.arrow", "x.ipc", "x.feather", "stream.arrow"]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_read_in_order_with_declared_columns_only(tables, tmp_path, name) -> None:
    table = pa.table(
        {
            "extra": [b"x"] * 7000,
            "i": list(range(7000)),
            "t": pa.array([f"ไทย {i}\r\n" for i in range(7000)]).dictionary_encode(),
        }
    )
    path = write(tmp_path, table, name)
    values = tables.values(path, Column("t", TEXT), Column("i", INT))
    assert values == [{"t": f"ไทย {i}\r\n", "i": i} for i in range(7000)]
    with open_rows(path, (Column("i", INT),)) as rows:
        assert rows.scan().rows == 7000
        assert len(list(rows)) == 7000
    assert len(tables.rows(path)) == 7000
    assert len(tables.rows(path, limit=3)) == 3


def test_the_number_of_rows_of_parquet_is_known_at_once(tmp_path) -> None:
    path = write(tmp_path, pa.table({"a": [1, 2, 3]}), "x.parquet")
    with open_rows(path, (A,)) as rows:
        assert rows.count() == 3
    with open_rows(path, (A,), limit=2) as rows:
        assert rows.count() == 2


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_table_has_no_rows(tables, tmp_path, name) -> None:
    path = write(tmp_path, pa.table({"a": pa.array([], pa.string())}), name)
    assert tables.rows(path, Column("a", TEXT)) == []
    assert tables.refused(path, Column("b", TEXT)).kind == "input.missing"


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_is_found_when_the_file_is_opened(tables, tmp_path, name) -> None:
    path = write(tmp_path, pa.table({"texts": ["x"], "n": [1]}), name)
    error = tables.refused(path, Column("n", INT), Column("text", TEXT))
    assert error.message == "column `text`, which the workflow needs, is not in the table"
    assert error.help == "did you mean `texts`? columns: n, texts"
    assert tables.values(path, Column("text", Optional(TEXT))) == [{"text": None}]


def test_a_column_that_is_there_twice_is_refused_only_where_it_is_used(tables, tmp_path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    path = write(tmp_path, table, "x.arrow")
    assert tables.refused(path, A).message == "two columns of the table are called `a`"
    assert tables.values(path, Column("b", INT)) == [{"b": 3}]


def test_a_parquet_column_with_a_dot_in_its_name_is_not_part_of_a_record(tables, tmp_path) -> None:
    table = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [3]})
    path = write(tmp_path, table, "x.parquet")
    assert tables.values(path, A, Column("a.b", INT)) == [{"a": {"b": 1, "c": 2}, "a.b": 3}]
    assert tables.values(path, Column("a.b", INT)) == [{"a.b": 3}]


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
@pytest.mark.parametrize("content", [b"", b"not a table at all", b"PAR1junkPAR1", b"ARROW1\0\0junk"])
def test_a_file_that_is_no_table_is_an_error_with_its_name(tables, name, content) -> None:
    path = tables.file(name, content)
    error = tables.refused(path, A)
    assert error.path == path
    assert "\n" not in error.message


def test_a_cut_off_parquet_file_is_an_error(tables, tmp_path) -> None:
    path = write(tmp_path, pa.table({"a": list(range(10_000))}), "x.parquet")
    data = (tmp_path / "x.parquet").read_bytes()
    error = tables.refused(tables.file("y.parquet", data[:-50]), A)
    assert error.message.startswith("the table cannot be read: ")
    corrupt = bytearray(data)
    corrupt[100:20_000] = b"\xff" * 19_900
    with pytest.raises(type(error), match="the table cannot be read"):
        tables.rows(tables.file("z.parquet", bytes(corrupt)), A)
    assert path


CONVERSIONS = [
    (pa.int8(), [1, None], [1, None]),
    (pa.uint64(), [2**64 - 1], [2**64 - 1]),
    (pa.float32(), [0.5, float("nan")], [0.5, None]),
    (pa.float64(), [0.1, -0.0, None, float("nan")], [0.1, 0.0, None, None]),
    (pa.bool_(), [True, False, None], [True, False, None]),
    (pa.null(), [None], [None]),
    (pa.large_string(), ["x", None], ["x", None]),
    (pa.string_view(), ["x" * 50, None], ["x" * 50, None]),
    (pa.dictionary(pa.int8(), pa.string()), ["x", "x", None], ["x", "x", None]),
    (pa.dictionary(pa.int8(), pa.date32()), [dt.date(2020, 1, 2)], ["2020-01-02"]),
    (pa.decimal128(20, 0), [decimal.Decimal(10**19)], [10**19]),
    (pa.decimal128(10, 2), [decimal.Decimal("19.90"), None], [19.9, None]),
    (pa.decimal256(40, 2), [decimal.Decimal("0.10")], [0.1]),
    (pa.date32(), [dt.date(1969, 12, 31), None], ["1969-12-31", None]),
    (pa.date64(), [dt.date(2020, 2, 29)], ["2020-02-29"]),
    (pa.time32("s"), [dt.time(1, 2, 3)], ["01:02:03"]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4000)], ["01:02:03.004000"]),
    (pa.time64("us"), [dt.time(23, 59, 59, 1), None], ["23:59:59.000001", None]),
    (pa.time64("ns"), [1_000_000_001], ["00:00:01.000000001"]),
    (pa.timestamp("s"), [dt.datetime(2020, 1, 1)], ["2020-01-01T00:00:00"]),
    (pa.timestamp("ms"), [-1], ["1969-12-31T23:59:59.999000"]),
    (pa.timestamp("us"), [dt.datetime(1, 1, 1, 1)], ["0001-01-01T01:00:00"]),
    (pa.timestamp("ns"), [1, None], ["1970-01-01T00:00:00.000000001", None]),
    (pa.timestamp("s", "UTC"), [0], ["1970-01-01T00:00:00+00:00"]),
    (pa.timestamp("us", "+07:00"), [500_000], ["1970-01-01T07:00:00.500000+07:00"]),
    (pa.timestamp("s", "Asia/Bangkok"), [0], ["1970-01-01T07:00:00+07:00"]),
    (pa.list_(pa.int64()), [[1, 2], [], None], [[1, 2], [], None]),
    (pa.list_(pa.float64()), [[float("nan"), 1.0], None, [2.0]], [[None, 1.0], None, [2.0]]),
    (pa.large_list(pa.date32()), [[dt.date(2020, 1, 1)], None], [["2020-01-01"], None]),
    (pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [3.0, 4.0]], [[1.0, 2.0], None, [3.0, 4.0]]),
    (pa.list_view(pa.int32()), [[1], None, [2, 3]], [[1], None, [2, 3]]),
    (pa.struct([("a", pa.date32()), ("b", pa.int8())]), [{"a": None, "b": 1}, None], [{"a": None, "b": 1}, None]),
    (pa.struct([]), [{}, None], [{}, None]),
    (
        pa.list_(pa.struct([("a", pa.list_(pa.timestamp("s")))])),
        [[{"a": [0]}], []],
        [[{"a": ["1970-01-01T00:00:00"]}], []],
    ),
    (
        pa.map_(pa.string(), pa.float64()),
        [[("k", 1.0), ("l", float("nan"))], None, []],
        [{"k": 1.0, "l": None}, None, {}],
    ),
    (pa.run_end_encoded(pa.int32(), pa.int64()), [5, 5, None], [5, 5, None]),
    (pa.uuid(), [uuid.UUID(int=7).bytes, None], [str(uuid.UUID(int=7)), None]),
    (pa.bool8(), [1, None], [True, None]),
    (pa.json_(), ['{"a": [1]}', None], [{"a": [1]}, None]),
    (pa.binary(), [None, None], [None, None]),
]


def array_of(kind: pa.DataType, values: list) -> pa.Array:
    if pa.types.is_run_end_encoded(kind):
        return pa.compute.run_end_encode(pa.array(values, kind.value_type))
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


@pytest.mark.parametrize(("kind", "values", "expected"), CONVERSIONS, ids=[str(kind) for kind, *_ in CONVERSIONS])
def test_arrow_types_become_json_values(kind, values, expected) -> None:
    array = array_of(kind, values)
    field = pa.field("a", kind)
    assert column_values(array, field) == expected
    # Slices count from their own beginning, also in nested arrays.
    doubled = pa.concat_arrays([array, array]) if not pa.types.is_run_end_encoded(kind) else array
    for start in range(len(doubled)):
        assert column_values(doubled.slice(start, 1), field) == [(expected * 2)[start]]


REFUSED = [
    (pa.binary(), [b"x"], "a value of the Arrow type binary has no JSON form; cast the column to text"),
    (pa.large_binary(), [b"x"], "large_binary has no JSON form; cast"),
    (pa.binary(2), [b"xy"], "fixed_size_binary[2] has no JSON form; cast"),
    (pa.duration("s"), [5], "duration[s] has no JSON form"),
    (pa.list_(pa.binary()), [[b"x"]], "binary has no JSON form"),
    (pa.struct([("a", pa.binary())]), [{"a": b"x"}], "binary has no JSON form"),
    (pa.map_(pa.int64(), pa.int64()), [[(1, 2)]], "its keys are not text"),
    (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("k", 2)]], "the map has the same key twice"),
    (pa.float64(), [float("inf")], "an infinite number has no JSON form"),
    (pa.timestamp("s"), [10**17], "the time is outside the years 1 to 9999"),
    (pa.date32(), [10**8], "the time is outside the years 1 to 9999"),
]


@pytest.mark.parametrize(("kind", "values", "message"), REFUSED, ids=[str(kind) for kind, *_ in REFUSED])
def test_what_has_no_json_form_is_an_error_of_its_row_alone(tables, kind, values, message) -> None:
    table = pa.table({"a": pa.array([None, *values, None], kind), "b": [1, 2, 3]})
    rows = tables.rows(table, Column("a", Optional(JSON)), Column("b", INT))
    assert [row.error is None for row in rows] == [True, False, True]
    error = rows[1].error
    assert (error.kind, error.column) == ("input.type", "a")
    assert error.message.startswith("column `a` does not fit: ")
    assert message in error.message
    assert rows[1].values == {"a": None, "b": 2}


def test_text_that_is_not_utf_8_is_an_error_of_its_row_alone(tables) -> None:
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff"], pa.binary()).buffers())
    first, second = tables.rows(pa.table({"a": bad}), Column("a", TEXT))
    assert first.values == {"a": "ok"}
    assert second.error.message == "column `a` does not fit: the text is not UTF-8"


def test_no_value_is_turned_into_text(tables) -> None:
    table = pa.table({"a": [7], "d": [decimal.Decimal("1.5")], "s": ["7"]})
    (row,) = tables.rows(table, Column("a", TEXT))
    assert row.error.message == "column `a` does not fit: expected text, found int 7"
    (row,) = tables.rows(table, Column("s", INT))
    assert row.error.message == 'column `s` does not fit: expected int, found text "7"'
    assert tables.values(table, Column("a", FLOAT), Column("d", FLOAT)) == [{"a": 7, "d": 1.5}]


def test_nulls_and_blanks_of_a_required_column_are_errors_of_their_rows(tables) -> None:
    table = pa.table({"t": ["x", None, " ", ""], "n": pa.array([1.0, float("nan"), None, 2.0])})
    rows = tables.rows(table, Column("t", TEXT), Column("n", FLOAT))
    assert [row.error and row.error.kind for row in rows] == [None, "input.null", "input.empty", "input.empty"]
    rows = tables.rows(table, Column("n", FLOAT, default=0.5))
    assert [row.values["n"] for row in rows] == [1.0, 0.5, 0.5, 2.0]


def test_arrow_data_in_memory(tables) -> None:
    table = pa.table({"a": list(range(5000))})
    expected = [{"a": i} for i in range(5000)]
    column = Column("a", INT)
    assert tables.values(table, column) == expected
    assert tables.values(table.combine_chunks().to_batches()[0], column) == expected
    assert tables.values(pa.concat_tables([table.slice(0, 7), table.slice(7)]), column) == expected
    assert tables.refused(table, Column("b", INT)).path == "the Arrow table"
    with open_rows(table, (column,)) as rows:
        assert rows.count() == 5000


def test_a_stream_of_batches_can_be_scanned_and_then_read() -> None:
    table = pa.table({"a": list(range(5000)), "l": [[i] for i in range(5000)]})
    columns = (Column("a", INT), Column("l", ListOf(INT)))

    class Exporter:
        def __arrow_c_stream__(self, requested_schema=None):
            return table.__arrow_c_stream__(requested_schema)

    for source in (table.to_reader(max_chunksize=100), Exporter()):
        with open_rows(source, columns) as rows:
            assert rows.scan().rows == 5000
            assert [row.values["l"] for row in rows] == [[i] for i in range(5000)]
            # Two passes at once each keep their own place.
            first, second = iter(rows), iter(rows)
            assert next(first) == next(second)
            assert list(first) == list(second)


def test_a_stream_that_lacks_a_column(tables) -> None:
    table = pa.table({"b": [1]})
    with open_rows(table.to_reader(), (A,)) as rows, pytest.raises(Exception, match="column `a`"):
        rows.scan()
