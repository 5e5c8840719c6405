"""Helix beside LangGraph, plain fan-out and everything submitted at once, on a real SGLang with its real radix cache.

Run as `python tests/benchmarks/engine_compare.py --json FILE`, in an environment with `requirements.txt` of this
folder, after `python -m helix.serving.cpu` has installed SGLang for the CPU. Five workloads (W1 to W5) on real texts,
in three regimes: the cache holds all and rows are grouped (ample), the cache holds a quarter and rows are shuffled
(pressure), half of the rows are repeats (redundant). All methods send the same prompts with the same sampling; each run
begins with an empty cache. First the number of calls at once is tuned for those methods whose user chooses it, then the
repeats are measured, the order of the methods rotated. A run that is in FILE already is not made again. `--table FILE`
only prints; `--keep KEPT` adds the figures of those runs to another file, without their texts, and `--page PAGE` writes
them into a page.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from compare import methods  # noqa: E402
from compare.measure import Run, measure  # noqa: E402
from compare.page import write  # noqa: E402
from compare.regimes import REGIMES, Batch, batch, kv_tokens  # noqa: E402
from compare.results import MEASURED, TUNING, Results, best_at_once, table  # noqa: E402
from compare.w1 import W1  # noqa: E402
from compare.w2 import W2  # noqa: E402
from compare.w3 import W3  # noqa: E402
from compare.w4 import W4  # noqa: E402
from compare.w5 import W5  # noqa: E402
from compare.workload import Workload  # noqa: E402
from sglang_cpu import Server, Servers, absent  # noqa: E402

WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W4, W5)}
DATA = HERE.parents[2] / "shared" / "data"
POLICIES = {"lpm": ("--schedule-policy", "lpm"), "fcfs": ("--schedule-policy", "fcfs")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to compare, and how."""

    data: Path
    workloads: tuple[str, ...]
    regimes: tuple[str, ...]
    methods: tuple[str, ...]
    policies: tuple[str, ...]
    at_once: tuple[int, ...]
    repeats: int
    share: float
    size: tuple[int, int] | None
    scale: float
    dtype: str
    flags: tuple[str, ...]
    helix_flags: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares and prints the table."""
    given = _parser().parse_args(arguments)
    if given.table:
        return _show(given.table, given.keep, given.machine, given.page)
    reason = absent() or (None if given.data.is_dir() else f"there is no folder {given.data}; --data names another")
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    results = Results(given.json)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended
    servers = Servers()
    try:
        compare(_options(given), results, servers)
    finally:
        servers.stop()
    print(table(results.runs))
    return 0


def _show(file: Path, kept: Path | None, machine: str, page: Path | None) -> int:
    try:
        results = Results(file)
        if kept is not None:
            runs, results = results.runs, Results(kept)
            results.keep(runs, machine)
        if page is not None:
            write(page, results.runs)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(results.runs))
    return 0


def compare(options: Options, results: Results, servers: Servers) -> None:
    """Makes all runs that are not among the results yet."""
    for regime in options.regimes:
        for name in options.workloads:
            workload = WORKLOADS[name]
            topics, questions = options.size or workload.sizes[regime]
            size = max(1, round(topics * options.scale)), questions
            rows = batch(workload, regime, options.data, size, options.share)
            Comparison(options, results, servers, workload, regime, rows).make()


class Comparison:
    """All runs of one workload in one regime."""

    def __init__(
        self, options: Options, results: Results, servers: Servers, workload: Workload, regime: str, rows: Batch
    ) -> None:
        self.options = options
        self.results = results
        self.servers = servers
        self.workload = workload
        self.regime = regime
        self.batch = rows
        self.warm: set[tuple[str, str]] = set()

    def make(self) -> None:
        """Tunes, then measures."""
        ways = [
            (policy, method, at_once)
            for policy in self.options.policies
            for method in self.options.methods
            if method != "helix"
            for at_once in self._choices(policy, method)
        ]
        if "helix" in self.options.methods:
            ways.append(("lpm", "helix", None))
        for repeat in range(self.options.repeats):
            turn = repeat * len(ways) // max(1, self.options.repeats)
            for policy, method, at_once in ways[turn:] + ways[:turn]:
                self._run(policy, method, at_once, MEASURED, repeat)

    def _choices(self, policy: str, method: str) -> Iterator[int | None]:
        """The numbers of calls at once to measure: the best one found, and with LangGraph its default."""
        if method not in methods.TUNED:
            yield None
            return
        if method == "langgraph":
            yield None
        tried = self.options.at_once
        if len(tried) == 1:
            yield tried[0]
        elif tried:
            yield best_at_once([self._run(policy, method, number, TUNING, 0) for number in tried])

    def _run(self, policy: str, method: str, at_once: int | None, phase: str, repeat: int) -> Run:
        run = Run(
            workload=self.workload.name,
            regime=self.regime,
            policy=policy,
            method=method,
            at_once=at_once,
            phase=phase,
            repeat=repeat,
            flags=" ".join(self._flags(method)),
        )
        known = self.results.find(run)
        if known is not None:
            return known
        server = self._server(policy, method)
        with tempfile.TemporaryDirectory() as folder:
            store = self._yesterday(server, Path(folder), method)
            self._warm_up(server, method)
            measure(run, server, self.workload, self.batch.rows, store=store)
        self.results.add(run, _machine(server))
        print(
            f"{run.workload} {run.regime} {run.policy} {run.method} {run.at_once or ''} {run.phase} {run.repeat}:"
            f" {run.seconds:.1f} s, {run.calls} calls, {run.prefilled:,} of {run.prompt_tokens:,} tokens prefilled,"
            f" P_min {run.least:,}, {run.generated:,} generated, {len(run.failures)} failed, {run.stray_prompts} stray,"
            f" load {run.load:.1f}",
            file=sys.stderr,
            flush=True,
        )
        return run

    def _server(self, policy: str, method: str) -> Server:
        held = kv_tokens(self.workload, self.regime)
        if self.regime == "pressure":
            held = round(held * self.options.scale)
        flags = ("--max-total-tokens", str(held), "--dtype", self.options.dtype, *POLICIES[policy])
        return self.servers(*flags, *self._flags(method))

    def _flags(self, method: str) -> tuple[str, ...]:
        """Further flags of the server for a method."""
        return (*self.options.flags, *(self.options.helix_flags if method == "helix" else ()))

    def _warm_up(self, server: Server, method: str) -> None:
        """One row before a method's first run, so that neither imports nor the server's first call are measured."""
        if (method, server.address) not in self.warm:
            self.warm.add((method, server.address))
            model = str(server.json("/v1/models")["data"][0]["id"])
            methods.run(method, self.workload, self.batch.rows[:1], methods.Site(address=server.address, model=model))

    def _yesterday(self, server: Server, folder: Path, method: str) -> Path | None:
        """The result store as yesterday's batch left it, for the method that has one: a copy for each run."""
        if method != "helix" or not self.batch.yesterday:
            return None
        if not hasattr(self, "_kept"):
            self._kept = tempfile.TemporaryDirectory()
            model = str(server.json("/v1/models")["data"][0]["id"])
            site = methods.Site(address=server.address, model=model, store=Path(self._kept.name))
            methods.run(method, self.workload, self.batch.yesterday, site)
        shutil.copytree(self._kept.name, folder / "store")
        return folder / "store"


def _machine(server: Server) -> dict[str, Any]:
    info = server.json("/server_info")
    return {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "processor": platform.processor() or platform.machine(),
        "sglang": info.get("version"),
    }


def _options(given: argparse.Namespace) -> Options:
    quick = given.quick
    return Options(
        data=given.data,
        workloads=given.workload,
        regimes=given.regime,
        methods=given.method,
        policies=("lpm",) if quick else given.policy,
        at_once=(16,) if quick else given.at_once,
        repeats=1 if quick else given.repeats,
        share=given.share,
        size=given.size,
        scale=given.scale,
        dtype=given.dtype,
        flags=tuple(given.flags.split()),
        helix_flags=tuple(given.helix_flags.split()),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data = Path(os.environ.get("HELIX_SHARED_DATA", DATA))
    parser.add_argument("--data", type=Path, default=data, help="the folder of real data (or HELIX_SHARED_DATA)")
    parser.add_argument("--json", type=Path, help="where runs are kept; those there are not made again")
    parser.add_argument("--table", type=Path, metavar="FILE", help="only print the table of the runs in FILE")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="with --table: add its runs to FILE, without texts")
    parser.add_argument("--machine", default="", metavar="NAME", help="with --keep: what to call the runs' machine")
    parser.add_argument("--page", type=Path, metavar="FILE", help="with --table: write the tables into a page")
    parser.add_argument("--workload", type=_some(WORKLOADS), default=tuple(WORKLOADS), metavar="W1,W2,...")
    parser.add_argument("--regime", type=_some(REGIMES), default=REGIMES, metavar="ample,pressure,redundant")
    parser.add_argument(
        "--method", type=_some(methods.METHODS), default=tuple(methods.METHODS), metavar=",".join(methods.METHODS)
    )
    parser.add_argument("--policy", type=_some(POLICIES), default=tuple(POLICIES), metavar="lpm,fcfs")
    parser.add_argument(
        "--at-once",
        type=_at_once,
        default=(8, 16, 32, 64, 128),
        metavar="N,N",
        help="calls at once to try when tuning; `none`: LangGraph as it is by default, nothing tuned",
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.5, help="the share of repeated rows in the redundant regime")
    parser.add_argument(
        "--size", type=_pair, metavar="TOPICS,QUESTIONS", help="other sizes than those of the workloads"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="times the topics, under pressure also the cache")
    parser.add_argument("--dtype", default="float32", help="float32 makes outputs comparable")
    parser.add_argument("--flags", default="", help="further flags of the server, for all methods")
    parser.add_argument("--helix-flags", default="", help="further flags of the server for the runs of Helix")
    parser.add_argument("--quick", action="store_true", help="one repeat, lpm, 16 calls at once instead of tuning")
    return parser


def _some(known: Any) -> Any:
    def names(text: str) -> tuple[str, ...]:
        given = tuple(name.strip() for name in text.split(","))
        wrong = [name for name in given if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]} is none of {', '.join(known)}")
        return given

    return names


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _at_once(text: str) -> tuple[int, ...]:
    return () if text == "none" else _numbers(text)


def _pair(text: str) -> tuple[int, int]:
    first, second = _numbers(text)
    return first, second


if __name__ == "__main__":
    sys.exit(main())
