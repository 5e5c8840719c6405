"""The rows of a simulation, which every trial reads anew."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helix.errors import OptionError
from helix.executor.tables.bytes_in import FileBytes
from helix.executor.tables.formats import sniff


@contextmanager
def kept_rows(rows: Any, input_format: str | None) -> Iterator[tuple[Any, str | None, str]]:
    """Rows that can be read again, their format, and what they are called. What can be read once only (standard input,
    a pipe, a generator) is kept meanwhile.
    """
    if isinstance(rows, str) or hasattr(rows, "__fspath__"):
        path = os.fspath(rows)
        if path != "-" and not (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)):
            yield rows, input_format, str(path)
            return
        with tempfile.TemporaryDirectory(prefix="helix-") as folder:
            copy = Path(folder) / "rows"
            with copy.open("wb") as file:
                if path == "-":
                    if sys.stdin is None:
                        raise OptionError("there is no standard input to read")
                    shutil.copyfileobj(sys.stdin.buffer, file)
                else:
                    with open(path, "rb") as pipe:
                        shutil.copyfileobj(pipe, file)
            name = "standard input" if path == "-" else str(path)
            yield copy, input_format or sniff(FileBytes(copy)), name
        return
    name = "no table" if rows is None else "the table"
    yield (list(rows) if hasattr(rows, "__next__") else rows), input_format, name
