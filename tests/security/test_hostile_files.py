"""Files that somebody else wrote (contract 6, 14, 18): tables, stores, models, patterns.

Reading one runs no code, takes no more memory than its rows do, and ends in one message.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Folder, arguments, environment

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    return folder


class Trap:
    """What writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_18_an_extension_type_in_an_arrow_file_is_not_unpickled(ready: Folder, quick: Any) -> None:
    import pyarrow as pa

    sprung = ready.path / "sprung"
    trap = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Trap(sprung)),
    }
    field = pa.field("a", pa.string(), metadata=trap)
    table = pa.table([pa.array(["v"])], schema=pa.schema([field]))
    with pa.OSFile(str(ready.path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    quick("-o", "out.jsonl", source="rows.arrow")
    assert not sprung.exists()


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "csv", "json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 1000,
        b"PAR1" + b"\xff" * 64 + b"PAR1",
        b"PAR1\x00\x00\x00\x00\xff\xff\xff\x7fPAR1",
        b"ARROW1\x00\x00" + b"\xff" * 64 + b"ARROW1",
        b"\x80\x04\x95" + b"A" * 50,
        b"[" * 200_000,
        b'{"a": ' * 100_000,
        b'"' + b"x" * 100_000,
        b"\xff\xfea\x00",
        b"\x1f\x8b\x08\x00garbage",
        b"PK\x03\x04garbage",
    ],
    ids=[
        "empty",
        "zeros",
        "parquet",
        "footer",
        "arrow",
        "pickle",
        "deep list",
        "deep record",
        "quote",
        "utf-16",
        "gzip",
        "zip",
    ],
)
def test_14_what_is_no_table_is_one_message(ready: Folder, quick: Any, suffix: str, content: bytes) -> None:
    ready.write(f"rows.{suffix}", content)
    done = quick("-o", "out.jsonl", source=f"rows.{suffix}")
    if content == b"" and suffix in ("jsonl", "csv", "json"):
        assert done.returncode == 0
        return
    assert done.returncode == 2
    assert f"rows.{suffix}" in done.stderr
    assert len(done.stderr) < 2000


@pytest.mark.slow
def test_14_a_cell_without_an_end_takes_bounded_memory(ready: Folder) -> None:
    """A quote that is never closed: 600 MB of one cell must not become gigabytes."""
    with (ready.path / "rows.csv").open("wb") as file:
        file.write(b'a\n"')
        for _ in range(600):
            file.write(b"x" * 1_000_000)
    watched = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:]).returncode\n"
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", watched, *arguments(*ready.arguments("-o", "out.jsonl", source="rows.csv"))],
        cwd=ready.path, env=environment(None), capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    code, kilobytes = map(int, done.stdout.split()[-2:])
    assert code == 2, done.stderr
    assert kilobytes < 2_000_000


@pytest.mark.slow
def test_14_a_text_that_a_parquet_file_holds_once_is_in_memory_once(folder: Folder) -> None:
    """Some hundred bytes that stand for 2 GB: each row says the same text of 4 MB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int32()), pa.array(["x" * 4_000_000]))
    pq.write_table(pa.table({"a": column}), folder.path / "rows.parquet", compression="zstd", store_schema=False)
    assert (folder.path / "rows.parquet").stat().st_size < 1000
    read = (
        "import resource\n"
        "from helix.executor.tables import open_rows\nfrom helix.schema import Column\nfrom helix.types import TEXT\n"
        "with open_rows('rows.parquet', (Column('a', TEXT),)) as table:\n"
        "    assert table.scan().rows == 500\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", read], cwd=folder.path, env=environment(None), capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 800_000


def test_18_a_pickle_in_the_place_of_the_store_is_refused_and_not_read(ready: Folder, quick: Any) -> None:
    ready.rows({"a": "v"})
    assert quick("-o", "out.jsonl").returncode == 0
    sprung = ready.path / "sprung"
    stores = [path for path in (ready.path / ".helix").rglob("*") if path.suffix in (".sqlite", ".db", ".sqlite3")]
    assert stores
    for path in stores:
        path.write_bytes(pickle.dumps(Trap(sprung)))
    assert quick("-o", "out.jsonl", "--fresh").returncode == 2
    assert not sprung.exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "rows.jsonl", "missing.gguf", "/dev/zero", "."])
def test_18_what_is_no_model_file_is_one_message(ready: Folder, path: str) -> None:
    """In a process of its own: a wrong file must not take the command down with it."""
    pytest.importorskip("xllamacpp")
    ready.rows({"a": "v"})
    done = ready.run("-o", "out.jsonl", engine=f"embedded:{path}")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 3000


def test_18_a_gguf_file_whose_lengths_are_lies(ready: Folder) -> None:
    pytest.importorskip("xllamacpp")
    ready.rows({"a": "v"})
    ready.write("lies.gguf", b"GGUF\x03\x00\x00\x00" + b"\xff" * 16 + b"\x00" * 64)
    done = ready.run("-o", "out.jsonl", engine="embedded:lies.gguf")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_18_what_a_model_wrote_does_not_steer_the_terminal(ready: Folder, quick: Any, capfd: Any) -> None:
    from running import inside

    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1A\u202e"
    ready.rows({"a": "v"})
    ready.rules({"reply": evil})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 0
    assert ready.read()[0]["x"] == evil  # the result itself is as the model wrote it
    with pytest.MonkeyPatch.context() as patch:
        shown = inside("show", "out.jsonl", cwd=ready.path, monkeypatch=patch, capfd=capfd)
    for text in (done.stderr, shown.stdout, shown.stderr):
        assert not any(mark in text for mark in ("\x1b", "\x07", "\x9b", "\u202e"))


def test_18_an_error_that_a_server_wrote_does_not_either(ready: Folder, quick: Any) -> None:
    from fake_server import Answer, Call, FakeServer

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        return Answer(status=400, body={"error": {"message": "\x1b[2J\x07gone"}})

    ready.rows({"a": "v"})
    with FakeServer(respond) as server:
        done = quick("-o", "out.jsonl", engine=server.url)
    assert done.returncode == 3
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr


def test_18_a_record_with_a_million_fields_is_read_or_refused(ready: Folder, quick: Any) -> None:
    ready.write("rows.jsonl", json.dumps({"a": "v", **{f"f{number}": number for number in range(200_000)}}) + "\n")
    assert quick("-o", "out.jsonl").returncode in (0, 2)
