"""A task that takes its time, for tests of Ctrl-C: it says that it has begun, and does not end by itself."""

import os
import time
from pathlib import Path
from typing import Any


def extract(some: Any, context: Any) -> None:
    Path(os.environ["MUSTER_TEST_BEGUN"]).touch()
    time.sleep(600)
