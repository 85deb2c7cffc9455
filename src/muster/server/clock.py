"""The one module that asks what time it is."""

import time

from muster.core.events import Instant


def now() -> Instant:
    return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)
