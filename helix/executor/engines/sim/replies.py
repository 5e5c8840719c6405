"""What the simulated engine answers: drawn from the request alone, never from when or where it ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b, shake_128
from typing import Any

from helix.executor.engines.base import FinishReason, Request
from helix.executor.engines.schema_value import schema_value
from helix.executor.engines.sim.prompts import FOUR_BYTES, WIDTH, Spelling, padded
from helix.executor.engines.sim.settings import SimSettings

# Gives the reply to a request, for replays and tests; None leaves it to be drawn.
Responder = Callable[[Request], str | None]


def reply_to(
    request: Request,
    model: str,
    prompt: str,
    settings: SimSettings,
    most: int,
    answer: Responder | None,
    spelling: Spelling = FOUR_BYTES,
) -> tuple[str, str, int, FinishReason]:
    """A reply as text and as whole tokens, how many these are, and why it ended. `most` are the tokens it may take.

    Drawn from (seed, model, sampling, prompt): a JSON value for a schema, else hexadecimal digits, in number between
    half and one and a half of the step's mean length.
    """
    text = None if answer is None else answer(request)
    if text is None:
        seed = _digest(request, model, prompt, settings.seed)
        if request.schema is not None:
            text = json.dumps(schema_value(request.schema, seed), ensure_ascii=False)
        else:
            mean = settings.step_tokens.get(request.step.partition("[")[0], settings.reply_tokens)
            low, high = -(-mean // 2), mean + mean // 2
            length = max(1, low + int.from_bytes(seed[:8], "big") % (high - low + 1))
            text = shake_128(seed).hexdigest(min(length, most) * WIDTH // 2)
            if length > most:
                return text, text, most, "length"
    spelled = spelling.reply(text)
    count = len(spelled) // WIDTH
    if count > most:
        if spelling is FOUR_BYTES:
            text = spelled[: most * WIDTH].encode("latin-1").decode("utf-8", "ignore")
            spelled = padded(text)
        return text, spelled[: most * WIDTH], most, "length"
    # An engine generates at least the token that ends a reply.
    return text, spelled or padded("\x1e"), max(count, 1), "stop"


def _digest(request: Request, model: str, prompt: str, seed: int) -> bytes:
    sampling: tuple[Any, ...] = (
        seed,
        model,
        request.temperature,
        request.top_p,
        request.seed,
        request.stop,
        request.extra,
        request.sample,
        None if request.schema is None else json.dumps(request.schema, sort_keys=True),
    )
    hasher = blake2b(repr(sampling).encode("utf-8", "surrogatepass"), digest_size=16)
    hasher.update(b"\0")
    hasher.update(prompt.encode("latin-1", "surrogatepass"))
    return hasher.digest()
