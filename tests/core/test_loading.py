"""Logs become state: the scenarios of section Q, proofs that both ways of loading agree, and real brokers' answers."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.codec.batches import ReadBatch, encode_batch, encode_marker, iter_batches
from muster.codec.consumer_protocol import decode_assignment
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    TypedKey,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from muster.codec.partition_state import decode_commit
from muster.codec.partitioning import partition_for
from muster.codec.records import CONTROL, TRANSACTIONAL, Record
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import Instant, OffsetFetch
from muster.core.groups import MOST_PROBLEMS_KEPT, LoadFailed, LoadReport, replay_batches, restore
from muster.core.outcome import Outcome
from muster.core.seats import Seats
from muster.errors import CodecError
from muster.log.loading import load_latest
from muster.segments.sources import SegmentFile, SourcePartition, Sources
from tests.codec.strategies import bounded

CORPORA = Path(__file__).parent.parent / "corpus"
NAMES = sorted(path.parent.name for path in CORPORA.glob("*/*.tar.zst"))

Content = tuple[bytes, bytes | None]
Load = Callable[[bytes], Coordinator]


class Log:
    """A log in the making: batches, transactions and markers, offsets counted on."""

    def __init__(self) -> None:
        self.data = b""
        self.end = 0

    def write(self, *contents: Content, producer_id: int = -1, attributes: int = 0) -> "Log":
        records = [Record(self.end + number, 1000, key, value) for number, (key, value) in enumerate(contents)]
        if producer_id >= 0:
            attributes |= TRANSACTIONAL
        self.data += encode_batch(records, producer_id=producer_id, attributes=attributes, base_offset=self.end)
        self.end += len(records)
        return self

    def mark(self, producer_id: int, commit: bool) -> "Log":
        self.data += encode_marker(self.end, 1000, producer_id, 0, commit=commit, coordinator_epoch=0)
        self.end += 1
        return self


def offset(partition: int, committed: int | None, group: str = "g", topic: str = "t", **more: Any) -> Content:
    """A commit, or a tombstone for None."""
    version, legacy = more.pop("version", 3), more.pop("legacy", False)
    key = encode_key(OffsetKey(group, topic, partition, 0 if legacy else 1))
    return key, None if committed is None else encode_offset_value(OffsetValue(committed, **more), version)


def group_record(value: GroupValue | None, group: str = "g", version: int = 3) -> Content:
    return encode_key(GroupKey(group)), None if value is None else encode_group_value(value, version)


def member(name: str = "m", subscription: bytes = b"\0\0\0\0\0\1\0\1t\0\0\0\0") -> MemberValue:
    return MemberValue(name, None, "c", "/h", 30_000, 10_000, subscription, b"")


STABLE = GroupValue("consumer", 935, "range", "m", 5, (member(),))


def replayed(data: bytes) -> Coordinator:
    coordinator = Coordinator()
    replay_batches(coordinator.table, iter_batches(data))
    return coordinator


def partition_of(folder: Path, *pieces: bytes) -> SourcePartition:
    segments = []
    for number, data in enumerate(pieces):
        path = folder / f"{number:020}.log"
        path.write_bytes(data)
        segments.append(SegmentFile(path, path.name, number, len(data)))
    return SourcePartition(folder, 0, tuple(segments))


@pytest.fixture(params=["replayed", "restored"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Load:
    """Both ways of loading."""
    if request.param == "replayed":
        return replayed

    def restored(data: bytes) -> Coordinator:
        coordinator = Coordinator()
        restore(coordinator.table, load_latest(partition_of(tmp_path, data)))
        return coordinator

    return restored


def visible(coordinator: Coordinator, group: str = "g") -> dict[int, int]:
    found = coordinator.groups[group].offsets
    return {
        partition: decode_commit(commit_bytes).value.committed_offset for (_, partition), commit_bytes in found.items()
    }


def waiting(coordinator: Coordinator, producer_id: int, group: str = "g") -> dict[int, int]:
    found = coordinator.groups[group].pending.get(producer_id, {})
    return {
        partition: decode_commit(commit_bytes).value.committed_offset for (_, partition), commit_bytes in found.items()
    }


def seated(coordinator: Coordinator, group: str = "g") -> Seats:
    """The members of a group, as they sit when the log has been read."""
    return coordinator.groups[group].seats


# Section Q.


def test_301_offsets_alone_make_a_simple_group(load: Load) -> None:
    coordinator = load(Log().write(offset(0, 10), offset(1, 11), offset(2, 12)).data)
    group = seated(coordinator)
    assert (group.state.value, group.protocol_type, group.generation) == ("Empty", None, 0)
    assert visible(coordinator) == {0: 10, 1: 11, 2: 12}


def test_302_an_empty_group_keeps_its_generation(load: Load) -> None:
    log = Log().write(offset(0, 10)).write(group_record(GroupValue("consumer", 15, None, None, 5)))
    coordinator = load(log.data)
    group = seated(coordinator)
    assert (group.state.value, group.generation, group.protocol_type) == ("Empty", 15, "consumer")
    assert (group.leader, group.protocol) == (None, None)
    assert visible(coordinator) == {0: 10}


def test_303_a_stable_group_is_stable_again(load: Load) -> None:
    coordinator = load(Log().write(offset(0, 10)).write(group_record(STABLE)).data)
    group = seated(coordinator)
    assert (group.state.value, group.generation, group.protocol, group.leader) == ("Stable", 935, "range", "m")
    assert list(group.members) == ["m"]
    assert group.subscribed_topics == {"t"}
    assert [
        decode_commit(commit_bytes).value.expire_timestamp_ms
        for commit_bytes in coordinator.groups["g"].offsets.values()
    ] == [-1]
    out = Outcome()
    coordinator.activate(Instant(0, 0), out)
    assert [timer.key for timer in out.timers]  # a full session to find the new coordinator


def test_304_a_committed_transaction_is_visible(load: Load) -> None:
    coordinator = load(Log().write(offset(0, 10), offset(1, 11), producer_id=7).mark(7, True).data)
    assert visible(coordinator) == {0: 10, 1: 11}
    assert not coordinator.groups["g"].pending


def test_306_an_open_transaction_is_pending(load: Load) -> None:
    coordinator = load(Log().write(offset(0, 10), offset(1, 11), producer_id=7).data)
    assert seated(coordinator).state.value == "Empty"
    assert visible(coordinator) == {}
    assert waiting(coordinator, 7) == {0: 10, 1: 11}


def test_307_an_aborted_transaction_is_not_there(load: Load) -> None:
    log = Log().write(offset(0, 10), offset(1, 11), producer_id=7).mark(7, False)
    log.write(offset(2, 12), producer_id=7).mark(7, True)
    coordinator = load(log.data)
    assert visible(coordinator) == {2: 12}
    assert not coordinator.groups["g"].pending


def test_308_a_marker_that_comes_after_the_load(load: Load) -> None:
    log = Log().write(offset(0, 10), producer_id=7).mark(7, True)
    log.write(offset(1, 11), producer_id=7).mark(7, False)
    log.write(offset(2, 12), offset(0, 13), producer_id=7)
    coordinator = load(log.data)
    assert visible(coordinator) == {0: 10}
    assert decode_commit(coordinator.groups["g"].offsets["t", 0]).log_offset == 0
    coordinator.table.replay_marker(7, True)
    assert visible(coordinator) == {0: 13, 2: 12}
    assert not coordinator.groups["g"].pending


def test_309_two_producers(load: Load) -> None:
    log = Log().write(offset(0, 10), producer_id=7).write(offset(1, 11), producer_id=8).mark(8, True).mark(7, True)
    coordinator = load(log.data)
    assert visible(coordinator) == {0: 10, 1: 11}
    assert [
        decode_commit(commit_bytes).log_offset for _, commit_bytes in sorted(coordinator.groups["g"].offsets.items())
    ] == [0, 1]


def test_311_the_place_of_the_commit_counts(load: Load) -> None:
    log = Log().write(offset(0, 24)).write(offset(0, 23), producer_id=7).mark(7, True)
    assert visible(load(log.data)) == {0: 23}


def test_311_and_not_the_place_of_the_marker(load: Load) -> None:
    log = Log().write(offset(0, 23), producer_id=7).write(offset(0, 24)).mark(7, True)
    assert visible(load(log.data)) == {0: 24}
    log = Log().write(offset(0, 1), producer_id=7).write(offset(0, 2), producer_id=8).mark(8, True).mark(7, True)
    assert visible(load(log.data)) == {0: 2}


def test_312_a_tombstone_takes_one_offset(load: Load) -> None:
    log = Log().write(offset(0, 10), offset(1, 11), offset(2, 12)).write(offset(1, None))
    assert visible(load(log.data)) == {0: 10, 2: 12}


def test_312_a_tombstone_of_type_1_takes_an_offset_of_type_0(load: Load) -> None:
    log = Log().write(offset(0, 10, legacy=True), offset(1, 11, legacy=True, version=0)).write(offset(0, None))
    assert visible(load(log.data)) == {1: 11}


def test_313_a_group_and_its_tombstone(load: Load) -> None:
    assert load(Log().write(group_record(STABLE)).write(group_record(None)).data).groups == {}


def test_314_a_group_that_is_used_for_offsets_alone_afterwards(load: Load) -> None:
    log = Log().write(group_record(STABLE)).write(group_record(None)).write(offset(0, 10))
    coordinator = load(log.data)
    group = seated(coordinator)
    assert (group.state.value, group.protocol_type, coordinator.groups["g"].record) == ("Empty", None, None)
    assert visible(coordinator) == {0: 10}


def test_316_a_group_of_megabytes(load: Load) -> None:
    large = STABLE._replace(members=tuple(member(f"m-{number}", bytes(30_000)) for number in range(400)))
    coordinator = load(Log().write(group_record(large)).write(offset(0, 10)).data)
    assert coordinator.groups["g"].record == large
    assert visible(coordinator) == {0: 10}


def test_317_an_empty_log(load: Load) -> None:
    coordinator = load(b"")
    assert coordinator.groups == {}
    out = Outcome()
    coordinator.activate(Instant(0, 0), out)
    assert out == Outcome()


def test_318_an_empty_control_batch_ends_nothing(load: Load) -> None:
    log = Log().write(offset(0, 10), producer_id=7)
    log.data += encode_batch([], base_offset=1, last_offset=1, attributes=TRANSACTIONAL | CONTROL, producer_id=7)
    assert waiting(load(log.data), 7) == {0: 10}


def test_318_nor_does_another_kind_of_control_record(load: Load) -> None:
    log = Log().write(offset(0, 10), producer_id=7)
    log.write((b"\0\0\0\2", b""), producer_id=7, attributes=CONTROL)
    assert waiting(load(log.data), 7) == {0: 10}


def test_319_expire_timestamps_of_old(load: Load) -> None:
    log = Log().write(offset(0, 10, version=1, commit_timestamp_ms=5, expire_timestamp_ms=99), offset(1, 11))
    coordinator = load(log.data)
    assert decode_commit(coordinator.groups["g"].offsets["t", 0]).value.expire_timestamp_ms == 99
    assert decode_commit(coordinator.groups["g"].offsets["t", 1]).value.expire_timestamp_ms == -1


def test_321_a_subscription_of_no_bytes(load: Load) -> None:
    coordinator = load(Log().write(group_record(STABLE._replace(members=(member(subscription=b""),)))).data)
    assert seated(coordinator).state.value == "Stable"
    assert seated(coordinator).subscribed_topics is None


def test_a_tombstone_ends_what_is_pending_too(load: Load) -> None:
    log = Log().write(offset(0, 10), offset(1, 11), producer_id=7).write(offset(0, None)).mark(7, True)
    assert visible(load(log.data)) == {1: 11}


def test_a_tombstone_that_was_replaced_still_ends_what_was_pending(load: Load) -> None:
    log = Log().write(offset(0, 10), offset(1, 11), producer_id=7).write(offset(0, None)).write(offset(0, 12))
    coordinator = load(log.data)
    assert waiting(coordinator, 7) == {1: 11}
    coordinator.table.replay_marker(7, True)
    assert visible(coordinator) == {0: 12, 1: 11}


def test_a_transactional_batch_of_no_producer_waits_for_nothing(load: Load) -> None:
    log = Log().write(offset(0, 1), offset(1, 2)).write(offset(0, 3), offset(1, None), attributes=TRANSACTIONAL)
    assert visible(load(log.data)) == {0: 3}


def test_groups_of_newer_kinds_are_kept_and_their_tombstones_end_them(load: Load) -> None:
    alive, gone = TypedKey(3, ("alive",)), TypedKey(11, ("gone",))
    log = Log().write((encode_key(alive), b"\0\0\0\0\0\1\0"), (encode_key(gone), b"\0\0\0\0\0\1\0"))
    coordinator = load(log.write((encode_key(gone), None), offset(0, 10, group="alive")).data)
    assert coordinator.newer.kinds == {"alive": "consumer"}
    assert visible(coordinator, "alive") == {0: 10}


# What is wrong.


def failing(load: Load, log: Log) -> str:
    with pytest.raises(LoadFailed) as failure:
        load(log.data)
    return str(failure.value)


def test_021_a_version_of_the_future_fails_the_load(load: Load) -> None:
    for content in (
        (encode_key(GroupKey("g")), b"\x80\0 and more"),
        (offset(0, 1)[0], b"\0\5 and more"),
    ):
        log = Log().write(offset(1, 1)).write(content).write((content[0], None))  # though nobody needs it any more
        assert "offset 1 is of a newer broker: unknown" in failing(load, log)


def test_a_null_key_fails_the_load(load: Load) -> None:
    log = Log().write(offset(1, 1)).write((None, b"?"))  # type: ignore[arg-type]
    assert failing(load, log) == "the record at offset 1 has no key, which no broker writes"


def test_022_023_an_unknown_type_is_stepped_over(load: Load) -> None:
    log = Log().write(offset(0, 10)).write((b"\x7f\xff of a later release", b"?")).write(offset(1, 11))
    coordinator = load(log.data)
    assert visible(coordinator) == {0: 10, 1: 11}
    assert coordinator.table.unknown_records == 1


def test_a_record_that_makes_no_sense_does_not_replace_one_that_does(load: Load) -> None:
    log = Log().write(offset(0, 10)).write((offset(0, 11)[0], b"\0\3\0"))
    assert visible(load(log.data)) == {0: 10}


def damaged_log() -> bytes:
    good, bad = Log().write(offset(0, 10)).data, bytearray(Log().write(offset(0, 11)).data)
    bad[-1] ^= 1
    return good + bytes(bad) + Log().write(offset(1, 12)).data


def test_a_damaged_batch_is_stepped_over_and_told(tmp_path: Path) -> None:
    coordinator, restored = Coordinator(), Coordinator()
    report = replay_batches(coordinator.table, iter_batches(damaged_log()))
    loaded = load_latest(partition_of(tmp_path, damaged_log()))
    assert visible(coordinator) == {0: 10, 1: 12}
    assert (report.bad_batches, report.records, report.offsets) == (1, 2, 2)
    assert "says CRC" in report.problems[0]
    told = restore(restored.table, loaded)
    assert visible(restored) == {0: 10, 1: 12}
    assert without_problems(told) == without_problems(report)
    assert "says CRC" in told.problems[0]
    with pytest.raises(LoadFailed, match=r"\(base offset 0\) says CRC"):
        replay_batches(Coordinator().table, iter_batches(damaged_log()), strict=True)
    with pytest.raises(LoadFailed, match=r"\(base offset 0\) says CRC"):
        restore(Coordinator().table, loaded, strict=True)


def test_only_the_first_problems_are_kept(tmp_path: Path) -> None:
    log = Log()
    for _ in range(30):
        log.write((offset(0, 11)[0], b"\0\3\0"))
    report = replay_batches(Coordinator().table, iter_batches(log.data))
    assert (report.bad_records, len(report.problems)) == (30, MOST_PROBLEMS_KEPT)
    assert report == restore(Coordinator().table, load_latest(partition_of(tmp_path, log.data)))
    with pytest.raises(LoadFailed, match="offset 0 cannot be read"):
        replay_batches(Coordinator().table, iter_batches(log.data), strict=True)


def test_the_core_needs_no_columns() -> None:
    code = "import sys, muster.core.groups; print({'numpy', 'pyarrow', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Both ways are one.


def without_problems(report: LoadReport) -> LoadReport:
    """A file has a name, bytes have none, so the words differ."""
    return replace(report, problems=[])


def assert_equal(left: Coordinator, right: Coordinator) -> None:
    assert left.hard_state() == right.hard_state()
    assert left.newer.kinds == right.newer.kinds
    assert left.newer.records == right.newer.records
    assert left.table.unknown_records == right.table.unknown_records
    for group_id in left.hard_state():
        assert left.groups[group_id].seats == right.groups[group_id].seats, group_id


def assert_both_ways_agree(partition: SourcePartition) -> None:
    one, other = Coordinator(), Coordinator()
    report = replay_batches(one.table, batches_of(segment.path.read_bytes() for segment in partition.segments))
    told = restore(other.table, load_latest(partition))
    assert_equal(one, other)
    torn = told.bad_batches - report.bad_batches  # rows of batches that broke off: the iterator ended there
    assert 0 <= torn <= len(partition.segments)
    told.bad_batches -= torn
    assert without_problems(report) == without_problems(told)
    open_producers = {producer_id for group in one.groups.values() for producer_id in group.pending}
    for producer_id in sorted(open_producers):
        for coordinator in (one, other):
            coordinator.table.replay_marker(producer_id, producer_id % 2 == 0)
        assert_equal(one, other)


def batches_of(pieces: Iterable[bytes]) -> Iterator[ReadBatch]:
    for data in pieces:
        try:
            yield from iter_batches(data)
        except CodecError:
            continue


@pytest.mark.parametrize("name", NAMES)
def test_restoring_a_real_log_is_replaying_it(name: str) -> None:
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            assert_both_ways_agree(partition)


TEXTS = ["", "note", "ünï", b"\xff\xfe".decode("utf-8", "surrogateescape"), "x" * 130]
GROUP_IDS = ["g", "h", b"\xff".decode("utf-8", "surrogateescape"), b"\xfe".decode("utf-8", "surrogateescape")]
OFFSET_KEYS = st.builds(
    lambda group, topic, partition, record_type, tail: (
        encode_key(OffsetKey(group, topic, partition, record_type)) + tail
    ),
    st.sampled_from(GROUP_IDS),
    st.sampled_from(["t", "u"]),
    st.sampled_from([0, 1]),
    st.sampled_from([1, 1, 0]),
    st.sampled_from([b"", b"", b"\7"]),
)
OFFSET_VALUES = st.one_of(
    st.none(),
    st.builds(
        lambda version, *fields: encode_offset_value(OffsetValue(*fields), version),
        st.sampled_from([0, 1, 2, 3, 4]),
        st.integers(0, 2**62),
        st.sampled_from([-1, -1, 0, 9, -5]),
        st.sampled_from(TEXTS),
        st.integers(-1, 2**42),
        st.sampled_from([-1, 2**42, -9]),
        st.sampled_from([bytes(16), bytes(range(16)), b"\0" * 15 + b"\1"]),
        st.sampled_from([(), ((3, b"later"),)]),
    ),
)
GROUP_VALUES = st.one_of(
    st.none(),
    st.builds(
        lambda generation, members, version, tags: encode_group_value(
            GroupValue("consumer", generation, "range" if members else None, "m" if members else None, 5,
                       tuple(member(f"m{number}") for number in range(members)), tags), version,
        ),
        st.integers(0, 9),
        st.integers(0, 2),
        st.sampled_from([0, 1, 2, 3, 4]),
        st.sampled_from([(), ((3, b"later"),)]),
    ),
)  # fmt: skip
NEWER_TYPES = {"g": (3, 5, 8), "h": (11, 13), "i": (17, 22)}
TWO_NAMES = {5, 8, 13, 22}


@st.composite
def newer_records(draw: st.DrawFn) -> Content:
    group_id = draw(st.sampled_from(sorted(NEWER_TYPES)))
    record_type = draw(st.sampled_from(NEWER_TYPES[group_id]))
    names = (group_id, draw(st.sampled_from(["m", "n"]))) if record_type in TWO_NAMES else (group_id,)
    return encode_key(TypedKey(record_type, names)), draw(st.sampled_from([None, b"\0\0 of any bytes", b"\0\0..."]))


CONTENTS = st.one_of(
    st.tuples(OFFSET_KEYS, OFFSET_VALUES),
    st.tuples(OFFSET_KEYS, OFFSET_VALUES),
    st.tuples(OFFSET_KEYS, OFFSET_VALUES),
    st.tuples(st.sampled_from([encode_key(GroupKey(group_id)) for group_id in GROUP_IDS]), GROUP_VALUES),
    newer_records(),
    st.sampled_from(
        [
            (b"\x7f\xff of a later release", b"?"),
            (b"\x7f\xff of a later release", None),
            (encode_key(OffsetKey("g", "t", 0)), b"\0\3 too short"),
            (encode_key(GroupKey("g")), b"\0\3\0\x10"),
            (b"\0\1\0\5ab", b"\0\3"),
            (b"\0", None),
        ]
    ),
)
PRODUCERS = st.sampled_from([0, 1, 2])
STEPS = st.one_of(
    st.tuples(st.just("write"), st.lists(CONTENTS, min_size=1, max_size=4), st.just(-1)),
    st.tuples(st.just("write"), st.lists(CONTENTS, min_size=1, max_size=4), PRODUCERS),
    st.tuples(st.just("commit"), st.just([]), PRODUCERS),
    st.tuples(st.sampled_from(["commit", "abort"]), st.just([]), PRODUCERS),
)
Step = tuple[str, list[Content], int]


def written(steps: list[Step]) -> bytes:
    log = Log()
    for kind, contents, producer_id in steps:
        if kind == "write":
            log.write(*contents, producer_id=producer_id)
        else:
            log.mark(producer_id, kind == "commit")
    return log.data


@bounded
@given(st.lists(STEPS, max_size=25))
@example([("write", [offset(0, 1)], 1), ("write", [offset(0, None)], -1), ("write", [offset(0, 2)], -1)])
@example([("write", [offset(0, 1)], -1), ("write", [offset(0, None)], 1)])
@example([("write", [offset(0, 1)], 1), ("write", [offset(0, None)], 2), ("abort", [], 2), ("commit", [], 1)])
def test_restoring_any_log_is_replaying_it(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    assert_both_ways_agree(partition_of(tmp_path_factory.mktemp("log"), written(steps)))


@bounded
@given(st.lists(STEPS, max_size=25))
def test_so_it_is_when_what_is_left_comes_in_small_pieces(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    from muster.codec.columns import latest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latest, "PIECE_RECORDS", 3)
        assert_both_ways_agree(partition_of(tmp_path_factory.mktemp("log"), written(steps)))


FEW_STEPS = st.one_of(
    st.tuples(
        st.just("write"),
        st.lists(st.sampled_from([offset(0, 1), offset(0, 2, legacy=True), offset(0, None), offset(1, 3)]), min_size=1),
        st.sampled_from([-1, 1, 2]),
    ),
    st.tuples(st.sampled_from(["commit", "abort"]), st.just([]), st.sampled_from([1, 2])),
)


@bounded
@given(st.lists(FEW_STEPS, max_size=12))
def test_so_it_is_where_all_meet_at_two_keys(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    assert_both_ways_agree(partition_of(tmp_path_factory.mktemp("log"), written(steps)))


# What real brokers answered.


@pytest.fixture(scope="module", params=[name for name in NAMES if not name.startswith("damaged")])
def broker(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[int, Coordinator]]:
    """A broker's answers just before it stopped, and coordinators restored from what it left."""
    name = request.param
    expected = json.loads((CORPORA / name / "expected" / "groups.json").read_text(encoding="utf-8"))
    coordinators: dict[int, Coordinator] = {}
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            coordinator = Coordinator(GroupConfig())
            restore(coordinator.table, load_latest(partition))
            coordinator.activate(Instant(0, expected["snapshotAtMs"]), Outcome())
            assert partition.partition is not None
            coordinators[partition.partition] = coordinator
    count = len(expected["offsetsTopicEnd"])
    return expected, {number: coordinators.get(number, Coordinator()) for number in range(count)}


def of_group(broker: tuple[dict[str, Any], dict[int, Coordinator]], group_id: str) -> Coordinator:
    _, coordinators = broker
    return coordinators[partition_for(group_id, len(coordinators))]


def answer(coordinator: Coordinator, event: OffsetFetch) -> Any:
    out = Outcome()
    coordinator.handle(event, Instant(0, 0), out)
    ((_, answered),) = out.replies
    return answered


def test_committed_offsets_are_those_that_the_broker_told(
    broker: tuple[dict[str, Any], dict[int, Coordinator]],
) -> None:
    told = broker[0]["groups"]
    assert told
    for group in told:
        fetched = answer(of_group(broker, group["groupId"]), OffsetFetch(0, group["groupId"], None))
        ours = {
            f"{each.topic}-{each.partition}": (each.offset, each.metadata, None if each.leader_epoch < 0
                                               else each.leader_epoch)
            for each in fetched.partitions
        }  # fmt: skip
        theirs = {
            partition: (offset["offset"], offset["metadata"], offset["leaderEpoch"])
            for partition, offset in (group.get("committed") or {}).items()
        }
        assert ours == theirs, group["groupId"]


def test_classic_groups_are_those_that_the_broker_told(broker: tuple[dict[str, Any], dict[int, Coordinator]]) -> None:
    told = [group for group in broker[0]["groups"] if group.get("type") == "Classic"]
    for expected in told:
        group = seated(of_group(broker, expected["groupId"]), expected["groupId"])
        if expected["state"] not in ("PreparingRebalance", "CompletingRebalance"):  # which no log remembers
            assert group.state.value == expected["state"], expected
        protocol = expected.get("assignor", expected.get("protocol"))
        if group.members and protocol is not None:
            assert group.protocol == protocol
        theirs = {
            each["memberId"]: (each["groupInstanceId"], each["clientId"], each["host"])
            for each in expected["members"]
        }  # fmt: skip
        ours = {each.member_id: (each.instance_id, each.client_id, each.client_host) for each in group.members.values()}
        assert ours == theirs, expected["groupId"]
        for each in expected["members"]:
            if group.protocol_type == "consumer" and "assignment" in each:
                assignment = decode_assignment(group.members[each["memberId"]].assignment)
                pairs = () if assignment is None else assignment.assigned_partitions
                assert sorted(f"{topic}-{number}" for topic, numbers in pairs for number in numbers) == sorted(
                    each["assignment"]
                )
    ours_alive = {
        group_id
        for coordinator in broker[1].values()
        for group_id in coordinator.hard_state()
        if group_id not in coordinator.newer.kinds
    }
    assert ours_alive == {group["groupId"] for group in told}
