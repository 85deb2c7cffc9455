"""One run, from a source to published tables. `_run` lists the steps."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from muster.pipeline.analytics import bring_up, last_analysed
from muster.pipeline.assess import ToAssess, assess
from muster.pipeline.buckets import NOT_IN_BUCKETS, VERSION, HeldState, held, shares
from muster.pipeline.engine import Engine, Reading
from muster.pipeline.extract.partition import extract
from muster.pipeline.finder import remembered_damage
from muster.pipeline.judge import last_judged
from muster.pipeline.merge import MergeWork, merge_task
from muster.pipeline.model import ExtractContext, PartitionReport, PartitionWork
from muster.pipeline.pieces import in_pieces, joined
from muster.pipeline.plan import (
    Cut,
    PartitionState,
    Source,
    advanced,
    check_same_cluster,
    check_same_log,
    left_alone,
    packed,
    plan,
    remembered_topics,
    task_bytes,
    unknown_ends,
    withdrawn,
)
from muster.pipeline.progress import Watch
from muster.pipeline.request import Request, Summary, check_history, odd_things
from muster.pipeline.sources.log_ends import ends_digest, moment_of, numbered
from muster.pipeline.sources.offsets_topic import open_source
from muster.pipeline.spark.session import secrets_as_references
from muster.pipeline.truncation import groups_cut, is_in_dropped_history
from muster.tables.clocks import shown
from muster.tables.schemas import ANALYTICS, HISTORY, JUDGED, STATE
from muster.tables.storage.changes import Run, begin_run
from muster.tables.storage.compact import join_small_files
from muster.tables.storage.files import WrittenFile
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.retention import Retained, drop_history, horizon_ms, is_due, retained_of, texts
from muster.tables.storage.store import TableStore

__all__ = ["Request", "Summary", "run"]

GROUPS_AT_ONCE = 500
"""Whose rows are withdrawn by one statement."""
JUDGED_FOR_MS = 5 * 60 * 1000
"""How long what was said holds where nothing is new: offsets expire, and transactions hang, by time alone."""
WRITTEN_BY_READING = ("commits", "group_records", "markers")
STATE_ALONE = ("offsets", "open_commits", "group_state", "groups", "members")
IN_BUCKETS = tuple(table for table in STATE if table != NOT_IN_BUCKETS)


def run(engine: Engine, request: Request, watch: Watch | None = None) -> Summary:
    """Bring the tables up to what the source has now. Readers see the last run until this one is whole."""
    began = time.monotonic()
    with (
        secrets_as_references(request.kafka_config, engine.is_local) as config,
        secrets_as_references(request.storage_options, engine.is_local) as options,
    ):
        summary = _run(engine, replace(request, kafka_config=config, storage_options=options), watch or Watch())
    summary.seconds = round(time.monotonic() - began, 3)
    return summary


def _run(engine: Engine, request: Request, watch: Watch) -> Summary:
    store = TableStore(request.tables, request.storage_options, request.keep)
    with (
        closing(
            open_source(request.sources, request.kafka_config, request.storage_options, request.unpack_limit)
        ) as source,
        begin_run(store) as changes,
        ExitStack() as stack,
    ):
        topic_names = source.topic_names()
        if changes.manifest is not None:
            check_same_cluster(changes.manifest, source.cluster_id, topic_names, request.tables)
            check_history(changes.manifest, request)
        job = _Job(engine, request, source, changes, topic_names, watch)
        stack.callback(engine.forget)
        job.read()
        if not job.nothing_is_new():
            job.read_again_where_records_are_missing()
            job.append_history()
            job.observe_log_ends()
            job.merge_state()
            job.analyse()
            job.assess()
        elif job.look.is_live:
            job.observe_log_ends()  # or a later run would draw a line over the time in which nothing came
            if job.is_due_to_be_judged():
                job.assess()
        job.publish()
    return job.summary


class _Job:
    """The steps of a run, and what they hand to each other."""

    def __init__(
        self,
        engine: Engine,
        request: Request,
        source: Source,
        changes: Run,
        topic_names: Mapping[str, str],
        watch: Watch,
    ) -> None:
        self.engine, self.request, self.source, self.changes, self.watch = engine, request, source, changes, watch
        self.summary = Summary(changes.run_id, source.kind, source.cluster_id)
        self.topic_names = remembered_topics(self._known("topic_names") or {}, topic_names)
        self.before: Mapping[int, PartitionProgress] = changes.manifest.progress if changes.manifest else {}
        self.look = source.look(self.before)
        self._find_retention()
        self.states: list[PartitionState] = self.look.partitions
        self.cuts: tuple[Cut, ...] = ()
        self.told_anew: set[str] = set()
        """Groups of which a truncation cut off records."""
        self.readings: list[Reading] = []
        """What is new; then, of rebuilt partitions, the whole log."""
        self.lagging = 0
        """How many committed offsets are before the end of their log: their lag in time grows with the clock."""
        self.analysed = last_analysed(changes)
        """What the next run wants to know of the tables by interval: as the last one left it, if nothing is new."""
        self.judged = last_judged(changes)
        """The last run that has judged; this one, if nothing is new since."""
        self.judged_at_ms: int | None = self._known("judged_at_ms")
        self.at_ms = self.look.looked_at_ms
        """The moment that is judged: when a cluster was asked; of log directories that of the newest record in them."""
        self.damage: list[dict[str, Any]] = self._known("damage") or []
        """What is damaged in the log, as this run and those before it have found."""
        self.rebuilt: dict[int, int] = {}
        """Partitions whose state comes from the log alone, and how far each had been read before."""

    def _find_retention(self) -> None:
        for by, found in (("told", self.request.offsets_retention_ms), ("broker", self.look.offsets_retention_ms)):
            if found is not None:
                self.summary.offsets_retention_ms, self.summary.offsets_retention_by = found, by
                return

    def read(self) -> None:
        """Everything that is new, by tasks that write history themselves; a truncated log loses its cut rows first."""
        planned = plan(self.states, self.before, self.request.accept_truncation)
        check_same_log(planned, self.request.tables)
        self.cuts = planned.cuts
        for cut in planned.cuts:
            self._withdraw(cut)
        self.summary.notes += left_alone(planned)
        self.summary.notes += unknown_ends(self.look)
        self.summary.partitions = len(planned.works)
        self.readings = [self._extract(planned.works, self.request.history)]
        for report in self._reports():
            self.summary.records += report.records
            self.summary.size_bytes += report.size_bytes
            self.summary.notes += odd_things(report, report.offsets_partition in self.before)
            self.summary.damaged |= bool(report.damage)

    def _withdraw(self, cut: Cut) -> None:
        told_anew = groups_cut(self.changes, cut) if self.request.history else set()
        self.told_anew |= told_anew
        place = f"offsets_partition = {cut.offsets_partition} AND log_offset >= {cut.log_offset}"
        ended = f"offsets_partition = {cut.offsets_partition} AND txn_marker_offset >= {cut.log_offset}"
        gone = sum(self.changes.withdraw(table, place) for table in WRITTEN_BY_READING)
        self.changes.withdraw("commits", ended)  # whose transaction is open again: state has them from the whole log
        groups = sorted(told_anew)
        for first in range(0, len(groups), GROUPS_AT_ONCE):
            self.changes.withdraw("rebalances", f"group_id IN ({texts(groups[first : first + GROUPS_AT_ONCE])})")
        why = "by --accept-truncation" if cut.is_accepted else "under a newer leader"
        self.summary.notes.append(
            f"partition {cut.offsets_partition} was truncated at offset {cut.log_offset} {why}: "
            f"{gone} rows of what it had held after that are withdrawn."
        )

    def _extract(self, works: Sequence[PartitionWork], history: bool) -> Reading:
        numbers = {work.offsets_partition for work in works}
        context = ExtractContext(
            run_id=self.changes.run_id,
            tables=self.changes.store.address,
            storage_options=self._options,
            history=history,
            with_ended=self.request.history and not history,
            offsets_retention_ms=self.summary.offsets_retention_ms,
            topic_names=tuple(sorted(self.topic_names.items())),
            previous_offsets=self.held.of("offsets", numbers) if works else (),
            previous_activity=self.held.of("activity", numbers) if works and self.request.history else (),
        )
        size_bytes = task_bytes(works)
        tasks = packed(in_pieces(works, self.states, size_bytes), size_bytes)
        with self.watch.reading(sum(work.size_bytes for work in works), self.engine.is_local) as folder:
            told = context._replace(progress=folder)
            return self.engine.read(lambda some: extract(some, told), tasks)

    @cached_property
    def held(self) -> HeldState:
        """State before the run; the tables are opened by the first who asks."""
        return held(self.changes, IN_BUCKETS if self.request.history else STATE_ALONE)

    @property
    def _options(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self.request.storage_options.items()))

    def _reports(self) -> list[PartitionReport]:
        return joined(report for each in self.readings[0].found for report in each.reports)

    def nothing_is_new(self) -> bool:
        """Whether the tables are right as they are: nothing was read, no end of the data has moved, and no lag in time
        grows with the clock. Then only the manifest is written, which says when the source was looked at, with upkeep;
        of a live cluster also the observation, and now and then what is judged. What the last run had counted is taken
        over into the summary.
        """
        manifest = self.changes.manifest
        if manifest is None or self.readings[0].found or self.cuts or manifest.source.get("rows") is None:
            return False
        known = manifest.source
        if known.get("history") != self.request.history:
            return False
        if self.request.history and self.request.analytics and (self.analysed is None or self.judged is None):
            return False
        if known.get("log_ends_digest") != ends_digest(self.look.log_ends):
            return False
        self.lagging = known.get("behind", 0)
        if self.look.is_live and self.lagging:
            return False
        if not self.look.is_live:
            self.at_ms = manifest.moment_ms  # as it was, whenever it is looked at
        self.summary.rows = dict(known["rows"])
        self.summary.new_rows = dict.fromkeys(("log_ends", *(HISTORY if self.request.history else ())), 0)
        if self.request.history and self.request.analytics:
            self.summary.new_rows |= dict.fromkeys(ANALYTICS, 0)
        return True

    def is_due_to_be_judged(self) -> bool:
        """Whether it is so long ago that time alone may have changed a verdict; sooner where offsets live shortly."""
        if not (self.request.history and self.request.analytics):
            return False
        holds_ms = min(JUDGED_FOR_MS, self.summary.offsets_retention_ms // 16)
        return self.judged_at_ms is None or self.at_ms - self.judged_at_ms >= holds_ms

    def read_again_where_records_are_missing(self) -> None:
        """A tombstone may have come and gone behind the last run: there the whole log says what is in force.

        State alone keeps no markers, so there a commit that waited for one can be judged by the whole log only.
        """
        cut = {each.offsets_partition for each in self.cuts}
        for report in self._reports():
            number = report.offsets_partition
            if number in self.before and (report.gaps or number in cut or not self.request.history):
                self.rebuilt[number] = self.before[number].next_offset
        works = [work for work in plan(self.states, {}).works if work.offsets_partition in self.rebuilt]
        self.readings.append(self._extract(works, False))

    def append_history(self) -> None:
        for table in WRITTEN_BY_READING if self.request.history else ():
            self._append(table, [file for each in self.readings[0].found for file in _of(table, each.files)])

    def _append(self, table: str, files: Sequence[WrittenFile]) -> None:
        self.changes.append(table, files)
        self.summary.new_rows[table] = self.summary.new_rows.get(table, 0) + sum(file.rows for file in files)

    def observe_log_ends(self) -> None:
        """Where the data's logs ended at the look: lag is measured against it; later runs interpolate between those."""
        times = [report.newest_timestamp_ms for report in self._reports()]
        times += [progress.newest_timestamp_ms for progress in self.before.values()]
        newest = max((time for time in times if time is not None), default=None)
        look = self.look
        moment, notes = (look.looked_at_ms, []) if look.is_live else moment_of(look.log_ends, look.looked_at_ms, newest)
        self.summary.notes += notes
        self.at_ms = self.at_ms if moment is None else moment
        ends = numbered(look.log_ends, self.changes.number, moment)
        self.changes.append_rows("log_ends", ends)
        self.summary.new_rows["log_ends"] = ends.num_rows

    def merge_state(self) -> None:
        """What is in force, where something is new; what history learns from the comparison with the last run; lag."""
        numbers = sorted({*self.before, *(state.offsets_partition for state in self.states)})
        new = {report.offsets_partition for report in self._reports()}.union(cut.offsets_partition for cut in self.cuts)
        shared = shares(numbers, new, self._rows_to_merge(), self.held.buckets)
        merges = [self._merge_work(some, is_new=True) for some in shared.merged.values()]
        works = [*merges, *(self._merge_work(some, is_new=False) for some in shared.quiet)]
        answers = self.engine.merge(merge_task, works, self.readings)
        files = [file for answer in answers for file in answer.files]
        by_bucket = dict(zip(shared.merged, answers[: len(merges)], strict=True))
        for table in self.held.files:
            found = {number: _of(table, answer.files) for number, answer in by_bucket.items()}
            self.changes.replace_buckets(table, found, shared.buckets, VERSION)
        self.changes.replace(NOT_IN_BUCKETS, _of(NOT_IN_BUCKETS, files))
        for table in (*self.held.files, NOT_IN_BUCKETS):
            self.summary.rows[table] = sum(self.changes.facts(table)["num_records"].to_pylist())
        for table in HISTORY if self.request.history else ():
            self._append(table, _of(table, files))
        self.lagging = sum(answer.lagging for answer in answers)
        unmeasured = sum(answer.unmeasured for answer in answers)
        if unmeasured:
            self.summary.notes.append(f"the lag in time of {unmeasured:,} partitions is interpolated, not looked up.")

    def _rows_to_merge(self) -> int:
        """About how many: those that are new, records of groups for their rebalances, and state as it was."""
        found = [each for reading in self.readings for each in reading.found]
        rows = sum(each.packet_rows + sum(file.rows for file in _of("group_records", each.files)) for each in found)
        known: Mapping[str, int] = self._known("rows") or {}
        return rows + sum(known.get(table, 0) for table in ("offsets", "open_commits", "group_state"))

    def _merge_work(self, partitions: tuple[int, ...], *, is_new: bool) -> MergeWork:
        new = {table: self._new_files(table) for table in ("group_records", "markers")} if is_new else {}
        cut = is_new and self.told_anew and any(cut.offsets_partition in partitions for cut in self.cuts)
        return MergeWork(
            run_id=self.changes.run_id,
            tables=self.changes.store.address,
            storage_options=self._options,
            history=self.request.history,
            is_new=is_new,
            partitions=partitions,
            rebuilt=tuple(sorted(self.rebuilt.items())),
            cuts=self.cuts,
            before={table: self.held.of(table, partitions) for table in self.held.files},
            new=new,
            all_group_records=tuple(self.changes.files("group_records")) if cut else (),
            told_anew=tuple(sorted(self.told_anew)) if cut else (),
            log_ends=tuple(self.changes.files("log_ends")),
            memory_mb=self.engine.task_memory_mb,
            run_number=self.changes.number,
            offsets_retention_ms=self.summary.offsets_retention_ms,
            times=self.source.times(),
        )

    def _new_files(self, table: str) -> tuple[str, ...]:
        files = [file for each in self.readings[0].found for file in _of(table, each.files)]
        return tuple(f"{self.changes.store.address}/{table}/{file.path}" for file in files)

    def analyse(self) -> None:
        """History by interval, made anew where something is new."""
        self.analysed = self._known("analytics")  # a run without them is made up for by the next one
        if self.request.history and self.request.analytics:
            made = bring_up(self.changes, self.engine, bool(self.cuts), self._options, self.request.interval_ms)
            self.analysed = made.remembered
            self.summary.new_rows |= made.rows

    def assess(self) -> None:
        """How well groups do and since when, what will be deleted, what is wrong, and what to do about it."""
        self.judged = self._known("judged")
        self.damage = remembered_damage(self._known("damage") or (), self._reports(), self.at_ms)
        if self.request.history and self.request.analytics:
            retention_ms, is_live = self.summary.offsets_retention_ms, self.look.is_live
            asked = ToAssess(self.at_ms, retention_ms, bool(self.cuts), is_live, self.damage)
            made = assess(self.changes, self.engine, asked, self._options)
            self.judged, self.judged_at_ms = self.changes.number, self.at_ms
            self.summary.rows |= {table: made[table] for table in JUDGED}
            self.summary.new_rows["verdicts"] = made["verdicts"]

    def publish(self) -> None:
        progress = dict(self.before)
        starts = {state.offsets_partition: state.log_start_offset for state in self.states}
        for cut in self.cuts:
            progress[cut.offsets_partition] = withdrawn(progress[cut.offsets_partition], cut)
        for report in self._reports():
            number = report.offsets_partition
            progress[number] = advanced(progress.get(number), report)._replace(log_start_offset=starts[number])
        if self.request.history:
            incomplete = [each.complete_since_ms for each in progress.values() if each.complete_since_offset > 0]
            self.summary.incomplete_partitions = len(incomplete)
            self.summary.complete_since_ms = max((time for time in incomplete if time is not None), default=None)
        source = {
            "cluster_id": self.source.cluster_id or self._known("cluster_id"),
            "kind": self.source.kind,
            "topic_names": self.topic_names,
            "history": self.request.history,
            "observed_at_ms": self.look.looked_at_ms,
            "moment_ms": self.at_ms,
            "judged_at_ms": self.judged_at_ms,
            "log_ends_digest": ends_digest(self.look.log_ends),
            "behind": self.lagging,
            "analytics": self.analysed,
            "judged": self.judged,
            "damage": self.damage,
            "rows": self.summary.rows,
        }
        source["retention"] = self._drop_history(progress)
        elsewhere = partial(self.engine.each, "join small files")
        newest_ms = (self.analysed or {}).get("newest_ms")
        self.summary.notes += join_small_files(self.changes, newest_ms, elsewhere, self._options)
        self.changes.publish(progress, source)
        self.summary.notes += self.changes.notes

    def _drop_history(self, progress: Mapping[int, PartitionProgress]) -> dict[str, int | None] | None:
        """Drop what is older than the history to be kept; gives what the next run and readers want to know of it."""
        last, keep_ms = self._retained(), self.request.keep.history_ms
        told = last and last.as_json()
        self.summary.history_since_ms = last and last.since_ms
        if keep_ms is None or not self.request.history:
            return told
        data_ms = self.look.log_ends["newest_timestamp_ms"].to_pylist()
        horizon = horizon_ms(progress.values(), self.look.looked_at_ms, keep_ms, data_ms)
        if horizon is None:
            if progress:
                self.summary.notes.append(
                    "no record has a time that can be believed, since no other is near it: no history was dropped."
                )
            return told
        if not is_due(last, horizon):
            return told
        gone = drop_history(self.changes, horizon, self.look.looked_at_ms)
        self.summary.dropped_rows = dict(gone.rows)
        self.summary.notes += gone.notes
        retained = gone.retained(last, horizon)
        self.summary.history_since_ms = retained and retained.since_ms
        return retained and retained.as_json()

    def _retained(self) -> Retained | None:
        """What earlier runs have dropped. A log that was cut back into that lacks rows for all moments until now."""
        last = retained_of(self._known("retention"))
        if last is None or last.since_ms is None:
            return last
        now_ms = self.look.looked_at_ms
        for cut in self.cuts:
            if is_in_dropped_history(cut, self.before[cut.offsets_partition], last.since_ms, now_ms):
                self.summary.notes.append(
                    f"partition {cut.offsets_partition} was cut where --keep-history had dropped what was before: no "
                    f"moment before {shown(now_ms)} is known any more."
                )
                return last._replace(since_ms=now_ms)
        return last

    def _known(self, name: str) -> Any:
        return self.changes.manifest.source.get(name) if self.changes.manifest else None


def _of(table: str, files: Sequence[WrittenFile]) -> list[WrittenFile]:
    return [file for file in files if file.table == table]
