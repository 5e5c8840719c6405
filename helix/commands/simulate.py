"""The command `helix simulate`: options, where the forecast goes, and calibration against a live server."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from helix.commands.files import check_target, form_of, write_whole
from helix.errors import OptionError
from helix.forecast.measures import Forecast
from helix.options.files import constants_of, load_workflow, pairs_of
from helix.progress import say

if TYPE_CHECKING:
    from helix.simulation.sweep import Sweep

WELL, FAILED = 0, 3
_SUFFIXES = {".txt": "text", ".json": "json", ".html": "html", ".htm": "html"}
_Number = TypeVar("_Number", int, float)


def simulate_command(
    file: str | None, *, calibrate: str | None, target: str | None, quiet: bool, **options: Any
) -> int:
    """Simulates, or calibrates, and gives the exit code. Raises HelixError for what is wrong."""
    if calibrate is not None:
        return _calibrate(calibrate, file, target, quiet, options)
    if file is None:
        raise OptionError("which workflow shall be simulated? Give its FILE, or --calibrate sglang://HOST:PORT")
    form = form_of(target, options.pop("form"), _SUFFIXES)
    width = options.pop("width")
    # What cannot be written is found before hours are simulated.
    check_target(target)
    forecast = _forecast(file, quiet, **options)
    if target is None:
        if width is None and sys.stdout.isatty():
            width = shutil.get_terminal_size().columns
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        click.echo(_shown(forecast, form, width), nl=False)
    else:
        write_whole(target, _shown(forecast, form, width))
        if not quiet:
            say(f"{target}: written")
    return FAILED if forecast.optimized.failed_rows else WELL


def _forecast(
    file: str,
    quiet: bool,
    *,
    source: str | None,
    constants: tuple[str, ...],
    server: tuple[str, ...],
    output_tokens: tuple[str, ...],
    price: str | None,
    what_if_ranks: str,
    what_if_gpus: str | None,
    what_if_pd: str | None,
    no_what_if: bool,
    no_plain: bool,
    kv_tokens: int | None,
    rules: str | None,
    without: str | None,
    store: Path | None,
    **options: Any,
) -> Forecast:
    from helix import api
    from helix.executor.store.settings import FOLDER

    settings: dict[str, Any] = pairs_of("--server", server)
    if kv_tokens is not None:
        settings["kv_tokens"] = kv_tokens
    # The folder that runs keep their results in by default is looked into if it is there.
    kept = store if store is not None else FOLDER if FOLDER.is_dir() else None
    ranks = [] if no_what_if else _numbers("--what-if-ranks", what_if_ranks)
    return api.simulate(
        load_workflow(file),
        source,
        set=constants_of(constants),
        server=settings,
        output_tokens=_lengths(output_tokens),
        price=_price(price),
        what_if_ranks=ranks,
        what_if_gpus=None if what_if_gpus is None else _names(what_if_gpus),
        what_if_pd=[] if no_what_if else _names(what_if_pd or ""),
        plain=not no_plain,
        rules=None if rules is None else [] if rules == "none" else _names(rules),
        without=_names(without or ""),
        store=kept if store is not None or _has_results(kept) else None,
        tell=(lambda text: None) if quiet else say,
        **options,
    )


def _has_results(folder: Path | None) -> bool:
    from helix.executor.store.profiles import LengthProfiles

    return folder is not None and LengthProfiles.there(folder)


def _shown(forecast: Forecast, form: str, width: int | None) -> str:
    if form == "json":
        return json.dumps(forecast.to_json(), ensure_ascii=False, indent=2) + "\n"
    return forecast.to_html() if form == "html" else forecast.text(width=width)


# --- calibration --------------------------------------------------------------------------------------------------


def _calibrate(address: str, file: str | None, target: str | None, quiet: bool, options: Mapping[str, Any]) -> int:
    """Measures a server, or asks aiconfigurator, and writes the cost model."""
    from helix.simulation.sweep import sweep_json

    if file is not None:
        raise OptionError(f"--calibrate measures an engine and takes no workflow, found {file}")
    if target is None:
        raise OptionError("--calibrate writes the cost model to a file: give --output cost.json")
    if not address.startswith("sglang:") and address != "aiconfigurator":
        what = "measures a server at sglang://HOST:PORT, or asks `aiconfigurator`"
        raise OptionError(f"--calibrate {what}, found `{address}`")
    check_target(target)
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    if address == "aiconfigurator":
        sweep = _asked(options, tell)
    else:
        from helix.executor.engines.sglang.sweep import measure

        key = os.environ.get("HELIX_API_KEY") or None
        sweep = asyncio.run(measure(address, key=key, tell=tell))
    made = sweep_json(sweep)
    write_whole(target, json.dumps(made, ensure_ascii=False, indent=1) + "\n")
    fit, errors = made["fit"], made["fit"]["errors"]
    click.echo(f"{sweep.engine}: {sweep.model}")
    click.echo(f"prefill = {fit['a']:.4g} + {fit['b']:.4g} n + {fit['c']:.4g} n (n + 2 p) ms")
    click.echo(f"decode  = {fit['d']:.4g} + {fit['e']:.4g} B + {fit['f']:.4g} S ms")
    for name, points in (("prefill", sweep.prefill), ("decode", sweep.decode)):
        mean, most = errors[f"{name}_mean"], errors[f"{name}_most"]
        click.echo(f"{name}: {len(points)} points, the fit is {mean:.1%} off in the mean, {most:.1%} at most")
    if not quiet:
        say(f"{target}: written; use it with --cost {target}")
    return WELL


def _asked(options: Mapping[str, Any], tell: Callable[[str], None]) -> Sweep:
    """What aiconfigurator says of a model on a GPU."""
    from helix.simulating.wanted import DEFAULT_GPU
    from helix.simulation.aiconfigurator import aiconfigurator_sweep
    from helix.simulation.gpus import gpu_of
    from helix.simulation.shapes import model_shape

    model = options["model"]
    if model is None:
        raise OptionError("--calibrate aiconfigurator needs the model: give --model")
    gpu = gpu_of(options["gpu"] or DEFAULT_GPU)
    return aiconfigurator_sweep(gpu, model_shape(model), tp=options["tp"], named=model, tell=tell)


# --- options ------------------------------------------------------------------------------------------------------


def _lengths(given: tuple[str, ...]) -> int | dict[str, int] | None:
    """Lengths of replies: one for all steps, or for steps by name."""
    if not given:
        return None
    plain = [each for each in given if "=" not in each]
    if len(plain) > 1 or (plain and len(given) > 1):
        raise OptionError(
            f"--output-tokens takes one number for all steps, or STEP=N for some, found {', '.join(given)}"
        )
    if plain:
        return _number("--output-tokens", plain[0], int)
    return {name: _number("--output-tokens", text, int) for name, text in pairs_of("--output-tokens", given).items()}


def _price(given: str | None) -> float | dict[str, float] | None:
    if given is None:
        return None
    if "=" not in given:
        return _number("--price", given, float)
    pairs = pairs_of("--price", tuple(_names(given)))
    return {name: _number("--price", text, float) for name, text in pairs.items()}


def _numbers(option: str, given: str) -> list[int]:
    return [_number(option, each, int) for each in _names(given)]


def _number(option: str, text: str, kind: Callable[[str], _Number]) -> _Number:
    try:
        return kind(text.strip())
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise OptionError(f"{option} takes {what}, found `{text}`") from None


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]
