"""The tokens that every prompt with a given beginning begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helix.executor.engines.base import Message
from helix.executor.engines.sglang.http import together
from helix.executor.engines.sglang.template import Ask, Template, chat_tokens, tokens

# What may come next. The last tokens of a text change with what follows it: only those that are the same before all of
# these are computed in advance.
NEXT = ("x", " x", "\n\nx", "0", ".", '"')


def closed(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, and a user's at the end where the last is none: templates want one, and its tokens come later."""
    last = messages[-1].role if messages else ""
    return (*messages, *(() if last == "user" else (Message(role="user", content="x"),)))


async def beginning(
    messages: Sequence[Message], template: Template | None, ask: Ask, follows: Sequence[str] = ()
) -> list[int]:
    """The tokens of these messages, up to where the last one's content may go on, which is with one of `follows` (none:
    with anything). `template` is that of `closed(messages)`. Raises what asking raises.
    """
    text = None if template is None else template.beginning(messages)
    if text is not None:
        return common(await tokens([text + more for more in follows or NEXT], ask, special=True))
    last = messages[-1]
    variants = [(*messages[:-1], replace(last, content=last.content + more)) for more in follows or NEXT]
    return common(await together(*(chat_tokens(closed(variant), ask) for variant in variants)))


def common(lists: Sequence[list[int]]) -> list[int]:
    """The longest beginning that all lists have in common."""
    shortest = min(lists, key=len, default=[])
    for place, token in enumerate(shortest):
        if any(other[place] != token for other in lists):
            return shortest[:place]
    return list(shortest)
