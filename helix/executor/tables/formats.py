"""The names of table formats, and which one a file is in."""

from __future__ import annotations

from pathlib import Path

from helix.errors import InputError, OptionError, name_help, near_match
from helix.executor.tables.bytes_in import ByteSource, blocks

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
INPUT_FORMATS = ("jsonl", "json", "csv", "tsv", "parquet", "arrow")
OUTPUT_FORMATS = ("jsonl", "csv", "tsv", "parquet", "arrow")
PACKABLE = ("jsonl", "json", "csv", "tsv")

# How many entries of a folder are looked at for a name like the one that is not there.
_NAMES_LOOKED_AT = 10_000


def input_format(path: Path | None, given: str | None) -> str | None:
    """The format to read: the given one, else the one of the path's suffix; None for a stream without either."""
    if given is not None:
        if given not in INPUT_FORMATS:
            raise OptionError(f"there is no input format `{given}`; {name_help(given, INPUT_FORMATS, 'formats')}")
        return given
    return None if path is None else _by_suffix(path, "input", INPUT_FORMATS)


def output_format(path: Path | None, given: str | None) -> str:
    """The format to write: the given one, else the one of the path's suffix, else JSON Lines."""
    if given is not None:
        if given not in OUTPUT_FORMATS:
            raise OptionError(f"there is no output format `{given}`; {name_help(given, OUTPUT_FORMATS, 'formats')}")
        return given
    return "jsonl" if path is None else _by_suffix(path, "output", OUTPUT_FORMATS)


def _by_suffix(path: Path, use: str, formats: tuple[str, ...]) -> str:
    suffix = path.suffix.lower()
    packed = suffix == ".gz"
    if packed:
        suffix = Path(path.stem).suffix.lower()
    format = SUFFIXES.get(suffix)
    if format in formats and not (packed and (use == "output" or format not in PACKABLE)):
        return format
    known = [known for known, name in SUFFIXES.items() if name in formats]
    near = near_match(suffix, known) if not packed else None
    hint = f"did you mean `{near}`? " if near else ""
    found = f"the suffix `{path.suffix}`" if path.suffix else "no suffix"
    raise OptionError(
        f"{path} has {found}, which names no {use} format; {hint}known suffixes: {', '.join(known)}; "
        f"or give the format: {', '.join(formats)}"
    )


def sniff(source: ByteSource) -> str:
    """The format of a stream that has no name, by its first bytes; JSON Lines where they do not tell."""
    with source.open() as stream:
        head = stream.read(6)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head == b"ARROW1" or head.startswith(b"\xff\xff\xff\xff"):
        return "arrow"
    for block in blocks(source):
        if start := block.lstrip():
            return "json" if start.startswith(b"[") else "jsonl"
    return "jsonl"


def missing_file(path: Path) -> InputError:
    """The error for a file that is not there, with a file of its folder that has a name like it."""
    folder = path.parent
    if not folder.is_dir():
        return InputError(f"there is no folder {folder}", path=str(path))
    names = [entry.name for entry, _ in zip(folder.iterdir(), range(_NAMES_LOOKED_AT), strict=False)]
    near = near_match(path.name, names)
    help = f"did you mean `{folder / near}`?" if near else None
    return InputError("there is no such file", path=str(path), help=help)
