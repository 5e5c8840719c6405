"""The policies by name: what `--policy` takes."""

from __future__ import annotations

from collections.abc import Callable

from helix.errors import OptionError, name_help
from helix.executor.policies.base import Policy
from helix.executor.policies.concur import Concur
from helix.executor.policies.fcfs import Fcfs, StaticCap, Uncapped
from helix.executor.policies.helium import CODE, PAPER, Helium
from helix.executor.policies.helix_policy import PARTS, Helix, PlanOrder
from helix.executor.policies.kvflow import KVFlow
from helix.executor.policies.lspf import LongestPrefixFirst
from helix.executor.policies.operator_wise import BARRIER, CHAIN, OperatorWise
from helix.executor.policies.parrot import Parrot
from helix.executor.policies.query_wise import QueryWise
from helix.executor.policies.random_order import Random, ReadyRandom
from helix.executor.policies.thunder_agent import ThunderAgent

DEFAULT = "helix"

_PLAIN: dict[str, Callable[[], Policy]] = {
    "helix": Helix,
    "plan": PlanOrder,
    "fcfs": Fcfs,
    "lpm": Uncapped,
    "query-wise": QueryWise,
    "operator-wise": OperatorWise,
    "random": Random,
    "ready-random": ReadyRandom,
    "lspf": LongestPrefixFirst,
    "kvflow": KVFlow,
    "parrot": Parrot,
    "thunder-agent": ThunderAgent,
    "concur": Concur,
    "helium": Helium,
}
_NUMBERED: dict[str, tuple[Callable[[int], Policy], str, int]] = {
    "cap": (StaticCap, "a number of rows", 1),
    "query-wise": (QueryWise, "a number of rows", 1),
    "random": (Random, "a seed", 0),
    "ready-random": (ReadyRandom, "a seed", 0),
    "thunder-agent": (ThunderAgent, "a tick in seconds", 1),
    "concur": (Concur, "a tick in seconds", 1),
}
_FORMED: dict[str, tuple[Callable[[str], Policy], tuple[str, ...]]] = {
    "operator-wise": (OperatorWise, (BARRIER, CHAIN)),
    "helium": (Helium, (CODE, PAPER)),
}
_NAMES = (*_PLAIN, "cap")
FORMS = (
    "helix[:no-PART,...]",
    "plan",
    "fcfs",
    "lpm",
    "cap:ROWS",
    "query-wise[:ROWS]",
    "operator-wise[:FORM]",
    "random[:SEED]",
    "ready-random[:SEED]",
    "lspf",
    "kvflow",
    "parrot",
    "thunder-agent[:SECONDS]",
    "concur[:SECONDS]",
    "helium[:FORM]",
)


def choose_policy(text: str) -> Policy:
    """The policy of a name, with what follows it behind a colon: a number, a form, what is left out. Raises OptionError
    for what is none.
    """
    name, colon, more = text.strip().partition(":")
    if name not in _NAMES:
        raise OptionError(f"unknown policy `{name}`; {name_help(name, _NAMES, 'policies')}")
    if not colon and name in _PLAIN:
        return _PLAIN[name]()
    if name == "helix":
        return Helix(_left_out(more))
    if name in _FORMED:
        make_form, forms = _FORMED[name]
        if more not in forms:
            raise OptionError(f"the policy `{name}` has the forms {_listed(forms)}, found `{more}`")
        return make_form(more)
    if name not in _NUMBERED:
        raise OptionError(f"the policy `{name}` takes no number, found `{text}`")
    make, what, least = _NUMBERED[name]
    if not more.isascii() or not more.isdigit() or int(more) < least:
        raise OptionError(f"the policy `{name}` takes {what} of at least {least}, found `{more}`")
    return make(int(more))


def _left_out(text: str) -> tuple[str, ...]:
    """The parts of Helix that a text such as `no-warm-ups,no-ledger` leaves out."""
    known = {f"no-{part}": part for part in PARTS}
    found: list[str] = []
    for each in text.split(","):
        if each.strip() not in known:
            help_ = name_help(each.strip(), known, "parts")
            raise OptionError(f"the policy `helix` has no part to leave out that is called `{each.strip()}`; {help_}")
        found.append(known[each.strip()])
    return tuple(found)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(f"`{name}`" for name in names)
