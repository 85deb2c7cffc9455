"""A live cluster beside the tables: asked in a thread of its own, so that no page waits for it.

What the last round brought is shown with its age. Where the cluster did not answer, nothing is shown of it but that;
where one of its brokers did not, what only that one can tell is unknown.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from muster.errors import ClusterError
from muster.exporter.from_tables import FromTables
from muster.exporter.health import Health
from muster.exporter.limits import Wanted
from muster.exporter.poll import Plan, Poller
from muster.exporter.view import View
from muster.pages.live_rows import LiveRows, is_whole
from muster.pages.site import Query
from muster.tables.storage.manifest import Manifest
from muster.tables.storage.store import TableStore

ASK_EVERY_S = 10.0
LONGEST_END_S = 2.0
NOT_YET = "it was not asked yet."


class _Round(NamedTuple):
    """What came of one."""

    rows: LiveRows | None = None
    """None: nothing is known."""
    cluster_id: str | None = None
    trouble: str | None = NOT_YET
    """What was not answered."""
    oldest_at: float | None = None
    """When the oldest value was asked for, by the monotonic clock."""
    is_whole: bool = False


class LiveCluster:
    """One cluster, followed until it is closed. `tables` are where it begins, if they are of this cluster."""

    def __init__(self, config: Mapping[str, str], tables: TableStore, say: Callable[[str], None]) -> None:
        plan = Plan({"client.id": "muster-dashboard"} | dict(config), ASK_EVERY_S)
        self._poller = Poller(plan, self, say, FromTables(tables, Wanted(), say))
        self._say, self._round, self._number = say, _Round(), 0
        self._begun = time.monotonic(), _now_ms()
        self._stopping, self._asked = threading.Event(), threading.Condition()
        self._thread = threading.Thread(target=self._follow, name="muster-live", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Without a wait for a cluster that does not answer."""
        self._stopping.set()
        self._thread.join(LONGEST_END_S)

    # What pages show of it.

    def told(self, page: str, query: Query, manifest: Manifest) -> dict[str, Any]:
        """For a page over tables: how old it is, what is amiss, and the rows for this page if there are any."""
        known = self._round
        other = _other_cluster(manifest.source.get("cluster_id"), known.cluster_id)
        rows = known.rows if other is None else None
        age_ms = None if known.oldest_at is None else round((time.monotonic() - known.oldest_at) * 1000)
        head = {
            "cluster_id": known.cluster_id,
            "is_up": rows is not None,
            "is_whole": rows is not None and known.is_whole,
            "sentence": other or known.trouble,
            "asked_at_ms": None if age_ms is None else _now_ms() - age_ms,
            "age_ms": age_ms,
        }
        return head if rows is None else head | rows.of_page(page, query)

    def wait_for_round(self, timeout_s: float) -> bool:
        """Until one that begins from now on is over."""
        with self._asked:
            wanted = self._number + 2  # one may be under way
            return self._asked.wait_for(lambda: self._number >= wanted, timeout_s)

    # Asking.

    def show(self, health: Health, view: View | None = None) -> None:
        """What the poller brings."""
        self._round = _round_of(health, view, *self._begun) or self._round._replace(
            rows=None, trouble=health.trouble or "its __consumer_offsets is still being read."
        )

    def _follow(self) -> None:
        has_begun = False
        while not self._stopping.is_set():
            self._begun = begun, _ = time.monotonic(), _now_ms()
            try:
                has_begun = has_begun or self._begin()
                if has_begun:
                    self._poller.round()
            except Exception as error:  # a mistake of ours is shown, and the next round may do better
                self._round = _Round(trouble=f"something unexpected happened: {error!r}.")
            with self._asked:
                self._number += 1
                self._asked.notify_all()
            self._stopping.wait(max(0.0, begun + ASK_EVERY_S - time.monotonic()))
        self._poller.close()

    def _begin(self) -> bool:
        """Where the tables end. That is told by the cluster, so it must be there."""
        try:
            self._poller.begin_from_tables()
        except ClusterError as error:
            if str(error) != self._round.trouble:
                self._say(f"{error} It is asked again until it answers.")
            self._round = _Round(trouble=str(error))
            return False
        return True


def _round_of(health: Health, view: View | None, begun: float, begun_ms: int) -> _Round | None:
    """What a round that began then (by both clocks) brought: groups whose commits were read in it, or in the one before
    where it had no time for all. None: nothing is known of now.
    """
    if health.is_cut_short or view is None:
        return None
    since = begun - ASK_EVERY_S
    read_at = [at for at in view.read_at.values() if at >= since]
    if view.read_at and not read_at:
        return None
    oldest_at = min(read_at, default=begun)
    rows = LiveRows(view, begun_ms - round((begun - oldest_at) * 1000), since)
    whole = is_whole(health.offsets_partitions, health.left_out)
    return _Round(rows, view.cluster_name or None, health.trouble, oldest_at, whole)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _other_cluster(tables: str | None, live: str | None) -> str | None:
    if not tables or not live or tables == live:
        return None
    return f"the brokers are of cluster {live}, the tables of {tables}."
