"""The rule `batch_point_lookups`."""

from __future__ import annotations

from dataclasses import replace

from helix.logical import Const, Invoke, LogicalPlan, Node
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import scope_of
from helix.sql.lookup import lookup_of

# How many keys one query is given: SQLite of any age takes as many parameters, and no call waits long for the others.
KEYS = 64


@rule(marks=True)
def batch_point_lookups(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """WHERE key = a, WHERE key = b, ... is WHERE key IN (a, b, ...).

    Sound: only a SQL tool's own query, one SELECT of rows as they are with one parameter, compared with a column; no
    grouping, order, limit, window, volatile function or query inside. The run takes the calls that wait just then, and
    gives each its own rows in their order: it compares SQLite's two plans, and asks key by key where they walk tables
    otherwise, where a key finds too many rows, and where anything fails, so that errors are each call's own.
    Pays: one query where there were up to 64; a table without an index is read once for all of them.

    >>> show('''
    ... workflow demo(c: text)
    ... tool get(c: text) -> table from sql "sqlite:a.db" query "SELECT id FROM sold WHERE who = :c"
    ... sold = get(c)
    ... output sold
    ... ''', batch_point_lookups)
    Sink sold
      Invoke sold get(c) from=sql:sqlite:a.db effects=read query="SELECT id FROM sold WHERE who = :c" batch=64 -> table
      Scan c: text
    """
    return rewrite(plan, _batched) if scope_of(plan).holds(Invoke) else plan


def _batched(node: Node) -> Node:
    if not isinstance(node, Invoke) or node.tool.batch is not None or len(node.tool.params) != 1:
        return node
    tool = node.tool
    # A key that no row changes is asked for once anyway.
    if not tool.is_sqlite or tool.query is None or not tool.deterministic or isinstance(node.args[0], Const):
        return node
    lookup = lookup_of(tool.query)
    if lookup is None or lookup.parameter != tool.params[0].name:
        return node
    return replace(node, tool=replace(tool, batch=KEYS))
