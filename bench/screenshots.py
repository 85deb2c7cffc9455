"""The picture in the README, taken anew from the pages as they are: `make screenshot`.

Pages are served from generated tables (`answers_tables`), so that the picture shows every kind of trouble, and are
looked at with a real Chromium.
"""

import sys
import tempfile
from pathlib import Path

from tests.pages.browser import Window, chromium

from bench.answers_tables import NOW_MS, World, make
from muster.pages.port import PagesPort
from muster.pages.runs import Runs

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1280, 720
HISTORY_S = 60.0
SHOTS = {"overview": "/", "group": "/group?id=stock-00254"}


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="muster-screenshots-") as folder:
        make(Path(folder), World(groups=300, days=2))
        runs = Runs(folder, {}, print)
        port = PagesPort("127.0.0.1", 0, runs)
        try:
            runs.wait_for_history(HISTORY_S)
            with chromium() as browser:
                for name, address in SHOTS.items():
                    window = Window(browser, WIDTH, HEIGHT)
                    window.page.clock.set_fixed_time(NOW_MS / 1000 + 12)
                    window.open(port.url + address.lstrip("/"), "main > *")
                    window.page.wait_for_timeout(500)
                    window.page.screenshot(path=IMAGES / f"{name}.png")
                    print(f"{name}: {IMAGES / f'{name}.png'}")
        finally:
            port.close()
            runs.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
