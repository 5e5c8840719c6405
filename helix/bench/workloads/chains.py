"""W4, a summary kept up to date step by step, and W5, experts who read a report in chunks beside one another."""

from __future__ import annotations

from helix.bench.texts import Texts, words
from helix.bench.workloads.shape import JOIN, Row, Workload, names

STEPS = 6
_SUMMARY = (216, 260, 300, 340, 380, 401)
_REVIEWS = (1000, 950)
CHUNKS, EXPERTS = 6, 7


def iterative() -> str:
    """Each step reads the last summary and ten more reviews."""
    keeper = words("keeper", 75)
    made = ["workflow iterative(reviews: list[text])", "model main { temperature: 0, max_tokens: 512 }"]
    for at in range(STEPS):
        before = f"{{{{ summary_{at} }}}}" if at else ""
        made.append(
            f'summary_{at + 1} = llm main {{\n  system "{keeper}"\n  user "{before}{{{{ reviews[{at}] }}}}"\n}}'
        )
    made.append(f"output summary_{STEPS}")
    return "\n\n".join(made) + "\n"


def _products(texts: Texts, group: int, day: int) -> list[Row]:
    return [{"reviews": [texts.about("reviews", group, at, _REVIEWS[min(at, 1)], 0.2) for at in range(STEPS)]}]


def parallel() -> str:
    """Seven experts read six chunks each and sum up; a writer puts it together."""
    systems = [words(f"expert {at}", 250 + 16 * at) for at in range(EXPERTS)]
    return f"""
workflow parallel(company: text, chunks: list[text])

model main {{ temperature: 0, max_tokens: 512 }}

let experts = {names(systems)}

summaries = for expert in experts {{
  notes = for chunk in chunks {{
    note = llm main {{
      system "{{{{ expert }}}}"
      user "{{{{ company }}}}{{{{ chunk }}}}"
    }}
    yield note
  }}
  summary = llm main {{
    system "{{{{ expert }}}}"
    user "{{{{ company }}}}{{{{ notes | join({JOIN}) }}}}{words("put together", 450)}"
  }}
  yield summary
}}
report = llm main {{
  system "{words("writer", 250)}"
  user "{{{{ company }}}}{{{{ summaries | join({JOIN}) }}}}{words("write", 600)}"
}}

output report
"""


def _companies(texts: Texts, group: int, day: int) -> list[Row]:
    chunks = [texts.about("chunk", group, at, 1220, 0.05) for at in range(CHUNKS)]
    return [{"company": texts.of("company", group, 0, 10), "chunks": chunks}]


W4 = Workload(
    name="w4",
    title="iterative",
    helix=iterative(),
    rows=_products,
    groups=200,
    calls=STEPS,
    means={f"summary_{at + 1}": mean for at, mean in enumerate(_SUMMARY)},
    published="Amazon reviews are not at hand: lengths alone, or with --data 60 of 314 product reviews a row",
)
W5 = Workload(
    name="w5",
    title="parallel chains",
    helix=parallel(),
    rows=_companies,
    groups=100,
    calls=EXPERTS * CHUNKS + EXPERTS + 1,
    means={"summaries.notes.note": 430, "summaries.summary": 480, "report": 480},
    published="replies published at the cap of 512 are 480 in the mean",
)
