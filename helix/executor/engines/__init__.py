"""Engines, opened by address: `embedded`, `scripted:replies.toml`, `http://127.0.0.1:8000/v1`, ...

An engine's module is imported when its address is used, so that a check or a plan loads no client library.
"""

from __future__ import annotations

import os
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
)
LATER = {
    "sglang": "an SGLang server also answers at http://HOST:PORT/v1",
    "sim": "scripted runs a workflow without a model",
}

Opener = Callable[[str, str | None, str | None, bool], Engine]


def open_engine(
    address: str | None, *, model: str | None = None, api_key: str | None = None, quiet: bool = False
) -> Engine:
    """The engine at an address (None: the embedded one), not yet opened.

    `model` is the model for requests that name none. `api_key` is for servers only; without it HELIX_API_KEY, then
    OPENAI_API_KEY is used. `quiet` keeps the embedded engine from showing progress while it fetches its weights.
    Raises OptionError for an address that is none, or a file that does not fit.
    """
    given = (address or DEFAULT).strip()
    kind, colon, rest = given.partition(":")
    opener = _OPENERS.get(kind.lower())
    if opener is None or (colon and not rest):
        raise OptionError(_unknown(given, kind.lower()))
    return opener(given if kind.lower() in ("http", "https") else rest, model, api_key, quiet)


def _scripted(rest: str, model: str | None, api_key: str | None, quiet: bool) -> Engine:
    from helix.executor.engines.scripted import ScriptedEngine

    return ScriptedEngine.from_file(rest) if rest else ScriptedEngine()


def _server(rest: str, model: str | None, api_key: str | None, quiet: bool) -> Engine:
    from helix.executor.engines.openai import OpenAIEngine

    key = api_key or os.environ.get("HELIX_API_KEY") or os.environ.get("OPENAI_API_KEY")
    return OpenAIEngine(rest, model, key)


def _embedded(rest: str, model: str | None, api_key: str | None, quiet: bool) -> Engine:
    from helix.executor.engines.embedded import EmbeddedEngine

    return EmbeddedEngine(rest or None, quiet=quiet)


_OPENERS: dict[str, Opener] = {
    "embedded": _embedded,
    "scripted": _scripted,
    "http": _server,
    "https": _server,
}


def _unknown(given: str, kind: str) -> str:
    shown = given.rpartition("@")[2].partition("?")[0]
    forms = f"known forms: {', '.join(FORMS)}"
    if kind in LATER:
        return f"engine `{shown}` is not part of this version; {LATER[kind]}; {forms}"
    if shown.endswith((".gguf", ".toml")):
        hint = f"did you mean `{'embedded' if shown.endswith('.gguf') else 'scripted'}:{shown}`? "
    elif kind in _OPENERS:
        hint = f"nothing follows `{kind}:`; "
    elif "/" in given or "." in kind or kind == "localhost" or given.partition(":")[2].isdigit():
        hint = f"did you mean `http://{shown}`? "
    else:
        near = near_match(kind, _OPENERS)
        hint = f"did you mean `{near}`? " if near else ""
    return f"unknown engine `{shown}`; {hint}{forms}"
