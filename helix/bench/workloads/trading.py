"""Trading: analysts, a debate of two researchers, and for each strategy a trader, risk managers and a judge.

The published shape (arXiv 2603.16104) with its lengths; 304 thousand tokens of prompts and 45 thousand of replies a row
at 8 strategies and 2 rounds.
"""

from __future__ import annotations

from helix.bench.texts import Texts, words
from helix.bench.workloads.shape import JOIN, Row, Workload, names

OUTPUT = 508
PERSONAS = 3
# The documents of another day are those so many numbers on.
DAY = 100
# Documents of a kind: their tokens, and those of the analysts' system prompt and of the one who sums up.
_READ = {
    "fundamentals": ((500, 900, 1300, 2000), 400, 250),
    "market": ((15_750, 17_750), 850, 850),
    "news": ((4000, 4100, 4250, 4350, 4450), 600, 250),
    "social": ((500, 500, 600), 500, 400),
}
_ALL = "{{ fundamentals }}{{ market }}{{ news }}{{ social }}"


def _step(name: str, system: str, user: str, indent: str = "") -> str:
    return f'{indent}{name} = llm main {{\n{indent}  system "{system}"\n{indent}  user "{user}"\n{indent}}}'


def _joined(name: str) -> str:
    return f"{{{{ {name} | join({JOIN}) }}}}"


def trading(branches: int, rounds: int, *, naive: bool = False) -> str:
    """The workflow. `naive`: the manager stands in the loop over strategies, and a report is written that nobody
    reads, as somebody leaves them who thinks of one strategy at a time.
    """
    made = ["workflow trading(" + ", ".join(f"{kind}_documents: list[text]" for kind in _READ) + ")"]
    made.append(f"model main {{ temperature: 0, max_tokens: {OUTPUT + OUTPUT // 2} }}")
    made.append("let personas = " + names([words(f"persona {at}", 163) for at in range(PERSONAS)]))
    made.append("let strategies = " + names([words(f"strategy {at}", 60) for at in range(branches)]))
    for kind, (_, analyst, lead) in _READ.items():
        view = _step("view", words(f"{kind} analyst", analyst), "{{ document }}", "  ")
        made.append(f"{kind}_views = for document in {kind}_documents {{\n{view}\n  yield view\n}}")
        made.append(_step(kind, words(f"{kind} lead", lead), _joined(f"{kind}_views")))
    if naive:
        made.append(_step("minutes", words("minutes", 200), _ALL))
    said = ""
    for at in range(1, rounds + 1):
        made += [_step(f"{side}_{at}", words(side, 263), f"{_ALL}{said}") for side in ("bull", "bear")]
        said += f"{{{{ bull_{at} }}}}{{{{ bear_{at} }}}}"
    manager = words("manager", 263)
    if not naive:
        made.append(_step("manager", manager, said))
    inner = [_step("manager", manager, said, "  ")] if naive else []
    inner.append(_step("plan", words("trader", 203), "{{ manager }}{{ strategy }}", "  "))
    history = ""
    for at in range(1, rounds + 1):
        statement = _step("said", "{{ persona }}", f"{_ALL}{{{{ plan }}}}{history}", "    ")
        inner.append(f"  round_{at} = for persona in personas {{\n{statement}\n    yield said\n  }}")
        history += f"{_joined(f'round_{at}')}{{{{ manager }}}}"
    rounds_said = "".join(_joined(f"round_{at}") for at in range(1, rounds + 1))
    inner.append(_step("verdict", words("judge", 300), f"{rounds_said}{words('judge them', 43)}", "  "))
    made.append("verdicts = for strategy in strategies {\n" + "\n".join(inner) + "\n  yield verdict\n}")
    made.append(_step("decision", words("fund manager", 300), f"{_joined('verdicts')}{words('decide', 43)}"))
    made.append("output decision")
    return "\n\n".join(made) + "\n"


def _rows(texts: Texts, group: int, day: int) -> list[Row]:
    row: Row = {}
    for kind, (sizes, _, _) in _READ.items():
        row[f"{kind}_documents"] = [
            texts.about(kind, group, at + DAY * day, size, 0.1) for at, size in enumerate(sizes)
        ]
    return [row]


def _old_accounts(texts: Texts, group: int, day: int) -> list[Row]:
    """The accounts do not change from one day to the next."""
    (row,) = _rows(texts, group, day)
    (before,) = _rows(texts, group, 0)
    return [{**row, "fundamentals_documents": before["fundamentals_documents"]}]


def make_trading(branches: int, rounds: int = 2) -> Workload:
    """Trading with so many strategies and rounds; 88 calls a row at 8 and 2."""
    means = {f"{kind}_views.view": OUTPUT for kind in _READ} | dict.fromkeys((*_READ, "minutes"), OUTPUT)
    means |= {f"{side}_{at}": OUTPUT for side in ("bull", "bear") for at in range(1, rounds + 1)}
    means |= dict.fromkeys(("manager", "verdicts.manager", "verdicts.plan", "verdicts.verdict", "decision"), OUTPUT)
    means |= {f"verdicts.round_{at}.said": OUTPUT for at in range(1, rounds + 1)}
    return Workload(
        name=f"trading-{branches}" + ("" if rounds == 2 else f"-r{rounds}"),
        title=f"trading, {branches} strategies" + ("" if rounds == 2 else f", {rounds} rounds"),
        helix=trading(branches, rounds),
        redundant=trading(branches, rounds, naive=True),
        rows=_rows,
        redundant_rows=_old_accounts,
        groups=80 if branches == 8 and rounds == 2 else 16,
        calls=18 + 2 * rounds + 1 + branches * (2 + PERSONAS * rounds) + 1,
        means=means,
        cap=OUTPUT + OUTPUT // 2,
        days=True,
        published="replies, published at the cap of 512, are 508 in the mean and differ by half; posts are made up",
    )


TRADING = (*(make_trading(branches) for branches in (8, 4, 12, 16)), *(make_trading(8, rounds) for rounds in (3, 4, 5)))
