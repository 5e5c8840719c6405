"""Where Helix keeps what it fetches once: weights, and what is installed for trying things out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from helix.errors import OptionError


def cache_folder() -> Path:
    """HELIX_CACHE_DIR, else `helix` in XDG_CACHE_HOME, ~/Library/Caches (macOS) or ~/.cache. It need not be there."""
    if named := os.environ.get("HELIX_CACHE_DIR"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # the specification says to ignore relative ones
        return Path(base) / "helix"
    try:
        home = Path.home()
    except RuntimeError:
        raise OptionError("no home folder to keep the weights in; name a folder in HELIX_CACHE_DIR") from None
    return home / ("Library/Caches/helix" if sys.platform == "darwin" else ".cache/helix")
