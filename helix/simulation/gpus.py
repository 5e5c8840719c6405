"""GPUs by name: memory, and what their makers say they reach at most."""

from __future__ import annotations

import re
from dataclasses import dataclass

from helix.errors import OptionError, name_help

MIB = 1024**2
GIB = 1024**3
_RANKS = re.compile(r"x([0-9]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """`memory` in bytes as the driver shows it, `bandwidth` of the memory and `link` to another GPU (one direction) in
    bytes a second, `flops` in bf16 without sparsity.
    """

    name: str
    memory: int
    bandwidth: float
    flops: float
    link: float


def _gpu(name: str, mib: int, bandwidth: float, teraflops: float, link: float) -> Gpu:
    return Gpu(name=name, memory=mib * MIB, bandwidth=bandwidth * 1e9, flops=teraflops * 1e12, link=link * 1e9)


# From data sheets; memory as drivers show it. The plain names are the SXM parts.
GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu("a10", 23_028, 600, 125, 32),
        _gpu("a100", 81_920, 2039, 312, 300),
        _gpu("a100-40gb", 40_960, 1555, 312, 300),
        _gpu("b200", 183_359, 8000, 2250, 900),
        _gpu("h100", 81_559, 3350, 989, 450),
        _gpu("h100-nvl", 95_830, 3938, 835, 300),
        _gpu("h100-pcie", 81_559, 2039, 756, 64),
        _gpu("h200", 143_771, 4800, 989, 450),
        _gpu("l4", 23_034, 300, 121, 32),
        _gpu("l40s", 46_068, 864, 362, 32),
        _gpu("mi300x", 196_592, 5300, 1307, 448),
        _gpu("rtx-4090", 24_564, 1008, 165, 32),
        _gpu("rtx-pro-6000", 97_887, 1792, 503, 64),
    )
}


def gpu_of(name: str) -> Gpu:
    """A GPU by name. Raises OptionError."""
    found = GPUS.get(_plain(name))
    if found is None:
        raise OptionError(f"unknown GPU `{name}`; {name_help(_plain(name), GPUS, 'GPUs', most=20)}")
    return found


def gpus_of(text: str) -> tuple[Gpu, int]:
    """A GPU and how many: `h100`, `h100x2`, `rtx-4090x4`. Raises OptionError."""
    if _plain(text) in GPUS:
        return GPUS[_plain(text)], 1
    count = _RANKS.search(text.strip().lower())
    if count is None:
        return gpu_of(text), 1
    if int(count[1]) < 1:
        raise OptionError(f"there is at least one GPU, found `{text}`")
    return gpu_of(text.strip()[: count.start()]), int(count[1])


def _plain(name: str) -> str:
    short = name.strip().lower().replace("_", "-").removesuffix("-sxm").removesuffix("-80gb")
    return {"rtx4090": "rtx-4090", "rtxpro6000": "rtx-pro-6000"}.get(short, short)
