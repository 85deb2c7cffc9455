"""How far the tasks of a run have come: they write down the bytes they have read, the driver adds them up.

They do so in a directory of the driver's own, so there is a bar where tasks run on the driver's machine. On a cluster
Spark's UI shows how many tasks are done.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

INTERVAL_S = 0.25

Advance = Callable[[int, int], None]
"""Called with bytes read so far, and bytes in all."""


class Watch:
    """Tells a caller how reading goes on; one that is told of nothing does nothing."""

    def __init__(self, advance: Advance | None = None) -> None:
        self._advance = advance

    @contextmanager
    def reading(self, total_bytes: int, is_local: bool) -> Iterator[str | None]:
        """While tasks read; gives the directory in which they write down what they have read, if they shall."""
        if self._advance is None or not is_local:
            yield None
            return
        over = threading.Event()
        with tempfile.TemporaryDirectory(prefix="muster-progress-") as folder:
            looker = threading.Thread(target=self._look, args=(Path(folder), total_bytes, over), daemon=True)
            looker.start()
            try:
                yield folder
            finally:
                over.set()
                looker.join()
        self._advance(total_bytes, total_bytes)

    def _look(self, folder: Path, total_bytes: int, over: threading.Event) -> None:
        assert self._advance is not None
        while not over.wait(INTERVAL_S):
            self._advance(min(read_bytes(folder), total_bytes), total_bytes)


def read_bytes(folder: Path) -> int:
    """The sum of what every task last wrote down."""
    total = 0
    for file in folder.glob("*") if folder.is_dir() else ():
        try:
            lines = file.read_text().split()
        except OSError:
            continue
        total += sum(int(line) for line in lines if line.isdigit())
    return total
