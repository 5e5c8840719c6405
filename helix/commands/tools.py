"""The command `helix tools`: the tools of a workflow with their effects, and where the claim comes from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.errors import OptionError
from helix.executor.tables.terminal import escaped
from helix.executor.tools.access import ToolAccess
from helix.executor.tools.lanes import TOOL_LANE, lane_of
from helix.executor.tools.secrets_file import with_secrets
from helix.progress import clean
from helix.services import Effects, Tool
from helix.tools.effects import HARMLESS, effects_of_hints
from helix.tools.schema import parameters_schema, result_schema
from helix.tools.targets import mcp_target, sql_dialect

if TYPE_CHECKING:
    from helix.grammar.scope import DeclaredTool

_HEAD = ("tool", "from", "effects", "says", "lane", "cost", "timeout", "freshness", "guess")
# Of what is called when no time is declared: seconds.
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a tool is held to do, and who says so; `reads` are the tables of a statement, where it has one.

    `settled` is false where a statement may do what its text does not show, or changes by the clock or by chance.
    """

    effects: Effects
    says: str
    reads: tuple[str, ...] | None = None
    settled: bool = True


def tools_command(
    file: str | None,
    *,
    server: str | None,
    as_json: bool,
    no_servers: bool,
    constants: tuple[str, ...],
    allow_host: tuple[str, ...],
    allow_private: tuple[str, ...],
    allow_files: tuple[str, ...],
    mcp_config: str | None,
    trust_server: tuple[str, ...],
    secrets: str | None,
) -> int:
    """Prints tools and gives the exit code. Raises HelixError for what is wrong."""
    access = ToolAccess(
        hosts=allow_host or None,
        private=allow_private,
        files=allow_files,
        servers=None if mcp_config is None else Path(mcp_config),
        trusted=trust_server,
        environment=with_secrets(secrets),
    )
    if server is not None:
        folder = None if file is None else Path(file).parent
        print(clean(asyncio.run(_offered(server, folder or Path(), access, as_json))))
        return 0
    if file is None:
        raise OptionError("helix tools takes a workflow FILE, or --server NAME")
    from helix.api import check
    from helix.options.files import constants_of, load_workflow

    workflow = load_workflow(file)
    bound = check(workflow, set=constants_of(constants))
    wanted = [each.tool for each in bound.tools.values() if each.tool.origin == "mcp"]
    hints: Mapping[str, Any] = {}
    if wanted and not no_servers:
        hints = asyncio.run(_hints(wanted, workflow.folder, access))
    found = [(each.tool, _claim(each, hints, access)) for each in bound.tools.values()]
    if as_json:
        print(escaped(json.dumps([_entry(tool, claim) for tool, claim in found], ensure_ascii=False, indent=2)))
    elif found:
        print(clean("\n".join(_table([_HEAD, *(_row(tool, claim) for tool, claim in found)]))))
    else:
        print(f"{workflow.name} declares no tools")
    return 0


async def _hints(wanted: list[Tool], folder: Path | None, access: ToolAccess) -> dict[str, Any]:
    """What the servers say of these tools, each by its name here; None for one that says nothing."""
    from helix.executor.tools.opener import ToolOpener

    opener = ToolOpener({}, folder, access)
    try:
        for tool in wanted:
            await opener.open(tool)
        return {tool.name: opener.servers().annotations(tool) for tool in wanted}
    finally:
        await opener.close()


async def _offered(name: str, folder: Path, access: ToolAccess, as_json: bool) -> str:
    """What a server offers: declarations, or JSON."""
    from helix.executor.tools.mcp import annotations_of, declaration
    from helix.executor.tools.opener import ToolOpener

    opener = ToolOpener({}, folder, access)
    trusted = name in access.trusted
    try:
        listed = await opener.servers().listed(name)
    finally:
        await opener.close()
    if as_json:
        made = [
            {
                "tool": each.name,
                "description": each.description,
                "hints": annotations_of(each),
                "trusted": trusted,
                "effects": effects_of_hints(annotations_of(each), allowed=trusted),
                "parameters": each.input_schema,
                "result": each.output_schema,
            }
            for each in listed.values()
        ]
        return json.dumps(made, ensure_ascii=False, indent=2)
    lines: list[str] = []
    for each in listed.values():
        hinted = effects_of_hints(annotations_of(each), allowed=True)
        if not trusted and hinted != "unknown":
            lines.append(f"# the server says `{hinted}`; --trust-server {name} takes its word")
        lines.append(declaration(name, each, hinted if trusted else None))
    return "\n".join(lines) if lines else f"# the server {name} offers no tools"


def _claim(declared: DeclaredTool, hints: Mapping[str, Any], access: ToolAccess) -> Claim:
    """The effects of a tool, and where they come from."""
    tool = declared.tool
    if tool.origin == "sql" and not declared.says_effects:
        if tool.query is None:
            return Claim(effects=tool.effects, says="SQL: each statement is checked when it is called")
        from helix.sql.effects import sql_effect

        found = sql_effect(tool.query, sql_dialect(tool.target))
        if found.effects in HARMLESS:
            says, settled = "SQL classification", not found.volatile
            return Claim(effects=found.effects, says=says, reads=found.reads, settled=settled)
        return Claim(effects=tool.effects, says=f"SQL, run read-only; classification: {found.reason}", settled=False)
    if declared.says_effects:
        return Claim(effects=tool.effects, says="declared")
    if tool.origin != "mcp":
        return Claim(effects=tool.effects, says="default")
    name = mcp_target(tool.target)[0]
    if tool.name not in hints:
        return Claim(effects=tool.effects, says="default (the server was not asked)")
    said = effects_of_hints(hints[tool.name], allowed=True)
    if hints[tool.name] is None or said == "unknown":
        return Claim(effects="unknown", says=f"default (server {name} says nothing)")
    if name in access.trusted:
        return Claim(effects=said, says=f"hint of server {name} (trusted, for guesses only)")
    return Claim(effects="unknown", says=f"default (server {name} says {said}, untrusted)")


def _entry(tool: Tool, claim: Claim) -> dict[str, Any]:
    return {
        "tool": tool.name,
        "origin": tool.origin,
        "target": tool.target,
        "effects": claim.effects,
        "claim": claim.says,
        "reads": tool.reads if tool.reads is not None else claim.reads,
        "writes": tool.writes,
        "lane": _lane(tool),
        "concurrency": tool.concurrency,
        "rate_group": tool.rate_group,
        "cost": tool.cost,
        "fee": tool.fee,
        "timeout": _timeout(tool),
        "freshness": tool.freshness,
        "cancellable": tool.cancellable,
        "open_world": tool.open_world,
        "may_be_guessed": _no_guess(tool, claim) is None,
        "not_guessed_since": _no_guess(tool, claim),
        "description": tool.description,
        "parameters": parameters_schema(tool),
        "result": result_schema(tool),
    }


def _row(tool: Tool, claim: Claim) -> tuple[str, ...]:
    barred = _no_guess(tool, claim)
    return (
        tool.name,
        f"{tool.origin} {tool.target}",
        claim.effects,
        claim.says,
        _lane(tool) + ("" if tool.concurrency is None else f" ({tool.concurrency})"),
        _seconds(tool.cost),
        _seconds(_timeout(tool)),
        tool.freshness or "-",
        "yes" if barred is None else f"no: {barred}",
    )


def _lane(tool: Tool) -> str:
    return lane_of(tool).removeprefix(TOOL_LANE).strip() or TOOL_LANE


def _timeout(tool: Tool) -> float | None:
    return tool.timeout if tool.timeout is not None or tool.origin == "python" else _TIMEOUT


def _no_guess(tool: Tool, claim: Claim) -> str | None:
    """Why the tool is never called on a guess, by the effects that it is held to have; None where it may be."""
    if claim.effects not in HARMLESS:
        return "its effects are unknown" if claim.effects == "unknown" else "it acts"
    if not claim.settled:
        return "its statement may do more, or give another result each time"
    if tool.freshness == tool.NOT_FRESH:
        return "each call may give another result"
    if tool.speculate is False:
        return "it says so"
    return "its arguments leave; `speculate true` allows that" if tool.speculate is None and tool.open_world else None


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:g}s"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
