"""Rounds of questions to a cluster, and what each of them has to show.

A round reads what was committed, then where logs begin and end: so no end is older than the commits beside it. What is
not answered keeps its last value, with its age; a cluster that is away is asked again in the next round.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, Protocol

from muster.errors import ClusterError, ClusterUnreachable
from muster.exporter.follow import OFFSETS, Follower
from muster.exporter.groups import Group, OffsetsPartition, Room
from muster.exporter.health import Health
from muster.exporter.limits import LeftOut, Limits, Wanted
from muster.exporter.log_ends import LogEnds
from muster.exporter.view import Known, View, group_rows, unknown_times
from muster.live.cluster import Cluster, printed_id
from muster.live.requests import ListedGroup, NoSuchTopic
from muster.live.times import timestamps_at

if TYPE_CHECKING:  # it takes libraries that are not needed without tables
    from muster.exporter.from_tables import FromTables

TopicPartition = tuple[str, int]
RecordPlace = tuple[str, int, int]

PATIENCE_S = 2.0
"""For leaders that move; a round does not wait longer, the next one asks again."""
MOST_READ = 500
"""Records whose times are read in a round."""
TRY_AGAIN_S = 60.0
"""After which a record that did not tell its time is read again."""
DEFAULTS = {"client.id": "muster-exporter", "socket.timeout.ms": "10000"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, how often, and what the cluster is called."""

    config: Mapping[str, str]
    interval_s: float = 10.0
    groups: tuple[str, ...] = ()
    cluster_name: str | None = None
    limits: Limits = field(default_factory=Limits)


class Shows(Protocol):
    """What shows the results of a round: the page of metrics, or the dashboard."""

    def show(self, health: Health, view: View | None = None) -> None:
        """Without a view nothing is known yet. `health` is of the moment, `ends` of the view too: both go on."""


class RecordTimes:
    """When records were written, of those whose place in time cannot be told from the ends of their logs."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self.known: dict[RecordPlace, int | None] = {}
        self._tried_at: dict[RecordPlace, float] = {}

    def read(self, wanted: set[RecordPlace]) -> None:
        """Read some of those that are not known yet; those that are not wanted any more are forgotten."""
        now = time.monotonic()
        self.known = {place: at_ms for place, at_ms in self.known.items() if place in wanted}
        self._tried_at = {place: at for place, at in self._tried_at.items() if place in wanted}
        unknown = [place for place in wanted if self.known.get(place) is None]
        due = [place for place in unknown if now - self._tried_at.get(place, -TRY_AGAIN_S) >= TRY_AGAIN_S][:MOST_READ]
        if due:
            self.known |= timestamps_at(self._config, due, most=MOST_READ, patience_s=PATIENCE_S)
            self._tried_at |= dict.fromkeys(due, now)


class Poller:
    """Asks one cluster. `round` may be called again and again; `shows` is told what came of it."""

    def __init__(
        self, plan: Plan, shows: Shows, tell: Callable[[str], None], tables: "FromTables | None" = None
    ) -> None:
        self._plan, self._shows, self._tell, self._tables = plan, shows, tell, tables
        config = DEFAULTS | dict(plan.config)
        self._cluster = Cluster(config, PATIENCE_S)
        self._left_out, self._ends, self._health = LeftOut(), LogEnds(), Health()
        room, wanted = Room(plan.limits, self._left_out), Wanted(plan.groups)
        self._follower = Follower(self._cluster, lambda: OffsetsPartition(room, wanted, self._ends.end_of))
        self._times = RecordTimes(config)
        self._listed: dict[str, tuple[int, ListedGroup]] = {}
        self._topic_names: dict[bytes, str] = {}
        self._names_asked_at: float | None = None
        self._ends_at: dict[TopicPartition, float] = {}
        self._told: str | None = None

    def close(self) -> None:
        if self._tables is not None:
            self._tables.stop()
        self._cluster.close()

    def meet(self) -> None:
        """Find the cluster, and see that it lets us read; `ClusterError` with a next step where it does not."""
        self._cluster.metadata([])
        with suppress(NoSuchTopic):
            self._follower.try_to_read()

    def begin_from_tables(self) -> None:
        """Begin where the tables end, if there are any; before the first round."""
        if self._tables is None:
            return
        topic_names: dict[str, str] = {}
        with suppress(NoSuchTopic):
            topic_names[printed_id(self._cluster.topic(OFFSETS).topic_id)] = OFFSETS
        self._tables.belong_to(self._cluster.cluster_id, topic_names)
        self._follower.begin_with(self._tables.beginnings())

    def run(self) -> NoReturn:
        """Rounds without an end."""
        self.begin_from_tables()
        if self._tables is not None:
            self._tables.start()
        while True:
            begun = time.monotonic()
            self.round()
            time.sleep(max(0.0, begun + self._plan.interval_s - time.monotonic()))

    def round(self) -> None:
        """Ask everything once. What goes wrong is told, and shown."""
        begun = time.monotonic()
        problems: list[ClusterError] = []
        is_cut_short = False
        try:
            problems += self._ask(begun)
        except ClusterError as problem:
            is_cut_short = True
            problems.append(problem)
        self._health.rounds += 1
        self._health.failed_rounds += bool(problems)
        is_silent = any(isinstance(problem, ClusterUnreachable) for problem in problems)
        self._health.is_up = not (is_cut_short or is_silent)
        self._health.is_cut_short = is_cut_short
        self._health.trouble = str(problems[0]) if problems else None
        self._tell_lost_places()
        self._note_health()
        view = self._view() if self._follower.oldest_at is not None else None
        self._health.round_s = time.monotonic() - begun
        self._shows.show(self._health, view)
        self._tell_once(self._health.trouble)

    def _ask(self, begun: float) -> list[ClusterError]:
        self._follower.catch_up(begun + max(self._plan.interval_s, PATIENCE_S))
        problems: list[ClusterError] = [*self._follower.problems]
        groups = self._follower.groups()
        problems += self._list_groups()
        self._learn_topic_names(groups.values())
        problems += self._look_at_logs(self._logs_of(groups.values()))
        self._times.read(unknown_times(groups.values(), self._ends))
        return problems

    # Groups.

    def _list_groups(self) -> list[ClusterError]:
        asked_at = time.monotonic()
        found, problems = self._cluster.list_groups()
        if found or not problems:
            silent = {} if not problems else {
                group_id: told for group_id, told in self._listed.items() if told[0] not in found
            }  # fmt: skip
            listed = {group_id: (node_id, one) for node_id, groups in found.items() for group_id, one in groups.items()}
            self._listed = silent | listed
        if not problems:
            self._health.read_at["group_states"] = asked_at
        return problems

    def _learn_topic_names(self, groups: Iterable[Group]) -> None:
        """Newer groups name topics by their ids; all names are asked for when an unknown one comes up."""
        ids = {topic_id for group in groups for member in group.members.values() for topic_id, _ in member.owned_by_id}
        now = time.monotonic()
        is_due = self._names_asked_at is None or now - self._names_asked_at >= TRY_AGAIN_S
        if ids - self._topic_names.keys() and (is_due or len(self._topic_names) == 0):
            topics = self._cluster.metadata().topics.values()
            self._topic_names = {topic.topic_id: topic.name for topic in topics}
            self._names_asked_at = now

    # Logs.

    def _logs_of(self, groups: Iterable[Group]) -> list[TopicPartition]:
        """Those that groups have committed for, as many as there is room for."""
        wanted = sorted({where for group in groups for where in group.positions})
        for where in wanted[self._plan.limits.log_partitions :]:
            self._left_out.note("partitions", where)
        return wanted[: self._plan.limits.log_partitions]

    def _look_at_logs(self, wanted: list[TopicPartition]) -> list[ClusterError]:
        asked_at, at_ms = time.monotonic(), time.time_ns() // 1_000_000
        starts = self._cluster.log_starts(wanted)
        ends = self._cluster.high_watermarks(starts.answers)
        self._ends.look(
            {where: (starts.answers[where].offset, end.offset) for where, end in ends.answers.items()}, at_ms
        )
        problems = starts.problems | ends.problems
        gone = {where for where, problem in problems.items() if isinstance(problem, NoSuchTopic)}
        self._ends.forget(gone)
        self._ends.keep_only(wanted)
        self._ends_at = {where: at for where, at in self._ends_at.items() if self._ends.get(where) is not None}
        self._ends_at |= dict.fromkeys(ends.answers, asked_at)
        # With nothing to look at, what there is to know is known.
        self._health.read_at["log_ends"] = min(self._ends_at.values(), default=asked_at)
        return [problem for where, problem in problems.items() if where not in gone][:1]

    # What there is to show.

    def _view(self) -> View:
        now, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        read_at = self._follower.read_at()
        read_ms = {group_id: now_ms - round((now - at) * 1000) for group_id, at in read_at.items()}
        known = Known(self._ends, self._times.known, self._listed, self._topic_names, now_ms, read_ms)
        rows, methods = group_rows(self._follower.groups(), known)
        self._health.methods = dict(methods)
        run = self._tables.run if self._tables is not None else None
        return View(self._cluster_name(), rows, self._ends, run, read_at)

    def _cluster_name(self) -> str:
        return self._plan.cluster_name or self._cluster.cluster_id or ""

    def _note_health(self) -> None:
        health = self._health
        health.read_at["commits"] = self._follower.oldest_at
        health.records, health.unreadable = self._follower.records, self._follower.unreadable
        health.offsets_partitions = self._follower.partition_states()
        health.left_out = self._left_out.counts
        if self._tables is not None and (run := self._tables.run) is not None:
            age_s = time.time() - run.observed_at_ms / 1000
            health.tables_at, health.tables_at_ms = time.monotonic() - age_s, run.observed_at_ms

    def _tell_lost_places(self) -> None:
        lost = self._follower.places_lost
        if lost and self._tables is not None:
            self._tell(
                f"{len(lost)} of {sum(self._follower.partition_states().values())} partitions of {OFFSETS} do not go "
                f"on from where the tables at {self._tables.address} end: these are read from their start."
            )
            lost.clear()

    def _tell_once(self, trouble: str | None) -> None:
        """A sentence when something goes wrong, and one when all is well again."""
        if trouble is not None and self._told is None:
            self._tell(f"{trouble} It is asked again until it answers.")
        elif trouble is None and self._told is not None:
            self._tell("all questions are answered again.")
        self._told = trouble
