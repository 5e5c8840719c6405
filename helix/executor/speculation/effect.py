"""What one call of a tool does: what its tool declares, and for SQL what the statement of this very call says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helix.services import Tool
from helix.sql.effects import sql_effect
from helix.tools.effects import Effect, join
from helix.tools.targets import sql_dialect


def effect_of(tool: Tool, args: Mapping[str, Any]) -> Effect:
    """The effect of a call. What a tool declares is an upper bound of its harm, never a pardon for a statement.

    A SQL call reads the tables of its statement, and what the tool declares besides.
    """
    volatile = tool.freshness == tool.NOT_FRESH
    if tool.origin != "sql":
        reads = () if tool.effects == "pure" else tool.reads
        writes = () if tool.effects in ("pure", "read") else tool.writes
        return Effect(effects=tool.effects, reads=reads, writes=writes, volatile=volatile, reason="it is declared so")
    statement = tool.query if tool.query is not None else args.get("query")
    if not isinstance(statement, str):
        return Effect(effects="unknown", reason="it has no statement")
    try:
        found = sql_effect(statement, sql_dialect(tool.target))
    except ValueError:
        return Effect(effects="unknown", reason="its dialect is not known")
    effects = join(tool.effects, found.effects)
    if effects not in ("pure", "read"):
        return Effect(effects=effects, reason=found.reason)
    reads = tuple(sorted({*(found.reads or ()), *(tool.reads or ())}))
    return Effect(effects="read", reads=reads, writes=(), volatile=volatile or found.volatile, reason=found.reason)


def guessable(tool: Tool, args: Mapping[str, Any]) -> Effect | None:
    """The effect of a call that may be made on a guess; None where it may not."""
    if not tool.may_be_guessed:
        return None
    effect = effect_of(tool, args)
    return effect if effect.harmless else None
