"""The commands `helix traces show`, `helix traces import` and `helix traces mine`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix.aligned import aligned
from helix.canonical import to_json_text
from helix.errors import OptionError, name_help
from helix.executor.tables.terminal import escaped
from helix.mining import Miner, MinerSettings, ToolFacts
from helix.mining.measure import Labels
from helix.mining.report import measured, patterns_shown, report_json, report_text
from helix.progress import clean, count, say
from helix.traces import LlmEvent, Session, ToolEvent, read_events, schema_hash, sessions_of, write_events
from helix.traces.importers import import_trace

_CELL = 160


@dataclass(slots=True)
class _Tool:
    """What a trace holds of one tool."""

    calls: int = 0
    errors: int = 0
    timed: int = 0
    seconds: float = 0.0
    effects: Counter[str] = field(default_factory=Counter)


def show_command(file: str, form: str, session: str | None) -> int:
    """Prints what a trace holds, or the events of one session."""
    held = sessions_of(read_events(file))
    if session is not None:
        print(clean(_events_text(_named(held, session))))
        return 0
    summary = _summary(held)
    print(
        escaped(json.dumps(summary, ensure_ascii=False, indent=2)) if form == "json" else clean(_summary_text(summary))
    )
    return 0


def import_command(source: Path, form: str, target: str, answers: Path | None, results: Path | None) -> int:
    """Reads trajectories of another format and writes them as a trace."""
    events = import_trace(source, form, answers=answers, results=results)
    write_events(target, events)
    held = sessions_of(events)
    decisions, calls = sum(each.decisions for each in held), sum(len(each.calls) for each in held)
    say(f"{target}: {count(len(held), 'session')}, {count(decisions, 'decision')}, {count(calls, 'call')}")
    return 0


def mine_command(
    files: Sequence[str],
    *,
    target: str | None,
    tenant: str | None,
    report: bool,
    read_only: str | None,
    ignored: str | None,
    thresholds: str,
    half_life: float | None,
    form: str,
    most: int,
    workflow: str | None = None,
) -> int:
    """Learns patterns from traces: writes them, shows them, or tells how good they are."""
    held = sessions_of(event for file in files for event in read_events(file))
    if not any(session.calls for session in held):
        raise OptionError("there is nothing to mine: the traces hold no call of a tool")
    schemas = {} if workflow is None else _schemas(workflow)
    settings = MinerSettings(half_life=half_life or None)
    labels = labels_of(held, _names(read_only), _names(ignored))
    if report:
        found = measured(held, labels, _shares(thresholds), settings)
        print(report_json(found) if form == "json" else clean(report_text(found)))
    if target is None and report:
        return 0
    miner = Miner(settings, tools=_facts(held))
    miner.mine(held)
    if target is not None:
        miner.save(target, tenant=tenant, schemas=schemas)
        say(f"{target}: patterns of {count(len(held), 'session')}")
    if not report:
        print(clean(patterns_shown(miner, most)))
    return 0


def labels_of(held: Sequence[Session], read_only: tuple[str, ...], ignored: tuple[str, ...]) -> Labels:
    """Which tools only read: those that were named, or where none was, those that say so in every call."""
    if read_only:
        return Labels(read_only=read_only, ignored=ignored)
    seen: dict[str, bool] = {}
    for session in held:
        for call in session.calls:
            seen[call.tool] = seen.get(call.tool, True) and call.effects.cls in ("pure", "read")
    return Labels(declared=frozenset(name for name, reads in seen.items() if reads), ignored=ignored)


def _schemas(file: str) -> dict[str, str]:
    """The hashes of the schemas of a workflow's tools, by their names. Raises SourceErrors and InputError."""
    from helix import api
    from helix.logical import Agent, Invoke, every_node
    from helix.options.files import load_workflow
    from helix.tools.schema import parameters_schema

    found: dict[str, str] = {}
    for node in every_node(api.check(load_workflow(file)).plan.sink):
        tools = node.tools if isinstance(node, Agent) else (node.tool,) if isinstance(node, Invoke) else ()
        found |= {tool.name.rpartition("#")[2]: schema_hash(parameters_schema(tool)) for tool in tools}
    return found


def _facts(held: Sequence[Session]) -> dict[str, ToolFacts]:
    """The effects that calls declare; those of a tool that says different things are unknown."""
    found: dict[str, ToolFacts] = {}
    for session in held:
        for call in session.calls:
            facts = ToolFacts(effects=call.effects.cls)
            if found.setdefault(call.tool, facts) != facts:
                found[call.tool] = ToolFacts()
    return found


def _summary(held: Sequence[Session]) -> dict[str, Any]:
    tools: dict[str, _Tool] = {}
    waited = decided = 0.0
    for session in held:
        for event in session.events:
            seconds = None if event.start is None or event.end is None else event.end - event.start
            if isinstance(event, LlmEvent):
                decided += seconds or 0.0
                continue
            waited += seconds or 0.0
            tool = tools.setdefault(event.tool, _Tool())
            tool.calls += 1
            tool.errors += event.status == "error"
            tool.effects[event.effects.cls] += 1
            if seconds is not None:
                tool.timed += 1
                tool.seconds += seconds
    return {
        "sessions": len(held),
        "groups": len({session.group for session in held}),
        "decisions": sum(session.decisions for session in held),
        "calls": sum(tool.calls for tool in tools.values()),
        "llm_seconds": round(decided, 6),
        "tool_seconds": round(waited, 6),
        "tools": [
            {
                "tool": name,
                "calls": tool.calls,
                "errors": tool.errors,
                "effects": max(sorted(tool.effects), key=lambda each: tool.effects[each]),
                "mean_seconds": round(tool.seconds / tool.timed, 6) if tool.timed else None,
            }
            for name, tool in sorted(tools.items(), key=lambda each: (-each[1].calls, each[0]))
        ],
    }


def _summary_text(summary: dict[str, Any]) -> str:
    lines = [
        f"{count(summary['sessions'], 'session')} in {count(summary['groups'], 'group')}, "
        f"{count(summary['decisions'], 'decision')}, {count(summary['calls'], 'call')}"
    ]
    if summary["llm_seconds"] or summary["tool_seconds"]:
        lines.append(f"{summary['llm_seconds']:.1f} s of models, {summary['tool_seconds']:.1f} s of tools")
    if summary["tools"]:
        rows = [
            [
                each["tool"],
                each["effects"],
                f"{each['calls']:,}",
                f"{each['errors']:,}",
                "?" if each["mean_seconds"] is None else f"{each['mean_seconds']:.3f}",
            ]
            for each in summary["tools"]
        ]
        lines += ["", *aligned(["tool", "effects", "calls", "errors", "seconds"], rows, left=2)]
    return "\n".join(lines)


def _named(held: Sequence[Session], name: str) -> Session:
    for session in held:
        if session.id == name:
            return session
    raise OptionError(f"there is no session `{name}`; {name_help(name, [each.id for each in held], 'sessions')}")


def _events_text(session: Session) -> str:
    lines = [f"session {session.id}, group {session.group}"]
    for event in session.events:
        when = "" if event.start is None else f" at {event.start:.3f} s"
        if isinstance(event, LlmEvent):
            lines += [f"{event.step:>4} user: {_cut(text)}" for text in event.user]
            if event.text or (event.status == "ok" and not event.calls):
                lines.append(f"{event.step:>4} model{when}: {_cut(event.text or '(no call)')}")
            if event.status != "ok":
                lines.append(f"{event.step:>4} model{when}: {event.status}, nothing was decided")
        else:
            lines += _call_lines(event, when)
    return "\n".join(lines)


def _call_lines(event: ToolEvent, when: str) -> list[str]:
    given = ", ".join(f"{name}={to_json_text(value)}" for name, value in event.args.items())
    return [
        f"{event.step:>4} call{when}: {_cut(f'{event.tool}({given})')}",
        f"{'':>4} {event.status}: {_cut(to_json_text(event.result))}",
    ]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CELL else line[: _CELL - 3] + "..."


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())


def _shares(given: str) -> tuple[float, ...]:
    found: list[float] = []
    for each in _names(given):
        try:
            found.append(float(each))
        except ValueError:
            found.append(-1.0)
        if not 0 <= found[-1] <= 1:
            raise OptionError(f"--thresholds takes probabilities from 0 to 1, found `{each}`")
    return tuple(found)
