"""What the tables of a cluster give an exporter: where to begin, and what the last published run says.

Tables may be in an object store, which takes its time: so new runs are looked for in a thread of their own, and the
page shows what was found last.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from muster.errors import BadInput, MusterError
from muster.exporter.beginnings import read_beginnings
from muster.exporter.groups import Beginning
from muster.exporter.limits import Wanted
from muster.exporter.view import TablesRun
from muster.pipeline.plan import check_same_cluster
from muster.tables.findings.kinds import KINDS
from muster.tables.reading import Tables
from muster.tables.storage.manifest import Manifest
from muster.tables.storage.store import TableStore

LOOK_EVERY_S, LONGEST_END_S = 10.0, 2.0
DAMAGE = "damage"
"""Findings need it beside tables, and every run knows it."""
UNUSABLE = (MusterError, OSError, ValueError)
"""What unreadable tables raise; pyarrow's errors are among the last two."""


class FromTables:
    """Tables at one address. What goes wrong with them is told in a line, and nothing else comes of it."""

    def __init__(self, store: TableStore, wanted: Wanted, tell: Callable[[str], None]) -> None:
        self.run: TablesRun | None = None
        """The last published one, as far as it has been seen."""
        self._store, self._wanted, self._tell = store, wanted, tell
        self._cluster_id: str | None = None
        self._topic_names: Mapping[str, str] = {}
        self._run_id: str | None = None
        self._told: str | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="muster-tables", daemon=True)

    @property
    def address(self) -> str:
        return self._store.address

    def belong_to(self, cluster_id: str | None, topic_names: Mapping[str, str]) -> None:
        """Take tables of this cluster only; `topic_names` has that of the offsets topic, by its id."""
        self._cluster_id, self._topic_names = cluster_id, topic_names

    def beginnings(self) -> dict[int, Beginning]:
        """By partition of the offsets topic; none where the tables are of no use."""
        try:
            with Tables(self._store, self._manifest()) as tables:
                return read_beginnings(tables, self._wanted)
        except UNUSABLE as error:
            self._told = _line(error)
            self._tell(f"{self._told} So __consumer_offsets is read from its start.")
            return {}

    def look(self) -> None:
        """Read what a new run says, if there is one; else what the last one said stays."""
        told = None
        try:
            manifest = self._manifest()
            if manifest.run_id != self._run_id:
                with Tables(self._store, manifest) as tables:
                    self.run, self._run_id = run_of(tables, self._wanted), manifest.run_id
        except UNUSABLE as error:
            told = _line(error)
        if told is not None and told != self._told:
            self._tell(f"{told} What the last run said stays, with its age.")
        self._told = told

    def start(self) -> None:
        """Look now and then, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Without a wait for a store that does not answer."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(LONGEST_END_S)

    def _look_on(self) -> None:
        while True:
            self.look()
            if self._is_over.wait(LOOK_EVERY_S):
                return

    def _manifest(self) -> Manifest:
        manifest = self._store.manifest()
        if manifest is None:
            raise BadInput(f"there are no tables at {self.address}.")
        known = manifest.source
        is_known = known.get("cluster_id") and self._cluster_id
        if not is_known and not self._topic_names.keys() & (known.get("topic_names") or {}):
            raise BadInput(f"the tables at {self.address} do not say of which cluster they are.")
        check_same_cluster(manifest, self._cluster_id, self._topic_names, self.address)
        return manifest


def _line(error: Exception) -> str:
    return f"{(str(error) or type(error).__name__).splitlines()[0].rstrip('.')}."


def run_of(tables: Tables, wanted: Wanted) -> TablesRun:
    """What a run says of the groups that are wanted."""
    there = tables.manifest.tables
    return TablesRun(
        tables.manifest.observed_at_ms,
        _findings(tables, wanted) if "findings" in there else None,
        _expiry(tables, wanted) if "expiry" in there else None,
    )


def _findings(tables: Tables, wanted: Wanted) -> dict[tuple[str, str], int]:
    there = {*tables.manifest.tables, DAMAGE}
    looked_for = [kind for kind in KINDS.values() if there.issuperset(kind.needs)]
    counts = Counter({(severity, kind.name): 0 for kind in looked_for for severity in kind.severities})
    for severity, kind, group_id in tables.asked(f"SELECT severity, kind, group_id FROM {tables.relation('findings')}"):
        counts[severity, kind] += group_id is None or group_id in wanted
    return dict(counts)


def _expiry(tables: Tables, wanted: Wanted) -> dict[str, int]:
    sql = f"""
        SELECT group_id, min(expires_at_ms) FROM {tables.relation("expiry")}
        WHERE expires_at_ms IS NOT NULL GROUP BY group_id"""
    return {group_id: expires_ms for group_id, expires_ms in tables.asked(sql) if group_id in wanted}
