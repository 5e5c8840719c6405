"""Workloads that ask several questions on one text: W1 map and reduce, W2 debate, W3 reflection, and P1 to P6.

Lengths are those published with Helium (arXiv 2603.16104) for Qwen3-8B; a row is one question on one text.
"""

from __future__ import annotations

from helix.bench.texts import Texts, words
from helix.bench.workloads.shape import JOIN, MakeRows, Row, Workload, names

# What a prompt of a system and a user message takes beside its texts.
TURNS = 7
SYSTEM = words("a tiny system", 10)
# What prompts begin with: a text and a question, or a question alone.
BOTH, ALONE = "{{ context }}{{ question }}", "{{ question }}"
_MODEL = "model main { temperature: 0, max_tokens: CAP }\n"


def _inputs(given: str) -> str:
    return "context: text, question: text" if given == BOTH else "question: text"


def map_reduce(roles: list[str], task: str, cap: int, given: str = BOTH) -> str:
    """Each role answers the question, one step sums up."""
    return f"""
workflow map_reduce({_inputs(given)})

{_MODEL.replace("CAP", str(cap))}
let roles = {names(roles)}

views = for role in roles {{
  view = llm main {{
    system "{SYSTEM}"
    user "{given}{{{{ role }}}}"
  }}
  yield view
}}
answer = llm main {{
  system "{SYSTEM}"
  user "{given}{{{{ views | join({JOIN}) }}}}{task}"
}}

output answer
"""


def debate(people: list[str], cap: int, given: str = BOTH) -> str:
    """Two rounds; in the second each sees all of the first."""
    return f"""
workflow debate({_inputs(given)})

{_MODEL.replace("CAP", str(cap))}
let people = {names(people)}

first = for person in people {{
  said = llm main {{
    system "{SYSTEM}"
    user "{given}{{{{ person }}}}"
  }}
  yield said
}}
second = for person in people {{
  said = llm main {{
    system "{SYSTEM}"
    user "{given}{{{{ first | join({JOIN}) }}}}{{{{ person }}}}"
  }}
  yield said
}}

output second
"""


def reflection() -> str:
    """A draft, two critics of whom the second sees the first, and the drafter behind his own draft."""
    drafter, figures, reader = words("drafter", 190), words("checker of figures", 150), words("reader", 150)
    return f"""
workflow reflection(context: text, question: text)

{_MODEL.replace("CAP", "512")}
draft = llm main {{
  system "{drafter}"
  user "{{{{ context }}}}{{{{ question }}}}"
}}
figures = llm main {{
  system "{figures}"
  user "{{{{ context }}}}{{{{ question }}}}{{{{ draft }}}}"
}}
words = llm main {{
  system "{reader}"
  user "{{{{ context }}}}{{{{ question }}}}{{{{ draft }}}}{{{{ figures }}}}"
}}
answer = llm main {{
  system "{drafter}"
  user "{{{{ context }}}}{{{{ question }}}}"
  assistant "{{{{ draft }}}}"
  user "{{{{ figures }}}}{{{{ words }}}}{words("write it again", 30)}"
}}

output answer
"""


def experts(systems: list[str], last: str, cap: int) -> str:
    """P1 to P6, map and reduce: each expert has a system prompt of its own."""
    return f"""
workflow experts(context: text, question: text)

{_MODEL.replace("CAP", str(cap))}
let experts = {names(systems)}

views = for expert in experts {{
  view = llm main {{
    system "{{{{ expert }}}}"
    user "{{{{ context }}}}{{{{ question }}}}"
  }}
  yield view
}}
answer = llm main {{
  system "{last}"
  user "{{{{ question }}}}{{{{ views | join({JOIN}) }}}}"
}}

output answer
"""


def speakers(systems: list[str], cap: int) -> str:
    """P1 to P6, debate."""
    return f"""
workflow speakers(context: text, question: text)

{_MODEL.replace("CAP", str(cap))}
let people = {names(systems)}

first = for person in people {{
  said = llm main {{
    system "{{{{ person }}}}"
    user "{{{{ context }}}}{{{{ question }}}}"
  }}
  yield said
}}
second = for person in people {{
  said = llm main {{
    system "{{{{ person }}}}"
    user "{{{{ context }}}}{{{{ question }}}}{{{{ first | join({JOIN}) }}}}"
  }}
  yield said
}}

output second
"""


def _exam(texts: Texts, group: int, day: int) -> list[Row]:
    return [{"question": texts.about("exam", group, 0, 110)}]


def _report(context: int, question: int, count: int, spread: float = 0.3) -> MakeRows:
    def rows(texts: Texts, group: int, day: int) -> list[Row]:
        report = texts.about("report", group, 0, context, spread)
        return [
            {"context": report, "question": texts.about("question", group, item, question, spread)}
            for item in range(count)
        ]

    return rows


_ROLES = [words(f"role {at}", 38) for at in range(7)]
_PEOPLE = [words(f"person {at}", 38) for at in range(3)]
_MMLU = "MMLU lengths: short questions without a text; what rows share is the system prompt"
_TATQA = "TAT-QA lengths: a page of a report, six questions each"

W1_MMLU = Workload(
    name="w1-mmlu",
    title="map and reduce, MMLU",
    helix=map_reduce(
        [f"{role}{words(f'view {turn}', 4)}" for turn in range(2) for role in _ROLES], words("sum up", 109), 512, ALONE
    ),
    rows=_exam,
    groups=200,
    calls=15,
    means={"views.view": 294, "answer": 168},
    published=_MMLU,
)
W1_TATQA = Workload(
    name="w1-tatqa",
    title="map and reduce, TAT-QA",
    helix=map_reduce(_ROLES, words("sum up", 108), 512),
    rows=_report(500, 25, 6),
    groups=100,
    calls=48,
    means={"views.view": 390, "answer": 250},
    published=_TATQA,
)
W2_MMLU = Workload(
    name="w2-mmlu",
    title="debate, MMLU",
    helix=debate(_PEOPLE, 512, ALONE),
    rows=_exam,
    groups=200,
    calls=6,
    means={"first.said": 325, "second.said": 325},
    published=_MMLU,
)
W2_TATQA = Workload(
    name="w2-tatqa",
    title="debate, TAT-QA",
    helix=debate(_PEOPLE, 512),
    rows=_report(490, 25, 6),
    groups=100,
    calls=36,
    means={"first.said": 389, "second.said": 389},
    published=_TATQA,
)
W3_TATQA = Workload(
    name="w3-tatqa",
    title="reflection, TAT-QA",
    helix=reflection(),
    rows=_report(485, 25, 6),
    groups=100,
    calls=24,
    means={"draft": 125, "figures": 250, "words": 480, "answer": 140},
    published=f"{_TATQA}; the second critic's replies, published at the cap of 512, are 480 in the mean",
)

# System, context, question and output.
SIZES = {
    "p1": (1024, 128, 128, 64),
    "p2": (1024, 512, 512, 256),
    "p3": (1024, 1024, 1024, 512),
    "p4": (2048, 256, 256, 128),
    "p5": (2048, 1024, 1024, 512),
    "p6": (2048, 2048, 2048, 1024),
}
_SIZES_NOTE = "questions on each context are not published: 1 and 5"


def _sized(name: str, kind: str, count: int) -> Workload:
    system, context, question, output = SIZES[name]
    cap = output + output // 2
    people = 7 if kind == "mapreduce" else 3
    systems = [words(f"{name} expert {at}", system) for at in range(people)]
    if kind == "mapreduce":
        text = experts(systems, words(f"{name} last", system), cap)
        means = {"views.view": output, "answer": output}
    else:
        text = speakers(systems, cap)
        means = {"first.said": output, "second.said": output}
    return Workload(
        name=f"{name}-{kind}" + ("" if count == 5 else f"-{count}"),
        title=f"{name.upper()}, {'map and reduce' if kind == 'mapreduce' else 'debate'}, {count} per context",
        helix=text,
        rows=_report(context, question, count, spread=0.0),
        groups=100,
        calls=count * (8 if kind == "mapreduce" else 6),
        means=means,
        cap=cap,
        published=_SIZES_NOTE,
    )


SIZED = tuple(_sized(name, kind, count) for name in SIZES for kind in ("mapreduce", "debate") for count in (5, 1))
