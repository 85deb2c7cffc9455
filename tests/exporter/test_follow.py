"""The offsets topic of a made-up cluster: logs that change, that cannot be read, that are in part away."""

import time
from collections.abc import Iterable, Mapping

import pytest

from muster.codec.batches import encode_batch
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.records import Record
from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable
from muster.exporter.follow import OFFSETS, Follower
from muster.exporter.groups import Beginning, Group, OffsetsPartition, Position, Room
from muster.exporter.limits import LeftOut, Limits, Wanted
from muster.live.cluster import Asked
from muster.live.requests import Fetched, FetchFrom, ListedOffset, NoSuchTopic, Partition, Topic, TopicPartition
from muster.verdicts import Commit

FOREVER = float("inf")


def commits(first: int, *groups: str, without: int | None = None) -> bytes:
    """A batch of commits; each group's offset is where its record stands. Compaction may have taken one of them."""
    records = [
        Record(
            first + place, 0, encode_key(offset_key(group, "orders", 0)),
            encode_offset_value(OffsetValue(first + place, commit_timestamp_ms=0), 4),
        )
        for place, group in enumerate(groups)
        if place != without
    ]  # fmt: skip
    return encode_batch(records, leader_epoch=0)


class FakeCluster:
    """Gives one batch of a partition at a time."""

    def __init__(self, *logs: list[bytes]) -> None:
        self.logs: dict[int, list[bytes]] = dict(enumerate(logs))
        self.topic_id = b"1" * 16
        self.starts: dict[int, int] = {}
        self.away: set[int] = set()
        self.slow: set[int] = set()
        self.errors: dict[int, ErrorCode] = {}
        self.is_there = True
        self.asked: list[tuple[int, int]] = []

    def topic(self, name: str) -> Topic:
        if not self.is_there:
            raise NoSuchTopic("not there")
        return Topic(0, name, self.topic_id, True, {number: Partition(0, 1, 0) for number in self.logs})

    def log_starts(self, partitions: Iterable[TopicPartition]) -> Asked[ListedOffset]:
        return Asked({where: ListedOffset(0, self.starts.get(where[1], 0), 0) for where in partitions}, {})

    def fetch(self, wanted: Mapping[TopicPartition, FetchFrom], max_bytes: int) -> Asked[Fetched]:
        answers: dict[TopicPartition, Fetched] = {}
        problems: dict[TopicPartition, ClusterError] = {}
        for (topic, number), at in wanted.items():
            self.asked.append((number, at.offset))
            if number in self.away:
                problems[topic, number] = ClusterUnreachable("away")
            else:
                answers[topic, number] = self._fetched(number, at.offset)
        return Asked(answers, problems)

    def _fetched(self, number: int, offset: int) -> Fetched:
        spans = [(batch, *_span(batch)) for batch in self.logs[number]]
        end = max((last + 1 for _, _, last in spans), default=0)
        if error := self.errors.get(number):
            return Fetched(error, -1, -1, memoryview(b""), 0, 0)
        if not self.starts.get(number, 0) <= offset <= end:
            return Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, memoryview(b""), 0, 0)
        found = [] if number in self.slow else [batch for batch, _, last in spans if last >= offset]
        data = found[0] if found else b""
        return Fetched(0, end, 0, memoryview(data), 0, len(data))


def _span(batch: bytes) -> tuple[int, int]:
    base = int.from_bytes(batch[:8], "big")
    return base, base + int.from_bytes(batch[23:27], "big")


class Stage:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.room = Room(Limits(), LeftOut())
        self.follower = Follower(cluster, self._new_state)  # type: ignore[arg-type]

    def _new_state(self) -> OffsetsPartition:
        return OffsetsPartition(self.room, Wanted(), lambda where: None)

    def round(self) -> dict[str, int]:
        """The offset of each group that is shown."""
        self.follower.catch_up(FOREVER)
        groups = self.follower.groups()
        assert self.room.groups == len(groups) or self.follower.partition_states()["loading"]
        return {group_id: group.positions["orders", 0].window[-1].offset for group_id, group in groups.items()}


def test_what_is_new_is_read_from_where_we_were() -> None:
    stage = Stage(FakeCluster([commits(0, "a", "b")], []))
    assert stage.round() == {"a": 0, "b": 1}
    stage.cluster.logs[0].append(commits(2, "a"))
    stage.cluster.logs[1].append(commits(0, "c"))
    stage.cluster.asked.clear()
    assert stage.round() == {"a": 2, "b": 1, "c": 0}
    assert stage.cluster.asked == [(0, 2), (1, 0)]
    assert stage.follower.groups()["a"].commits == 1  # the first was there before us
    assert stage.follower.records == 4


def test_a_topic_that_is_not_there_yet() -> None:
    stage = Stage(FakeCluster([commits(0, "a")]))
    stage.cluster.is_there = False
    assert stage.round() == {}
    assert stage.follower.oldest_at is None
    stage.cluster.is_there = True
    assert stage.round() == {"a": 0}
    assert stage.follower.oldest_at is not None


def test_a_partition_that_is_away_is_not_shown_before_it_was_read() -> None:
    stage = Stage(FakeCluster([commits(0, "a")], [commits(0, "b"), commits(1, "c")]))
    stage.cluster.away = {1}
    assert stage.round() == {"a": 0}
    assert stage.follower.partition_states() == {"followed": 1, "loading": 0, "failing": 1}
    stage.cluster.away = {0}
    stage.cluster.logs[0].append(commits(1, "a"))
    assert stage.round() == {"a": 0, "b": 0, "c": 1}  # the last that was heard
    stage.cluster.away = set()
    assert stage.round()["a"] == 1
    assert stage.follower.problems == []


def test_the_age_is_that_of_what_was_heard_longest_ago() -> None:
    stage = Stage(FakeCluster([commits(0, "a")], [commits(0, "b")]))
    stage.round()
    first = stage.follower.oldest_at
    stage.cluster.away = {1}
    stage.round()
    assert stage.follower.oldest_at == first
    stage.cluster.away = set()
    stage.round()
    assert first is not None
    assert (stage.follower.oldest_at or 0) > first


def test_of_each_group_it_is_known_when_it_was_read() -> None:
    stage = Stage(FakeCluster([commits(0, "a")], [commits(0, "b")]))
    stage.round()
    first = stage.follower.read_at()
    assert set(first) == {"a", "b"}
    stage.cluster.away = {1}
    stage.round()
    second = stage.follower.read_at()
    assert second["a"] > first["a"]
    assert second["b"] == first["b"]


def test_a_log_that_is_half_read_is_not_shown() -> None:
    stage = Stage(FakeCluster([commits(0, "a")], [commits(0, "b"), commits(1, "c")]))
    stage.cluster.slow = {1}
    assert stage.round() == {"a": 0}
    (problem,) = stage.follower.problems
    assert stage.cluster.asked.count((1, 0)) == 2  # with more room the second time
    assert str(problem) == "__consumer_offsets-1 gives nothing at offset 0."
    stage.cluster.slow = set()
    assert stage.round() == {"a": 0, "b": 0, "c": 1}


def test_a_topic_made_anew_with_as_many_records() -> None:
    """By its offsets alone it could be the old one."""
    stage = Stage(FakeCluster([commits(0, "a", "b")]))
    stage.round()
    stage.cluster.topic_id = b"2" * 16
    stage.cluster.logs[0] = [commits(0, "c", "d", "e")]
    assert stage.round() == {"c": 0, "d": 1, "e": 2}
    assert stage.follower.groups()["c"].commits == 0


def test_a_log_that_ends_earlier_than_we_were_is_read_again() -> None:
    stage = Stage(FakeCluster([commits(0, "a", "b"), commits(2, "c")]))
    stage.round()
    stage.cluster.logs[0] = [commits(0, "a", "b")]
    assert stage.round() == {"a": 0, "b": 1}


def test_a_log_whose_start_has_moved_past_us_is_read_from_there() -> None:
    stage = Stage(FakeCluster([commits(0, "a"), commits(1, "b")]))
    stage.round()
    stage.cluster.logs[0] = [commits(3, "c", "d"), commits(5, "e")]
    stage.cluster.starts[0] = 4  # inside a batch, which comes whole all the same
    assert stage.round() == {"d": 4, "e": 5}


def test_what_is_known_stays_while_a_log_is_read_again() -> None:
    stage = Stage(FakeCluster([commits(0, "a")]))
    stage.round()
    stage.cluster.topic_id, stage.cluster.away = b"2" * 16, {0}
    stage.cluster.logs[0] = [commits(0, "b")]
    assert stage.round() == {"a": 0}
    stage.cluster.away = set()
    assert stage.round() == {"b": 0}
    assert stage.room.groups == 1


def test_a_damaged_batch_is_stepped_over() -> None:
    damaged = bytearray(commits(1, "b"))
    damaged[-1] ^= 1
    stage = Stage(FakeCluster([commits(0, "a"), bytes(damaged), commits(2, "c")]))
    assert stage.round() == {"a": 0, "c": 2}
    assert stage.follower.unreadable == 1


def test_there_may_not_be_time_for_everything() -> None:
    stage = Stage(FakeCluster([commits(0, "a")]))
    stage.follower.catch_up(time.monotonic() - 1)
    assert stage.follower.partition_states() == {"followed": 0, "loading": 1, "failing": 0}
    assert stage.round() == {"a": 0}


def test_no_rights() -> None:
    stage = Stage(FakeCluster([commits(0, "a")]))
    stage.follower.try_to_read()
    stage.cluster.errors[0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ClusterRefused, match=f"no rights on topic {OFFSETS}"):
        stage.follower.try_to_read()


def beginning(next_offset: int, *groups: str) -> Beginning:
    """As tables tell of a log up to a place; each group's offset is where its record stands."""
    known = {
        name: Group(positions={("orders", 0): Position((Commit(place, 0, None),), place)})
        for place, name in enumerate(groups)
    }
    return Beginning(next_offset, 0, known, [])


def test_tables_are_gone_on_from() -> None:
    stage = Stage(FakeCluster([commits(0, "a", "b"), commits(2, "a", "c")], [commits(0, "d")]))
    stage.follower.begin_with({0: beginning(3, "a", "b")})  # inside a batch
    assert stage.round() == {"a": 0, "b": 1, "c": 3, "d": 0}
    assert stage.cluster.asked == [(0, 3), (1, 0)]
    assert stage.follower.places_lost == set()
    stage.cluster.logs[0].append(commits(9, "e"))  # a gap that comes later is nothing to us
    assert stage.round()["e"] == 9
    assert stage.follower.groups()["e"].commits == 1
    assert stage.cluster.asked[2:] == [(0, 4), (1, 1)]


@pytest.mark.parametrize(
    "log",
    [
        [commits(0, "a"), commits(4, "c")],  # a batch is missing, which may have had a tombstone
        [commits(0, "a"), commits(2, "c", "d", "e", without=1)],  # a record is
        [commits(0, "a")],  # it ends before
    ],
)
def test_a_log_that_does_not_go_on_from_tables_is_read_from_its_start(log: list[bytes]) -> None:
    stage = Stage(FakeCluster(log))
    stage.follower.begin_with({0: beginning(2, "a", "b")})
    assert "b" not in stage.round()
    assert stage.cluster.asked[:2] == [(0, 2), (0, 0)]
    assert stage.follower.places_lost == {0}
    assert stage.room.partitions == stage.room.groups


def test_a_log_whose_start_is_beyond_the_tables() -> None:
    stage = Stage(FakeCluster([commits(3, "c"), commits(4, "d")]))
    stage.cluster.starts[0] = 3
    stage.follower.begin_with({0: beginning(2, "a", "b")})
    assert stage.round() == {"c": 3, "d": 4}
    assert stage.follower.places_lost == {0}
