"""The rule `start_certain_tools_early`."""

from __future__ import annotations

from helix.logical import Choose, Generate, Invoke, LogicalPlan, Map, Node, topological
from helix.optimizer.lifting import border, given, passed_in, standing_alone, steps_of
from helix.optimizer.rewrite import instantiate, trim
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, rewrite_scopes
from helix.traits import traits


@rule()
def start_certain_tools_early(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """if c { t(a) ... } else { t(a) ... } calls t(a) before the branch.

    Sound: the same deterministic step, of the same name, stands in both arms, so one of them would have run it;
    and where the condition fails the step fails too, so that it is not called for more rows.
    Pays: the tool or the model works while the condition is still being found out.

    >>> show('''
    ... workflow demo(text: text, key: text)
    ... tool find(key: text) -> text from python "lib:find" effects read
    ... if len(text) > 9 {
    ...   found = find(key)
    ...   reply = llm { user "Short: {{ found }}" }
    ... } else {
    ...   found = find(key)
    ...   reply = llm { user "Long: {{ found }}" }
    ... }
    ... output reply
    ... ''', start_certain_tools_early)
    Sink reply
      Choose found, reply if len(text) > 9
        then -> found, reply
          Generate reply
            user "Short: {found}"
        otherwise -> found, reply
          Generate reply
            user "Long: {found}"
      Invoke found find(key) from=python:lib:find effects=read
      Scan text: text, key: text
    """
    return rewrite_scopes(plan, _start, Choose)


def _start(scope: Scope, old: Node, node: Node) -> Node:
    if not isinstance(node, Choose) or node.then.parameters != node.otherwise.parameters:
        return node
    then = scope.inside(node, "then", node.then)
    otherwise = scope.inside(node, "otherwise", node.otherwise)
    both = {each.id for each in otherwise.nodes}
    moved = {key: each for key, each in standing_alone(then, (), certain=False).items() if key in both}
    values = list(dict.fromkeys((*border(then, moved), *border(otherwise, moved))))
    calls = [each for each in moved.values() if isinstance(each, Generate | Invoke | Map)]
    outside = instantiate(node.then, given(node, node.then), node.rows, roots=(*values, *calls))
    condition = scope.fates.of(node.condition)
    # What fails where the condition fails is not called for more rows than one of the arms would have called it for.
    early = {each.id for each in calls if not condition & ~scope.fates.of(outside[each.id])}
    chosen = [
        value
        for value in values
        if all(each.id in early or not traits(each).is_call for each in topological(value))
        and scope.claim(steps_of([value]), node.id)
    ]
    if not chosen:
        return node
    return trim(passed_in(node, [(value, outside[value.id]) for value in chosen]))
