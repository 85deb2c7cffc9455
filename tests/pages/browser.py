"""A real Chromium for tests of pages, and what it saw."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 15_000
INSTALL = "needs Chromium: `make browser` as root, or install the package chromium of your system"


def chromium_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; without one the tests are skipped, but not where everything is to be tested."""
    path = chromium_path()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(INSTALL)
        pytest.skip(INSTALL)
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """One page with all that goes on in it: errors, what it loads, and what it shows."""

    def __init__(self, browser: Any, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        self._context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC"
        )
        self._context.set_default_timeout(WAIT_MS)
        self.page = self._context.new_page()
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._noted(message))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _noted(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text}")

    def open(self, address: str, shows: str) -> None:
        self.page.goto(address)
        self.page.wait_for_selector(shows)

    def wait_until(self, expression: str) -> None:
        """Until this is true in the page. Playwright's own way would have the page evaluate text, which it may not."""
        last_s = time.monotonic() + WAIT_MS / 1000
        while not self.page.evaluate(expression):
            assert time.monotonic() < last_s, f"never true: {expression}"
            self.page.wait_for_timeout(20)

    def text(self, selector: str) -> str:
        found: str = self.page.locator(selector).first.inner_text()
        return found

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found

    def column(self, table: str, title: str) -> list[str]:
        """The texts of one column, hidden ones too."""
        found: list[str] = self.page.evaluate(
            """([table, title]) => {
                const all = (what) => [...document.querySelectorAll(`${table} ${what}`)];
                const place = all('thead th').findIndex((head) => head.textContent.replace(/ [▲▼]$/, '') === title);
                return all('tbody tr').map((row) => row.cells[place].textContent);
            }""",
            [table, title],
        )
        return found

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def focused(self) -> str:
        found: str = self.page.evaluate("document.activeElement.textContent")
        return found

    def is_wider_than_the_window(self) -> bool:
        found: bool = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        return found

    def close(self) -> None:
        self._context.close()
