"""Importers, on small files of our own."""

from __future__ import annotations

import json

import pytest

from helix.errors import InputError, OptionError
from helix.traces import LlmEvent, sessions_of
from helix.traces.importers import import_apibank, import_bfcl, import_openai, import_trace


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def trajectory(*messages, task=3, trial=0):
    return {"task_id": task, "trial": trial, "traj": list(messages)}


def openai(tmp_path, *held):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(list(held)), encoding="utf-8")
    return path


def told(events):
    """What happened, in short."""
    return [
        (event.step, "llm", event.user, event.text, len(event.calls))
        if isinstance(event, LlmEvent)
        else (event.step, event.tool, dict(event.args), event.result, event.status)
        for event in events
    ]


def test_openai_messages(tmp_path):
    path = openai(
        tmp_path,
        trajectory(
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": None, "tool_calls": [call("x", "find", '{"b": 1, "a": 2}')]},
            {"role": "tool", "tool_call_id": "x", "content": '{"error": "none"}'},
            {"role": "assistant", "content": "again", "tool_calls": [call("x", "find", "{}"), call("y", "sum", "")]},
            {"role": "tool", "tool_call_id": "y", "content": "Error: no"},
            {"role": "tool", "tool_call_id": "x", "content": "plain text"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "bye"},
        ),
    )
    (session,) = sessions_of(import_openai(path))
    assert (session.id, session.group, session.decisions) == ("3/0", "3", 3)
    assert told(session.events) == [
        (0, "llm", ("hello",), None, 1),
        (0, "find", {"a": 2, "b": 1}, {"error": "none"}, "error"),
        (1, "llm", (), "again", 2),
        (1, "find", {}, "plain text", "ok"),
        (1, "sum", {}, "Error: no", "error"),
        (2, "llm", (), "done", 0),
        (3, "llm", ("bye",), None, 0),
    ]


def test_a_call_without_a_result_was_cut(tmp_path):
    path = openai(tmp_path, trajectory({"role": "assistant", "tool_calls": [call("x", "find", "{}")]}))
    assert told(import_openai(path))[1][4] == "cancelled"


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ([{"task_id": 1}], "trajectory 0 is no object with `traj`"),
        ([trajectory({"role": "robot"})], "trajectory 0, message 0: the role is user"),
        ([trajectory({"role": "user", "content": 7})], "`content` is a text"),
        ([trajectory("hello")], "a message is an object with `role`"),
        ([trajectory({"role": "tool", "tool_call_id": "x", "content": ""})], "a result for the call `x`"),
        ([trajectory({"role": "assistant", "tool_calls": [{}]})], "a call has `function`"),
        ([trajectory({"role": "assistant", "tool_calls": [call("x", "f", "{")]})], "arguments of `f` are not JSON"),
        ([trajectory({"role": "assistant", "tool_calls": [call("x", "f", "[1]")]})], "arguments of `f` are an object"),
        ([trajectory({"role": "assistant", "tool_calls": 3})], "`tool_calls` is a list"),
        ([trajectory(), trajectory()], "task 3 has two trials 0"),
        ({"a": 1}, "an array of trajectories is expected"),
    ],
)
def test_openai_messages_that_cannot_be_read(tmp_path, held, message):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        import_openai(path)
    assert message in str(caught.value)
    assert str(path) in caught.value.render()


def bfcl(tmp_path, *turns, question=None):
    questions, answers = tmp_path / "q.json", tmp_path / "a.json"
    asked = [[{"role": "user", "content": f"turn {place}"}] for place in range(len(turns))]
    questions.write_text(json.dumps({"id": "m0", "question": question or asked}) + "\n", encoding="utf-8")
    answers.write_text(json.dumps({"id": "m0", "ground_truth": list(turns)}) + "\n", encoding="utf-8")
    return questions, answers


def test_bfcl_keys(tmp_path):
    held = bfcl(tmp_path, ["cd(folder='a')", "cd('b')", " put('x', to=['y'])"], [], ["put(what='q', to=-1.5)"])
    (session,) = sessions_of(import_bfcl(*held))
    assert (session.id, session.group, session.decisions) == ("m0", "m0", 7)
    assert told(session.events) == [
        (0, "llm", ("turn 0",), None, 1),
        (0, "cd", {"folder": "a"}, None, "ok"),
        (1, "llm", (), None, 1),
        (1, "cd", {"folder": "b"}, None, "ok"),
        (2, "llm", (), None, 1),
        (2, "put", {"to": ["y"], "what": "x"}, None, "ok"),
        (3, "llm", (), None, 0),
        (4, "llm", ("turn 1",), None, 0),
        (5, "llm", ("turn 2",), None, 1),
        (5, "put", {"to": -1.5, "what": "q"}, None, "ok"),
        (6, "llm", (), None, 0),
    ]


def test_bfcl_results_come_from_a_file_of_their_own(tmp_path):
    held = bfcl(tmp_path, ["cd(folder='a')"], ["cd(folder='b')"])
    results = tmp_path / "r.json"
    calls = [{"k": "call", "tool": "cd", "args": {}, "result": {"now": place}} for place in range(2)]
    results.write_text(json.dumps([{"id": "m0", "events": [{"k": "user"}, *calls]}]), encoding="utf-8")
    assert [event[3] for event in told(import_bfcl(*held, results)) if event[1] == "cd"] == [{"now": 0}, {"now": 1}]
    results.write_text(json.dumps([{"id": "m0", "events": calls[:1]}]), encoding="utf-8")
    with pytest.raises(InputError, match="the results of `m0` are not those of its calls"):
        import_bfcl(*held, results)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('touch owned')", "is no call of a function by its name"),
        ("cd(folder=open('x'))", "has an argument that is no literal"),
        ("cd(folder=__import__('os'))", "has an argument that is no literal"),
        ("cd(folder=a)", "has an argument that is no literal"),
        ("cd(**{'folder': 'a'})", "gives an argument twice, or as `**`"),
        ("cd(folder=b'a')", "has an argument that is no literal"),
        ("cd(folder={1, 2})", "has an argument that is no literal"),
        ("cd(folder=1e999)", "has an argument that is no literal"),
        ("cd(folder='a'", "is no call expression"),
        ("cd; cd", "is no call expression"),
        ("cd", "is no call of a function by its name"),
        ("cd(" + "(" * 5000 + ")" * 5000 + ")", "call"),
        ("cd(folder='" + "a" * 30_000 + "')", "is longer than 20000 characters"),
        ("by_place('a')", "calls `by_place` by position, and no call of it names its arguments"),
    ],
    ids=range(14),
)
def test_bfcl_calls_are_read_as_literals_and_never_run(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="`m0`") as caught:
        import_bfcl(*bfcl(tmp_path, [text]))
    assert message in str(caught.value)
    assert not (tmp_path / "owned").exists()


def test_bfcl_files_that_do_not_fit_together(tmp_path):
    questions, answers = bfcl(tmp_path, ["cd(folder='a')"], question=[[], []])
    with pytest.raises(InputError, match="`m0` has 2 turns and answers for 1"):
        import_bfcl(questions, answers)
    answers.write_text('{"id": "m1", "ground_truth": []}\n', encoding="utf-8")
    with pytest.raises(InputError, match="no answer with id `m0`"):
        import_bfcl(questions, answers)
    answers.write_text('{"id": "m0", "ground_truth": ["cd()"]}\n', encoding="utf-8")
    with pytest.raises(InputError, match="an answer has `id` and `ground_truth`") as caught:
        import_bfcl(questions, answers)
    assert caught.value.line == 1


def dialogue(path, *lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def api(name, output, exception=None, **params):
    return {"role": "API", "api_name": name, "param_dict": params, "result": {"output": output, "exception": exception}}


def test_apibank_dialogues(tmp_path):
    dialogue(
        tmp_path / "d" / "b.jsonl",
        {"role": "User", "text": "what day?"},
        api("Today", "2023-01-02"),
        {"role": "AI", "text": "Monday"},
        api("Add", None, "no room", b=1, a=2),
    )
    dialogue(tmp_path / "d" / "a.jsonl")
    first, second = sessions_of(import_apibank(tmp_path / "d"))
    # A dialogue in which nothing happened is a session all the same.
    assert (first.id, first.group, first.decisions) == ("a.jsonl", "a.jsonl", 0)
    assert second.decisions == 3
    assert told(second.events) == [
        (0, "llm", ("what day?",), None, 1),
        (0, "Today", {}, "2023-01-02", "ok"),
        (1, "llm", (), "Monday", 0),
        (2, "llm", (), None, 1),
        (2, "Add", {"a": 2, "b": 1}, None, "error"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"role": "Robot"}, "the role is User, AI or API, found 'Robot'"),
        ({"role": "User"}, "a line of User has `text`"),
        ({"role": "API", "api_name": "x"}, "`api_name`, `param_dict` and `result`"),
        ([], "each line is a JSON object"),
    ],
)
def test_apibank_lines_that_cannot_be_read(tmp_path, line, message):
    dialogue(tmp_path / "d" / "a.jsonl", {"role": "User", "text": "hi"}, line)
    with pytest.raises(InputError) as caught:
        import_apibank(tmp_path / "d")
    assert message in str(caught.value)
    assert caught.value.line == 2


def test_options_that_do_not_fit(tmp_path):
    path = openai(tmp_path, trajectory())
    for form, more, message in [
        ("csv", {}, "found `csv`"),
        ("bfcl", {}, "takes a second file"),
        ("openai", {"answers": path}, "for traces in the format bfcl"),
    ]:
        with pytest.raises(OptionError, match=message):
            import_trace(path, form, **more)
    with pytest.raises(InputError, match="does not exist"):
        import_trace(tmp_path / "none", "openai")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file with the suffix"):
        import_trace(tmp_path / "empty", "api-bank")
