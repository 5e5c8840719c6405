"""Files that commands write: looked at before the work, and put in their place whole."""

from __future__ import annotations

from pathlib import Path

from helix.errors import OptionError


def check_target(target: str | None) -> None:
    """Whether `--output` can be written, as far as can be told beforehand. Raises OptionError."""
    if target is None:
        return
    path = Path(target)
    if path.is_dir():
        raise OptionError(f"--output takes a file, and {target} is a folder")
    if not path.parent.is_dir():
        raise OptionError(f"--output {target}: there is no folder {path.parent}")


def write_whole(target: str, text: str) -> None:
    """Writes a file whole: beside it first, then in its place. Raises OptionError."""
    path = Path(target)
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.write_text(text, encoding="utf-8", newline="")
        beside.replace(path)
    except OSError as error:
        raise OptionError(f"{target} cannot be written: {error.strerror or error}") from None


def form_of(target: str | None, given: str | None, suffixes: dict[str, str]) -> str:
    """The form that was asked for, else the one of the file's suffix, else text. Raises OptionError."""
    if given is not None or target is None:
        return given or "text"
    suffix = Path(target).suffix.lower()
    if suffix not in suffixes:
        *forms, last = dict.fromkeys(suffixes.values())
        raise OptionError(f"--output {target} tells no format by its suffix; add --format {', '.join(forms)} or {last}")
    return suffixes[suffix]
