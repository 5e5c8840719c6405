from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from helix.errors import HelixError, OptionError
from helix.executor.tables.places import FilePlace, open_place


def test_a_result_appears_whole_and_the_hidden_file_goes(tmp_path) -> None:
    target = tmp_path / "out.jsonl"
    place = open_place(str(target))
    place.stream.write(b"row\n")
    assert [path.name for path in tmp_path.iterdir()] == [".out.jsonl.helix-part"]
    place.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert target.read_bytes() == b"row\n"


def test_two_runs_cannot_write_one_result(tmp_path) -> None:
    target = str(tmp_path / "out.jsonl")
    first = FilePlace(target)
    with pytest.raises(OptionError, match=r"cannot write .*out.jsonl: another run is writing it"):
        FilePlace(target)
    first.abort()
    second = FilePlace(target)
    second.stream.write(b"x")
    second.commit()
    FilePlace(target).abort()
    assert (tmp_path / "out.jsonl").read_bytes() == b"x"


def test_what_a_killed_run_left_is_used_again(tmp_path) -> None:
    target = tmp_path / "out.jsonl"
    script = (
        "import sys, time\n"
        "from helix.executor.tables.places import FilePlace\n"
        "place = FilePlace(sys.argv[1])\n"
        "place.stream.write(b'left over ' * 100_000)\n"
        "place.stream.flush()\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with pytest.raises(OptionError, match="another run is writing it"):
        FilePlace(str(target))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not target.exists()
    place = FilePlace(str(target))
    place.stream.write(b"new")
    place.commit()
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_file_that_was_finished_while_its_lock_was_waited_for_is_not_emptied(tmp_path, monkeypatch) -> None:
    target = tmp_path / "out.jsonl"
    first = FilePlace(str(target))
    first.stream.write(b"first")
    real = __import__("fcntl").flock
    calls = []

    def finish_first(descriptor: int, how: int) -> None:
        if not calls:
            calls.append(how)
            first.commit()
        real(descriptor, how)

    monkeypatch.setattr("helix.executor.tables.places.fcntl.flock", finish_first)
    second = FilePlace(str(target))
    assert target.read_bytes() == b"first"
    second.abort()
    assert target.read_bytes() == b"first"


def test_modes_and_links_are_kept(tmp_path) -> None:
    real = tmp_path / "real.jsonl"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link = tmp_path / "link.jsonl"
    link.symlink_to("real.jsonl")
    place = open_place(str(link))
    place.stream.write(b"new")
    place.commit()
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_has_the_usual_mode(tmp_path) -> None:
    before = os.umask(0o027)
    try:
        open_place(str(tmp_path / "x.csv")).commit()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.csv").stat().st_mode) == 0o640


def test_a_long_name(tmp_path) -> None:
    name = "ก" * 80 + ".jsonl"
    place = open_place(str(tmp_path / name))
    place.commit()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_rename_that_fails_leaves_nothing_behind(tmp_path) -> None:
    target = tmp_path / "out"
    place = open_place(str(target))
    target.mkdir()
    (target / "x").write_text("")
    with pytest.raises(HelixError, match="cannot write"):
        place.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_under_the_hidden_name_is_not_followed(tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / ".out.jsonl.helix-part").symlink_to(victim)
    with pytest.raises(OptionError, match="cannot write"):
        open_place(str(tmp_path / "out.jsonl"))
    assert victim.read_bytes() == b"precious"


def test_a_named_pipe_is_written_directly(tmp_path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE)
    place = open_place(str(path))
    place.stream.write(b"row\n")
    place.commit()
    out, _ = reader.communicate(timeout=30)
    assert out == b"row\n"
    assert stat.S_ISFIFO(path.stat().st_mode)
