"""The command `helix serve`: the SGLang command that a plan wants, printed and run."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from helix import api
from helix.dsl import Workflow
from helix.errors import OptionError
from helix.executor.engines.base import Capabilities
from helix.executor.settings import RunSettings
from helix.logical import Generate, every_node
from helix.optimizer.driver import optimize
from helix.optimizer.lowering import LowerContext, lower
from helix.physical import PhysicalPlan
from helix.progress import say
from helix.serving import cpu
from helix.serving.command import ServerCommand, with_extra
from helix.serving.server import Server, reachable, refuse_taken
from helix.serving.settings import MIXED, Asked, gpu_command, with_settings
from helix.simulation.shapes import keeps_no_state

WELL, INTERRUPTED = 0, 130
# The address of no server in particular: what is planned for one.
ADDRESS = "sglang://127.0.0.1:30000"
# Beside these SGLang refuses to mix passes, or has nothing to mix.
UNMIXED = ("--speculative-", "--enable-hisparse", "--disaggregation-mode", "--enable-encoder-swa-bounded-replay")
INSTALL = "pip install 'helix-workflows[sglang]'"


class _Ended(Exception):
    """Somebody asked for the end: Ctrl+C, or SIGTERM."""


def serve_command(
    workflow: Workflow | None,
    file: str | None,
    source: str | None,
    *,
    constants: dict[str, str],
    extra: tuple[str, ...],
    on_cpu: bool,
    dry_run: bool,
    quiet: bool,
    model: str | None,
    python: str | None,
    **options: Any,
) -> int:
    """Starts a server and runs until it is ended; gives the exit code. Raises HelixError for what is wrong before."""
    asked = Asked(model=model, python=python or sys.executable, **options)
    named = [] if workflow is None else _models(workflow, constants)
    if on_cpu:
        command = _on_cpu(asked, python)
    else:
        asked = replace(asked, model=_model(asked.model, named, file), served=named[0] if len(named) == 1 else None)
        command = gpu_command(asked)
    if source is not None and workflow is None:
        raise OptionError("--input is for the rows of a workflow, and none is given")
    plan = None if workflow is None else _plan(workflow, source, constants, asked, on_cpu=on_cpu)
    left_out = None if MIXED.flag in extra else _unmixed(None if on_cpu else asked.model, extra)
    advice = () if plan is None else plan.advice
    command = with_extra(with_settings(command, asked, advice, mixed=left_out is None), extra)
    asked = replace(asked, host=command.value("--host") or asked.host, port=_port(command, asked.port))
    click.echo(command.line)
    if not quiet:
        for line in command.reasons():
            say(f"  {line}")
        if plan is not None and plan.kv_wanted and source is not None:
            say(f"note: these rows want a KV cache of {plan.kv_wanted:,} tokens on each rank")
        if left_out is not None:
            say(f"note: {MIXED.flag} is left out: {left_out}")
    if dry_run:
        if on_cpu and not cpu.installed(cpu.home()) and not quiet:
            say(f"note: nothing is installed in {cpu.home()} yet; without --dry-run it is installed first")
        return WELL
    sys.stdout.flush()
    # The tiny model is served under its own name, so that no result is taken for one of the model that is named.
    use = f"{file or 'FILE'} --engine sglang://{reachable(asked.host)}:{asked.port}"
    use += f" --model {cpu.MODEL}" if on_cpu and named not in ([], [cpu.MODEL]) else ""
    return _serve(command, asked, use, on_cpu=on_cpu, quiet=quiet)


def _serve(command: ServerCommand, asked: Asked, use: str, *, on_cpu: bool, quiet: bool) -> int:
    def tell(text: str) -> None:
        if not quiet:
            say(text)

    ready = False
    refuse_taken(asked.host, asked.port)
    try:
        with _until_ended():
            if on_cpu:
                cpu.install(cpu.home(), quiet=quiet, say=tell)
            else:
                _refuse_missing(asked.python)
            with Server(command, host=asked.host, port=asked.port, quiet=quiet) as server:
                seconds = server.wait_ready(tell)
                ready = True
                say(f"ready after {seconds:.0f} s: helix run {use}   (Ctrl+C ends the server)")
                server.wait()
    except _Ended:
        tell("the server has ended")
    return WELL if ready else INTERRUPTED


@contextmanager
def _until_ended() -> Iterator[None]:
    """Raises _Ended in the block on the first Ctrl+C or SIGTERM; later ones wait for the server to end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, frame: Any) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _Ended

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unmixed(model: str | None, extra: tuple[str, ...]) -> str | None:
    """Why passes of prefill must not decode beside, or None. No `model` is that of the CPU recipe; `extra` are flags of
    the user's own.

    What layers keep beside keys and values is lost in such a pass (an open fault of SGLang: its issue 39342).
    """
    for word in extra:
        if word.startswith(UNMIXED):
            return f"it does not go with {word.partition('=')[0]}"
    if model is not None and not keeps_no_state(model):
        return f"it is for models with attention in all layers, and of {model} nobody knows"
    return None


def _models(workflow: Workflow, constants: dict[str, str]) -> list[str]:
    """The models that the llm steps name, in the order of the plan. Raises SourceErrors for mistakes."""
    plan = api.check(workflow, set=constants).plan
    names = [node.model.name for node in every_node(plan.sink) if isinstance(node, Generate)]
    return list(dict.fromkeys(name for name in names if name is not None))


def _model(given: str | None, named: list[str], file: str | None) -> str:
    """The model to serve: the one asked for, else the only one that the workflow names."""
    if given is not None:
        if (given.startswith((".", "/", "~")) or given.endswith("/")) and not Path(given).expanduser().exists():
            raise OptionError(f"the model folder {given} does not exist")
        return str(Path(given).expanduser()) if given.startswith("~") else given
    if len(named) == 1:
        return named[0]
    advice = "--model takes a Hugging Face name or a folder, --cpu tries it out without a GPU"
    if not named:
        where = "no workflow is given" if file is None else f"{file} names none"
        raise OptionError(f"which model shall be served? {where}; {advice}")
    raise OptionError(f"{file} names several models ({', '.join(named)}), and a server has one; {advice}")


def _on_cpu(asked: Asked, python: str | None) -> ServerCommand:
    for option, value in (
        ("--model", asked.model),
        ("--device", asked.device),
        ("--gpu", asked.gpus),
        ("--python", python),
    ):
        if value is not None:
            raise OptionError(f"--cpu brings its own model and Python; {option} is for a server on a GPU")
    return cpu.cpu_command(cpu.home(), ranks=asked.ranks, kv_tokens=asked.kv_tokens)


def _plan(
    workflow: Workflow, source: str | None, constants: dict[str, str], asked: Asked, *, on_cpu: bool
) -> PhysicalPlan:
    """The plan for such a server, with what it wants of it. Raises SourceErrors, and InputError for the rows."""
    held = cpu.KV_TOKENS if on_cpu and asked.kv_tokens is None else asked.kv_tokens
    workers = Capabilities(ranks=asked.ranks, kv_tokens=held)
    if source is None:
        plan = optimize(api.check(workflow, set=constants).plan).plan
        return lower(plan, LowerContext().on(workers, plan, ADDRESS))
    prepared = api.Prepared(
        workflow, source, output=None, engine=ADDRESS, model=None, api_key=None, set=constants,
        settings=RunSettings(), input_format=None, output_format=None, quiet=True,
    )  # fmt: skip
    try:
        return prepared.physical(workers)
    finally:
        prepared.source.close()


def _port(command: ServerCommand, port: int) -> int:
    given = command.value("--port")
    if given is None or not given.isdigit():
        return port
    return int(given)


def _refuse_missing(python: str) -> None:
    """Raises OptionError where a Python has no SGLang."""
    look = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('sglang') else 1)"
    try:
        # The person who starts it names the program.
        found = subprocess.run([python, "-c", look], capture_output=True, check=False)  # nosec B603
    except OSError as error:
        raise OptionError(f"{python} cannot be run: {error.strerror or error}") from None
    if found.returncode:
        raise OptionError(
            f"SGLang is not installed for {python}; install it on a machine with a GPU: {INSTALL}; --python names "
            "another Python that has it, --cpu tries it out without a GPU"
        )
