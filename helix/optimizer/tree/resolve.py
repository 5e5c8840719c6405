"""Lays a plan open: follows captures outwards, gives every value a reference, every call its place and its needs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from helix.expr import Arg
from helix.logical import (
    Apply,
    Body,
    Choose,
    Const,
    Fetch,
    Filter,
    Generate,
    GroupReduce,
    Invoke,
    Limit,
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Relation,
    Render,
    Repeat,
    Scan,
    Sink,
    Sort,
    Unnest,
    Value,
    body_nodes,
    spine,
    topological,
)
from helix.node import part_text
from helix.optimizer.tree.expected import GROUPS, SELECTIVITY, branch_share, list_length
from helix.optimizer.tree.refs import CallSite, Piece, Place, Ref, RefKind, Resolution
from helix.optimizer.tree.shape import BATCH, GROUP, ROW, SAMPLE, Scope, bits
from helix.optimizer.tree.texts import Texts, computable, digest, fetched, joined, renumbered, widest_of

Env = dict[str, int]
Walk = Generator["Walk", None, None]


def resolve_plan(plan: LogicalPlan, functions: Iterable[str] = ()) -> Resolution:
    """A plan laid open. `functions` are the declared functions that can be called when prompts are bound."""
    found = Resolution(plan=plan)
    _Walker(found, frozenset(functions)).run()
    return found


class _Walker:
    """Walks a plan, inputs before readers and a sub-plan when its holder comes, without recursion."""

    def __init__(self, found: Resolution, functions: frozenset[str]) -> None:
        self._found = found
        self._functions = functions
        self._texts = Texts(found, functions)
        self._by_ident: dict[str, int] = {}
        self._frames: dict[str, int] = {}

    def run(self) -> None:
        sink = self._found.plan.sink
        stack: list[Walk] = [self._outermost(sink, spine(sink.rows))]
        while stack:
            child = next(stack[-1], None)
            if child is None:
                stack.pop()
            else:
                stack.append(child)

    # --- scopes ---

    def _outermost(self, sink: Sink, relations: Sequence[Relation]) -> Walk:
        env: Env = {}
        for node in topological(sink):
            if isinstance(node, Relation):
                self._relation(node, env)
            elif not isinstance(node, Sink):
                yield from self._node(node, env, self._frames[relations[0].id], outermost=True)

    def _body(self, body: Body, frame: int, given: Mapping[str, int], results: dict[str, int]) -> Walk:
        """A sub-plan whose parameters are references; its results are put into `results`."""
        env: Env = {}
        for node in body_nodes(body):
            if isinstance(node, Project) and isinstance(node.source, Parameters):
                env[node.id] = given[node.field]
            elif not isinstance(node, Parameters):
                yield from self._node(node, env, frame)
        results.update((name, env[value.id]) for name, value in body.results)

    def _node(self, node: Node, env: Env, frame: int, *, outermost: bool = False) -> Walk:
        if outermost and isinstance(rows := getattr(node, "rows", None), Relation):
            frame = self._frames[rows.id]
        match node:
            case Const() | Fetch():
                const = node if isinstance(node, Const) else fetched(node)
                ident = digest("const", const.json)
                env[node.id] = self._ref(ident, "const", const.label, const, frame=0, known=True).index
            case Project(source=Choose() | Repeat() as source, field=field):
                env[node.id] = env[f"{source.id}.{field}"]
            case Project(source=Relation() as source, field=field):
                env[node.id] = self._column(source, field, node)
            case Apply() | Render():
                env[node.id] = self._pure(node, [env[arg.id] for arg in node.args])
            case Generate():
                env[node.id] = self._generate(node, env, frame)
            case Invoke():
                env[node.id] = self._invoke(node, env, frame)
            case Map():
                yield self._map(node, env, frame)
            case Choose():
                yield self._choose(node, env, frame)
            case Repeat():
                yield self._repeat(node, env, frame)
            case _:
                raise TypeError(f"{type(node).__name__} has no place in a prompt")

    # --- references ---

    def _ref(
        self,
        ident: str,
        kind: RefKind,
        name: str,
        node: Value | None,
        *,
        frame: int,
        args: tuple[int, ...] = (),
        calls: int = 0,
        known: bool = False,
        type: Any = None,
    ) -> Ref:
        """The reference of a value, made where it is new; its roots and scope are those of its arguments."""
        place = self._by_ident.get(ident)
        if place is not None:
            return self._found.refs[place]
        refs = self._found.refs
        roots = 0
        for arg in args:
            roots |= refs[arg].roots
            calls |= refs[arg].calls if kind in ("apply", "render") else 0
        kind_of = type if node is None else node.type
        ref = Ref(
            index=len(refs),
            ident=ident,
            kind=kind,
            name=name or kind,
            type=kind_of,
            frame=frame,
            calls=calls,
            roots=roots,
            known=known,
            scope=widest_of(refs[arg].scope for arg in args),
            node=node,
            args=args,
        )
        refs.append(ref)
        self._by_ident[ident] = ref.index
        return ref

    def _root(self, ref: Ref, scope: Scope, *, random: bool = False) -> None:
        ref.roots |= 1 << ref.index
        ref.scope = widest_of((ref.scope, scope))
        ref.random = random

    def _pure(self, node: Apply | Render, args: list[int]) -> int:
        refs = self._found.refs
        if isinstance(node, Apply):
            expr, used = renumbered(node.expr, args)
            if isinstance(expr, Arg):
                return used[0]
            ident = digest("expr", part_text(expr), *(refs[arg].ident for arg in used))
            name = node.label or self._texts.shown(expr, used)
            pure = computable(expr, self._functions)
        else:
            used = tuple(args)
            expr = None
            ident = digest("text", part_text(node.template), *(refs[arg].ident for arg in used))
            name = node.label or "text"
            pure = all(computable(part, self._functions) for part in node.template.expressions)
        frame = max((refs[arg].frame for arg in used), key=lambda f: (self._found.places[f].depth, f), default=0)
        ref = self._ref(
            ident, "apply" if expr is not None else "render", name, node, frame=frame, args=used,
            known=pure and all(refs[arg].known for arg in used),
        )  # fmt: skip
        ref.expr = expr
        ref.template = node.template if isinstance(node, Render) else None
        self._texts.of(ref)
        return ref.index

    def _column(self, source: Relation, field: str, node: Project) -> int:
        frame = self._frames[source.id]
        place = self._found.places[frame]
        if place.kind == "spread" and place.item is not None:
            return place.item
        ref = self._ref(digest("column", source.id, field), "column", field, node, frame=frame)
        if not ref.roots:
            ref.field = field
            if isinstance(source, GroupReduce):
                keys = dict(zip((name for name, _ in source.keys), place.values, strict=False))
                read = (keys[field],) if field in keys else place.values[len(source.keys) :]
                ref.args = read
                ref.known = all(self._found.refs[arg].known for arg in read)
                ref.calls = place.control
            else:
                ref.known = True
            self._root(ref, GROUP if isinstance(source, GroupReduce) else ROW)
        return ref.index

    # --- relations ---

    def _relation(self, node: Relation, env: Env) -> None:
        parent = self._frames[node.rows.id] if hasattr(node, "rows") else -1
        places = self._found.places
        control = places[parent].control if parent >= 0 else 0
        depth = places[parent].depth if parent >= 0 else 0
        refs = self._found.refs
        made = Place(kind="rows", parent=parent, name="", node=node, depth=depth, control=control)
        index = len(places)
        match node:
            case Scan():
                made.name = "rows"
            case Filter(condition=condition):
                made.kind, made.value = "filter", env[condition.id]
                made.name = f"keep when {refs[made.value].name}"
                made.control |= refs[made.value].calls
                made.expected, made.source = SELECTIVITY, "assumed"
            case Unnest(value=value, name=name):
                made.kind, made.value, made.depth = "spread", env[value.id], depth + 1
                made.name = f"spread {name}"
                made.control |= refs[made.value].calls
                made.expected, made.source = list_length(refs[made.value])
            case GroupReduce(keys=keys, columns=columns):
                made.kind, made.depth = "group", 0
                made.values = tuple(env[value.id] for _, value in (*keys, *columns))
                made.name = f"group by {', '.join(name for name, _ in keys)}"
                for read in made.values:
                    made.control |= refs[read].calls
                made.expected, made.source = GROUPS, "assumed"
            case Sort(keys=keys):
                made.kind, made.name = "sort", "sort"
                made.values = tuple(env[value.id] for value, _ in keys)
                for read in made.values:
                    made.control |= refs[read].calls
            case Limit(count=count):
                made.kind, made.name, made.times = "limit", f"limit {count}", count
        places.append(made)
        self._frames[node.id] = index
        if isinstance(node, Unnest) and made.value is not None:
            made.item = self._item(digest("spread", node.id), node.name, made.value, index)

    def _item(self, ident: str, name: str, over: int, frame: int) -> int:
        """The item of a list: known where the list is."""
        from helix.types import JSON, ListOf, required

        kind = required(self._found.refs[over].type)
        ref = self._ref(
            ident, "item", name, None, frame=frame, args=(over,), calls=self._found.refs[over].calls,
            known=self._found.refs[over].known, type=kind.item if isinstance(kind, ListOf) else JSON,
        )  # fmt: skip
        # What decides the list decides its items too, and where in the list an item stands is a root of its own.
        ref.roots = 0
        self._root(ref, Scope("item", self._found.places[frame].depth))
        return ref.index

    # --- calls ---

    def _generate(self, node: Generate, env: Env, frame: int) -> int:
        refs = self._found.refs
        pieces: list[Piece] = []
        read: dict[int, None] = {}
        for part in node.prompt:
            content = [env[value.id] for value in part.content]
            read.update(dict.fromkeys(content))
            if part.role == "history":
                pieces.extend(self._texts.messages(refs[content[0]]))
                continue
            pieces.append((part.role,))
            for position, ref in enumerate(content):
                pieces.extend(("\n\n",) if position else ())
                pieces.extend(self._texts.of(refs[ref]))
        pieces.append(("assistant",))
        return self._call(node, tuple(read), env, frame, joined(pieces))

    def _invoke(self, node: Invoke, env: Env, frame: int) -> int:
        return self._call(node, tuple(dict.fromkeys(env[arg.id] for arg in node.args)), env, frame, ())

    def _call(
        self, node: Generate | Invoke, read: tuple[int, ...], env: Env, frame: int, prompt: tuple[Piece, ...]
    ) -> int:
        refs, places = self._found.refs, self._found.places
        kind: RefKind = "reply" if isinstance(node, Generate) else "tool"
        if isinstance(node, Generate):
            same = node.deterministic and node.cache
        else:
            same = node.tool.effects in ("pure", "read")
        where = () if same else (str(frame),)
        ident = digest(kind, node.id, *(refs[env[value.id]].ident for value in _values(node)), *where)
        index = len(self._found.calls)
        ref = self._ref(ident, kind, node.step, node, frame=frame, args=read)
        # An equal step in another branch gives the same value.
        ref.calls |= 1 << index
        needs = places[frame].control
        for arg in read:
            needs |= refs[arg].calls
        if not same and not ref.random:
            self._root(ref, self._own_scope(frame), random=True)
        self._found.calls.append(
            CallSite(index=index, node=node, ref=ref.index, frame=frame, needs=needs, prompt=prompt)
        )
        env[node.id] = ref.index
        return ref.index

    # --- operators with sub-plans ---

    def _inside(self, kind: Any, frame: int, name: str, node: Node, *, loop: bool, control: int) -> int:
        outer = self._found.places[frame]
        self._found.places.append(
            Place(
                kind=kind, parent=frame, name=name, node=node, depth=outer.depth + loop,
                control=outer.control | control,
            )
        )  # fmt: skip
        return len(self._found.places) - 1

    def _map(self, node: Map, env: Env, frame: int) -> Walk:
        refs = self._found.refs
        over = env[node.over.id]
        inner = self._inside("items", frame, node.step, node, loop=True, control=refs[over].calls)
        place = self._found.places[inner]
        place.value = over
        place.expected, place.source = list_length(refs[over])
        variable, *names = [name for name, _ in node.body.parameters.columns]
        place.item = self._item(digest("item", node.id, refs[over].ident, str(inner)), variable, over, inner)
        captures = tuple(env[value.id] for value in node.captures)
        given = {variable: place.item} | dict(zip(names, captures, strict=True))
        results: Env = {}
        yield self._body(node.body, inner, given, results)
        place.result = results["yield"]
        ident = digest("map", node.id, str(frame), refs[over].ident, *(refs[ref].ident for ref in captures))
        made = self._ref(ident, "map", node.step, node, frame=frame, args=(over, *results.values()))
        self._lift(made, (over, *results.values()), inner)
        env[node.id] = made.index

    def _choose(self, node: Choose, env: Env, frame: int) -> Walk:
        refs = self._found.refs
        condition = env[node.condition.id]
        captures = tuple(env[value.id] for value in node.captures)
        arms: list[Env] = [{}, {}]
        share, source = branch_share(self._found, node, condition, frame)
        first = len(self._found.places)
        for arm, (kind, body) in enumerate((("then", node.then), ("otherwise", node.otherwise))):
            inner = self._inside(kind, frame, "", node, loop=False, control=refs[condition].calls)
            place = self._found.places[inner]
            place.value = condition
            place.name = f"if {refs[condition].name}" if kind == "then" else f"if not {refs[condition].name}"
            place.expected, place.source = (share if kind == "then" else 1 - share), source
            names = [name for name, _ in body.parameters.columns]
            yield self._body(body, inner, dict(zip(names, captures, strict=True)), arms[arm])
        for name, value in node.then.results:
            read = (condition, arms[0][name], arms[1][name])
            ident = digest("choose", node.id, str(frame), name, *(refs[ref].ident for ref in (condition, *captures)))
            made = self._ref(ident, "choose", name, value, frame=frame, args=read)
            self._lift(made, read, first)
            env[f"{node.id}.{name}"] = made.index

    def _repeat(self, node: Repeat, env: Env, frame: int) -> Walk:
        refs = self._found.refs
        inner = self._inside("rounds", frame, f"repeat up to {node.times}", node, loop=True, control=0)
        place = self._found.places[inner]
        place.times = node.times
        stops = any(name == Repeat.UNTIL for name, _ in node.body.results)
        place.expected, place.source = ((1 + node.times) / 2, "assumed") if stops else (float(node.times), "plan")
        columns = node.body.parameters.columns
        captures = tuple(env[value.id] for value in node.captures)
        given = dict(zip((name for name, _ in columns[len(node.carried) :]), captures, strict=True))
        starts = {name: env[value.id] for name, value in node.carried}
        for (name, kind), start in zip(columns, starts.values(), strict=False):
            ident = digest("carried", node.id, name, str(inner), refs[start].ident)
            ref = self._ref(
                ident, "carried", name, None, frame=inner, args=(start,), calls=refs[start].calls, type=kind
            )
            self._root(ref, Scope("iter", place.depth))
            given[name] = ref.index
        results: Env = {}
        yield self._body(node.body, inner, given, results)
        place.until = results.get(Repeat.UNTIL)
        place.carried = [(given[name], start, results[name]) for name, start in starts.items() if name in results]
        for name, value in node.body.results:
            read = (results[name], *starts.values())
            ident = digest(
                "repeat", node.id, str(frame), name, *(refs[ref].ident for ref in (*starts.values(), *captures))
            )
            made = self._ref(ident, "repeat", name, value, frame=frame, args=read)
            self._lift(made, read, inner)
            env[f"{node.id}.{name}"] = made.index

    def _lift(self, made: Ref, read: Iterable[int], inner: int) -> None:
        """What decides a value that leaves frames from `inner` on, and which calls it comes from."""
        refs = self._found.refs
        roots, calls, scope, random = 0, 0, BATCH, False
        for index in read:
            calls |= refs[index].calls
            roots |= refs[index].roots
        outside = 0
        for root in bits(roots):
            ref = refs[root]
            if ref.frame < inner or root == made.index:
                outside |= 1 << root
                scope = widest_of((scope, ref.scope))
                continue
            # An item or a carried value is decided by what its loop began with; a sampled reply by nothing outside.
            random = random or ref.random
        for index in read:
            for start in self._starts(index, inner):
                outside |= refs[start].roots
                scope = widest_of((scope, refs[start].scope))
        made.calls |= calls
        made.roots, made.scope, made.inner = outside, scope, inner
        if random:
            self._root(made, self._own_scope(made.frame), random=True)

    def _own_scope(self, frame: int) -> Scope:
        """The scope of what differs with every run of a frame."""
        places = self._found.places
        depth = places[frame].depth
        while frame >= 0 and places[frame].kind not in ("items", "rounds", "spread"):
            frame = places[frame].parent
        if not depth:
            return SAMPLE
        return Scope("iter" if places[frame].kind == "rounds" else "item", depth)

    def _starts(self, index: int, inner: int) -> Iterable[int]:
        """What the loops inside began with, where a value reads one of their items or carried values."""
        refs = self._found.refs
        stack, seen = list(bits(refs[index].roots)), set[int]()
        while stack:
            root = stack.pop()
            if root in seen or refs[root].frame < inner:
                continue
            seen.add(root)
            if refs[root].kind in ("item", "carried"):
                for arg in refs[root].args:
                    yield arg
                    stack.extend(bits(refs[arg].roots))


def _values(node: Generate | Invoke) -> Iterable[Value]:
    contents = () if isinstance(node, Invoke) else tuple(value for part in node.prompt for value in part.content)
    return node.args if isinstance(node, Invoke) else contents
