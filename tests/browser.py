"""Pages in a headless Chromium: drawn, clicked, used by keyboard, looked over by axe.

Every test that opens one also holds that the page asks nobody for anything, raises no error and runs nothing. Where no
Chromium can be had the tests skip with the reason; HELIX_REQUIRE_BROWSER=1 makes that a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_NEEDED = ("playwright", "axe_playwright_python")
# The pages' own ground, white or nearly black.
GROUND = {False: "rgb(255, 255, 255)", True: "rgb(18, 22, 27)"}
_TOLD = "e => `${e.tagName} ${e.className} ${e.textContent.slice(0, 60)}`"
_CORNER = "getComputedStyle(document.body).backgroundColor"


def absent() -> str | None:
    """Why no browser can be had; None where one can."""
    if CHROMIUM is None:
        return "no chromium, chromium-browser or google-chrome is installed"
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(missing)} (pip install -e '.[dev]')" if missing else None


def in_browser(test: Any) -> Any:
    """Marks a test that needs one: it is slow, and skips where there is none."""
    reason = absent()
    if reason is None or os.environ.get("HELIX_REQUIRE_BROWSER"):
        return pytest.mark.slow(test)
    return pytest.mark.slow(pytest.mark.skip(reason=reason)(test))


in_light_and_dark = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


@contextmanager
def opened(path: Path, *, dark: bool = False, width: int = 1280, height: int = 900) -> Iterator[Any]:
    """A page of Playwright that shows a file, without a network."""
    reason = absent()
    if reason is not None:
        pytest.fail(f"HELIX_REQUIRE_BROWSER is set: {reason}")
    from playwright.sync_api import sync_playwright

    odd: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        scheme = "dark" if dark else "light"
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion="reduce", offline=True
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: odd.append(f"asks for {request.url}"))
        page.on("dialog", lambda dialog: (odd.append(f"says {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: odd.append(f"fails: {error}"))
        page.on("console", lambda message: odd.append(f"{message.type}: {message.text}"))
        page.goto(path.as_uri())
        assert odd.pop(0) == f"asks for {path.as_uri()}"
        assert page.evaluate(_CORNER) == GROUND[dark]
        yield page
        assert odd == []
        browser.close()


def open_all(page: Any) -> int:
    """Opens whatever opens on demand; how many there are."""
    found: int = page.evaluate(
        "() => { const all = [...document.querySelectorAll('details')]; for (const each of all) each.open = true;"
        " return all.length; }"
    )
    return found


def barriers(page: Any) -> list[str]:
    """What keeps people from using the page as it is shown now, by all rules of axe: none is an empty list."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    nodes = [(rule, node) for rule in found for node in rule["nodes"]]
    return [f"{rule['id']} ({rule['impact']}): {node['failureSummary']} {node['html'][:300]}" for rule, node in nodes]


def reached(page: Any, most: int = 200) -> list[str]:
    """What Tab comes to from the page's top, in order: tag, class and the beginning of the text of each."""
    page.evaluate(
        "() => { document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex'); }"
    )
    found: list[str] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        at = page.evaluate(f"() => document.activeElement === document.body ? null : ({_TOLD})(document.activeElement)")
        if at is None:
            return found
        outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"nothing shows that the keyboard is at {at}"
        found.append(at)
    raise AssertionError(f"more than {most} places to stop at")


def stops(page: Any) -> list[str]:
    """What a keyboard has to come to: whatever opens, and whatever scrolls inside, as far as it is shown."""
    found: list[str] = page.evaluate(
        f"() => [...document.querySelectorAll('summary, [tabindex]')].filter(e => e.checkVisibility()).map({_TOLD})"
    )
    return found


def colours(page: Any) -> int:
    """The number of different bytes in a picture of the page: few where nothing is drawn."""
    data = page.screenshot(full_page=True)
    place, packed = 8, b""
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        if kind == b"IDAT":
            packed += data[place + 8 : place + 8 + size]
        place += 12 + size
    return len(set(zlib.decompress(packed)))


def wider_than_window(page: Any) -> list[str]:
    """What stands out of the window to the right, so that the page as a whole would have to be scrolled."""
    found: list[str] = page.evaluate(
        """() => {
          const over = document.documentElement.scrollWidth - innerWidth;
          const out = e => e.getBoundingClientRect().left + e.scrollWidth > innerWidth && !e.closest('.wide');
          const all = [...document.querySelectorAll('main *')].filter(out).slice(-3);
          return over > 0 ? [`${over} px too wide`, ...all.map(e => e.outerHTML.slice(0, 200))] : [];
        }"""
    )
    return found
