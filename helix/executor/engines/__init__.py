"""Engines, opened by address: `embedded`, `scripted:replies.toml`, `http://127.0.0.1:8000/v1`, ...

An engine's module is imported when its address is used, so that a check or a plan loads no client library.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable

from helix.errors import OptionError, near_match
from helix.executor.engines.base import Engine

DEFAULT = "embedded"
FORMS = (
    "embedded",
    "embedded:FILE.gguf",
    "scripted",
    "scripted:FILE.toml",
    "http://HOST:PORT/v1",
    "https://HOST/v1",
    "sglang://HOST:PORT[,HOST:PORT...]",
    "sim:GPU[xRANKS]/MODEL",
)

# Engines that are opened by the whole address.
WHOLE = frozenset({"http", "https", "sglang"})

Opener = Callable[[str, str | None, str | None, bool, str | None], Engine]


def open_engine(
    address: str | None,
    *,
    model: str | None = None,
    api_key: str | None = None,
    quiet: bool = False,
    tenant: str | None = None,
) -> Engine:
    """The engine at an address (None: the embedded one), not yet opened.

    `model` is the model for requests that name none. `api_key` is for servers only; without it HELIX_API_KEY, then
    OPENAI_API_KEY is used. `quiet` keeps the embedded engine from showing progress while it fetches its weights. Calls
    of one `tenant` share no cached prefix with those of another, where the engine can keep them apart.
    Raises OptionError for an address that is none, or a file that does not fit.
    """
    given = (address or DEFAULT).strip()
    kind, colon, rest = given.partition(":")
    opener = _OPENERS.get(kind.lower())
    if opener is None or (colon and not rest):
        raise OptionError(_unknown(given, kind.lower()))
    return opener(given if kind.lower() in WHOLE else rest, model, api_key, quiet, tenant)


def _scripted(rest: str, model: str | None, api_key: str | None, quiet: bool, tenant: str | None) -> Engine:
    from helix.executor.engines.scripted import ScriptedEngine

    # Nobody can look at the log of an engine that a run has opened, and it would hold every prompt.
    return ScriptedEngine.from_file(rest, keep_log=False) if rest else ScriptedEngine(keep_log=False)


def _server(rest: str, model: str | None, api_key: str | None, quiet: bool, tenant: str | None) -> Engine:
    from helix.executor.engines.openai import OpenAIEngine

    return OpenAIEngine(rest, model, _key(api_key), tenant=tenant)


def _sglang(rest: str, model: str | None, api_key: str | None, quiet: bool, tenant: str | None) -> Engine:
    from helix.executor.engines.sglang import SGLangEngine

    return SGLangEngine(rest, model, _key(api_key), tenant=tenant)


def loop_factory(*engines: str | Engine | None) -> Callable[[], AbstractEventLoop] | None:
    """Makes the loop that engines, or those at addresses, are to be run on; None is an ordinary one. A simulated engine
    brings its own, which is no loop for others.
    """
    found = [_loop_factory(engine) for engine in engines]
    return found[0] if found and all(found) else None


def _loop_factory(engine: str | Engine | None) -> Callable[[], AbstractEventLoop] | None:
    if isinstance(engine, str) and engine.strip().partition(":")[0].lower() == "sim":
        from helix.executor.engines.sim.loop import VirtualLoop

        return VirtualLoop
    return getattr(engine, "loop_factory", None)


def _key(given: str | None) -> str | None:
    return given or os.environ.get("HELIX_API_KEY") or os.environ.get("OPENAI_API_KEY")


def _simulated(rest: str, model: str | None, api_key: str | None, quiet: bool, tenant: str | None) -> Engine:
    from helix.executor.engines.sim.address import engine_at

    return engine_at(rest)


def _embedded(rest: str, model: str | None, api_key: str | None, quiet: bool, tenant: str | None) -> Engine:
    from helix.executor.engines.embedded import EmbeddedEngine

    return EmbeddedEngine(rest or None, quiet=quiet)


_OPENERS: dict[str, Opener] = {
    "embedded": _embedded,
    "scripted": _scripted,
    "http": _server,
    "https": _server,
    "sglang": _sglang,
    "sim": _simulated,
}


def _unknown(given: str, kind: str) -> str:
    shown = given.rpartition("@")[2].partition("?")[0]
    forms = f"known forms: {', '.join(FORMS)}"
    if shown.endswith((".gguf", ".toml")):
        hint = f"did you mean `{'embedded' if shown.endswith('.gguf') else 'scripted'}:{shown}`? "
    elif kind in _OPENERS:
        hint = f"nothing follows `{kind}:`; "
    elif "://" in given:
        near = near_match(kind, WHOLE)
        hint = f"did you mean `{near or 'http'}://{shown.rpartition('://')[2]}`? "
    elif "/" in given or "." in kind or kind == "localhost" or given.partition(":")[2].isdigit():
        hint = f"did you mean `http://{shown}`? "
    else:
        near = near_match(kind, _OPENERS)
        hint = f"did you mean `{near}`? " if near else ""
    return f"unknown engine `{shown}`; {hint}{forms}"
