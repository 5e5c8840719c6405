"""What no schedule can beat: four lower bounds of a run's time, and which of them binds.

- `critical-path`: the longest chain of steps of one row, each prefilling only what nobody shares and decoding alone.
- `engine`: each distinct prefix prefilled once, each reply decoded in batches as large as slots and cache allow.
- `kv-area`: the room of the KV cache, held for as long as each reply takes. What calls share they may hold at once, but
  for those of a row that follow on one another.
- `tools`: each class of tools through its slots.

Bounds are of calls that were made, whose replies are known. Before a run the same sums over estimates are estimates,
and say so.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from helix.logical import Agent, LogicalPlan
from helix.optimizer.apart import Lines, lines_by_steps, passes_apart
from helix.optimizer.chains import Chains, Spent
from helix.optimizer.engine_time import H100, EngineTime
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.refs import Resolution
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.trie import TokenTrie
from helix.places import static_name

Binder = Literal["critical-path", "engine", "kv-area", "tools"]
# Tokens of a turn have numbers of their own, above every vocabulary.
_TURNS = {"system": 0xFFFF_0000, "user": 0xFFFF_0100, "assistant": 0xFFFF_0200, "tool": 0xFFFF_0300}
_OTHER_TURN = 0xFFFF_0400


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Lower bounds in seconds. `p_min` are the tokens on distinct prefixes. `estimated`: sums over estimates."""

    critical_path: float
    engine: float
    kv_area: float
    tools: float
    p_min: float
    estimated: bool
    engine_name: str = H100.name

    @property
    def all(self) -> tuple[tuple[Binder, float], ...]:
        """All four by name."""
        return (
            ("critical-path", self.critical_path),
            ("engine", self.engine),
            ("kv-area", self.kv_area),
            ("tools", self.tools),
        )

    @property
    def lower_bound(self) -> float:
        """The largest of them: no run is faster."""
        return max(seconds for _, seconds in self.all)

    @property
    def binder(self) -> Binder:
        """The one that is the largest; of equal ones the first."""
        return max(self.all, key=lambda each: each[1])[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCall:
    """An llm call that was made. `step` as records name it, `messages` as they were sent, tokens where told.

    `prompt_ids` are the tokens of the whole prompt as the engine makes them, chat template included, where it tells.
    """

    row: int
    step: str
    messages: tuple[tuple[str, str], ...]
    output: str
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt_ids: array[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTool:
    """A tool call that was made: how long it took in seconds, and its lane."""

    row: int
    step: str
    seconds: float
    lane: str = ""


@dataclass(slots=True)
class Work:
    """What the sums are over: calls by mean or one by one. Milliseconds are made of them, tokens throughout.

    `pairs` is the sum of n (n + 2 p) over the distinct prefixes: what attention costs, however they are cut. `steps`
    are those of decoding, one less than the tokens of each reply, `chain` those of the row that has the most of them
    one after the other, `lines` those of all calls, in lines that follow on one another; areas are held over them.
    """

    p_min: float = 0.0
    pairs: float = 0.0
    steps: float = 0.0
    chain: float = 0.0
    lines: Sequence[Lines] = ()
    contexts: float = 0.0
    private_area: float = 0.0
    shared_area: float = 0.0
    longest: float = 0.0
    tools: dict[str, float] = field(default_factory=dict)

    def call(self, prompt: float, private: float, output: float, times: float = 1.0) -> None:
        """Adds calls of one kind, by the tokens of their prompts and replies."""
        self.steps += EngineTime.steps(output) * times
        self.contexts += EngineTime.contexts(prompt, output) * times
        self.private_area += EngineTime.contexts(private, output) * times

    def bounds(self, engine: EngineTime, slots: Mapping[str, int], *, estimated: bool) -> Bounds:
        """The four bounds. `longest` is in milliseconds, `tools` in seconds by lane; a lane without slots has 1."""
        # Workers that only decode share no prefix: each call holds its whole prompt.
        held = self.contexts if engine.decoders else self.private_area + self.shared_area
        area = held / engine.capacity
        prefill = engine.b * self.p_min + engine.c * self.pairs
        if not engine.mixes:
            prefill += engine.a * self.p_min / engine.chunk
        decode = engine.e * self.steps + engine.f * self.contexts
        apart = passes_apart(
            engine,
            self.lines,
            chain=self.chain,
            contexts=self.contexts,
            prefill=0.0 if engine.decoders else prefill,
            decoding=decode,
        )
        # As many passes of decoding as full batches take, or as the cache has room for, or as the longest chain takes
        # and what cannot be done beside it; and of prefill as many as its tokens fill.
        decode += engine.d * max(self.steps / engine.batch, area, self.chain + apart)
        decoders = engine.decoders or engine.workers
        if engine.decoders:
            spent = max(prefill / (engine.workers - decoders), decode / decoders)
        else:
            spent = (prefill + decode) / engine.workers
        return Bounds(
            critical_path=self.longest / 1000,
            engine=spent / 1000,
            kv_area=engine.d * area / decoders / 1000,
            tools=max((total / slots.get(lane, 1) for lane, total in sorted(self.tools.items())), default=0.0),
            p_min=self.p_min,
            estimated=estimated,
            engine_name=engine.name,
        )


def measured_bounds(
    plan: LogicalPlan,
    calls: Sequence[MeasuredCall],
    tokenizer: Tokenizer,
    *,
    engine: EngineTime = H100,
    tools: Sequence[MeasuredTool] = (),
    slots: Mapping[str, int] | None = None,
    resolution: Resolution | None = None,
) -> Bounds:
    """The bounds of a run that was made, from its calls and tools.

    Exact where the tokenizer gives tokens; without them texts are compared by bytes and scaled, and `estimated` is
    set.
    """
    found = resolve_plan(plan) if resolution is None else resolution
    trie = TokenTrie()
    scale = scale_of(tokenizer, (text for call in calls for _, text in call.messages))
    handles = [
        trie.insert(
            prompt_tokens(call.messages, tokenizer) if call.prompt_ids is None else call.prompt_ids,
            text_tokens(call.output, tokenizer),
        )
        for call in calls
    ]
    outputs = [
        float(tokenizer.count(call.output) if call.output_tokens is None else call.output_tokens) for call in calls
    ]
    chains = Chains(found)
    decoded = [(call.row, call.step, EngineTime.steps(output)) for call, output in zip(calls, outputs, strict=True)]
    prompts = [
        sum(tokenizer.count(text) + tokenizer.turn for _, text in call.messages) + tokenizer.turn
        if call.prompt_tokens is None
        else call.prompt_tokens
        for call in calls
    ]
    work = Work(
        p_min=trie.distinct_tokens * scale,
        pairs=trie.distinct_pairs * scale**2,
        shared_area=held_together(trie, handles, decoded, chains) * scale,
        chain=chains.longest(decoded),
        lines=lines_of(chains, decoded, prompts),
    )
    # Tools of an agent may run beside one another, and ahead of the turn that asks for them.
    agents = {static_name(site.node.step) for site in found.calls if isinstance(site.node, Agent)}
    times: list[Spent] = []
    beside: list[Spent] = []
    for tool in tools:
        kept = beside if static_name(tool.step) in agents else times
        kept.append((tool.row, tool.step, tool.seconds * 1000))
    for call, handle, prompt, output in zip(calls, handles, prompts, outputs, strict=True):
        private = trie.private_tokens(handle) * scale
        work.call(prompt, private, output)
        alone = engine.prefill(private, prompt - private) + engine.decode(prompt, output)
        times.append((call.row, call.step, alone))
    work.longest = chains.longest(times, beside)
    for tool in tools:
        work.tools[tool.lane] = work.tools.get(tool.lane, 0.0) + tool.seconds
    return work.bounds(engine, slots or {}, estimated=tokenizer.ids_of is None or not tokenizer.exact)


def held_together(trie: TokenTrie, handles: Sequence[int], decoded: Sequence[Spent], chains: Chains) -> float:
    """The tokens that prompts share, or that decoding has left, times the passes that the cache holds them for.

    `decoded` are the decode steps of the calls with these handles. Calls that use the same tokens may hold them in the
    same passes, but for those of a row that follow on one another.
    """

    def passes(calls: Sequence[int]) -> float:
        longest = max(decoded[call][2] for call in calls)
        return longest if len(calls) == 1 else max(longest, chains.longest(decoded[call] for call in calls))

    return trie.held_area(handles, passes)


def lines_of(chains: Chains, decoded: Sequence[Spent], prompts: Sequence[int]) -> list[Lines]:
    """The lines of calls, from their decode steps and the tokens of their prompts."""
    widest = [prompt + steps for prompt, (_, _, steps) in zip(prompts, decoded, strict=True)]
    return lines_by_steps(chains.lines(decoded, widest))


# --- tokens of whole prompts --------------------------------------------------------------------------------------


def prompt_tokens(messages: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> array[int]:
    """A prompt's tokens as a trie takes them: each turn, then its text; the reply's turn at the end."""
    made = array("I")
    for role, text in messages:
        made.extend(turn_tokens(role, tokenizer))
        made.extend(text_tokens(text, tokenizer))
    made.extend(turn_tokens("assistant", tokenizer))
    return made


def turn_tokens(role: str, tokenizer: Tokenizer) -> array[int]:
    """Stand-ins for what the chat template puts before a message."""
    first = _TURNS.get(role, _OTHER_TURN)
    count = tokenizer.turn if tokenizer.ids_of is not None else round(tokenizer.turn * 4)
    return array("I", range(first, first + count))


def text_tokens(text: str, tokenizer: Tokenizer) -> array[int]:
    """A text's tokens, or its bytes where the tokenizer only counts."""
    ids = tokenizer.ids(text)
    return array("I", list(text.encode("utf-8", "surrogatepass"))) if ids is None else ids


def scale_of(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """What one number of a trie is worth in tokens: 1, or the tokens for each byte of these texts."""
    if tokenizer.ids_of is not None:
        return 1.0
    tokens, size = 0, 0
    for text in texts:
        tokens += tokenizer.count(text)
        size += len(text.encode("utf-8", "surrogatepass"))
    return tokens / size if size else 0.25
