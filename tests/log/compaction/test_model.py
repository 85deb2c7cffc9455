"""Random logs, several rounds of compaction: against the model, and the two ways against each other."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from muster.codec.records import Record
from muster.log.compaction.rules import CleaningRules, LastRecord
from tests.codec.strategies import bounded
from tests.log.compaction import (
    COMPACTORS,
    DAY_MS,
    START_MS,
    History,
    Round,
    base_offset,
    compacted,
    memory_for,
    split,
)
from tests.log.compaction.model import DATA, MARKER, Model, ModelBatch, ModelRecord

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e" * 20, b"", None])
VALUES = st.sampled_from([None, b"1", b"2", b"", b"long" * 40])
CONTENTS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
PRODUCERS = st.integers(1, 3)


@dataclass(frozen=True, slots=True)
class Write:
    contents: list[tuple[bytes | None, bytes | None]]
    producer_id: int
    transactional: bool
    codec: int
    gap: int


@dataclass(frozen=True, slots=True)
class Mark:
    producer_id: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Compact:
    """A round: so much later, with or without the producers being known any more."""

    later_ms: int
    producers_known: bool


STEPS = st.lists(
    st.one_of(
        st.builds(
            Write,
            CONTENTS,
            st.one_of(st.just(-1), PRODUCERS),
            st.booleans(),
            st.sampled_from([0, 0, 0, 1, 3]),
            st.sampled_from([0, 0, 0, 7]),
        ),
        st.builds(Mark, PRODUCERS, st.booleans()),
        st.builds(Compact, st.sampled_from([0, DAY_MS // 2, DAY_MS]), st.booleans()),
    ),
    min_size=1,
    max_size=40,
)


@dataclass(slots=True)
class Both:
    """The same log twice: as bytes and as the model."""

    history: History = field(default_factory=History)
    model: Model = field(default_factory=Model)
    now_ms: int = START_MS
    first_dirty: int = 0
    transactions: dict[int, int] = field(default_factory=dict)
    """Number of the open transaction of each producer."""
    next_transaction: int = 1

    def write(self, step: Write) -> None:
        producer_id = step.producer_id
        transactional = producer_id >= 0 and (step.transactional or producer_id in self.transactions)
        if transactional and producer_id not in self.transactions:
            self.transactions[producer_id] = self.next_transaction
            self.next_transaction += 1
        history = self.history
        history.write(
            *step.contents, producer_id=producer_id, transactional=transactional, codec=step.codec, gap=step.gap
        )
        base = base_offset(history.batches[-1])
        records = [ModelRecord(base + number, key, value) for number, (key, value) in enumerate(step.contents)]
        transaction = self.transactions.get(producer_id) if transactional else None
        self.model.batches.append(
            ModelBatch(DATA, base, history.end - 1, records, transaction, producer_id, 0 if producer_id >= 0 else -1)
        )

    def mark(self, step: Mark) -> None:
        if step.producer_id not in self.transactions:
            return
        transaction = self.transactions.pop(step.producer_id)
        if not step.commit:
            self.model.aborted.add(transaction)
        base = self.history.end
        self.history.mark(step.producer_id, step.commit)
        marker = [ModelRecord(base, None, b"marker")]
        self.model.batches.append(ModelBatch(MARKER, base, base, marker, transaction, step.producer_id, 0))

    def compact(self, step: Compact) -> tuple[Round, Round]:
        self.now_ms += step.later_ms
        history = self.history
        end = history.last_stable_offset
        last_records = history.last_records if step.producers_known else {}
        rules = CleaningRules(self.now_ms, DAY_MS, min(self.first_dirty, end), end, last_records)
        by_rows, by_columns = (
            compacted(history.batches, rules, history.aborted, make, chunk_bytes=300) for make in COMPACTORS.values()
        )
        last_data = {producer_id: (last[0], last[1]) for producer_id, last in last_records.items()}
        self.model.compact(rules.first_dirty_offset, end, self.now_ms, DAY_MS, last_data)
        untouched = [batch for batch in history.batches if base_offset(batch) >= end]
        history.batches = split(by_rows.data) + untouched
        history.aborted = by_rows.aborted + [each for each in history.aborted if each.last_offset >= end]
        self.first_dirty = end
        return by_rows, by_columns


def contents(both: Both) -> list[tuple[int, int, bool, int | None, list[tuple[int, bytes | None, bytes | None]]]]:
    """The real log as the model sees it."""
    found = []
    for batch in Round(b"".join(both.history.batches), [], [], None).batches:  # type: ignore[arg-type]
        header = batch.header
        records = [(record.offset, record.key, record.value) for record in batch.records]
        if header.is_control:
            records = [(offset, None, b"marker") for offset, _, _ in records]
        found.append((header.base_offset, header.last_offset, header.is_control, header.delete_horizon_ms, records))
    return found


def expected(both: Both) -> list[tuple[int, int, bool, int | None, list[tuple[int, bytes | None, bytes | None]]]]:
    return [
        (
            batch.base,
            batch.last,
            batch.kind == MARKER,
            batch.horizon_ms,
            [(record.offset, record.key, record.value) for record in batch.records],
        )
        for batch in both.model.batches
    ]


@bounded
@given(STEPS)
def test_compaction_keeps_what_the_model_keeps(steps: list[Write | Mark | Compact]) -> None:
    both = Both()
    for step in [*steps, Compact(DAY_MS, False)]:
        match step:
            case Write():
                both.write(step)
            case Mark():
                both.mark(step)
            case Compact():
                before = both.model.newest()
                by_rows, by_columns = both.compact(step)
                assert both.model.newest() == before  # of the model itself: nobody loses a value
                assert contents(both) == expected(both)
                assert by_columns.data == by_rows.data
                assert by_columns.facts == by_rows.facts
                assert by_columns.aborted == by_rows.aborted
                assert by_columns.compactor.count == by_rows.compactor.count
                assert by_columns.compactor.latest_offset == by_rows.compactor.latest_offset
                assert_facts(by_rows)


def assert_facts(done: Round) -> None:
    """What the indexes are told is what the batches say."""
    headers = [batch.header for batch in done.batches]
    assert done.facts == [(header.size_bytes, header.last_offset, header.max_timestamp_ms) for header in headers]


@bounded
@given(
    st.lists(st.tuples(CONTENTS, st.sampled_from([0, 2])), min_size=1, max_size=20),
    st.integers(1, 4),
    st.integers(0, 30),
)
def test_both_ways_agree_when_the_map_is_full(
    batches: list[tuple[list[tuple[bytes | None, bytes | None]], int]], keys: int, first_dirty: int
) -> None:
    history = History()
    for written, codec in batches:
        history.write(*written, codec=codec)
    rules = history.rules(first_dirty_offset=min(first_dirty, history.end))
    by_rows, by_columns = (
        compacted(history.batches, rules, make=make, memory_bytes=memory_for(make, keys))
        for make in COMPACTORS.values()
    )
    assert by_columns.data == by_rows.data
    assert by_columns.compactor.is_full == by_rows.compactor.is_full
    assert by_columns.compactor.latest_offset == by_rows.compactor.latest_offset
    assert by_columns.compactor.keys == by_rows.compactor.keys


@bounded
@given(st.lists(CONTENTS, min_size=1, max_size=20), st.integers(1, 4))
def test_a_small_map_gets_there_in_several_rounds(
    batches: list[list[tuple[bytes | None, bytes | None]]], keys: int
) -> None:
    """Each round gets at least one key further, and in the end every key is there once."""
    history = History()
    for written in batches:
        history.write(*written)
    wanted = {record.key: record for record in records_of(history) if record.key is not None}
    for make in COMPACTORS.values():
        data, reached = history.batches, 0
        while reached < history.end:
            rules = history.rules(first_dirty_offset=reached)
            done = compacted(data, rules, make=make, memory_bytes=memory_for(make, keys))
            assert done.compactor.latest_offset >= reached
            data, reached = split(done.data), done.compactor.latest_offset + 1
        assert {record.key: record for record in done.records} == wanted
        assert len(done.records) == len(wanted)


def records_of(history: History) -> list[Record]:
    return Round(b"".join(history.batches), [], [], None).records  # type: ignore[arg-type]


@bounded
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2**62), st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6), st.integers(0, 4)
        ),
        min_size=1,
        max_size=6,
    )
)
def test_timestamps_of_any_kind_survive_being_written_anew(batches: list[tuple[int, list[int], int]]) -> None:
    """Deltas grow when a horizon becomes the base; both ways write the same varints."""
    from muster.codec.batches import encode_batch

    data, offset = [], 0
    for base_ms, deltas, codec in batches:
        records = [
            Record(offset + number, max(-1, base_ms + delta), b"k%d" % (number % 4), None if delta % 3 == 0 else b"v")
            for number, delta in enumerate(deltas)
        ]
        data.append(encode_batch(records, codec=codec))
        offset += len(records)
    before = {
        record.offset: record.timestamp_ms
        for record in Round(b"".join(data), [], [], None).records  # type: ignore[arg-type]
    }
    rules = CleaningRules(START_MS, DAY_MS, 0, offset, {1: LastRecord(0, 0)})
    by_rows, by_columns = (compacted(data, rules, make=make) for make in COMPACTORS.values())
    assert by_columns.data == by_rows.data
    assert {record.offset: record.timestamp_ms for record in by_rows.records}.items() <= before.items()
    assert_facts(by_rows)
