"""Contract 12 from the command line: a prompt too long is told before the call, cutting is explicit and noted."""

from __future__ import annotations

from typing import Any

from running import Folder, said_calls

TEXT = 'workflow t(a: text)\nx = llm { system "S" user "{{ a }}" }\noutput x'


def test_12_a_prompt_that_is_too_long_is_told_before_the_call(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows({"a": "w" * 800}, {"a": "short"})
    folder.rules({"reply": "r"}, max_context=100)
    done = folder.run("-o", "out.jsonl")
    assert done.returncode == 3
    assert said_calls(done.stderr) == 1
    assert "row 0, step x: prompt.too_long: the prompt needs 201 tokens, the model has 100" in done.stderr
    assert [row["x"] for row in folder.read()] == [None, "r"]


def test_12_an_engine_without_a_tokenizer_tells_it_itself(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    folder.rows({"a": "w" * 800}, {"a": "short"})
    folder.rules({"reply": "r"}, max_context=100, counts_tokens=False)
    done = quick("-o", "out.jsonl")
    assert done.returncode == 3
    assert said_calls(done.stderr) == 2
    assert folder.read()[0]["_error"]["kind"] == "prompt.too_long"


def test_12_cutting_is_explicit_and_noted(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT.replace("llm", "llm(on_overflow: truncate(a, keep: tail))"))
    folder.rows({"a": "w" * 800 + "END"}, {"a": "short"})
    folder.rules({"match": "END$", "reply": "kept the tail"}, {"reply": "r"}, max_context=100)
    done = quick("-o", "out.jsonl")
    assert done.returncode == 0
    assert [row["x"] for row in folder.read()] == ["kept the tail", "r"]
    assert "note: 1 prompt of step x cut to fit the model" in done.stderr
