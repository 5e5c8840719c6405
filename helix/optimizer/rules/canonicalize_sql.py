"""The rule `canonicalize_sql`."""

from __future__ import annotations

import json
from dataclasses import replace

from helix.canonical import canonical_text
from helix.logical import Const, Invoke, LogicalPlan, Node, Render, Value
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import scope_of
from helix.sql.normal import normal_query
from helix.templates.template import Text
from helix.types import TEXT


@rule()
def canonicalize_sql(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """A SQL query is its normal form.

    Sound: the normal form changes what SQLite does not look at: white space, remarks, the case of keywords, brackets
    that say nothing. The text of a column without AS stays, since it is the column's name, and so does a query that
    sqlglot or SQLite cannot read, since the row's error quotes it. Only statements that no row changes: a tool's own,
    or a constant argument.
    Pays: equal queries become equal steps, which merge, in the plan and over the rows of a run.

    >>> show('''
    ... workflow demo(id: text)
    ... tool ask(id: text) -> table from sql "sqlite:a.db" query "select sum from orders o where (o.id==:id);"
    ... a = ask(id)
    ... output a
    ... ''', canonicalize_sql)
    Sink a
      Invoke a ask(id) from=sql:sqlite:a.db effects=read query="SELECT sum FROM orders AS o WHERE o.id = :id" -> table
      Scan id: text
    """
    return rewrite(plan, _canonical) if scope_of(plan).holds(Invoke) else plan


def _canonical(node: Node) -> Node:
    if not isinstance(node, Invoke) or not node.tool.is_sqlite:
        return node
    tool = node.tool
    if tool.query is not None:
        normal = normal_query(tool.query)
        return node if normal == tool.query else replace(node, tool=replace(tool, query=normal))
    args = tuple(
        _statement(arg) if param.name == "query" else arg for param, arg in zip(tool.params, node.args, strict=True)
    )
    return node if args == node.args else replace(node, args=args)


def _statement(arg: Value) -> Value:
    """A constant statement in normal form, however it was written: two that are equal are one value."""
    match arg:
        case Const(json=shown):
            text = json.loads(shown)
        case Render(template=template, args=()) if all(isinstance(segment, Text) for segment in template.segments):
            text = "".join(segment.text for segment in template.segments if isinstance(segment, Text))
        case _:
            return arg
    if not isinstance(text, str):
        return arg
    normal = normal_query(text)
    if isinstance(arg, Const) and normal == text:
        return arg
    return Const(type=TEXT, json=canonical_text(normal), label=arg.label, span=arg.span)
