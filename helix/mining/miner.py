"""The miner: learns sessions, and says which calls may come next."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

from helix.canonical import canonical_text
from helix.mining.arguments import Arguments, ArgumentSet
from helix.mining.candidates import Candidate, MinerSettings, ToolFacts
from helix.mining.confidence import beta_low, wilson
from helix.mining.control import SAY
from helix.mining.decisions import Decisions, View
from helix.mining.functions import Function, Sources, said_of
from helix.mining.history import History, call_key
from helix.mining.loglinear import Logit
from helix.traces.events import LlmEvent, Session, ToolEvent

# Less likely calls are no chances: their patterns would only fill the file.
LEAST_P = 0.02
# The strength of what is known of all patterns of one probability, in chances of one pattern.
PRIOR_STRENGTH = 6.0
# A pattern with fewer chances is judged by the same one after any event, if that has had more.
ENOUGH = 30.0
ANY = "*"
_BINS = 20
# Arguments of tools that are less likely are not looked for, once there is something.
_LEAST_TOOL = 0.003
_BEFORE = {"USER": "a text of the user", "^": "the beginning", ANY: "any event"}
_START = {"tool": 1.0, "fit": 1.0, "rest": 1.0}


@dataclass(slots=True)
class _Guess:
    """A call that may come next, before it is shown to anybody."""

    tool: str
    held: ArgumentSet
    key: str
    last: str
    features: dict[str, float]
    p: float = 0.0

    @property
    def pattern(self) -> str:
        """The name of its pattern."""
        return pattern_name(self.last, self.tool, self.held.functions)

    @property
    def wider(self) -> str:
        """The name of the same pattern after any event."""
        return pattern_name(ANY, self.tool, self.held.functions)


@dataclass(slots=True)
class _Moment:
    """All that is guessed at one decision. The last two features are those of SAY and of any other call."""

    view: View
    sources: Sources
    guesses: list[_Guess]
    features: list[dict[str, float]]
    say: float
    probabilities: list[float]


Heard = Callable[[Session, list[ToolEvent], list[Candidate]], None]


class Miner:
    """Learns from sessions what an agent calls next; see the package's text for how it is used."""

    def __init__(self, settings: MinerSettings | None = None, tools: Mapping[str, ToolFacts] | None = None) -> None:
        self.settings = settings or MinerSettings()
        self.tools: dict[str, ToolFacts] = dict(tools or {})
        self.sessions = 0
        self.decisions = Decisions(self.settings)
        self.arguments = Arguments(self.settings)
        self.calls = Logit(_START, rate=0.1)
        # The weight of what is seen now; it grows, so that what was seen before fades without being touched.
        self.unit = 1.0
        self.chances: dict[str, list[float]] = {}
        # What the patterns are whose names were made here: their last event, tool, and where each argument comes from.
        self.ways: dict[str, tuple[str, str, dict[str, Function]]] = {}
        self.bins: list[list[float]] = [[0.0, 0.0] for _ in range(_BINS)]
        self.stale: set[str] = set()

    # --- asking ---

    def predict(self, history: History, *, tools: Collection[str] | None = None, most: int = 18) -> list[Candidate]:
        """The calls that may come next, the likeliest first. With `tools` only these are on offer.

        At most `tools_tried` tools with `sets_tried` argument sets each are looked at.
        """
        moment = self._moment(history, tools)
        return [self._candidate(guess, history) for guess in _ranked(moment.guesses)[:most]]

    def next_tools(self, history: History, *, tools: Collection[str] | None = None) -> list[tuple[str, float]]:
        """The tools that may come next with their probabilities, the likeliest first; `SAY` is one of them."""
        view = self.decisions.look(history, tools)
        return sorted(zip(view.outcomes, view.probabilities, strict=True), key=lambda each: (-each[1], each[0]))

    def chances_of(self, pattern: str) -> tuple[float, float, float]:
        """The chances and hits of a pattern, and Wilson's lower bound of its rate."""
        chances, hits = (each / self.unit for each in self.chances.get(pattern, (0.0, 0.0)))
        return chances, hits, wilson(hits, chances)

    def _candidate(self, guess: _Guess, history: History) -> Candidate:
        last, pattern = guess.last, guess.pattern
        if self._seen(pattern) < ENOUGH and self._seen(wider := guess.wider) > self._seen(pattern):
            last, pattern = ANY, wider
        chances, hits, low = self._bound(pattern, guess.p)
        return Candidate(
            tool=guess.tool,
            args=guess.held.args,
            key=guess.key,
            p=guess.p,
            p_low=low,
            chances=chances,
            hits=hits,
            pattern=pattern,
            text=in_words(last, guess.tool, guess.held.functions),
            stale=guess.tool in self.stale,
        )

    def _seen(self, pattern: str) -> float:
        return self.chances.get(pattern, (0.0, 0.0))[0] / self.unit

    def _bound(self, pattern: str, p: float) -> tuple[float, float, float]:
        """Chances, hits, and the lower bound of the probability that they allow."""
        seen, right = self.bins[_bin(p)]
        # A new pattern begins where all of this probability surely are together.
        prior = wilson(right / self.unit, seen / self.unit)
        held = self.chances.get(pattern, (0.0, 0.0))
        chances, hits = held[0] / self.unit, held[1] / self.unit
        return chances, hits, min(p, beta_low(hits, chances, prior, PRIOR_STRENGTH))

    def _moment(self, history: History, tools: Collection[str] | None = None, view: View | None = None) -> _Moment:
        view = self.decisions.look(history, tools) if view is None else view
        sources = Sources(history, dates=self.settings.dates)
        ranked = sorted(
            ((name, p) for name, p in zip(view.outcomes, view.probabilities, strict=True) if name != SAY),
            key=lambda each: (-each[1], each[0]),
        )
        done = {call.key for call in history.calls}
        last = history.context(1)[0]
        guesses: list[_Guess] = []
        covered = 0.0
        for tool, p in ranked[: self.settings.tools_tried]:
            if p < _LEAST_TOOL and len(guesses) >= self.settings.sets_tried:
                break
            for held in self.arguments.sets(tool, sources, self.settings.sets_tried, self.unit):
                key = call_key(tool, held.args)
                found = {"tool": math.log(p + 1e-9), "fit": held.fit, "call": 1.0, f"call {tool}": 1.0}
                found["args"] = float(len(held.functions))
                if key in done:
                    found["again"] = found[f"again {tool}"] = 1.0
                if self.settings.joint:
                    found["together"], found["apart"] = _records(held, history)
                covered += p * math.exp(held.fit)
                guesses.append(_Guess(tool, held, key, last, found))
        say = view.p(SAY)
        features = [guess.features for guess in guesses]
        features.append({"tool": math.log(say + 1e-9), "say": 1.0})
        features.append({"rest": math.log(max(1e-4, 1.0 - covered - say)), "other": 1.0})
        probabilities = self.calls.probabilities(features)
        for guess, p in zip(guesses, probabilities, strict=False):
            guess.p = p
        return _Moment(view, sources, guesses, features, probabilities[-2], probabilities)

    # --- learning ---

    def mine(self, sessions: Iterable[Session], heard: Heard | None = None) -> None:
        """Learns many sessions in their order. Sessions of one group are scored before any of them is learned, so that
        no try of a task is predicted from another one.

        `heard` is told of each decision after it was scored: its session, its calls, and what had been predicted.
        """
        for _, held in groupby(sessions, key=lambda session: session.group):
            group = list(held)
            for session in group:
                for history, calls in decisions_of(session):
                    moment = self._score(history, calls)
                    if heard is not None and moment is not None:
                        heard(session, calls, [self._candidate(each, history) for each in _ranked(moment.guesses)])
            for session in group:
                for history, calls in decisions_of(session):
                    self._count(history, calls)
                self._aged()

    def observe(self, session: Session) -> None:
        """Learns a session that has ended: scores each of its decisions, then counts it."""
        self.mine([session])

    def _aged(self) -> None:
        self.sessions += 1
        if self.settings.half_life is not None:
            self.unit *= 2.0 ** (1.0 / self.settings.half_life)

    def _score(self, history: History, calls: list[ToolEvent]) -> _Moment | None:
        """Predicts one decision, and learns how to weigh what spoke for each outcome."""
        if not self.decisions.trie.counts:
            return None
        moment = self._moment(history)
        self._chances(moment, {call_key(each.tool, each.args) for each in calls})
        for call in outcomes_of(calls):
            key = None if call is None else call_key(call.tool, call.args)
            place = next((at for at, guess in enumerate(moment.guesses) if guess.key == key), None)
            if place is None:
                place = len(moment.features) - (2 if call is None else 1)
            self.calls.learn(moment.features, place, moment.probabilities)
            self.decisions.weigh(moment.view, SAY if call is None else call.tool)
            if call is not None:
                self.arguments.weigh(call.tool, call.args, moment.sources, self.unit)
        return moment

    def _chances(self, moment: _Moment, keys: set[str]) -> None:
        """Counts a chance for each pattern that was likely enough, and a hit where it was right."""
        for guess in moment.guesses:
            if guess.p < LEAST_P:
                continue
            right = self.unit if guess.key in keys else 0.0
            name = guess.pattern
            self.ways.setdefault(name, (guess.last, guess.tool, guess.held.functions))
            held, wider = (self.chances.setdefault(each, [0.0, 0.0]) for each in (name, guess.wider))
            for tally in (held, wider, self.bins[_bin(guess.p)]):
                tally[0] += self.unit
                tally[1] += right

    def _count(self, history: History, calls: list[ToolEvent]) -> None:
        if not calls:
            self.decisions.learn(history, SAY, self.unit)
        for call in calls:
            self.decisions.learn(history, call.tool, self.unit)
            self.arguments.learn(call.tool, call.args, Sources(history, dates=self.settings.dates), self.unit)

    # --- keeping ---

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        tenant: str | None = None,
        schemas: Mapping[str, str] | None = None,
    ) -> None:
        """Writes the patterns to a file that replaces the one at `path` when it is whole. `schemas` are the hashes of
        the tools' schemas. Raises InputError."""
        from helix.mining.storage import save

        save(self, path, tenant=tenant, schemas=schemas)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        tenant: str | None = None,
        schemas: Mapping[str, str] | None = None,
        settings: MinerSettings | None = None,
    ) -> Miner:
        """The miner that a file holds. Patterns of tools whose schema is not the one in `schemas` are stale.

        Raises InputError for a file of another version or another tenant, and for one that is no pattern file.
        """
        from helix.mining.storage import load

        return load(path, tenant=tenant, schemas=schemas, settings=settings)


def decisions_of(session: Session) -> Iterable[tuple[History, list[ToolEvent]]]:
    """The decisions of a session with their calls (none: SAY), each with the history before it.

    The history is one object that goes on when the next decision is asked for. Calls that no decision lists, as a plan
    makes them, are decisions of their own.
    """
    history = History()
    events = session.events
    at = 0
    while at < len(events):
        event = events[at]
        at += 1
        calls: list[ToolEvent] = []
        if isinstance(event, LlmEvent):
            for text in event.user:
                history.user(text)
            listed = set(event.calls)
            while at < len(events) and isinstance(found := events[at], ToolEvent) and found.id in listed:
                calls.append(found)
                at += 1
            if event.status == "ok":
                yield history, calls
            history.said(event.text)
        else:
            calls = [event]
            yield history, calls
        for call in calls:
            history.add(call)


def outcomes_of(calls: Sequence[ToolEvent]) -> Sequence[ToolEvent | None]:
    """The outcomes of a decision: its calls, or None for SAY."""
    return calls or (None,)


def pattern_name(last: str, tool: str, functions: Mapping[str, Function]) -> str:
    """The name of a pattern: a hash of the last event, the tool and where each argument comes from."""
    held = canonical_text([last, tool, sorted([name, *function] for name, function in functions.items())])
    return hashlib.sha256(held.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def in_words(last: str, tool: str, functions: Mapping[str, Function]) -> str:
    """A pattern as people read it."""
    filled = [f"{name} = {said_of(each)}" for name, each in sorted(functions.items()) if each[0] != "absent"]
    return f"after {_BEFORE.get(last, last)}: {tool}({', '.join(filled)})"


def _ranked(guesses: list[_Guess]) -> list[_Guess]:
    """The likeliest first, ties by name."""
    return sorted(guesses, key=lambda guess: (-guess.p, guess.tool, guess.key))


def _bin(p: float) -> int:
    return min(_BINS - 1, int(p * _BINS))


def _records(held: ArgumentSet, history: History) -> tuple[float, float]:
    """Of the pairs of arguments that stand in the latest results: the share in one record, and that in none."""
    places = [place for choice in held.choices if (place := _places(choice.text, history))]
    pairs = list(combinations(places, 2))
    if not pairs:
        return 0.0, 0.0
    together = sum(bool(first & second) for first, second in pairs)
    return together / len(pairs), (len(pairs) - together) / len(pairs)


def _places(text: str, history: History) -> set[tuple[int, tuple[str, ...]]]:
    """The records of the last three results that hold a value of more than two characters."""
    if len(text) <= 4:
        return set()
    return {
        (back, record) for back, call in enumerate(history.calls[-1:-4:-1]) for record in call.records().get(text, ())
    }
