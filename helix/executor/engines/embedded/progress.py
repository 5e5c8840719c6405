"""How far a download is, on stderr: a bar on a terminal, else a line at its start and its end, nothing if quiet."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Progress = Callable[[int], None]  # told how many bytes have come so far


@contextlib.contextmanager
def show(title: str, total: int, *, quiet: bool) -> Iterator[Progress]:
    """Shows the progress of `total` bytes while the block runs; a block that raises shows no success."""
    if quiet:
        yield lambda done: None
    elif sys.stderr.isatty():
        with _bar(title, total) as progress:
            yield progress
    else:
        print(f"{title} ({total / 1e6:.0f} MB)", file=sys.stderr, flush=True)
        start = time.monotonic()
        yield lambda done: None
        print(f"fetched in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _bar(title: str, total: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(None), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=min(done, total))
        bar.update(task, completed=total)
