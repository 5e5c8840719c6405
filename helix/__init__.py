"""Helix runs batches of multi-step LLM workflows as optimized query plans.

    import helix as hx

    workflow = hx.load("support.helix")
    result = workflow.run("tickets.jsonl")

Everything public is here and loaded when it is first used, so that `import helix` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from helix.api import load as load
    from helix.api import loads as loads
    from helix.dsl import *  # noqa: F403
    from helix.errors import EngineError as EngineError
    from helix.errors import HelixError as HelixError
    from helix.errors import InputError as InputError
    from helix.errors import OptionError as OptionError
    from helix.errors import SourceError as SourceError
    from helix.errors import SourceErrors as SourceErrors
    from helix.errors import StoreError as StoreError
    from helix.executor.engines.scripted import ScriptedEngine as ScriptedEngine
    from helix.executor.settings import RunSettings as RunSettings
    from helix.executor.speculation import SpeculationSettings as SpeculationSettings
    from helix.results import RunReport as RunReport
    from helix.results import RunResult as RunResult

_HOMES = {
    "helix.api": ("load", "loads"),
    "helix.errors": (
        "EngineError",
        "HelixError",
        "InputError",
        "OptionError",
        "SourceError",
        "SourceErrors",
        "StoreError",
    ),
    "helix.executor.engines.scripted": ("ScriptedEngine",),
    "helix.executor.settings": ("RunSettings",),
    "helix.executor.speculation": ("SpeculationSettings",),
    "helix.results": ("RunReport", "RunResult"),
}


def __getattr__(name: str) -> Any:
    import importlib

    if name.startswith("__"):
        raise AttributeError(name)
    home = next((module for module, names in _HOMES.items() if name in names), "helix.dsl")
    module = importlib.import_module(home)
    if home == "helix.dsl" and name not in module.__all__:
        from helix.errors import near_match

        near = near_match(name, __dir__())
        raise AttributeError(f"helix has no `{name}`" + (f"; did you mean `{near}`?" if near else ""))
    return getattr(module, name)


def __dir__() -> list[str]:
    from helix import dsl

    return sorted({*dsl.__all__, *(name for names in _HOMES.values() for name in names), "__version__"})
