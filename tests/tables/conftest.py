"""Helpers for the tests of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helix.errors import InputError
from helix.executor.tables import Row, open_rows


class Tables:
    """Writes small files into a folder of the test's own and reads them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def rows(self, source: Any, *columns: Any, **options: Any) -> list[Row]:
        with open_rows(source, columns, **options) as rows:
            return list(rows)

    def values(self, source: Any, *columns: Any, **options: Any) -> list[dict[str, Any]]:
        rows = self.rows(source, *columns, **options)
        assert [row.error for row in rows] == [None] * len(rows)
        assert [row.index for row in rows] == list(range(len(rows)))
        return [row.values for row in rows]

    def refused(self, source: Any, *columns: Any, **options: Any) -> InputError:
        """The error that both a scan and a plain reading stop with."""
        with pytest.raises(InputError) as by_scan, open_rows(source, columns, **options) as rows:
            rows.scan()
        with pytest.raises(InputError) as by_reading, open_rows(source, columns, **options) as rows:
            list(rows)
        scanned, read = by_scan.value, by_reading.value
        assert (scanned.message, scanned.line, scanned.column) == (read.message, read.line, read.column)
        return scanned


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)
