"""A file of secrets for tools, beside what the environment holds: TOML, each line `NAME = "value"`."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from helix.errors import OptionError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def with_secrets(file: str | os.PathLike[str] | None) -> Mapping[str, str]:
    """What `${NAME}` stands for in tools: the values of a file, else those of the environment.

    Raises OptionError for a file that cannot be read, or holds anything but texts by their names. No value is in a
    message.
    """
    if file is None:
        return os.environ
    path = Path(file)
    try:
        held = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise OptionError(f"the secrets {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise OptionError(f"the secrets {path} are not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        # Its last word is the place; what stands before it may quote the file.
        place = str(error).rpartition("(")[2].rstrip(")")
        raise OptionError(f'the secrets {path} are not TOML, {place}: expected lines such as TOKEN = "..."') from None
    for name, value in held.items():
        if not _NAME.fullmatch(name) or not isinstance(value, str):
            kind = "a table" if isinstance(value, dict) else f"a {type(value).__name__}"
            what = f"`{name}` is {kind}" if not isinstance(value, str) else f"`{name}` is no name of a variable"
            raise OptionError(f'the secrets {path}: {what}; expected lines such as TOKEN = "..."')
    return {**os.environ, **held}
