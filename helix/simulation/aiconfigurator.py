"""Cost models from aiconfigurator (Apache-2.0, an optional dependency), which knows many models and GPUs.

It is asked for single passes: `static_ctx` for prefills, `static_gen` for decoding; the linear model is fitted to them.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from typing import Any

from helix.errors import OptionError, name_help
from helix.simulation.capacity import kv_tokens
from helix.simulation.cost import LinearCost
from helix.simulation.gpus import Gpu
from helix.simulation.shapes import ModelShape
from helix.simulation.sweep import Sweep
from helix.simulation.table import DecodePoint, PrefillPoint, fit_linear

EXTRA = "pip install 'helix-workflows[aiconfigurator]'"
# Names of its own, where they are others.
SYSTEMS = {
    "a100": "a100_sxm", "b200": "b200_sxm", "h100": "h100_sxm", "h100-pcie": "h100_pcie", "h200": "h200_sxm",
    "l40s": "l40s",
}  # fmt: skip
OWNERS = {"llama": "meta-llama", "qwen": "Qwen", "deepseek": "deepseek-ai", "mixtral": "mistralai"}
NAMES = {
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-3.1-405b": "meta-llama/Meta-Llama-3.1-405B",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B",
    "qwen2.5-32b": "Qwen/Qwen2.5-32B",
    "qwen2.5-72b": "Qwen/Qwen2.5-72B",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
}
PREFILL = ((128, 0), (512, 0), (1024, 0), (2048, 0), (4096, 0), (8192, 0), (16384, 0), (512, 2048), (1024, 4096))
DECODE = tuple((batch, context) for batch in (1, 8, 32, 64, 128, 256) for context in (256, 1024, 4096, 8192))
Estimate = Callable[..., Any]


def aiconfigurator_cost(
    gpu: Gpu, shape: ModelShape, *, tp: int = 1, named: str | None = None, estimate: Estimate | None = None
) -> LinearCost:
    """The fit to what aiconfigurator says of SGLang with a model on a GPU. `named` is the model's name on Hugging Face
    (None: that of known models); `estimate` stands for its function, for tests. Raises OptionError.
    """
    prefill, decode = _points(gpu, shape, tp, named, estimate, lambda text: None)
    parts = f"x{tp}" if tp > 1 else ""
    return fit_linear(prefill, decode, name=f"aiconfigurator:{gpu.name}{parts}/{shape.name}")


def aiconfigurator_sweep(
    gpu: Gpu,
    shape: ModelShape,
    *,
    tp: int = 1,
    named: str | None = None,
    estimate: Estimate | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Sweep:
    """The same as a sweep, to be kept in a file: asking takes a minute and more. Raises OptionError."""
    prefill, decode = _points(gpu, shape, tp, named, estimate, tell)
    parts = f" x {tp}" if tp > 1 else ""
    return Sweep(
        engine=f"aiconfigurator of SGLang on {gpu.name}{parts}",
        model=shape.name,
        prefill=tuple(prefill),
        decode=tuple(decode),
        server={"kv_tokens": kv_tokens(shape, gpu.memory, tp=tp), "page": 1, "max_context": shape.max_context},
    )


def _points(
    gpu: Gpu, shape: ModelShape, tp: int, named: str | None, estimate: Estimate | None, tell: Callable[[str], None]
) -> tuple[list[PrefillPoint], list[DecodePoint]]:
    model = named if named is not None and "/" in named else NAMES.get(shape.name, named or shape.name)
    system = SYSTEMS.get(gpu.name)
    if system is None:
        raise OptionError(f"aiconfigurator knows no GPU `{gpu.name}`; {name_help(gpu.name, SYSTEMS, 'GPUs')}")
    ask = _estimate() if estimate is None else estimate
    more: dict[str, Any] = {"moe_ep_size": tp, "moe_tp_size": 1} if shape.active else {}

    def asked(mode: str, batch: int, length: int, cached: int, field: str) -> float:
        try:
            with _quiet():
                found = ask(
                    model, system, mode=mode, backend_name="sglang", isl=length, osl=2 if mode == "static_gen" else 1,
                    batch_size=batch, prefix=cached, tp_size=tp, **more,
                )  # fmt: skip
        except Exception as error:
            # Whatever it raises, the answer is that it does not know.
            what = " ".join(str(error).split())[:300] or type(error).__name__
            raise OptionError(f"aiconfigurator does not know {model} on {system} with {tp} GPUs: {what}") from None
        return float(getattr(found, field))

    prefill: list[PrefillPoint] = []
    for new, cached in PREFILL:
        prefill.append(PrefillPoint(new=new, cached=cached, ms=asked("static_ctx", 1, new + cached, cached, "ttft")))
        tell(f"prefill of {new:,} tokens behind {cached:,}: {prefill[-1].ms:.1f} ms")
    decode: list[DecodePoint] = []
    for batch, context in DECODE:
        decode.append(DecodePoint(batch=batch, context=context, ms=asked("static_gen", batch, context, 0, "tpot")))
        tell(f"decoding {batch} of {context:,} tokens each: {decode[-1].ms:.2f} ms")
    return prefill, decode


def _estimate() -> Estimate:
    try:
        with _quiet():
            from aiconfigurator.cli.api import cli_estimate
    except ImportError as error:
        missing = "" if error.name == "aiconfigurator" else f", or not in a version that is known ({error})"
        raise OptionError(f"aiconfigurator is not installed{missing}: {EXTRA}") from None
    found: Estimate = cli_estimate
    return found


@contextlib.contextmanager
def _quiet() -> Any:
    """Nothing on standard output, which is for results, and no log below errors."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
