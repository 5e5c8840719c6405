"""Workflows of Python run on the scripted engine: tools, functions, sub-workflows and loops do what they say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import helix as hx
from helix import ScriptedEngine

main = hx.model("m")


@dataclass
class Review:
    ok: bool
    note: str


@hx.tool(effects="read")
async def orders(customer: str) -> list[dict]:
    await asyncio.sleep(0)
    return [{"customer": customer, "total": 3}]


@hx.tool
def judge(review: Review) -> Review:
    return Review(ok=not review.ok, note=review.note + "!")


@hx.function
def score(text: str) -> int:
    return len(text)


def answer(request: Any) -> str:
    text = str(request.messages[-1].content)
    known = {"A": "bug", "B": "billing", "Judge: 3": '{"ok": true, "note": "fine"}'}
    return known.get(text, '{"ok": false, "note": "more"}' if text.startswith("Judge") else f"<{text}>")


def rows_of(workflow: Any, rows: Any = None) -> list[dict[str, Any]]:
    engine = ScriptedEngine(reply=answer)
    return list(workflow.run(rows, engine=engine))


def test_tools_functions_and_conditions():
    @hx.workflow
    def w(ticket: str, customer: str | None = None):
        kind = main(user=ticket, returns=Literal["bug", "billing"])
        history = orders(customer).when(kind == "billing")
        reply = hx.choose(
            kind == "bug",
            then=lambda: main(user=f"log {ticket}"),
            otherwise=lambda: f"{kind}: {history[0].total}",
        )
        return hx.output(kind, history, reply, size=score(reply) + 1)

    assert rows_of(w, [{"ticket": "A"}, {"ticket": "B", "customer": "Ann"}]) == [
        {"_row": 0, "kind": "bug", "history": None, "reply": "<log A>", "size": 8, "_error": None},
        {
            "_row": 1,
            "kind": "billing",
            "history": [{"customer": "Ann", "total": 3}],
            "reply": "billing: 3",
            "size": 11,
            "_error": None,
        },
    ]


def test_loops_maps_and_objects():
    @hx.workflow
    def w(start: int):
        def body(count):
            review = main(user=f"Judge: {count}", returns=Review)
            return {"count": count + 1, "review": review}

        done = hx.repeat(body, up_to=5, until=lambda now: now.review.ok, count=start)
        turned = judge(done.review)
        texts = hx.map(lambda word: main(user=f"{word} {start}"), ["x", "y"])
        return hx.output(count=done.count, turned=turned, texts=hx.join(texts, "+"), done=done)

    (row,) = rows_of(w, [{"start": 1}])
    assert row == {
        "_row": 0,
        "count": 4,
        "turned": {"ok": False, "note": "fine!"},
        "texts": "<x 1>+<y 1>",
        "done": {"count": 4, "review": {"ok": True, "note": "fine"}},
        "_error": None,
    }
    assert w.objects(row)["turned"] == Review(ok=False, note="fine!")


def test_sub_workflows_and_tables():
    inner_text = 'workflow say(word: text)\nsaid = llm { user "{{ word }}?" }\noutput said'
    say = hx.loads(inner_text)

    def numbered(number: int) -> Any:
        @hx.workflow(name="numbered")
        def w(word: str):
            return hx.output(x=f"{word}{number}")

        return w

    one, two = numbered(1), numbered(2)

    @hx.workflow
    def w(words: list[str], keep: bool):
        hx.keep(keep)
        word = hx.spread(words)
        said = say(word).said
        both = hx.step(one(word=word).x + two(word=word).x)
        hx.sort(word, desc=True)
        hx.limit(2)
        return hx.output(word, said=said, both=both)

    assert len(w.uses) == 3
    rows = [{"words": ["a", "b", "c"], "keep": True}, {"words": ["d"], "keep": False}]
    assert [{key: row[key] for key in ("word", "said", "both")} for row in rows_of(w, rows)] == [
        {"word": "c", "said": "<c?>", "both": "c1c2"},
        {"word": "b", "said": "<b?>", "both": "b1b2"},
    ]


def test_groups():
    @hx.workflow
    def w(product: str, stars: int):
        with hx.group_by(product) as rows:
            summary = main(user=f"{product}: {hx.join(hx.map(lambda row: row.stars, rows), ' ')}")
        return hx.output(product, summary)

    rows = [{"product": "x", "stars": 1}, {"product": "y", "stars": 2}, {"product": "x", "stars": 3}]
    assert [row["summary"] for row in rows_of(w, rows)] == ["<x: 1 3>", "<y: 2>"]
