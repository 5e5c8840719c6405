"""Which cost model stands for a model on a GPU: the published fit, an estimate, aiconfigurator, a sweep in a file."""

from __future__ import annotations

from helix.errors import OptionError, name_help
from helix.simulation.cost import PUBLISHED, CostModel
from helix.simulation.estimate import ACCURACY, estimated_cost
from helix.simulation.gpus import Gpu
from helix.simulation.layers import layer_cost
from helix.simulation.shapes import MODELS, ModelShape
from helix.simulation.table import calibrated_cost

# What the published fits are of.
FITTED = "llama-3.1-8b"
SOURCES = ("linear", "estimate", "aiconfigurator")
TABLE, LAYERS = "table:", "layers:"


def cost_model(source: str | None, gpu: Gpu, shape: ModelShape, *, tp: int = 1, named: str | None = None) -> CostModel:
    """The cost model that `source` names: `linear` (a published fit), `estimate` (from data sheets), `aiconfigurator`,
    FILE.json (the fit to a sweep), `table:FILE.json` (its points), `layers:FOLDER` (tables of layers). None: the
    published fit where there is one, else the estimate. `named` is the model as its maker names it, for aiconfigurator.
    Raises OptionError.
    """
    if source is None:
        return PUBLISHED[gpu.name] if _published(gpu, shape, tp) else estimated_cost(gpu, shape, tp=tp)
    match source:
        case "linear":
            if not _published(gpu, shape, tp):
                raise OptionError(_no_fit(gpu, shape, tp))
            return PUBLISHED[gpu.name]
        case "estimate":
            return estimated_cost(gpu, shape, tp=tp)
        case "aiconfigurator":
            from helix.simulation.aiconfigurator import aiconfigurator_cost

            return aiconfigurator_cost(gpu, shape, tp=tp, named=named)
    if source.startswith(TABLE):
        return calibrated_cost(source.removeprefix(TABLE), table=True)
    if source.startswith(LAYERS):
        return layer_cost(source.removeprefix(LAYERS), layers=shape.layers)
    if "." not in source and "/" not in source:
        known = f"{name_help(source, SOURCES, 'cost models')}, FILE.json, {TABLE}FILE.json, {LAYERS}FOLDER"
        raise OptionError(f"no cost model `{source}`; {known}")
    return calibrated_cost(source)


def cost_note(cost: CostModel) -> str | None:
    """What a person should know of a cost model before trusting its times; None: nothing in particular."""
    kind = cost.name.partition(":")[0]
    if kind == "estimate":
        return f"times are estimated from data sheets ({ACCURACY}); `helix simulate --calibrate` measures a live engine"
    if kind == "linear":
        return "times are fitted to estimates of aiconfigurator 0.12.0, up to 15 % off; no run of SGLang backs them"
    return None


def _published(gpu: Gpu, shape: ModelShape, tp: int) -> bool:
    """Whether there is a published fit: to the shape it does not matter which Llama of 8B it is."""
    fitted = MODELS[FITTED]
    same = (shape.parameters, shape.layers, shape.kv_heads, shape.dtype_bytes) == (
        fitted.parameters, fitted.layers, fitted.kv_heads, fitted.dtype_bytes
    )  # fmt: skip
    return same and tp == 1 and gpu.name in PUBLISHED


def _no_fit(gpu: Gpu, shape: ModelShape, tp: int) -> str:
    parts = f" over {tp} GPUs" if tp > 1 else ""
    fits = f"{FITTED} in bf16 on one of {', '.join(sorted(PUBLISHED))}"
    return (
        f"no published fit of {shape.name} on {gpu.name}{parts}; there are fits of {fits}. Others: `estimate` (from "
        "data sheets), `aiconfigurator` (pip install 'helix-workflows[aiconfigurator]'), or a sweep of your own engine "
        "(helix simulate --calibrate sglang://HOST:PORT --output cost.json)"
    )
