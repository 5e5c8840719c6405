"""The simulator beside a real SGLang: runs that `engine_compare.py` has measured, made again in simulated time.

Run as `python tests/benchmarks/sim_vs_real.py RUNS.json --cost cost.json [--scale S]`, where the options are those that
the runs were made with. `cost.json` is what `helix simulate --calibrate` wrote of that engine; with `--sweep` the
engine is started and measured first, by the CPU time of its processes, so that other work on the machine matters less.
Prompts and replies are those of the real runs, tokens those of the real model. Printed for each run are the tokens
prefilled and the makespan, real and simulated, and how far these are apart; for each workload and regime the order of
the methods by makespan, and by tokens prefilled, both ways.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from compare.measure import Run, cpu_seconds  # noqa: E402
from compare.regimes import AMPLE, batch, kv_tokens  # noqa: E402
from compare.results import MEASURED, Results  # noqa: E402
from compare.simulated import ModelTokens, Replayed, replay  # noqa: E402
from compare.workload import Workload  # noqa: E402
from engine_compare import DATA, POLICIES, WORKLOADS  # noqa: E402
from sglang_cpu import Server, absent  # noqa: E402

from helix.errors import HelixError  # noqa: E402
from helix.executor.engines.sglang.sweep import SweepPlan  # noqa: E402
from helix.executor.engines.sglang.sweep import measure as measure_server  # noqa: E402
from helix.executor.engines.sim import SimSettings  # noqa: E402
from helix.serving import cpu  # noqa: E402
from helix.simulation.sweep import read_server, sweep_json  # noqa: E402
from helix.simulation.table import calibrated_cost  # noqa: E402

# Orders are told apart where real makespans differ by more than this share.
APART = 0.03


def main(arguments: Sequence[str] | None = None) -> int:
    """Replays and prints."""
    given = _parser().parse_args(arguments)
    try:
        if given.sweep:
            _sweep(given)
        runs = [run for run in Results(given.runs).runs if run.phase == MEASURED and not run.failures]
        if not runs:
            raise ValueError(f"{given.runs} holds no measured run")
        pairs = [(run, _replayed(run, given)) for run in runs]
    except (HelixError, OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(report(pairs)))
    return 0


def _sweep(given: argparse.Namespace) -> None:
    """Measures the engine as `engine_compare.py` starts it, and writes its cost model. Some minutes, if it is quiet."""
    reason = absent()
    if reason:
        raise ValueError(reason)
    plan = SweepPlan(
        new=(16, 64, 128, 256, 512), cached=(0, 256, 1024), batches=(1, 2, 4, 8, 16), contexts=(128, 512), patience=60.0
    )
    with Server("--max-total-tokens", str(AMPLE), "--dtype", given.dtype, *POLICIES["lpm"]) as server:
        address = server.address.replace("http://", "sglang://")
        swept = asyncio.run(
            measure_server(
                address,
                plan=plan,
                tell=lambda text: print(text, file=sys.stderr, flush=True),
                clock=lambda: cpu_seconds(server.pid),
            )
        )
    given.cost.write_text(json.dumps(sweep_json(swept), indent=1), encoding="utf-8")


def _replayed(run: Run, given: argparse.Namespace) -> Replayed:
    workload: Workload = WORKLOADS[run.workload]
    topics, questions = given.size or workload.sizes[run.regime]
    size = max(1, round(topics * given.scale)), questions
    rows = batch(workload, run.regime, given.data, size, given.share)
    _, server = read_server(given.cost)
    held = kv_tokens(workload, run.regime) * (given.scale if run.regime == "pressure" else 1)
    told = {**server, "kv_tokens": round(held), "policy": run.policy, "request_ms": given.request_ms}
    # The model's own context is more than such a cache holds.
    told.pop("max_context", None)
    told |= settings_of(run.flags.split())
    cost = calibrated_cost(given.cost, table=given.table)
    return replay(run, workload, rows, SimSettings(**told), cost, ModelTokens(given.model))


def settings_of(flags: Sequence[str]) -> dict[str, str | bool]:
    """What further flags of the server are to the simulated one. Raises ValueError for others."""
    told: dict[str, str | bool] = {}
    words = iter(flags)
    for flag in words:
        if flag == "--radix-eviction-policy":
            told["eviction"] = next(words, "")
        elif flag == "--disable-overlap-schedule":
            told["overlap"] = "off"
        elif flag == "--enable-mixed-chunk":
            told["mixed_chunk"] = True
        else:
            raise ValueError(f"a run has the flag {flag} of the server, which is not simulated")
    return told


def report(pairs: Sequence[tuple[Run, Replayed]]) -> list[str]:
    """The table, and the orders."""
    lines = [
        f"{'':4} {'regime':9} {'policy':6} {'method':14} {'prefilled real':>14} {'simulated':>9} {'off':>6}"
        f" {'seconds real':>12} {'simulated':>9} {'off':>6}"
    ]
    for run, made in pairs:
        name = run.method if run.at_once is None else f"{run.method} {run.at_once}"
        lines.append(
            f"{run.workload:4} {run.regime:9} {run.policy:6} {name:14} {run.computed:14,} {made.prefilled:9,}"
            f" {off(made.prefilled, run.computed):+6.1%} {run.seconds:12.1f} {made.seconds:9.1f}"
            f" {off(made.seconds, run.seconds):+6.1%}"
        )
    for what, errors in (
        ("tokens prefilled", [off(made.prefilled, run.computed) for run, made in pairs]),
        ("makespan", [off(made.seconds, run.seconds) for run, made in pairs]),
    ):
        sizes = sorted(map(abs, errors))
        lines.append(
            f"{what}: {statistics.mean(sizes):.1%} off in the mean, {statistics.median(sizes):.1%} in the middle, "
            f"{sizes[-1]:.1%} at most, {statistics.mean(errors):+.1%} on the whole"
        )
    for place in dict.fromkeys((run.workload, run.regime) for run, _ in pairs):
        here = [(run, made) for run, made in pairs if (run.workload, run.regime) == place]
        if len(here) > 1:
            lines += _orders(" ".join(place), here)
    return lines


def _orders(place: str, pairs: Sequence[tuple[Run, Replayed]]) -> Iterable[str]:
    for what, real, simulated in (
        ("makespan", lambda pair: pair[0].seconds, lambda pair: pair[1].seconds),
        ("prefilled", lambda pair: pair[0].computed, lambda pair: pair[1].prefilled),
    ):
        first = sorted(pairs, key=real)
        wrong = [
            f"{_name(one)} before {_name(other)}"
            for at, one in enumerate(first)
            for other in first[at + 1 :]
            if real(other) > (1 + APART) * real(one) and simulated(other) < simulated(one)
        ]
        shown = " < ".join(_name(pair) for pair in first)
        yield f"{place}, {what}: {shown}; " + (
            f"not so simulated: {', '.join(wrong)}" if wrong else "the same simulated"
        )


def _name(pair: tuple[Run, Replayed]) -> str:
    run = pair[0]
    return f"{run.method}{'' if run.at_once is None else f' {run.at_once}'} ({run.policy})"


def off(made: float, real: float) -> float:
    """How far a simulated figure is from the real one, as a share of that."""
    return made / real - 1 if real else 0.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data = Path(os.environ.get("HELIX_SHARED_DATA", DATA))
    parser.add_argument("runs", type=Path, help="the file of engine_compare.py")
    parser.add_argument("--cost", type=Path, required=True, help="the file of helix simulate --calibrate")
    parser.add_argument("--sweep", action="store_true", help="measure the engine first, and write that to --cost")
    parser.add_argument("--dtype", default="float32", help="as the runs were made with")
    parser.add_argument("--table", action="store_true", help="read between the points of the sweep instead of a fit")
    parser.add_argument("--model", type=Path, default=cpu.home() / "model", help="the folder of the model's tokenizer")
    parser.add_argument("--data", type=Path, default=data, help="the folder of real data (or HELIX_SHARED_DATA)")
    parser.add_argument("--scale", type=float, default=1.0, help="as the runs were made with")
    parser.add_argument("--share", type=float, default=0.5, help="as the runs were made with")
    parser.add_argument("--size", type=_pair, metavar="TOPICS,QUESTIONS", help="as the runs were made with")
    parser.add_argument("--request-ms", type=float, default=3.0, help="time from a call to its place in the queue")
    return parser


def _pair(text: str) -> tuple[int, int]:
    first, second = (int(number) for number in text.split(","))
    return first, second


if __name__ == "__main__":
    sys.exit(main())
