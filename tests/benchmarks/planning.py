"""What planning costs: the templated radix tree of the trading workflow, and a batch of a million calls.

Run as `python tests/benchmarks/planning.py [ROWS]`. The workflow text is made here: 18 analysts and summaries, a debate
of R rounds, B branches of a trader, three risk personas over R rounds and a judge, and a fund manager, with the
prompt lengths that the published workload states. Printed: ops, milliseconds of this process's CPU for all rules, for
the tree and for lowering without a search (best of seven each), the bytes of the tree and of its texts alone, and for
the million-call batch seconds and how much the process grew by for each call. `--tatqa FILE` adds the distinct-prefix
bound of 100 contexts, six questions and six roles.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import LogicalPlan, Scan
from helix.optimizer.cost import Cost, CostSettings, estimate
from helix.optimizer.driver import optimize
from helix.optimizer.lowering import LowerContext, lower
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import TableStats
from helix.optimizer.stats import table_stats
from helix.optimizer.tokens import Tokenizer, estimated_tokens, from_file
from helix.optimizer.tokens import estimate as estimated
from helix.optimizer.tree import CallTrie, Static, Tree, build_tree, tree_text
from helix.optimizer.tree.trie import Paths, value_number

RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes

TEAMS = {"fundamentals": 4, "market": 2, "news": 5, "social": 3}
PERSONAS = ("aggressive", "neutral", "careful")
LEXICON = """
accounts margin revenue cash debt share price trend volume news rumour order plant market rate risk hedge bond profit
quarter guidance buyer seller position loss gain window signal chart level report source claim figure
"""
WORDS = LEXICON.split()


def role_text(name: str, tokens: int) -> str:
    """A role's system prompt of about so many tokens, of words that depend on its name alone."""
    seed = sum(map(ord, name))
    text = f"You are the {name.replace('_', ' ')}."
    position = 0
    while estimated_tokens(text) < tokens:
        line = range(position, position + 14)
        text += " " + " ".join(WORDS[(seed + 7 * at + at * at) % len(WORDS)] for at in line) + "."
        position += 14
    return text


def step(name: str, system: str, user: str) -> str:
    return f'{name} = llm main {{\n  system """\n    {system}\n  """\n  user """\n    {user}\n  """\n}}\n'


def trading(branches: int, rounds: int = 2) -> str:
    """The text of the trading workflow."""
    docs = [f"{team}_{number}" for team, count in TEAMS.items() for number in range(1, count + 1)]
    inputs = ", ".join(f"{doc}: text" for doc in docs)
    made = [f"workflow trading(ticker: text, {inputs})", "model main {\n  temperature: 0\n  max_tokens: 1016\n}"]
    for team, count in TEAMS.items():
        names = [f"{team}_{number}" for number in range(1, count + 1)]
        system = role_text(f"{team}_analyst", 500)
        made += [step(f"{name}_view", system, f"Company: {{{{ ticker }}}}\n    {{{{ {name} }}}}") for name in names]
        views = "\n    ".join(f"{{{{ {name}_view }}}}" for name in names)
        made.append(step(f"{team}_summary", role_text(f"{team}_editor", 300), views))
    sums = "\n    ".join(f"{team}: {{{{ {team}_summary }}}}" for team in TEAMS)
    said = ""
    for turn in range(1, rounds + 1):
        for side in ("bull", "bear"):
            made.append(step(f"{side}_{turn}", role_text(f"{side}_researcher", 270), f"{sums}{said}"))
        said += "".join(f"\n    {side}: {{{{ {side}_{turn} }}}}" for side in ("bull", "bear"))
    made.append(step("manager", role_text("research_manager", 270), said.strip()))
    for branch in range(1, branches + 1):
        brief = f"Strategy {branch}: {' '.join(WORDS[(branch * 5 + n) % len(WORDS)] for n in range(30))}."
        plan = f"{sums}\n    Plan: {{{{ manager }}}}\n    {brief}"
        made.append(step(f"trader_{branch}", role_text("trader", 270), plan))
        told = f"{sums}\n    Trade: {{{{ trader_{branch} }}}}"
        for turn in range(1, rounds + 1):
            for persona in PERSONAS:
                made.append(step(f"{persona}_{branch}_{turn}", role_text(f"{persona}_risk_manager", 170), told))
            told += "".join(f"\n    {persona}: {{{{ {persona}_{branch}_{turn} }}}}" for persona in PERSONAS)
        talk = told.removeprefix(sums).strip()
        made.append(step(f"judge_{branch}", role_text("judge", 350), talk))
    verdicts = "\n    ".join(f"{{{{ judge_{branch} }}}}" for branch in range(1, branches + 1))
    made.append(step("decision", role_text("fund_manager", 350), verdicts))
    made.append("output ticker, decision")
    return "\n".join(made)


def chain_of(steps: int) -> str:
    """A workflow of so many steps: half read the row alone, half what another step said."""
    made = ["workflow batch(policy: text, ticket: text, note: text)", "model main {\n  max_tokens: 64\n}"]
    for number in range(steps):
        user = "{{ ticket }}" if number % 2 == 0 else f"{{{{ ticket }}}} {{{{ s{number - 1} }}}}"
        ask = f"Part {number}: {{{{ note }}}}"
        made.append(
            step(f"s{number}", f"Work by this policy. {{{{ policy }}}} Role {number % 5}.", f"{user}\n    {ask}")
        )
    made.append(f"output {', '.join(f's{number}' for number in range(steps))}")
    return "\n".join(made)


def plan_of(text: str) -> LogicalPlan:
    return bind(parse(text)).plan


def deep_size(root: Any) -> int:
    """The bytes of an object and of all that it alone and its parts hold, each object once."""
    seen: set[int] = set()
    total = 0
    stack = [root]
    while stack:
        part = stack.pop()
        # Python holds classes, small ints and the like once for all.
        if id(part) in seen or isinstance(part, type) or (isinstance(part, int) and -5 <= part <= 256):
            continue
        seen.add(id(part))
        total += sys.getsizeof(part)
        if isinstance(part, dict):
            stack.extend(part.keys())
            stack.extend(part.values())
        elif isinstance(part, list | tuple | set | frozenset):
            stack.extend(part)
        elif is_dataclass(part):
            stack.extend(getattr(part, each.name) for each in fields(part))
        elif type(part).__module__.startswith("helix."):
            names = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
            stack.extend(getattr(part, name) for name in names if hasattr(part, name))
    return total


def best(action: Callable[[], Any], rounds: int = 7) -> tuple[float, Any]:
    """The least milliseconds of CPU that an action took, and what it gave."""
    least, made = float("inf"), None
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        made = action()
        least = min(least, time.process_time() - start)
    return least * 1000, made


def tree_figures() -> None:
    for branches in (4, 8, 16):
        plan = plan_of(trading(branches))
        ruled, made = best(lambda plan=plan: optimize(plan))  # type: ignore[misc]
        plan = made.plan
        spent, tree = best(lambda plan=plan: build_tree(plan, estimated()))  # type: ignore[misc]
        sixteen = LowerContext(stats=TableStats(rows=16), budget=0)
        lowered, _ = best(lambda plan=plan, sixteen=sixteen: lower(plan, sixteen))  # type: ignore[misc]
        texts = sum(len(segment.text) for segment in tree.segments if isinstance(segment, Static))
        shown, _ = best(lambda tree=tree: tree_text(tree, 100))  # type: ignore[misc]
        costed, _ = best(lambda plan=plan, tree=tree: estimate(plan, tree, estimated()), 3)  # type: ignore[misc]
        print(
            f"trading, {branches:2} branches: {len(tree.ops):3} ops, {len(tree):3} nodes, "
            f"rules {ruled:5.1f} ms, build {spent:5.1f} ms, lower {lowered:5.1f} ms, "
            f"tree {deep_size(tree) / 1024:5.1f} KiB (of these texts {texts / 1024:4.1f}), "
            f"show {shown:4.1f} ms, cost {costed:5.1f} ms"
        )


def table(rows: int) -> Iterator[dict[str, str]]:
    for number in range(rows):
        yield {
            "policy": f"Policy {number % 20}. Parcels are replaced, invoices are corrected, and nobody waits. " * 4,
            "ticket": f"Ticket {number}: the parcel of order {number * 7919} came late and open, again. " * 3,
            "note": f"kind {number % 7}",
        }


def batch_figures(rows: int, steps: int = 50) -> None:
    plan = plan_of(chain_of(steps))
    tree = build_tree(plan, estimated())
    for count in (rows // 4, rows):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        wall, cpu = time.perf_counter(), time.process_time()
        cost = estimate(plan, tree, estimated(), rows=table(count))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * RSS_UNIT
        calls = cost.calls + cost.merged
        print(
            f"{count:,} rows x {steps} steps = {calls:,.0f} calls: {wall:.1f} s ({cpu:.1f} s CPU), "
            f"{more / calls:.0f} bytes more a call, "
            f"P_min {cost.p_min:,.0f} of {cost.prompt_tokens:,.0f} prompt tokens"
        )
    placed_figures(plan, rows)
    one_by_one(tree, rows)
    wall = time.perf_counter()
    stats = table_stats(table(1_000_000), estimated())
    print(f"statistics of 1,000,000 rows x {len(stats.columns)} columns: {time.perf_counter() - wall:.1f} s")


def placed_figures(plan: LogicalPlan, rows: int) -> None:
    """The physical plan of the batch for four ranks, its rows grouped by their policy."""
    plan = rewrite(plan, lambda node: replace(node, order=("policy",)) if isinstance(node, Scan) else node)
    stats = table_stats(table(rows), estimated())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu = time.process_time()
    made = lower(plan, LowerContext(stats=stats, rows=table(rows), ranks=4, kv_tokens=100_000, budget=0))
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * RSS_UNIT
    calls = sum(step.calls for step in made.steps)
    print(
        f"lowered: {len(made.groups)} groups on 4 ranks in {time.process_time() - cpu:.1f} s CPU, "
        f"{more / calls:.0f} bytes more a call, loads {', '.join(f'{load:,.1f}' for load in made.loads)} s"
    )


def one_by_one(tree: Tree, rows: int) -> None:
    """Calls bound as they become ready, a window of rows live at a time, as an executor would."""
    paths = Paths(tree)
    trie = CallTrie(paths)
    keys = list(paths.keys)
    names = {hole.key: hole.text for hole in tree.holes}
    window: list[list[int]] = []
    most = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for number, row in enumerate(table(rows)):
        numbers = [value_number(row.get(names[key]) or f"{names[key]} of {number}") for key in keys]
        tokens = [50.0] * len(keys)
        window.append([trie.bind(op, numbers, tokens) for op in range(len(tree.ops))])
        most = max(most, len(trie))
        if len(window) > 64:
            for handle in window.pop(0):
                trie.release(handle)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{rows * len(tree.ops):,} calls bound one by one and released, 64 rows live: {wall:.1f} s ({cpu:.1f} s CPU), "
        f"{most:,} edges at most"
    )


ROLES = ("an auditor", "a bank's analyst", "a tax adviser", "a journalist", "a pension fund", "a supplier")


def tatqa_workflow() -> str:
    made = ["workflow tatqa(context: text, question: text)", "model main {\n  max_tokens: 256\n}"]
    for number, role in enumerate(ROLES):
        user = f"{{{{ context }}}}\n    Question: {{{{ question }}}}\n    You answer as {role}."
        made.append(step(f"role_{number}", "You answer questions on a company's accounts.", user))
    made.append(f"output {', '.join(f'role_{number}' for number in range(len(ROLES)))}")
    return "\n".join(made)


def tatqa_rows(file: Path) -> list[dict[str, str]]:
    """One row for each context and question: the table as lines of cells, then the paragraphs."""
    rows = []
    for entry in json.loads(file.read_text(encoding="utf-8")):
        lines = [" | ".join(cells) for cells in entry["table"]["table"]]
        text = "\n".join([*lines, *(paragraph["text"] for paragraph in entry["paragraphs"])])
        rows += [{"context": text, "question": each["question"]} for each in entry["questions"][:6]]
    return rows


def tatqa_figures(file: Path, tokenizer: Tokenizer) -> Cost:
    plan = plan_of(tatqa_workflow())
    tree: Tree = build_tree(plan, tokenizer)
    wall = time.perf_counter()
    cost = estimate(plan, tree, tokenizer, rows=tatqa_rows(file), settings=CostSettings())
    print(
        f"TAT-QA, {cost.rows:.0f} rows x {len(ROLES)} roles by {tokenizer.name}: P_min {cost.p_min:,.0f} "
        f"({cost.p_min_kind}) of {cost.prompt_tokens:,.0f} prompt tokens, {cost.cached_share:.1%} cached at best, "
        f"{time.perf_counter() - wall:.1f} s"
    )
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rows", nargs="?", type=int, default=20_000)
    parser.add_argument("--tatqa", type=Path, help="the file of TAT-QA contexts and questions")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json or a GGUF model for real tokens")
    given = parser.parse_args()
    tree_figures()
    batch_figures(given.rows)
    if given.tatqa is not None:
        tatqa_figures(given.tatqa, estimated())
        if given.tokenizer is not None:
            tatqa_figures(given.tatqa, from_file(given.tokenizer))


if __name__ == "__main__":
    main()
