"""The templated radix tree: what shares what, whose values are the same, what waits for what."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from plans_support import plan_of

from helix.optimizer.tokens import estimate, from_ids
from helix.optimizer.tree import Hole, Static, Tree, Turn, build_tree, resolve_plan
from helix.optimizer.tree.build import insert_paths
from helix.optimizer.tree.refs import Piece
from helix.optimizer.tree.shape import ROW, bits


def tree_of(text: str) -> Tree:
    return build_tree(plan_of(text), estimate())


def shown(tree: Tree) -> list[str]:
    """The nodes below the root, each indented by its depth: turns in brackets, holes in braces, the steps behind."""
    lines = []
    for node in range(1, len(tree)):
        label = ""
        for segment in tree.label(node):
            match segment:
                case Turn(role=role):
                    label += f"[{role}]"
                case Static(text=text):
                    label += text
                case Hole():
                    label += f"{{{segment.text}:{segment.scope}}}"
        steps = [tree.ops[op].step for op in tree.ends(node)]
        depth = len(tree.path_nodes(node)) - 2
        lines.append(f"{'  ' * depth}{label}{' -> ' + ', '.join(steps) if steps else ''}")
    return lines


def test_prompts_share_their_beginnings() -> None:
    tree = tree_of("""
        workflow w(q: text)
        a = llm { system "You are a bull." user "{{ q }}" }
        b = llm { system "You are a bear." user "{{ q }}" }
        c = llm { system "You are a bear." user "{{ q }} {{ a }}" }
        d = llm { system "You are a bear." user "{{ q }}" }
        output a, b, c, d
    """)
    assert shown(tree) == [
        "",
        "  [system]You are a",
        "     bull.[user]{q:row}[assistant] -> a",
        "     bear.[user]{q:row}",
        "      [assistant] -> b, d",
        "       {a:row}[assistant] -> c",
    ]
    assert tree.ops_below(1) == 4
    assert tree.leaves_below(1) == 3


def test_a_reply_that_goes_on_from_its_prompt_stands_below_it() -> None:
    tree = tree_of("""
        workflow w(q: text)
        draft = llm { user "Write on {{ q }}." }
        better = llm { user "Write on {{ q }}." assistant "{{ draft }}" user "Shorter." }
        output better
    """)
    assert shown(tree) == [
        "",
        "  [user]Write on {q:row}.[assistant] -> draft",
        "    {draft:row}[user]Shorter.[assistant] -> better",
    ]


def test_namespaces_share_nothing() -> None:
    tree = tree_of("""
        workflow w(q: text)
        model one { name: "m1" }
        model two { name: "m2", temperature: 0.7 }
        model three { name: "m1", temperature: 0.7 }
        a = llm one { user "Sort {{ q }}" }
        b = llm two { user "Sort {{ q }}" }
        c = llm three { user "Sort {{ q }}" }
        output a, b, c
    """)
    assert shown(tree) == [
        "",
        "  [user]Sort {q:row}[assistant] -> a, c",
        "",
        "  [user]Sort {q:row}[assistant] -> b",
    ]
    assert [str(namespace) for namespace in tree.namespaces] == ["m1", "m2"]
    assert [op.shared for op in tree.ops] == [True, False, False]


def test_captures_are_the_values_outside() -> None:
    tree = tree_of("""
        workflow w(policy: text, tickets: list[text])
        first = llm { system "By {{ policy }}." user "Greet." }
        all = for ticket in tickets {
          if ticket != "" {
            view = llm { system "By {{ policy }}." user "{{ ticket }} {{ first }}" }
          } else {
            view = llm { system "By {{ policy }}." user "Greet." }
          }
          yield view
        }
        output all, first
    """)
    assert shown(tree) == [
        "",
        "  [system]By {policy:row}.[user]",
        "    Greet.[assistant] -> first, all.view",
        "    {ticket:item} {first:row}[assistant] -> all.view",
    ]
    policies = {hole.key for hole in tree.holes if hole.text == "policy"}
    assert len(policies) == 1
    # The loop is entered with no call before; the first branch reads `first`.
    by_end = {(op.step, op.end): set(bits(op.needs)) for op in tree.ops}
    assert by_end[("all.view", tree.ops[1].end)] == {0}


def test_scopes_from_batch_to_round() -> None:
    tree = tree_of("""
        workflow w(q: text, items: list[text])
        model warm { temperature: 0.9 }
        model cold { temperature: 0 }
        constant = llm cold { user "Say a word." }
        drawn = llm warm { user "Draw {{ q }}" }
        each = for item in items {
          inner = for word in split(item) { x = llm cold { user "{{ word }} of {{ item }}" } yield x }
          yield inner
        }
        text = q
        repeat up to 3 { text = llm cold { user "Again {{ text }} {{ constant }} {{ drawn }}" } }
        output each, text
    """)
    scopes = {hole.text: str(hole.scope) for hole in tree.holes}
    assert scopes["q"] == "row"
    assert scopes["word"] == "item(2)"
    assert scopes["item"] == "item"
    assert scopes["text"] == "iter"
    assert scopes["constant"] == "batch"
    assert scopes["drawn"] == "sample"


def test_groups_and_spread_rows_have_scopes_of_their_own() -> None:
    tree = tree_of("""
        workflow w(product: text, reviews: list[text])
        spread reviews as review
        mood = llm { user "{{ product }}: {{ review }}" }
        group by product {
          summary = llm { user "{{ product }}: {{ rows | len }}" }
        }
        output product, summary
    """)
    assert [(hole.text, str(hole.scope)) for hole in tree.holes] == [
        ("product", "row"),
        ("review", "item"),
        ("product", "group"),
        ("rows | len", "group"),
    ]
    kinds = [tree.frames[op.frame].kind for op in tree.ops]
    assert kinds == ["spread", "group"]


def test_needs_follow_data_and_control_through_tools() -> None:
    tree = tree_of("""
        workflow w(q: text)
        tool look(key: text) -> text from python "lib:look" effects read
        a = llm { user "A {{ q }}" }
        found = look(a)
        b = llm { user "B {{ found }}" }
        keep when b == "yes"
        c = llm { user "C {{ q }}" }
        if a == "x" { d = llm { user "D {{ q }}" } } else { d = "none" }
        e = llm { user "E {{ d }} {{ c }}" }
        output e
    """)
    names = [op.step for op in tree.ops]
    direct = {op.step: {names[other] for other in bits(op.needs)} for op in tree.ops}
    assert direct == {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"a", "b"}, "e": {"a", "b", "c", "d"}}
    every = dict(zip(names, tree.needs_all(), strict=True))
    assert {names[other] for other in bits(every["c"])} == {"a", "b"}
    leaves = tree.leaf_needs()
    assert leaves[tree.ops[names.index("c")].end] == tuple(
        sorted(tree.ops[names.index(name)].end for name in ("a", "b"))
    )


def test_branches_have_chances_loops_counts() -> None:
    tree = tree_of("""
        workflow w(q: text, parts: list[text])
        kind = llm -> choice["a", "b", "c", "d"] { user "{{ q }}" }
        if kind == "a" { x = llm { user "1 {{ q }}" } }
        else if kind == "b" { x = llm { user "2 {{ q }}" } }
        else { x = llm { user "3 {{ q }}" } }
        if q == "y" { z = llm { user "4 {{ q }}" } } else { z = null }
        fixed = for n in ["p", "q", "r"] { v = llm { user "5 {{ n }} {{ q }}" } yield v }
        open = for n in parts { v = llm { user "6 {{ n }}" } yield v }
        r = q
        repeat up to 3 until r == "ok" { r = llm { user "7 {{ r }}" } }
        repeat up to 2 { r = llm { user "8 {{ r }}" } }
        output x, z, fixed, open, r
    """)

    def often(op: Any) -> float:
        found, frame = 1.0, op.frame
        while frame >= 0:
            found *= tree.frames[frame].expected
            frame = tree.frames[frame].parent
        return round(found, 6)

    starts = {tree.path(op)[1].text[0]: often(op) for op in tree.ops if isinstance(tree.path(op)[1], Static)}
    assert starts == {"1": 0.25, "2": 0.25, "3": 0.5, "4": 0.5, "5": 3.0, "6": 5.0, "7": 2.0, "8": 2.0}
    sources = {frame.source for frame in tree.frames if frame.kind in ("then", "otherwise")}
    assert sources == {"type", "assumed"}


def test_texts_lists_and_messages_are_laid_open() -> None:
    tree = tree_of("""
        workflow w(a: text, b: text)
        letter = "Dear " + a
        both = join([letter, b, "end"], "; ")
        first = llm { user "{{ letter }}!" }
        turns = [{ role: "user", content: "Hi " + a }, { role: "assistant", content: first }]
        next = llm { history turns user "{{ both }}" }
        output next
    """)
    path = [segment.role if isinstance(segment, Turn) else segment.text for segment in tree.path(len(tree.ops) - 1)]
    assert path == ["user", "Hi ", "a", "assistant", "first", "user", "Dear ", "a", "; ", "b", "; end", "assistant"]


def test_unknown_messages_are_one_hole() -> None:
    tree = tree_of("""
        workflow w(turns: json)
        x = llm { history turns user "Go on." }
        output x
    """)
    hole = tree.path(0)[0]
    assert isinstance(hole, Hole)
    assert hole.messages
    assert hole.scope == ROW


def test_values_are_the_same_hole_only_through_the_same_expression() -> None:
    tree = tree_of("""
        workflow w(r: json, s: json)
        a = llm { user "{{ r.note }} {{ r.note | upper }} {{ s.note }} {{ r['note'] }}" }
        output a
    """)
    holes = [segment for segment in tree.path(0) if isinstance(segment, Hole)]
    assert [hole.text for hole in holes] == ["r.note", "r.note | upper", "s.note", "r.note"]
    assert holes[0] is holes[3]
    assert holes[1].filters == ("upper",)
    assert len({hole.key for hole in holes}) == 3


def test_static_and_row_prefixes() -> None:
    tree = tree_of("""
        workflow w(doc: text, q: text, parts: list[text])
        a = llm { system "Rules of the house." user "{{ doc }} First {{ q }}" }
        b = llm { system "Rules of the house." user "{{ doc }} Second {{ q }}" }
        c = for part in parts { v = llm { system "Rules of the house." user "{{ part }}" } yield v }
        d = llm { system "Nobody asks." user "Say yes." }
        output a, b, c, d
    """)
    static = {tuple(_words(tree, prefix)): (prefix.ops, prefix.loose) for prefix in tree.static_prefixes()}
    assert static == {
        ("[system]", "Rules of the house.", "[user]"): (3, 0),
        ("[system]", "Nobody asks.", "[user]", "Say yes.", "[assistant]"): (1, 0),
    }
    (row,) = tree.row_prefixes()
    assert _words(tree, row) == ["[system]", "Rules of the house.", "[user]", "{doc}"]
    assert (row.holes, row.leaves) == (("doc",), 2)


def _words(tree: Tree, prefix: Any) -> list[str]:
    """A prefix as text."""
    segments = [segment for node in tree.path_nodes(prefix.node)[:-1] for segment in tree.label(node)]
    segments += tree.label(prefix.node)[: prefix.segments]
    made = []
    for segment in segments:
        made.append(f"[{segment.role}]" if isinstance(segment, Turn) else segment.text)
        if isinstance(segment, Hole):
            made[-1] = f"{{{segment.text}}}"
    return made


def test_a_prefix_before_a_hole_inside_a_message_has_a_loose_end() -> None:
    tree = tree_of("""
        workflow w(q: text)
        a = llm { user "Sort this: {{ q }}" }
        output a
    """)
    (prefix,) = tree.static_prefixes()
    assert prefix.loose == 1


def test_tokens_of_a_path_are_those_of_the_whole_text() -> None:
    # A tokenizer that joins over every place where a text could be cut: pairs of characters.
    pairs = from_ids("pairs", lambda text: [ord(text[n]) for n in range(0, len(text), 2)], turn=0)
    first, second = "You are a bull in a shop.", "You are a bear in a wood."
    tree = build_tree(
        plan_of(f"""
            workflow w(q: text)
            a = llm {{ user "{first}" }}
            b = llm {{ user "{second}" }}
            output a, b
        """),
        pairs,
    )
    for op, text in zip(tree.ops, (first, second), strict=True):
        assert sum(segment.tokens for segment in tree.path(op) if not isinstance(segment, Hole)) == pairs.count(text)


# --- the same tree whatever the way there -------------------------------------------------------------------------

WORDS = (
    "You",
    " are",
    " a",
    " bull",
    " bear",
    ".",
    "\n",
    " ",
    "ไทย",
    "ท",
    "é",
    "e\u0301",
    "12",
    "1",
    "{",
    "👩\u200d🚀",
    "",
)


@st.composite
def prompts(draw: st.DrawFn) -> list[list[Piece]]:
    """Prompts out of a few pieces, so that many share beginnings; not in normal form."""
    piece: st.SearchStrategy[Piece] = st.one_of(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("".join),
        st.sampled_from([("user",), ("system",)]),
        st.sampled_from([hole("q"), hole("r")]),
    )
    return draw(st.lists(st.lists(piece, max_size=6), min_size=1, max_size=7))


def hole(name: str) -> Hole:
    return Hole(sum(map(ord, name)), name, "", (), ROW)


def normal(prompt: list[Piece]) -> list[Piece]:
    from helix.optimizer.tree.texts import joined

    return list(joined(prompt))


def dump(node: Any) -> Any:
    """A tree in the making as plain values, children in an order of their own."""
    below = sorted((dump(child) for child in node.children.values()), key=repr)
    return [repr(node.label), sorted(node.ops), below]


@given(prompts(), st.randoms(use_true_random=False))
def test_same_tree_in_any_order(made: list[list[Piece]], random: Random) -> None:
    paths = [(number, 0, normal(prompt)) for number, prompt in enumerate(made)]
    shuffled = list(paths)
    random.shuffle(shuffled)
    assert dump(insert_paths(paths)) == dump(insert_paths(shuffled))


@given(prompts())
def test_paths_of_the_tree_are_the_prompts(made: list[list[Piece]]) -> None:
    prompts_ = [normal(prompt) for prompt in made]
    root = insert_paths((number, 0, prompt) for number, prompt in enumerate(prompts_))
    found: dict[int, list[Piece]] = {}
    stack: list[tuple[Any, list[Piece]]] = [(root, [])]
    while stack:
        node, before = stack.pop()
        path = before + node.label
        firsts = [repr(child.label[0])[:1] for child in node.children.values() if child.label]
        assert all(child.label for child in node.children.values()) or node is root, firsts
        found.update((op, path) for op in node.ops)
        stack.extend((child, path) for child in node.children.values())
    assert {op: normal(path) for op, path in found.items()} == dict(enumerate(prompts_))


@given(prompts())
def test_prompts_part_where_no_word_is_common(made: list[list[Piece]]) -> None:
    root = insert_paths((number, 0, normal(prompt)) for number, prompt in enumerate(made))
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        if node is root:
            continue
        starts = [child.label[0] for child in node.children.values()]
        kinds = [start if not isinstance(start, str) else None for start in starts]
        assert len({repr(kind) for kind in kinds if kind}) == len([kind for kind in kinds if kind])
        # A node with one child and no end of its own would be one node with it.
        assert len(node.children) != 1 or node.ops or node in root.children.values()


@given(st.lists(st.integers(0, 60), max_size=4), st.lists(st.integers(0, 60), max_size=4))
def test_same_tree_for_any_split_of_literals(first: list[int], second: list[int]) -> None:
    one = "You answer in one word, always. The question: "
    other = "You answer in one word, never. The question: "
    whole = tree_of(f"""
        workflow w(q: text)
        a = llm {{ system "{one}" user "{{{{ q }}}}" }}
        b = llm {{ system "{other}" user "{{{{ q }}}}" }}
        output a, b
    """)
    names: dict[str, str] = {}

    def cut(text: str, places: list[int]) -> str:
        marks = sorted({0, *(min(place, len(text)) for place in places), len(text)})
        shown_ = ""
        for start, end in pairwise(marks):
            name = names.setdefault(text[start:end], f"c{len(names)}")
            shown_ += f"{{{{ {name} }}}}"
        return shown_

    systems = cut(one, first), cut(other, second)
    lets = "\n".join(f'let {name} = "{text}"' for text, name in names.items())
    pieces = tree_of(f"""
        workflow w(q: text)
        {lets}
        a = llm {{ system "{systems[0]}" user "{{{{ q }}}}" }}
        b = llm {{ system "{systems[1]}" user "{{{{ q }}}}" }}
        output a, b
    """)
    assert pieces == whole


def test_same_tree_under_any_hash_seed() -> None:
    folder = Path(__file__).parent
    code = (
        f"import sys, json; sys.path.insert(0, {str(folder)!r})\n"
        "from plans_support import plan_of\n"
        "from random_workflows import case\n"
        "from helix.grammar.bind import bind\nfrom helix.grammar.parse import parse\n"
        "from helix.optimizer.tokens import estimate\nfrom helix.optimizer.tree import build_tree, tree_text\n"
        "for seed in (1, 2, 5, 6, 14, 65):\n"
        "    flow = case(seed).workflow\n"
        "    plan = bind(parse(flow.text), modules={k: parse(v) for k, v in flow.modules.items()}).plan\n"
        "    tree = build_tree(plan, estimate())\n"
        "    print(json.dumps(tree.as_json())); print(tree_text(tree, 90))\n"
    )
    told = set()
    for seed in ("0", "1", "4242"):
        path = f"{folder}:{folder.parent}"
        made = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        )
        told.add(made.stdout)
    assert len(told) == 1
    assert len(told.pop()) > 2000


def test_deep_plans_need_no_deep_stack() -> None:
    lines = ["workflow w(q: text)", 't0 = q + "."']
    lines += [f't{n} = t{n - 1} + "."' for n in range(1, 3000)]
    lines += ['a = llm { user "{{ t2999 }}" }', "output a"]
    tree = build_tree(plan_of("\n".join(lines)), estimate())
    assert [segment.text for segment in tree.path(0)[1:3] if not isinstance(segment, Turn)] == ["q", "." * 3000]


def test_texts_that_double_stay_small() -> None:
    lines = ["workflow w(q: text)", 't0 = q + "ab"']
    lines += [f"t{n} = t{n - 1} + t{n - 1}" for n in range(1, 60)]
    lines += ['a = llm { user "{{ t59 }}" }', "output a"]
    tree = build_tree(plan_of("\n".join(lines)), estimate())
    assert len(tree.path(0)) <= 5000


def test_a_plan_without_llm_steps_has_an_empty_tree() -> None:
    tree = tree_of("""
        workflow w(q: text)
        output q
    """)
    assert len(tree) == 1
    assert tree.ops == ()
    assert tree.static_prefixes() == ()


def test_ops_are_the_llm_calls_of_the_resolution() -> None:
    plan = plan_of("""
        workflow w(q: text)
        tool look(key: text) -> text from python "lib:look" effects read
        a = llm { user "{{ q }}" }
        b = look(a)
        c = llm { user "{{ b }}" }
        output c
    """)
    found = resolve_plan(plan)
    tree = build_tree(plan, estimate(), found)
    assert [site.node.step for site in found.calls] == ["a", "b", "c"]
    assert [op.step for op in tree.ops] == ["a", "c"]
    with pytest.raises(AttributeError):
        tree.ops[0].step = "other"  # type: ignore[misc]
