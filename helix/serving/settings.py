"""Which flags SGLang is started with: what every run wants, what the plan at hand wants, what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

from helix.physical import EngineAdvice
from helix.serving.command import Flag, ServerCommand

MIXED = EngineAdvice(
    flag="--enable-mixed-chunk",
    value="",
    why="a pass that computes prompts decodes too: replies do not wait for it",
)
# What no plan has to ask for. SGLang's own defaults are fcfs and, on most GPUs, pages of one token.
USUAL = (
    EngineAdvice(
        flag="--schedule-policy",
        value="lpm",
        why="of the requests that wait those go first whose beginning is cached",
    ),
    EngineAdvice(flag="--page-size", value="1", why="a shared beginning is shared to its last token"),
    MIXED,
)
REPORTS = (
    Flag(name="--enable-cache-report", why="replies tell how much of their prompt was cached"),
    Flag(name="--enable-metrics", why="/metrics tells the hit rate and what was evicted"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asks for. `model` is a path or a name, `served` the name that requests use for it."""

    host: str
    port: int
    model: str | None = None
    served: str | None = None
    ranks: int = 1
    device: str | None = None
    gpus: str | None = None
    kv_tokens: int | None = None
    kv_dtype: str | None = None
    python: str = sys.executable


def gpu_command(asked: Asked) -> ServerCommand:
    """The command that starts SGLang on what this machine has. `asked.model` is needed."""
    flags = [Flag(name="--model-path", value=asked.model, why="the model")]
    if asked.served is not None and asked.served != asked.model:
        flags.append(
            Flag(name="--served-model-name", value=asked.served, why="the name that the workflow uses for the model")
        )
    if asked.device is not None:
        flags.append(Flag(name="--device", value=asked.device, why="asked for"))
    if asked.kv_tokens is not None:
        flags.append(
            Flag(name="--max-total-tokens", value=str(asked.kv_tokens), why="the KV cache of a rank, as asked for")
        )
    environment: tuple[Flag, ...] = ()
    if asked.gpus is not None:
        environment = (Flag(name="CUDA_VISIBLE_DEVICES", value=asked.gpus, why="the GPUs that were asked for"),)
    return ServerCommand(
        program=(asked.python, "-m", "sglang.launch_server"), flags=tuple(flags), environment=environment
    )


def with_settings(
    command: ServerCommand, asked: Asked, advice: Iterable[EngineAdvice], *, mixed: bool
) -> ServerCommand:
    """The command with its address, its ranks, and what Helix and the plan want of it; `mixed`: passes may mix."""
    flags = {flag.name: flag for flag in command.flags}
    flags["--host"] = Flag(name="--host", value=asked.host, why="where it listens")
    flags["--port"] = Flag(name="--port", value=str(asked.port), why="where it listens")
    if asked.ranks > 1:
        why = f"{asked.ranks} ranks, each with a prefix cache of its own; Helix chooses the rank of a call"
        flags["--dp-size"] = Flag(name="--dp-size", value=str(asked.ranks), why=why)
    if asked.kv_dtype is not None:
        why = "asked for: more tokens fit, and replies may differ a little"
        flags["--kv-cache-dtype"] = Flag(name="--kv-cache-dtype", value=asked.kv_dtype, why=why)
    for each in {each.flag: each for each in (*USUAL, *advice)}.values():
        if each.flag == MIXED.flag and not mixed:
            continue
        # What was asked for, and what this machine needs, stands.
        flags.setdefault(each.flag, Flag(name=each.flag, value=each.value or None, why=each.why))
    for flag in REPORTS:
        flags.setdefault(flag.name, flag)
    return replace(command, flags=tuple(flags.values()))
