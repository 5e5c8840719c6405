"""Workflow files that somebody else wrote (contract 17, 18): none may run code or read what is not its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from running import Folder

TEXT = 'workflow t(a: text, n: int)\nx = llm {{ user "{prompt}" }}\noutput x'

# What is known to lead out of a template to the interpreter, or to take all its memory.
ESCAPES = (
    "{{ a.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ a['__class__'] }}",
    "{{ a | attr('__class__') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ lipsum.__globals__['os'] }}",
    "{{ namespace.__init__ }}",
    "{{ config }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'base' %}",
    "{{ '{0.__class__}' | format(a) }}",
    "{{ '{0.__class__}'.format(a) }}",
    "{{ a.format_map(a) }}",
    "{% set x = a.__class__ %}{{ x }}",
    "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{{ m() }}",
)
# Cheap to write, and as long as one likes when rendered.
BOMBS = (
    "{{ 'x' * 9999999999 }}",
    "{{ [0] * 9999999999 }}",
    "{{ 9 ** 9 ** 9 ** 9 }}",
    "{% for i in range(999999999) %}x{% endfor %}",
    "{{ range(999999999) | join }}",
    "{{ a | center(9999999999) }}",
    "{{ '%9999999999d' | format(n) }}",
    "{{ '%9999999999d' % n }}",
)


@pytest.mark.parametrize("prompt", ESCAPES)
def test_18_no_template_reaches_beyond_its_values(folder: Folder, quick: Any, prompt: str) -> None:
    folder.workflow(TEXT.format(prompt=prompt.replace('"', '\\"')))
    folder.rows({"a": "v", "n": 3})
    done = quick("-o", "out.jsonl")
    assert done.returncode in (2, 3)
    said = done.stderr + (folder.path / "out.jsonl").read_text() if done.returncode == 3 else done.stderr
    assert "<class" not in said
    assert "root:" not in said


@pytest.mark.parametrize("prompt", BOMBS)
def test_18_no_template_takes_all_memory_or_time(folder: Folder, quick: Any, prompt: str) -> None:
    folder.workflow(TEXT.format(prompt=prompt.replace('"', '\\"')))
    folder.rows({"a": "v", "n": 3})
    assert quick("-o", "out.jsonl").returncode in (2, 3)


@pytest.mark.parametrize(
    "target", ["../shop:find", "/etc/shop:find", "os:system", "subprocess:run", "shop.__class__:find", "..shop:find"]
)
def test_17_python_tools_come_from_beside_the_workflow_only(folder: Folder, quick: Any, target: str) -> None:
    (folder.path.parent / "shop.py").write_text("raise SystemExit('loaded')\n")
    folder.workflow(f'workflow t(a: text)\ntool f(a: text) -> json from python "{target}" effects read\noutput a')
    folder.rows({"a": "v"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 2
    assert "loaded" not in done.stderr


def test_17_a_module_that_is_a_link_to_outside_is_refused(folder: Folder, quick: Any) -> None:
    outside = folder.path.parent / "outside.py"
    outside.write_text("def find(a):\n    return a\n")
    (folder.path / "shop.py").symlink_to(outside)
    folder.workflow(
        'workflow t(a: text)\ntool f(a: text) -> json from python "shop:find" effects read\nx = f(a)\noutput x'
    )
    folder.rows({"a": "v"})
    assert quick("-o", "out.jsonl").returncode == 2


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../../../../etc/passwd", "/proc/self/environ"])
def test_17_a_sub_workflow_is_a_file_beside_it(folder: Folder, quick: Any, path: str) -> None:
    folder.workflow(f'workflow t(a: text)\nuse "{path}" as other\nx = other(a: a)\noutput x')
    folder.rows({"a": "v"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 2
    assert "root:" not in done.stderr
    assert "PATH=" not in done.stderr


def test_18_a_secret_from_the_environment_is_in_no_file_and_in_no_message(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, quick: Any
) -> None:
    """Also where the server says it back: in the text of an error."""
    from fake_server import Answer, Call, FakeServer, completion

    secret = "sk-4f9a8b7c6d5e4f3a2b1c"
    monkeypatch.setenv("OPENAI_API_KEY", secret)

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        given = call.headers.get("authorization") or call.headers.get("Authorization") or ""
        if "bad" in call.json["messages"][0]["content"]:
            return Answer(status=400, body={"error": {"message": f"the key {given} may not ask this"}})
        return completion(f"fine {len(given)}")

    folder.workflow('workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x')
    folder.rows({"a": "good"}, {"a": "bad"})
    with FakeServer(respond) as server:
        done = quick("-o", "out.jsonl", "--report", "report.json", engine=server.url)
    assert done.returncode == 3
    assert folder.read()[0]["x"] == f"fine {len(secret) + len('Bearer ')}"
    assert secret not in done.stdout + done.stderr
    for place, _, files in os.walk(folder.path):
        for name in files:
            assert secret.encode() not in (Path(place) / name).read_bytes(), name
