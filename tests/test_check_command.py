"""`helix check`: words for people, JSON for editors."""

from __future__ import annotations

import json
from pathlib import Path

from running import command

GOOD = 'workflow w(a: text)\nx = llm { user "{{ a }}" }\noutput x\n'
BAD = 'workflow w(a: text)\nx = llm { user "{{ b }}" }\ny = nope(a)\noutput x, y\n'
UNUSED = 'workflow w(a: text, b: text)\nx = llm { user "{{ a }}" }\noutput x\n'


def test_words_and_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "good.helix").write_text(GOOD)
    (tmp_path / "bad.helix").write_text(BAD)
    done = command("check", "good.helix", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "good.helix: ok\n")
    done = command("check", "good.helix", "bad.helix", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "good.helix: ok" in done.stderr
    assert "--> bad.helix:2:20" in done.stderr
    assert "2 errors" in done.stderr


def test_json_tells_every_place(tmp_path: Path) -> None:
    (tmp_path / "bad.helix").write_text(BAD)
    done = command("check", "bad.helix", "missing.helix", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    first, second, third = json.loads(done.stdout)
    places = ("file", "line", "column", "end_line", "end_column", "severity")
    assert [first[name] for name in places] == ["bad.helix", 2, 20, 2, 21, "error"]
    assert "`b`" in first["message"]
    assert (second["line"], second["column"]) == (3, 5)
    assert (third["file"], third["line"], third["severity"]) == ("missing.helix", None, "error")


def test_an_unsaved_text_is_checked_as_the_file_that_it_will_be(tmp_path: Path) -> None:
    (tmp_path / "part.helix").write_text("workflow part(a: text)\noutput a\n")
    text = 'workflow w(a: text)\nuse "part.helix" as part\nx = part(a: b)\noutput x.a as y\n'
    done = command("check", "-", "--as", "w.helix", "--json", cwd=tmp_path, input=text)
    (found,) = json.loads(done.stdout)
    assert (done.returncode, found["file"], found["line"]) == (2, "w.helix", 3)
    done = command("check", "-", "--as", "w.helix", cwd=tmp_path, input=text.replace("a: b", "a: a"))
    assert (done.returncode, done.stderr) == (0, "w.helix: ok\n")


def test_nothing_wrong_is_an_empty_list_and_a_warning_is_not_wrong(tmp_path: Path) -> None:
    done = command("check", "-", "--json", cwd=tmp_path, input=GOOD)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    done = command("check", "-", "--json", cwd=tmp_path, input=UNUSED)
    assert done.returncode == 0
    assert [each["severity"] for each in json.loads(done.stdout)] in ([], ["warning"])


def test_input_that_is_no_text_and_a_name_for_no_input(tmp_path: Path) -> None:
    done = command("check", "-", cwd=tmp_path, input=b"\xff\xfe")
    assert (done.returncode, "not UTF-8: byte 0 is 0xff" in done.stderr) == (2, True)
    (tmp_path / "good.helix").write_text(GOOD)
    done = command("check", "good.helix", "--as", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert "give `-`" in done.stderr
