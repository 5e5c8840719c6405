"""How an HTTP status becomes an error of the contract: the same rule for every engine, the scripted one
included.
"""

from __future__ import annotations

from helix.errors import EngineError

OVERLOADED = frozenset({429, 503})
FATAL = frozenset({401, 402, 403, 404})  # no key, no credit, no right, no model: so will be the next
RETRYABLE = frozenset({408, 409, 425})  # and every 5xx but 501 and 505, which say "never"
NEVER = frozenset({501, 505})


def status_error(status: int, message: str, *, retry_after: float | None = None, kind: str = "engine") -> EngineError:
    """The error for a status of 400 and above. A prompt that is too long is never retried, whatever its
    status.
    """
    too_long = kind == "prompt.too_long"
    overloaded = status in OVERLOADED and not too_long
    retryable = overloaded or status in RETRYABLE or (status >= 500 and status not in NEVER)
    return EngineError(
        message,
        status=status,
        retryable=retryable and not too_long,
        retry_after=retry_after,
        fatal=status in FATAL and not too_long,
        overloaded=overloaded,
        kind=kind,
    )
