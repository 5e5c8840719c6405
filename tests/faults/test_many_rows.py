"""Many rows from the command line (contract 1, 13): memory and pace do not hang on how many there are.

`many_rows.py --rows 1000000` is the long form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import many_rows
import pytest
from fault_figures import Figure

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="memory and pace are read from /proc"),
]


def test_ten_times_the_rows_take_hardly_more_memory_and_no_longer_each(
    tmp_path: Path, figure: Callable[[Figure], None]
) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = many_rows.measure(4_000, tmp_path / "few")
    many = many_rows.measure(40_000, tmp_path / "many")
    figure(few.figure)
    figure(many.figure)
    # A million rows stay under 500 MB: another 36,000 may take no more than a share of that.
    assert many.peak_mb - few.peak_mb < 20
    # In seconds of processor time, so that a busy machine does not matter; a pace that halves would be seen.
    assert many.paces[-2] > 0.5 * many.paces[1], many.paces
    done = [each for each, _ in many.progress]
    assert done == sorted(done)
    assert {of for _, of in many.progress} <= {40_000}
