"""Each construct of the Python front end beside its text form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from dsl_same import same

import helix.dsl as hx
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse
from helix.unparse import unparse_expr

main = hx.model("m")


@hx.tool
def lookup(key: str, most: int = 3) -> dict: ...


@hx.function
def score(a: str, b: int = 2) -> int:
    return len(a) * b


def test_the_smallest():
    @hx.workflow
    def hello(name: str) -> hx.Output:
        greeting = hx.llm(user=f"Say hello to {name}.")
        return hx.output(greeting)

    same(hello, 'workflow hello(name: text)\ngreeting = llm { user "Say hello to {{ name }}." }\noutput greeting')


def test_messages_in_the_usual_order():
    @hx.workflow
    def w(a: str, turns: list[dict]):
        r = main(assistant="The", user=a, history=turns, system="Be kind.")
        return hx.output(r)

    same(
        w,
        """workflow w(a: text, turns: table)
        model main { name: "m" }
        r = llm main { system "Be kind." history turns user "{{ a }}" assistant "The" }
        output r""",
    )


def test_messages_in_any_order():
    @hx.workflow
    def w(a: str, b: str, turns: list[dict]):
        r = main(
            messages=[
                hx.user("one"),
                hx.history(turns),
                hx.assistant(a),
                hx.system(f"<{b}>"),
                hx.unordered(a, f"B {b}", role="system"),
                hx.unordered(b, a),
                {"role": "user", "content": f"{a}!"},
            ]
        )
        return hx.output(r)

    same(
        w,
        """workflow w(a: text, b: text, turns: table)
        model main { name: "m" }
        r = llm main {
          user "one"
          history turns
          assistant "{{ a }}"
          system "<{{ b }}>"
          system unordered { part "{{ a }}" part "B {{ b }}" }
          unordered { part "{{ b }}" part "{{ a }}" }
          user "{{ a }}!"
        }
        output r""",
    )


def test_one_unordered_message():
    @hx.workflow
    def w(a: str, b: str):
        r = main(system=hx.unordered(a, b), user="x")
        return hx.output(r)

    same(
        w,
        """workflow w(a: text, b: text)
        model main { name: "m" }
        r = llm main { system unordered { part "{{ a }}" part "{{ b }}" } user "x" }
        output r""",
    )


def test_a_positional_prompt_is_the_user_message():
    @hx.workflow
    def w(a: str):
        r = main(f"Hi {a}")
        return hx.output(r)

    same(w, 'workflow w(a: text)\nmodel main { name: "m" }\nr = llm main { user "Hi {{ a }}" }\noutput r')


def test_options_of_models_and_steps():
    strong = hx.model(
        "big", engine="http://localhost:1/v1", temperature=0.5, stop=["\n", "END"], extra={"top_k": 3}, cache=True
    )

    @hx.workflow
    def w(a: str):
        heat = hx.let(0.7)
        r = strong(
            user=a,
            temperature=heat,
            max_tokens=5,
            sample=2,
            cache=False,
            coerce=True,
            timeout="30s",
            attempts=2,
            on_error="null",
            on_overflow=hx.truncate(a, keep="tail"),
        )
        return hx.output(r)

    same(
        w,
        """workflow w(a: text)
        let heat = 0.7
        model strong {
          name: "big", engine: "http://localhost:1/v1", temperature: 0.5, stop: ["\\n", "END"]
          extra: { top_k: 3 }, cache: on
        }
        r = llm strong(
          temperature: heat, max_tokens: 5, sample: 2, cache: off, coerce: on, timeout: 30s, attempts: 2
          on_error: "null", on_overflow: truncate(a, keep: tail)
        ) { user "{{ a }}" }
        output r""",
    )


def test_a_step_under_a_condition():
    @hx.workflow
    def w(a: str, n: int):
        r = main(user=a, when=n > 2)
        s = main(user=a).when(n == 1)
        t = lookup(a).when(n == 2).when(a != "")
        u = hx.step(n + 1, when=n < 5)
        v = (n + 2).when(n < 6)
        return hx.output(r, s, t, u, v)

    same(
        w,
        """workflow w(a: text, n: int)
        model main { name: "m" }
        tool lookup(key: text, most: int = 3) -> json from python "test_dsl_constructs:lookup"
        r = llm main { user "{{ a }}" } when n > 2
        s = llm main { user "{{ a }}" } when n == 1
        t = lookup(a) when n == 2 and a != ""
        u = n + 1 when n < 5
        v = n + 2 when n < 6
        output r, s, t, u, v""",
    )


def test_a_condition_on_a_value_that_others_read_is_a_step_of_its_own():
    @hx.workflow
    def w(a: str, n: int):
        found = lookup(a)
        some = found.when(n == 1)
        own = found.when(found.ok)
        return hx.output(found, some, own)

    same(
        w,
        """workflow w(a: text, n: int)
        tool lookup(key: text, most: int = 3) -> json from python "test_dsl_constructs:lookup"
        found = lookup(a)
        some = found when n == 1
        own = found when found.ok
        output found, some, own""",
    )


def test_a_condition_that_reads_its_own_step():
    @hx.workflow
    def w(a: str):
        found = lookup(a)
        good = found.when(found.ok)
        return hx.output(good)

    same(
        w,
        """workflow w(a: text)
        tool lookup(key: text, most: int = 3) -> json from python "test_dsl_constructs:lookup"
        found = lookup(a)
        good = found when found.ok
        output good""",
    )


def test_the_steps_of_a_condition_come_before_the_step_under_it():
    @hx.workflow
    def w(a: str):
        found = lookup(a).when(main(user=a, name="ask") == "yes")
        return hx.output(found)

    same(
        w,
        """workflow w(a: text)
        tool lookup(key: text, most: int = 3) -> json from python "test_dsl_constructs:lookup"
        model main { name: "m" }
        ask = llm main { user "{{ a }}" }
        found = lookup(a) when ask == "yes"
        output found""",
    )


def test_arguments_of_tools_and_functions():
    @hx.workflow
    def w(a: str, n: int):
        one = lookup(a)
        two = lookup(key=f"{a}-{n}", most=n + 1)
        three = hx.step(score(a) + score("x", b=n))
        four = main(user=f"{score(a, 3)} of {one.hits[0].name}")
        return hx.output(one, two, three, four, five=score(a))

    same(
        w,
        """workflow w(a: text, n: int)
        tool lookup(key: text, most: int = 3) -> json from python "test_dsl_constructs:lookup"
        function score(a: text, b: int = 2) -> int from python "test_dsl_constructs:score"
        model main { name: "m" }
        one = lookup(a)
        two = lookup(key: text(a) + "-" + text(n), most: n + 1)
        three = score(a) + score("x", b: n)
        four = llm main { user "{{ score(a, 3) }} of {{ one.hits[0].name }}" }
        output one, two, three, four, score(a) as five""",
    )


def test_a_function_of_constants_is_plain_python():
    @hx.workflow
    def w(a: str):
        assert score("abc") == 6
        return hx.output(a, n=score("ab", 5))

    same(w, "workflow w(a: text)\noutput a, 10 as n")


def test_sql_tools():
    sales = hx.sql_tool("sales", "sqlite:chinook.sqlite", effects="read")
    album = hx.sql_tool(
        "album", "sqlite:chinook.sqlite", {"id": int}, returns=list[dict], query="SELECT * FROM Album WHERE AlbumId=:id"
    )

    @hx.workflow
    def w(n: int):
        all_sales = sales("SELECT 1")
        one = album(n)
        return hx.output(all_sales, one)

    same(
        w,
        """workflow w(n: int)
        tool sales(query: text) -> table from sql "sqlite:chinook.sqlite" effects read
        tool album(id: int) -> table from sql "sqlite:chinook.sqlite" query "SELECT * FROM Album WHERE AlbumId=:id"
        all_sales = sales("SELECT 1")
        one = album(n)
        output all_sales, one""",
    )


OPERATORS = {
    "a == 'x'": 'a == "x"',
    "a != b": "a != b",
    "n < 2": "n < 2",
    "2 < n": "n > 2",
    "n <= -2": "n <= -2",
    "n >= 2.5": "n >= 2.5",
    "n + 1": "n + 1",
    "1 + n": "1 + n",
    "1 - n": "1 - n",
    "2 * n - n / 3": "2 * n - n / 3",
    "-n": "-n",
    "+n": "n",
    "(n - 1) - (n - 2)": "n - 1 - (n - 2)",
    "'<' + a + '>'": '"<" + a + ">"',
    "(n > 1) & (n < 3) | ~(a == 'x')": 'n > 1 and n < 3 or not (a == "x")',
    "True & (n > 1)": "true and n > 1",
    "hx.and_(n > 1, n < 3, True)": "n > 1 and n < 3 and true",
    "hx.or_(n > 1, n < 3)": "n > 1 or n < 3",
    "hx.not_(a == b)": "not (a == b)",
    "hx.in_(a, ['x', b])": 'a in ["x", b]',
    "hx.not_in(a, ['x'])": 'a not in ["x"]',
    "r.name": "r.name",
    "r['name']": "r.name",
    "r['two words']": 'r["two words"]',
    "r.items[0]": "r.items[0]",
    "r.items[-1].when_": "r.items[-1].when_",
    "r[n]": "r[n]",
    "r[a]": "r[a]",
    "r['when']": "r.when",
    "abs(n)": "abs(n)",
    "round(n)": "round(n)",
    "round(n, 2)": "round(n, 2)",
    "hx.length(a)": "len(a)",
    "hx.join(r.views)": "join(r.views)",
    "hx.join([a, b], ', ')": 'join([a, b], ", ")',
    "hx.join([a, b], separator=', ')": 'join([a, b], ", ")',
    "hx.fn.default(a, fallback='x', boolean=True)": 'default(a, "x", true)',
    "hx.fn.upper(hx.lower(a))": "upper(lower(a))",
    "hx.fn.length(a)": "len(a)",
    "hx.fn.range(n)": "range(n)",
    "hx.join(['a', 'b'], '-')": '"a-b"',
    "[a, 1, None, True, {'k': n, 'two words': [b]}]": '[a, 1, null, true, { k: n, "two words": [b] }]',
    "{}": "{}",
    "(a, b)": "[a, b]",
    "f'{a}'": "text(a)",
    "f'{a}: {n}'": 'text(a) + ": " + text(n)',
    "f'x{n + 1}'": '"x" + text(n + 1)',
    "a": "a",
    "'{{ a }}'": '"{{ a }}"',
}


@pytest.mark.parametrize(("python", "text"), OPERATORS.items())
def test_expressions(python: str, text: str):
    @hx.workflow
    def w(a: str, b: str, n: int, r: dict):
        return hx.output(x=eval(python))

    same(w, f"workflow w(a: text, b: text, n: int, r: json)\noutput {text} as x", binds=False)


def test_maps():
    roles = ["lawyer", "engineer"]

    @hx.workflow
    def w(ticket: str, people: list[str]):
        views = hx.map(lambda role: main(user=f"{role}: {ticket}", name="view"), roles)

        @hx.map(over=people)
        def letters(person):
            draft = main(user=f"To {person}")
            return {"person": person, "parts": hx.map(lambda view: f"{person} on {view}", views), "draft": draft}

        names = hx.map(lambda person: person, people).when(hx.length(people) > 1)
        return hx.output(views, letters, names)

    same(
        w,
        """workflow w(ticket: text, people: list[text])
        model main { name: "m" }
        views = for role in ["lawyer", "engineer"] {
          view = llm main { user "{{ role }}: {{ ticket }}" }
          yield view
        }
        letters = for person in people {
          draft = llm main { user "To {{ person }}" }
          parts = for view in views { yield text(person) + " on " + text(view) }
          yield { person: person, parts: parts, draft: draft }
        }
        names = for person in people { yield person } when len(people) > 1
        output views, letters, names""",
    )


def test_plain_loops_unroll():
    @hx.workflow
    def w(ticket: str):
        views = []
        for role in ("lawyer", "engineer"):
            view = main(user=f"{role}: {ticket}")
            views.append(view)
        return hx.output(text=hx.join(views, "\n"))

    same(
        w,
        """workflow w(ticket: text)
        model main { name: "m" }
        view = llm main { user "lawyer: {{ ticket }}" }
        view_2 = llm main { user "engineer: {{ ticket }}" }
        output join([view, view_2], "\\n") as text""",
    )


def test_branches_with_one_value():
    @hx.workflow
    def w(a: str, n: int):
        reply = hx.choose(
            n == 1,
            lambda: main(user=f"one {a}"),
            n == 2,
            lambda: f"two {a}",
            n == 3,
            lambda: None,
            otherwise=lambda: a,
        )
        return hx.output(reply)

    same(
        w,
        """workflow w(a: text, n: int)
        model main { name: "m" }
        if n == 1 { reply = llm main { user "one {{ a }}" } }
        else if n == 2 { reply = "two " + text(a) }
        else if n == 3 { }
        else { reply = a }
        output reply""",
    )


def test_branches_with_several_values():
    @hx.workflow
    def w(a: str, n: int):
        def bug():
            log = main(user=f"log {a}")
            return {"reply": main(user=f"ask {log}"), "kind": "bug", "log": log}

        done = hx.choose(n == 1, then=bug, otherwise=lambda: {"reply": main(user=a), "kind": "other"})
        return hx.output(reply=done.reply, kind=done["kind"], log=done.log)

    same(
        w,
        """workflow w(a: text, n: int)
        model main { name: "m" }
        if n == 1 {
          log = llm main { user "log {{ a }}" }
          reply = llm main { user "ask {{ log }}" }
          kind = "bug"
        } else {
          reply = llm main { user "{{ a }}" }
          kind = "other"
        }
        output reply, kind, log""",
    )


def test_branches_that_give_nothing():
    @hx.workflow
    def w(a: str, n: int):
        def note():
            lookup(a)

        hx.choose(n == 1, then=note)
        return hx.output(a)

    same(
        w,
        """workflow w(a: text, n: int)
        tool lookup(key: text, most: int = 3) -> json from python "test_dsl_constructs:lookup"
        if n == 1 { step1 = lookup(a) }
        output a""",
    )


def test_over_the_whole_table():
    @hx.workflow
    def w(doc: str, product: str, score: int):
        hx.keep(score >= 3)
        chunk = hx.spread(hx.split(doc, "\n"))
        main(user=chunk, name="fact")
        with hx.group_by(product) as rows:
            summary = main(user=f"{rows}")
        hx.sort(hx.desc(product), summary)
        hx.limit(10)
        return hx.output(product, summary)

    same(
        w,
        """workflow w(doc: text, product: text, score: int)
        model main { name: "m" }
        keep when score >= 3
        spread split(doc, "\\n") as chunk
        fact = llm main { user "{{ chunk }}" }
        group by product { summary = llm main { user "{{ rows }}" } }
        sort by product desc, summary
        limit 10
        output product, summary""",
    )


def test_columns_by_name():
    @hx.workflow
    def w(product: str, kind: str, score: int):
        hx.sort("score", product, desc=True)
        with hx.group_by("product", kind):
            pass
        return hx.output(product, kind)

    same(
        w,
        """workflow w(product: text, kind: text, score: int)
        sort by score desc, product desc
        group by product, kind { }
        output product, kind""",
    )


def test_outputs_under_their_own_names():
    @hx.workflow
    def w(a: str, r: dict):
        x = hx.step(r.deep)
        return hx.output(a, r.deep.note, x.y, also=a)

    same(w, "workflow w(a: text, r: json)\nx = r.deep\noutput a, r.deep.note, x.y, a as also")


def test_long_texts_are_joined():
    @hx.workflow
    def w(a: str, r: dict):
        views = [main(user=f"{number} {a}") for number in range(200)]
        return hx.output(text="\n".join(f"- {view}" for view in views), few=", ".join(str(v) for v in views[:3]))

    items = w.syntax.statements[-1].items  # type: ignore[union-attr]
    text = parse(format_workflow(w.syntax)).statements[-1].items  # type: ignore[union-attr]
    assert items == text
    assert unparse_expr(items[0].value).startswith('join(["- ", views, "\\n- ", views_2, ')
    assert unparse_expr(items[1].value) == 'text(views) + ", " + text(views_2) + ", " + text(views_3)'


def test_what_a_block_leaves_behind_is_a_record():
    @hx.workflow
    def w(a: str):
        done = hx.choose(a == "x", then=lambda: {"reply": a, "kind": 1})
        return hx.output(all=done, pair=[done, a])

    same(
        w,
        """workflow w(a: text)
        if a == "x" {
          reply = a
          kind = 1
        }
        output { reply: reply, kind: kind } as all, [{ reply: reply, kind: kind }, a] as pair""",
    )


def test_a_constant_is_declared_once_and_before_the_steps():
    @hx.workflow
    def w(a: str):
        x = hx.step(a + "!")
        tone = hx.let({"kind": "warm", "level": [1, 2]})
        return hx.output(x, tone=tone.kind)

    same(
        w,
        'workflow w(a: text)\nlet tone = { kind: "warm", level: [1, 2] }\nx = a + "!"\noutput x, tone.kind as tone',
    )


def test_sub_workflows():
    @hx.workflow
    def extract(doc: str, most: int = 3):
        title = hx.llm(user=f"Title of {doc}")
        return hx.output(title)

    @hx.workflow
    def w(doc: str):
        found = extract(doc=doc)
        other = extract(doc, most=4)
        return hx.output(title=found.title, other=other.title)

    same(
        w,
        """workflow w(doc: text)
        use "test_dsl_constructs:test_sub_workflows.extract" as extract
        found = extract(doc: doc)
        other = extract(doc, most: 4)
        output found.title, other.title as other""",
        binds=False,
    )
    assert dict(w.uses) == {"test_dsl_constructs:test_sub_workflows.extract": extract}


def test_values_that_are_dataclasses():
    @dataclass
    class Query:
        key: str
        most: Any

    @hx.tool
    def ask(query: Query) -> Literal["yes", "no"]: ...

    @hx.workflow
    def w(a: str, n: int):
        answer = ask(Query(a, n))
        return hx.output(answer)

    same(
        w,
        """workflow w(a: text, n: int)
        tool ask(query: { key: text, most: json }) -> choice["yes", "no"]
          from python "test_dsl_constructs:test_values_that_are_dataclasses.ask"
        answer = ask({ key: a, most: n })
        output answer""",
    )


def test_records_as_inputs_and_replies():
    @hx.workflow
    def w(a: str):
        r = main(user=a, returns={"ok": bool, "notes": list[str], "kind": Literal["x", "y"] | None})
        return hx.output(ok=r.ok, first=r.notes[0])

    same(
        w,
        """workflow w(a: text)
        model main { name: "m" }
        r = llm main -> { ok: bool, notes: list[text], kind: choice["x", "y"]? } { user "{{ a }}" }
        output r.ok, r.notes[0] as first""",
    )
