"""The page of a run as a browser draws it, in light and dark, wide and narrow."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from caching import CachingEngine
from test_report_page import HOSTILE, ROWS, ran

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def picture(path: Path) -> tuple[int, int, bytes]:
    """Width, height and the raw bytes of a PNG's lines."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    place, packed = 8, b""
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        if kind == b"IDAT":
            packed += data[place + 8 : place + 8 + size]
        place += 12 + size
    return width, height, zlib.decompress(packed)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed")
@pytest.mark.parametrize("width", [1280, 520])
@pytest.mark.parametrize(("scheme", "back"), [("1", (255, 255, 255)), ("0", (0x12, 0x16, 0x1B))], ids=["light", "dark"])
def test_it_is_drawn_by_a_browser(width: int, scheme: str, back: tuple[int, ...], tmp_path: Path) -> None:
    assert CHROMIUM is not None
    page, image = tmp_path / "page.html", tmp_path / "page.png"
    measures = ran(rows=[*ROWS, {"a": HOSTILE, "doc": "d"}], engine=CachingEngine(HOSTILE, ranks=2))
    page.write_text(measures.to_html(measures.to_json()), encoding="utf-8")
    browser = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}", f"--blink-settings=preferredColorScheme={scheme}",
    ]  # fmt: skip
    shot = [f"--window-size={width},2400", f"--screenshot={image}", page.as_uri()]
    subprocess.run([*browser, *shot], check=True, capture_output=True, timeout=120)
    wide, high, lines = picture(image)
    assert (wide, high) == (width, 2400)
    # The first pixel stands as it is behind the first line's filter: the corner shows the page's own ground.
    assert tuple(lines[1:4]) == back
    assert len(set(lines)) > 60, "the page is drawn, not empty"
    # What the browser made of it: no text of a model became an element.
    dumped = subprocess.run([*browser, "--dump-dom", page.as_uri()], check=True, capture_output=True, timeout=120)
    dom = dumped.stdout.decode("utf-8")
    assert "<img" not in dom
    assert dom.count("<script") == 1
    assert "Compared with an earlier run" in dom
