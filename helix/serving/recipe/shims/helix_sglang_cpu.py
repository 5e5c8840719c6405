"""An SGLang plugin that lets a prefix-cache hit on a CPU save what it saves on a GPU.

The attention of `torch_native` computes the rows of a prompt from its first token on, also those whose keys and values
are in the cache, and throws them away. Here only the new rows are computed. The numbers are the same; cases other than
plain causal attention go to SGLang's own function.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

TARGET = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend._run_sdpa_forward_extend"


def attend(
    original,
    backend,
    query,
    output,
    keys,
    values,
    slots,
    requests,
    lengths,
    cached,
    fresh,
    encoder_lens=None,
    scaling=None,
    enable_gqa=False,
    causal=False,
    is_cross_attn=False,
    sliding_window_size=None,
):
    """Writes the attention of a batch's new tokens to `output`.

    `query` and `output` are [new tokens of all requests, heads, head size]; `keys` and `values` the pools,
    [slots, heads, head size]; `slots` says which slots hold a request's tokens; `cached` and `fresh` count its old and
    new tokens.
    """
    if not causal or is_cross_attn or encoder_lens is not None or (sliding_window_size or -1) >= 0:
        return original(
            backend,
            query,
            output,
            keys,
            values,
            slots,
            requests,
            lengths,
            cached,
            fresh,
            encoder_lens,
            scaling,
            enable_gqa,
            causal,
            is_cross_attn,
            sliding_window_size,
        )
    first = 0
    for request, old, new in zip(requests.tolist(), cached.tolist(), fresh.tolist(), strict=True):
        held = slots[request, : old + new]
        rows = slice(first, first + new)
        # A new row sees all old ones and the new ones up to itself; a lone new row sees everything.
        seen = torch.ones(new, old + new, dtype=torch.bool).tril(old) if old and new > 1 else None
        result = scaled_dot_product_attention(
            query[rows].transpose(0, 1).unsqueeze(0),
            keys[held].transpose(0, 1).unsqueeze(0).to(query.dtype),
            values[held].transpose(0, 1).unsqueeze(0).to(query.dtype),
            attn_mask=seen,
            is_causal=not old,
            scale=scaling,
            enable_gqa=enable_gqa,
        )
        output[rows] = result.squeeze(0).transpose(0, 1)
        first += new
    return output


def register():
    """Called by SGLang at its start."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(TARGET, attend, HookType.AROUND)
