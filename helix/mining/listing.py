"""The patterns that a miner holds, without a history: after which event, which call, filled from where, how sure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice, product

from helix.mining.confidence import wilson
from helix.mining.functions import Function
from helix.mining.miner import ANY, Miner, in_words, pattern_name

# Of each argument the best functions are tried, and so many sets of them in all.
_MOST_FUNCTIONS = 6
_MOST_SETS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPattern:
    """A pattern: its name, what people read, and the chances that it had and took (discounted by age).

    `p` is how often it was right, `p_low` Wilson's lower bound of that.
    """

    name: str
    text: str
    tool: str
    chances: float
    hits: float

    @property
    def p(self) -> float:
        """The share of its chances in which it was right."""
        return self.hits / self.chances if self.chances else 0.0

    @property
    def p_low(self) -> float:
        """A lower bound of the probability that it is right (z = 1.64)."""
        return wilson(self.hits, self.chances)


def known_patterns(miner: Miner, tools: Collection[str]) -> list[KnownPattern]:
    """The patterns of these tools that had a chance, the surest first.

    A pattern's name is a hash, so that those that may be are tried; one whose arguments come from rare places is not
    found.
    """
    events = [ANY, *sorted({context[0] for context in miner.decisions.trie.counts if len(context) == 1})]
    found: dict[str, KnownPattern] = {}
    for tool in sorted(tools):
        for functions in _filled(miner, tool):
            for last in events:
                name = pattern_name(last, tool, functions)
                chances, hits, _ = miner.chances_of(name)
                if chances > 0 and name not in found:
                    found[name] = KnownPattern(
                        name=name, text=in_words(last, tool, functions), tool=tool, chances=chances, hits=hits
                    )
    return sorted(found.values(), key=lambda each: (-each.p_low, -each.hits, each.text))


def _filled(miner: Miner, tool: str) -> Iterator[dict[str, Function]]:
    """Ways to fill the arguments of a tool, from the functions that gave each of them most often."""
    if tool not in miner.arguments.names:
        return
    names = sorted(miner.arguments.names[tool])
    choices: list[list[Function]] = []
    for name in names:
        table = miner.arguments.own.get((tool, name), {})
        ranked = sorted(table.items(), key=lambda each: (-each[1].rate(miner.unit), -each[1].hits, repr(each[0])))
        choices.append([function for function, tally in ranked[:_MOST_FUNCTIONS] if tally.hits > 0])
    for chosen in islice(product(*choices), _MOST_SETS):
        yield dict(zip(names, chosen, strict=True))
