"""A cost model from data sheets, for models and GPUs that nobody has measured: a roofline with six efficiencies.

Each coefficient of the linear model is what the work would take at the GPU's peak, over a share of it that is reached:

    a = weights / bandwidth / .97       b = 2 parameters / flops / .83      c = 2 layers heads head_dim / flops / .45
    d = weights / bandwidth / .66       e = 2 parameters / flops * .63      f = KV bytes of a token / bandwidth / .81

parameters without the embedding that is only looked up. Several GPUs (tp) share work and weights, and wait for one
another in each layer: 47 us and the bytes of two all-reduces over two thirds of their link. The shares are the
geometric means of those in the three published fits (Llama-3.1-8B, bf16, on A100, H100, H200).

How far off it is: each GPU from the shares of the two others, on the rows that the fits were made of, 6 to 7 % in the
mean for prefill (17 % at most), 8 to 17 % for decoding (33 % at most); 135 measured runs on 2, 4 and 8 H100, 11 % in
the mean and 49 % at most. Other models go by arithmetic; beside aiconfigurator's estimates Qwen3-8B and 32B and
Llama-3.1-70B on one, two and four A100, H100, H200 and B200 are within 32 %.

A mixture reads more of its experts the more requests decode: those that one token passes through, and in a straight
line up to all of them at 192 requests, as aiconfigurator has Qwen3-30B-A3B on an H100. A prefill reads all.
"""

from __future__ import annotations

from helix.simulation.capacity import kv_bytes_per_token
from helix.simulation.cost import LinearCost
from helix.simulation.gpus import Gpu
from helix.simulation.shapes import ModelShape

# What is reached of the peak, for a to f; of e the share of the time at peak that is not hidden behind memory.
SHARES = (0.97, 0.83, 0.45, 0.66, 0.63, 0.81)
LAYER_SECONDS = 47e-6
# Requests that decode at once from which on all experts of a mixture are read.
ALL_EXPERTS = 192
LINK_SHARE = 2 / 3
# As it is told beside results.
ACCURACY = "on Llama-3.1-8B 6 to 17 % off in the mean and 33 % at most on one GPU, 11 % and 49 % on several"


def estimated_cost(gpu: Gpu, shape: ModelShape, *, tp: int = 1, shares: tuple[float, ...] = SHARES) -> LinearCost:
    """The estimate, in milliseconds; see the module."""
    a, b, c, d, e, f = shares
    resident = shape.parameters - shape.embedding
    weights = resident * shape.dtype_bytes / tp
    read = weights / gpu.bandwidth * 1000
    passed = read if not shape.active else read * (shape.active - shape.embedding) / resident
    flops = 2 * ((shape.active or shape.parameters) - shape.embedding) / tp
    heads = shape.heads or shape.kv_heads
    together = each = 0.0
    if tp > 1:
        hidden = shape.hidden or heads * shape.head_dim
        together = shape.layers * LAYER_SECONDS * 1000
        sent = shape.layers * 2 * hidden * 2 * 2 * (tp - 1) / tp
        each = sent / (gpu.link * LINK_SHARE) * 1000
    parts = f"x{tp}" if tp > 1 else ""
    return LinearCost(
        name=f"estimate:{gpu.name}{parts}/{shape.name}",
        a=read / a + together,
        b=flops / gpu.flops * 1000 / b + each,
        c=2 * shape.layers * heads * shape.head_dim / tp / gpu.flops * 1000 / c,
        d=passed / d + together,
        e=flops / gpu.flops * 1000 * e + each + (read - passed) / d / ALL_EXPERTS,
        f=kv_bytes_per_token(shape, tp=tp) / gpu.bandwidth * 1000 / f,
    )
