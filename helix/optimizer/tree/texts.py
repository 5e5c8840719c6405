"""Values as a prompt shows them: literal text and holes, with constants folded and texts inside texts laid open.

`{{ a }}` of a text `a = "Dear {{ name }}"` is a literal and a hole; `{{ parts | join(", ") }}` of a list that is
written out is its parts with commas between them. What a text is made of is not followed beyond LARGEST pieces: from
there on it is one hole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from helix.canonical import constant_text
from helix.errors import HelixError
from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, RecordExpr, children, transform, walk
from helix.functions import FUNCTIONS, to_text
from helix.logical import Const, Fetch
from helix.node import part_text
from helix.optimizer.tree.refs import HoleSource, Piece, Ref, Resolution
from helix.optimizer.tree.shape import BATCH, Hole, Scope
from helix.replies import parse_reply
from helix.templates.template import Block, Slot, Template, Text
from helix.types import is_textual
from helix.unparse import jinja_expr, unparse_expr

LARGEST = 4096
LONGEST = 4_000_000  # characters
ROLES = ("system", "user", "assistant", "tool")
_SHOWN = 60
_DEEPEST = 40
_TEXT_FUNCTIONS = ("text", "json", "join", "lower", "upper", "trim", "replace")


def fetched(node: Fetch) -> Const:
    """What a reply that is known already says, as the constant that it is."""
    value = parse_reply(node.text, node.returns, coerce=node.coerce)
    return Const(type=node.type, json=constant_text(value), label=node.step)


class Texts:
    """Turns values of a resolution into pieces of prompts, each once."""

    def __init__(self, resolution: Resolution, functions: frozenset[str]) -> None:
        self._found = resolution
        self._refs = resolution.refs
        self._functions = functions

    def of(self, ref: Ref) -> tuple[Piece, ...]:
        """A value as text. The values that it is computed from were asked for before."""
        if ref.text is None:
            ref.text = self._of(ref)
        return ref.text

    def _of(self, ref: Ref) -> tuple[Piece, ...]:
        if ref.kind == "const":
            assert isinstance(ref.node, Const)
            text = to_text(json.loads(ref.node.json))
            return (text,) if text else ()
        if ref.kind == "render" and ref.template is not None:
            pieces = self.template(ref.template, ref.args)
            return pieces if self._small(pieces) else (self._whole(ref),)
        if ref.kind == "apply" and ref.expr is not None:
            opened = self._opened(ref.expr, ref.args)
            if opened is not None and self._small(opened):
                return joined(opened)
        return (self._whole(ref),)

    def _small(self, pieces: Sequence[Piece]) -> bool:
        """Whether pieces can be held: a text of texts of texts may double with each step."""
        return len(pieces) <= LARGEST and sum(len(piece) for piece in pieces if isinstance(piece, str)) <= LONGEST

    def template(self, template: Template, args: Sequence[int]) -> tuple[Piece, ...]:
        """A template as pieces."""
        made: list[Piece] = []
        for segment in template.segments:
            match segment:
                case Text(text=text):
                    made.append(text)
                case Slot(value=value):
                    made.extend(self.slot(value, args))
                case Block():
                    made.append(self._block(segment, args))
        return joined(made)

    def slot(self, expr: Expr, args: Sequence[int]) -> list[Piece]:
        """The text of an expression as pieces."""
        opened = self._opened(expr, args)
        return [self._hole(expr, args)] if opened is None else opened

    def messages(self, ref: Ref) -> tuple[Piece, ...]:
        """A list of messages (`history`) as turns and texts where it is written out, else one hole of messages."""
        made = self._messages(Arg(index=0), (ref.index,), 0)
        return joined(made) if len(made) <= LARGEST else joined(self._history(Arg(index=0), (ref.index,)))

    # --- laying open ---

    def _opened(self, expr: Expr, args: Sequence[int]) -> list[Piece] | None:
        """The pieces of an expression that is a text made of others; None where it is a value of its own."""
        match expr:
            case Literal(value=value):
                text = to_text(value)
                return [text] if text else []
            case Arg(index=index):
                ref = self._refs[args[index]]
                return list(self.of(ref))
            case Call(function="text", args=(inner,)):
                return self.slot(inner, args)
            case Call(function="join", args=(ListExpr(items=items), *rest)) if len(rest) < 2:
                separator = rest[0] if rest else Literal(value="")
                if not isinstance(separator, Literal) or not isinstance(separator.value, str):
                    return None
                made: list[Piece] = []
                for position, item in enumerate(items):
                    if position and separator.value:
                        made.append(separator.value)
                    made.extend(self.slot(item, args))
                return made
            case Binary(op="+", left=left, right=right) if self._is_text(left, args) and self._is_text(right, args):
                return [*self.slot(left, args), *self.slot(right, args)]
            case ListExpr() | RecordExpr() if not any(isinstance(part, Arg | Call) for part in walk(expr)):
                return self._constant(expr)
        return None

    def _constant(self, expr: Expr) -> list[Piece] | None:
        from helix.evaluate import evaluator

        try:
            return [to_text(evaluator(expr)(()))]
        except HelixError:
            return None

    def _is_text(self, expr: Expr, args: Sequence[int]) -> bool:
        """Whether an expression is a text and never null, so that `+` puts two of them together."""
        match expr:
            case Literal(value=value):
                return isinstance(value, str)
            case Arg(index=index):
                return is_textual(self._refs[args[index]].type)
            case Binary(op="+", left=left, right=right):
                return self._is_text(left, args) and self._is_text(right, args)
            case Call(function=name):
                return name in _TEXT_FUNCTIONS
        return False

    def _messages(self, expr: Expr, args: Sequence[int], depth: int) -> list[Piece]:
        match expr:
            case Arg(index=index) if depth < _DEEPEST:
                ref = self._refs[args[index]]
                if ref.kind == "apply" and ref.expr is not None:
                    return self._messages(ref.expr, ref.args, depth + 1)
                if ref.kind == "const":
                    return self._constant_messages(ref)
            case Binary(op="+", left=left, right=right) if depth < _DEEPEST:
                return [*self._messages(left, args, depth + 1), *self._messages(right, args, depth + 1)]
            case ListExpr(items=items):
                turns = [self._message(item, args) for item in items]
                made: list[Piece] = []
                for turn in turns:
                    if turn is None:
                        return self._history(expr, args)
                    made.extend(turn)
                return made
        return self._history(expr, args)

    def _message(self, expr: Expr, args: Sequence[int]) -> list[Piece] | None:
        """A record `{role: "...", content: ...}` that is written out: its turn, and its text."""
        if not isinstance(expr, RecordExpr):
            return None
        fields = dict(expr.fields)
        role, content = fields.get("role"), fields.get("content")
        if not isinstance(role, Literal) or role.value not in ROLES or content is None:
            return None
        return [(str(role.value),), *self.slot(content, args)] if self._is_text(content, args) else None

    def _constant_messages(self, ref: Ref) -> list[Piece]:
        assert isinstance(ref.node, Const)
        turns = json.loads(ref.node.json)
        made: list[Piece] = []
        for turn in turns or ():
            if not isinstance(turn, dict) or turn.get("role") not in ROLES or not isinstance(turn.get("content"), str):
                return self._history(Arg(index=0), (ref.index,))
            made += [(turn["role"],), turn["content"]]
        return made

    # --- holes ---

    def _history(self, expr: Expr, args: Sequence[int]) -> list[Piece]:
        return [self._hole(expr, args, messages=True)]

    def _whole(self, ref: Ref) -> Hole:
        """A value as one hole; an expression by what it says, so that it is the same hole wherever it is written."""
        if ref.kind == "apply" and ref.expr is not None:
            return self._hole(ref.expr, ref.args, name=ref.name if ref.node is not None and ref.name else "")
        return self._made(ref.ident, Slot(value=Arg(index=0)), (ref.index,), ref.name, "", ())

    def _hole(self, expr: Expr, args: Sequence[int], *, messages: bool = False, name: str = "") -> Hole:
        if isinstance(expr, Arg) and not messages:
            return self._whole(self._refs[args[expr.index]])
        fresh, used = renumbered(expr, args)
        if isinstance(fresh, Arg):
            key = self._refs[used[0]].ident
        else:
            key = digest("expr", part_text(fresh), *(self._refs[ref].ident for ref in used))
        producer, field, filters = self._described(fresh, used)
        if name:
            producer, field, filters = name, "", ()
        key = digest("messages", key) if messages else key
        return self._made(key, Slot(value=fresh), used, producer, field, filters, messages=messages)

    def _block(self, block: Block, args: Sequence[int]) -> Hole:
        inputs = ListExpr(items=block.inputs)
        fresh, used = renumbered(inputs, args)
        assert isinstance(fresh, ListExpr)
        moved = Block(source=block.source, names=block.names, inputs=fresh.items)
        idents = [self._refs[ref].ident for ref in used]
        key = digest("block", block.source, *block.names, part_text(fresh), *idents)
        shown = clipped(" ".join(block.source.split()))
        return self._made(key, moved, used, shown, "", ())

    def _made(
        self,
        key: str,
        segment: Slot | Block,
        args: tuple[int, ...],
        producer: str,
        field: str,
        filters: tuple[str, ...],
        *,
        messages: bool = False,
    ) -> Hole:
        number = int(key, 16)
        known = self._found.holes.get(number)
        if known is not None:
            return known.hole
        refs = [self._refs[arg] for arg in args]
        scope = widest_of(ref.scope for ref in refs)
        hole = Hole(number, clipped(producer), clipped(field), filters, scope, messages)
        roots = 0
        for ref in refs:
            roots |= ref.roots
        expressions = (segment.value,) if isinstance(segment, Slot) else segment.inputs
        pure = all(computable(expr, self._functions) for expr in expressions)
        self._found.holes[number] = HoleSource(
            hole=hole,
            template=Template(segments=(segment,)),
            args=args,
            # Whole messages are not put into a text, so what binds texts leaves them open.
            known=pure and not messages and all(ref.known for ref in refs),
            roots=roots,
        )
        return hole

    def _described(self, expr: Expr, args: Sequence[int]) -> tuple[str, str, tuple[str, ...]]:
        """Which value an expression is of, which part of it, and what is done to it."""
        filters: list[str] = []
        inner = expr
        while (
            isinstance(inner, Call)
            and inner.args
            and not inner.named
            and all(isinstance(arg, Literal) for arg in inner.args[1:])
        ):
            given = ", ".join(unparse_expr(arg) for arg in inner.args[1:])
            filters.append(f"{inner.function}({given})" if given else inner.function)
            inner = inner.args[0]
        base = inner
        while isinstance(base, Field | Index) and (isinstance(base, Field) or isinstance(base.index, Literal)):
            base = base.base
        if isinstance(base, Arg):
            path = unparse_expr(inner).removeprefix(unparse_expr(base))
            return self._refs[args[base.index]].name, path, tuple(reversed(filters))
        return self.shown(expr, args), "", ()

    def shown(self, expr: Expr, args: Sequence[int]) -> str:
        """An expression as a prompt writes it, with the names of the values that it reads, shortened."""
        from helix.expr import Name

        def leaf(part: Expr) -> Expr:
            return Name(name=self._refs[args[part.index]].name) if isinstance(part, Arg) else part

        return clipped(jinja_expr(transform(expr, leaf)))


def widest_of(scopes: object) -> Scope:
    """The narrowest of some scopes: a value made of several is the same only where all of them are."""
    found = BATCH
    for scope in scopes:  # type: ignore[attr-defined]
        if scope is not found and scope.rank > found.rank:
            found = scope
    return found


def renumbered(expr: Expr, args: Sequence[int]) -> tuple[Expr, tuple[int, ...]]:
    """An expression over just the values that it reads, in the order in which it reads them."""
    if isinstance(expr, Arg):
        return (expr if expr.index == 0 else Arg(index=0)), (args[expr.index],)
    order: dict[int, int] = {}
    for part in walk(expr):
        if isinstance(part, Arg):
            order.setdefault(args[part.index], len(order))

    def leaf(part: Expr) -> Expr:
        return Arg(index=order[args[part.index]]) if isinstance(part, Arg) else part

    return transform(expr, leaf), tuple(order)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Pieces in normal form: neighbouring literals are one, none is empty."""
    made: list[Piece] = []
    after_text = False
    for piece in pieces:
        if not isinstance(piece, str):
            after_text = False
        elif not piece:
            continue
        elif after_text:
            made[-1] += piece  # type: ignore[operator]
            continue
        else:
            after_text = True
        made.append(piece)
    return tuple(made)


def computable(expr: Expr, functions: frozenset[str]) -> bool:
    """Whether an expression uses built-in functions only, and such as were given."""
    if isinstance(expr, Arg | Literal):
        return True
    stack = [expr]
    while stack:
        part = stack.pop()
        if isinstance(part, Call) and part.function not in FUNCTIONS and part.function not in functions:
            return False
        stack.extend(children(part))
    return True


def clipped(text: str) -> str:
    """A text short enough to name something by."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def digest(*parts: str) -> str:
    """16 hexadecimal digits that stand for some texts."""
    data = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.blake2b(b"".join([b"%d:%b" % (len(each), each) for each in data]), digest_size=8).hexdigest()
