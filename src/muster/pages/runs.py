"""The published run that pages show: open for several requests at once, and followed by the next when that is there.

duckdb does one thing at a time per connection, so each request borrows `Tables` of its own. A thread looks for a newer
manifest, and adds up history (`Totals`); until that is done, totals of the run before are shown, or none.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue
from typing import Any

from muster.answers.totals import Totals
from muster.errors import MusterError
from muster.tables.reading import Tables, open_tables
from muster.tables.storage.manifest import Manifest
from muster.tables.storage.store import TableStore

AT_ONCE = 4
"""Requests that ask the tables at the same time; others wait."""
LOOK_EVERY_S = 2.0
KEPT_PAGES = 16


class Shown:
    """One run, open."""

    def __init__(self, store: TableStore, manifest: Manifest) -> None:
        self.manifest = manifest
        self.totals: Totals | None = None
        self._store = store
        self._idle: LifoQueue[Tables] = LifoQueue()
        self._is_over = False
        self._pages: OrderedDict[Any, bytes] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def tables(self) -> Iterator[Tables]:
        """Tables of this run, for one request."""
        try:
            tables = self._idle.get_nowait()
        except Empty:
            tables = Tables(self._store, self.manifest)
        try:
            yield tables
        except MusterError:  # a connection that failed is not used again
            tables.close()
            raise
        else:
            self._idle.put(tables)
            if self._is_over:
                self.close()

    def kept(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """What was made before for the same key, or is made now."""
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        made = make()
        with self._lock:
            self._pages[key] = made
            while len(self._pages) > KEPT_PAGES:
                self._pages.popitem(last=False)
        return made

    def forget_pages(self) -> None:
        """Totals have come: pages that were made without them are made anew."""
        with self._lock:
            self._pages.clear()

    def close(self) -> None:
        self._is_over = True
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()


class Runs:
    """The newest run. `BadInput` where there is none."""

    def __init__(self, address: str, storage_options: Mapping[str, str], say: Callable[[str], None]) -> None:
        with open_tables(address, storage_options) as tables:
            self._store, manifest = tables.store, tables.manifest
        self.current = Shown(self._store, manifest)
        self._at_once, self._one_by_one = threading.Semaphore(AT_ONCE), threading.Lock()
        self._stopping, self._looked, self._looking = threading.Event(), threading.Condition(), threading.Lock()
        self._say = say
        self._thread = threading.Thread(target=self._follow, name="muster-runs", daemon=True)
        self._thread.start()

    @contextmanager
    def asked(self) -> Iterator[tuple[Shown, Tables]]:
        with self._at_once, (shown := self.current).tables() as tables:
            yield shown, tables

    @contextmanager
    def deriving(self) -> Iterator[tuple[Shown, Tables]]:
        """The same, to derive from history what was at a moment: that takes seconds and memory, so it is one at a time,
        beside the others, with tables that are forgotten afterwards.
        """
        with self._one_by_one, Tables(self._store, (shown := self.current).manifest) as tables:
            yield shown, tables

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.current.close()

    def wait_for_history(self, timeout_s: float) -> bool:
        """Until the totals of the newest run are there."""
        with self._looked:
            return self._looked.wait_for(lambda: self._has_history(), timeout_s)

    def _has_history(self) -> bool:
        totals = self.current.totals
        return totals is not None and totals.is_complete

    def _follow(self) -> None:
        """Until it is told to stop. What fails is tried again, whatever it was: the tables may be moved, cleaned up, or
        half copied, and pages that would never be renewed look like all others.
        """
        last_said = ""
        while True:
            try:
                self.look()
                last_said = ""
            except Exception as error:
                said = str(error) if isinstance(error, MusterError | OSError) else repr(error)
                if said != last_said:
                    last_said = said
                    self._say(f"the last state that was read stays: {said}")
            if self._stopping.wait(LOOK_EVERY_S):
                return

    def look(self) -> None:
        """Show a newer run if there is one, and have its history added up."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        manifest, shown = self._store.manifest(), self.current
        if manifest is not None and manifest.run_id != shown.manifest.run_id:
            before, shown = shown, Shown(self._store, manifest)
            shown.totals = before.totals
            self.current = shown
            before.close()
        if shown.totals is None or not shown.totals.is_complete or shown.totals.run_id != shown.manifest.run_id:
            self._add_up(shown)
        with self._looked:
            self._looked.notify_all()

    def _add_up(self, shown: Shown) -> None:
        with shown.tables() as tables:
            totals = Totals(tables)
            if shown.totals is not None:
                totals.go_on_from(shown.totals, tables)
            else:
                shown.totals = totals
            totals.bring_up(tables, self._stopping.is_set)
            shown.totals = totals
            shown.forget_pages()
