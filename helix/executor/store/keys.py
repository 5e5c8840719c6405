"""What a call is known by (contract 5): a SHA-256 over one canonical encoding of all that decides its result.

Of an llm call: the model's identity and revision, every message byte, all sampling fields, what the reply must be, the
number of the sample, and for equal sampled prompts the ordinal. Of a tool's call: its version (the source of a Python
function, the content of a database), its signature, its statement, and the arguments. Neither holds names of steps,
descriptions, positions in a file, folders, nor the address of an engine that says what it serves.

The encoding is the canonical JSON of a list; a change of what it holds changes its first item.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Protocol

from helix.canonical import canonical_text
from helix.executor.engines.base import Capabilities
from helix.logical import Tool

LLM = "helix llm 1"
TOOL = "helix tool 1"


def utf8(text: str) -> bytes:
    """As UTF-8; a lone surrogate, which a reply may hold, has its own three bytes."""
    return text.encode("utf-8", "surrogatepass")


def model_identity(address: str, capabilities: Capabilities, asked: str | None) -> dict[str, Any]:
    """Which model answers: its name and revision; the address only of an engine that tells neither.

    `asked` is the name in the request; without it the engine's own choice counts.
    """
    served = capabilities.models
    name = asked or capabilities.model or (served[0] if len(served) == 1 else None)
    if name is None and capabilities.revision is None:
        return {"engine": address, "models": list(served)}
    return {"name": name, "revision": capabilities.revision}


class Watched(Protocol):
    """Something that results hang on and that may change."""

    def unchanged(self) -> bool: ...


class Asking:
    """What all calls of one step have in common.

    `model` (with the `tenant`, where there is one) and `parameters` lie beside a stored value and are checked when it
    is read. `label` is the step's name, for people. `stored` says that outcomes may be used in other runs, for `holds`
    seconds (None: for good). `acts` says that a call may change the world: it is known by its place and its arguments,
    whatever its program. `merge` says that the run makes equal calls once. `seen` is what must not change while the
    calls are made, such as a database file, `profile` what the lengths of its replies are counted under.
    """

    __slots__ = ("acts", "head", "holds", "label", "merge", "model", "parameters", "profile", "seen", "stored")

    def __init__(
        self,
        model: Mapping[str, Any],
        parameters: Mapping[str, Any],
        *,
        kind: str,
        tenant: str | None = None,
        label: str,
        stored: bool,
        merge: bool = True,
        holds: float | None = None,
        acts: bool = False,
        seen: Watched | None = None,
    ) -> None:
        self.model = canonical_text(dict(model) if tenant is None else {**model, "tenant": tenant})
        self.parameters = canonical_text(parameters)
        self.label = label
        self.stored = stored
        self.merge = merge
        self.holds = holds
        self.acts = acts
        self.seen = seen
        self.profile: tuple[str, str, str] | None = None
        self.head = sha256(utf8(f"[{canonical_text(kind)},{self.model},{self.parameters},"))

    def call(
        self, content: Any, sample: int, *, row: int, place: str, turns: tuple[int, ...], shared: bytes | None
    ) -> Asked:
        """One call. `content` is its prompt or its arguments as JSON; the rest says where in the run it stands.

        `shared` is the key that the run merges equal calls by, where it merges them.
        """
        hasher = self.head.copy()
        hasher.update(utf8(canonical_text(content)))
        hasher.update(b",%d," % sample)
        return Asked(self, hasher, row=row, place=place, turns=turns, shared=shared if self.merge else None)


class Asked:
    """What one call is known by. `stored` says that its outcome may be used in other runs.

    `content` leaves out the ordinal. `shared` is what equal calls of this run share; None where each is made, and its
    place tells it apart: the input row, the step with the positions of lists, and the rounds.
    """

    __slots__ = ("_hasher", "asking", "content", "ordinal", "place", "row", "shared", "stored", "turns")

    def __init__(
        self, asking: Asking, hasher: Any, *, row: int, place: str, turns: tuple[int, ...], shared: bytes | None
    ) -> None:
        self.asking = asking
        self._hasher = hasher
        self.content: bytes = hasher.digest()
        self.row = row
        self.place = place
        self.turns = turns
        self.shared = shared
        self.stored = asking.stored
        # Which of several equal calls that share nothing it is; told when the call is looked up.
        self.ordinal = 0

    @property
    def key(self) -> bytes:
        """The key of the result store: 32 bytes."""
        hasher = self._hasher.copy()
        hasher.update(b"%d]" % self.ordinal)
        digest: bytes = hasher.digest()
        return digest

    def in_run(self, row: bytes) -> bytes:
        """The key in the journal of a run: 16 bytes. `row` is the identity of the input row."""
        if self.shared is not None:
            parts = (b"shared", self.shared, self.content)
        else:
            where = canonical_text([self.place, list(self.turns)])
            parts = (b"placed", row, utf8(where) + b"\n" + self.content)
        return sha256(b"\n".join(parts)).digest()[:16]


def tool_parameters(tool: Tool, version: str | None) -> dict[str, Any]:
    """What decides the result of a tool besides its arguments: its signature, its statement and its version."""
    return {
        "origin": tool.origin,
        "takes": [[column.name, str(column.type)] for column in tool.params],
        "returns": str(tool.returns),
        "query": tool.query,
        "max_rows": tool.max_rows,
        "version": version,
    }
