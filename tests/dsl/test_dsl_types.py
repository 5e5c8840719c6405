"""Python's types as the types of a workflow, and objects made of its results."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, Union

import pydantic
import pytest

import helix.dsl as hx
from helix.dsl.annotations import from_json, is_structured, to_json, to_type
from helix.errors import BindError
from helix.types import INT, TEXT, Choice, Record
from helix.types import Optional as Maybe

main = hx.model("m")


class Kind(str, Enum):  # noqa: UP042
    BUG = "bug"
    BILLING = "billing"


class Level(Enum):
    LOW = "low"


@dataclass
class Note:
    text: str
    kind: Kind | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Report:
    notes: list[Note]


class Turn(TypedDict):
    role: Literal["user", "assistant"]
    content: str
    name: NotRequired[str]


class Place(NamedTuple):
    city: str
    zip: int


class Ticket(pydantic.BaseModel):
    title: str
    level: Level = Level.LOW
    note: Note | None = None
    short: str = pydantic.Field("", alias="s")


class Names(pydantic.RootModel[list[str]]):
    pass


class Tree(pydantic.BaseModel):
    children: list[Tree]


UserId = NewType("UserId", str)
NOTE = '{ text: text, kind: choice["bug", "billing"]?, tags: list[text] }'


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (str, "text"),
        (int, "int"),
        (float, "float"),
        (bool, "bool"),
        (Any, "json"),
        (object, "json"),
        (dict, "json"),
        (dict[str, int], "json"),
        (Mapping[str, Any], "json"),
        (list, "list[json]"),
        (typing.List, "list[json]"),  # noqa: UP006
        (list[str], "list[text]"),
        (list[list[int]], "list[list[int]]"),
        (Sequence[float], "list[float]"),
        (Iterable[bool], "list[bool]"),
        (tuple[str, ...], "list[text]"),
        (tuple[int, float], "list[float]"),
        (tuple[int, str], "list[json]"),
        (list[dict], "table"),
        (list[dict[str, Any]], "table"),
        (list[Mapping[str, str]], "table"),
        (list[Any], "list[json]"),
        (str | None, "text?"),
        (Optional[int], "int?"),  # noqa: UP045
        (Union[int, float], "float"),  # noqa: UP007
        (int | str, "json"),
        (int | str | None, "json"),
        (list[str] | None, "list[text]?"),
        (Literal["a", "b"], 'choice["a", "b"]'),
        (Literal["a", "b", "a"], 'choice["a", "b"]'),
        (Literal["a", None], 'choice["a"]?'),
        (Literal["a"] | str, "text"),
        (Kind, 'choice["bug", "billing"]'),
        (Literal[Kind.BUG], 'choice["bug"]'),
        (Annotated[str, "an id"], "text"),
        (UserId, "text"),
        (Note, NOTE),
        (list[Note], f"list[{NOTE}]"),
        (Report, f"{{ notes: list[{NOTE}] }}"),
        (Turn, '{ role: choice["user", "assistant"], content: text, name: text? }'),
        (Place, "{ city: text, zip: int }"),
        (Ticket, f'{{ title: text, level: choice["low"], note: {NOTE}?, s: text }}'),
        (Names, "list[text]"),
        ({"ok": bool, "deep": {"n": int}}, "{ ok: bool, deep: { n: int } }"),
        (Choice(("x",)), 'choice["x"]'),
        (list[Maybe(INT)], "list[int?]"),  # type: ignore[misc]
    ],
)
def test_types(kind: Any, text: str):
    assert str(to_type(kind, "here")) == text


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (bytes, "here: `bytes` is not a type of a workflow"),
        (set[str], "here: `set[str]` is not a type of a workflow"),
        (Literal[1], "here: the labels of a choice are texts, found 1"),
        (Literal["  "], "here: the labels of a choice are texts, found '  '"),
        (3, "here: `3` is not a type of a workflow"),
        ([str], "here: `[<class 'str'>]` is not a type of a workflow"),
        ({1: str}, "here: a field is named by a text, found 1"),
        (Tree, "here: `Tree` holds itself"),
        (None, "here: `None` is not a type of a workflow"),
        (list["Note"], "here: the type is written as the text 'Note'"),
    ],
)
def test_what_is_no_type(kind: Any, message: str):
    with pytest.raises(BindError) as caught:
        to_type(kind, "here")
    assert caught.value.message == message


def test_type_aliases():
    alias = getattr(typing, "TypeAliasType", None)
    stand_in = type("TypeAliasType", (), {"__value__": list[Kind]})()
    kind = stand_in if alias is None else alias("Kinds", list[Kind])
    assert str(to_type(kind, "here")) == 'list[choice["bug", "billing"]]'
    assert is_structured(kind)


@pytest.mark.parametrize("kind", [Note, list[Note], Kind, Note | None, tuple[int, ...], Ticket, Place, dict[str, Kind]])
def test_types_whose_values_are_objects(kind: Any):
    assert is_structured(kind)


@pytest.mark.parametrize("kind", [str, list[str], dict, Any, Turn, Literal["a"], int | None, list[dict], None])
def test_types_whose_values_are_json(kind: Any):
    assert not is_structured(kind)


@pytest.mark.parametrize(
    ("kind", "value", "json"),
    [
        (Note, Note("x", Kind.BUG, ["t"]), {"text": "x", "kind": "bug", "tags": ["t"]}),
        (list[Kind], [Kind.BUG], ["bug"]),
        (Report, Report([Note("y")]), {"notes": [{"text": "y", "kind": None, "tags": []}]}),
        (tuple[int, ...], (1, 2), [1, 2]),
        (dict[str, Kind], {"a": Kind.BUG}, {"a": "bug"}),
        (Ticket, Ticket(title="t"), {"title": "t", "level": "low", "note": None, "s": ""}),
        (Names, Names(["a"]), ["a"]),
    ],
)
def test_objects_to_json_and_back(kind: Any, value: Any, json: Any):
    assert to_json(value) == json
    assert from_json(json, kind) == value


def test_named_tuples_become_records():
    assert to_json([Place("Bern", 3000)]) == [{"city": "Bern", "zip": 3000}]
    assert from_json({"city": "Bern", "zip": 3000}, Place) == Place("Bern", 3000)


def test_tools_take_and_give_objects():
    @hx.tool
    def file_report(note: Note, kind: Kind, most: int = 3) -> Report:
        assert isinstance(note, Note)
        assert isinstance(kind, Kind)
        return Report([note] * most)

    @hx.tool
    async def later(note: Note) -> Note:
        await asyncio.sleep(0)
        return note

    @hx.workflow
    def w(note: Note):
        one = file_report(note, Kind.BUG)
        two = later(note)
        return hx.output(one, two, first=one.notes[0])

    json = {"text": "x", "kind": "bug", "tags": []}
    assert w.callables["file_report"](json, "bug", most=2) == {"notes": [json, json]}
    assert asyncio.run(w.callables["later"](json)) == json
    assert w.callables["file_report"].__wrapped__ is file_report.__wrapped__
    assert w.output_types == {"one": Report, "two": Note}
    assert w.objects({"one": {"notes": [json]}, "two": None, "first": json, "more": 1}) == {
        "one": Report([Note("x", Kind.BUG)]),
        "two": None,
        "first": json,
        "more": 1,
    }


def test_the_types_of_columns():
    @hx.workflow
    def w(a: str, items: list[str]):
        plain = main(user=a, returns=Literal["x"])
        note = main(user=a, returns=Note)
        many = main(user=a, returns=Note, sample=3, temperature=1)
        each = hx.map(lambda item: main(user=item, returns=Ticket), items)
        some = note.when(a == "x")
        both = hx.choose(a == "x", then=lambda: main(user=a, returns=Note), otherwise=lambda: note)
        mixed = hx.choose(a == "x", then=lambda: main(user=a, returns=Note), otherwise=lambda: a)
        done = hx.repeat(lambda note: main(user=f"{note}", returns=Note), up_to=2, note=note)
        return hx.output(plain, note, many, each, some, both, mixed, text=note.text, done=done.note)

    assert w.output_types == {
        "note": Note, "many": list[Note], "each": list[Ticket], "some": Note, "both": Note, "done": Note,
    }  # fmt: skip


def test_defaults_of_inputs():
    @hx.workflow
    def w(
        a: str = "x",
        b: int | None = None,
        c: str = None,  # noqa: RUF013 # type: ignore[assignment]
        d: dict = None,  # noqa: RUF013 # type: ignore[assignment]
        e: Kind = Kind.BUG,
        f: Note = Note("n"),  # noqa: B008
        g: list[str] = ["y"],  # noqa: B006
    ):
        return hx.output(a, b, c, d, e, f, g)

    assert [str(p.type) for p in w.params] == [
        "text", "int?", "text?", "json", 'choice["bug", "billing"]', NOTE, "list[text]",
    ]  # fmt: skip
    from helix.unparse import unparse_expr

    assert [None if p.default is None else unparse_expr(p.default) for p in w.params] == [
        '"x"', None, None, "null", '"bug"', '{ text: "n", kind: null, tags: [] }', '["y"]',
    ]  # fmt: skip


def test_annotations_that_are_texts_may_use_local_types():
    @dataclass
    class Local:
        x: int

    @hx.tool
    def make(x: int) -> Local: ...

    @hx.workflow
    def w(a: Local, b: list[Local]):
        return hx.output(made=make(a.x), b=b)

    record = Record((("x", INT),))
    assert [str(p.type) for p in w.params] == [str(record), f"list[{record}]"]
    assert w.output_types == {"made": Local}
    assert TEXT not in [p.type for p in w.params]
