"""The engine for SGLang servers, through their own API: prompts that are known to the token, warm-ups, ranks, tenants,
aborts (`docs/reference/engines.md`).
"""

from helix.executor.engines.sglang.engine import SGLangEngine

__all__ = ["SGLangEngine"]
