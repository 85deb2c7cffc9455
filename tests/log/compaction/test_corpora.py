"""Logs of real brokers: compacted here they load as before, and both ways of compaction agree about them."""

from functools import cache
from pathlib import Path

import pytest

from muster.codec.batches import iter_batches
from muster.core.coordinator import Coordinator
from muster.core.groups import replay_batches
from muster.log.compaction.rules import CleaningRules, LastRecord
from muster.log.producers import ProducerStates
from muster.segments.indexes import AbortedTransaction
from muster.segments.sources import Sources
from tests.log.compaction import COMPACTORS, DAY_MS, Round, compacted, split

CORPORA = Path(__file__).parents[2] / "corpus"
NAMES = sorted(path.parent.name for path in CORPORA.glob("*/*.tar.zst") if not path.parent.name.startswith("damaged"))
LATE_MS = 2_000_000_000_000


@cache
def partitions(name: str) -> list[list[bytes]]:
    """The batches of every partition of a corpus, up to where a broker that was killed left off."""
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        return [
            [batch for segment in partition.segments for batch in split(segment.path.read_bytes())]
            for partition in sources.partitions
        ]


def producers_of(batches: list[bytes]) -> tuple[ProducerStates, list[AbortedTransaction]]:
    states, aborted = ProducerStates(), []
    for read in iter_batches(b"".join(batches)):
        ended = states.replay(read.header, b"".join(batches)[read.position : read.position + read.header.size_bytes])
        if ended is not None:
            aborted.append(ended)
    return states, aborted


def hard_state(batches: list[bytes]) -> object:
    coordinator = Coordinator()
    replay_batches(coordinator.table, iter_batches(b"".join(batches)))
    return coordinator.hard_state(), coordinator.newer.records


@pytest.mark.parametrize("name", NAMES)
def test_a_compacted_corpus_loads_as_before(name: str) -> None:
    """Three rounds: as it is found, when all tombstones may go, and when all producers are forgotten."""
    removed = 0
    for before in partitions(name):
        if not before:
            continue
        batches, first_dirty = before, 0
        states, aborted = producers_of(before)
        unstable = states.first_undecided_offset()
        end = states.end_offset if unstable is None else unstable
        last = {
            producer.producer_id: LastRecord(
                producer.batches[-1].last_offset if producer.batches else None, producer.epoch
            )
            for producer in states.producers.values()
        }
        for number in range(3):
            now_ms = LATE_MS + number * DAY_MS
            known = last if number < 2 else {}
            rules = CleaningRules(now_ms, DAY_MS, first_dirty, end, known, merges_offset_keys=True)
            by_rows, by_columns = (compacted(batches, rules, aborted, make) for make in COMPACTORS.values())
            assert by_columns.data == by_rows.data
            assert by_columns.facts == by_rows.facts
            assert by_columns.aborted == by_rows.aborted
            batches = split(by_rows.data) + [batch for batch in batches if base(batch) >= end]
            aborted = by_rows.aborted + [each for each in aborted if each.last_offset >= end]
            first_dirty = end
            assert hard_state(batches) == hard_state(before)
            assert_newest(by_rows)
        removed += len(before) - len(batches)
    assert removed > 0


def base(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def assert_newest(done: Round) -> None:
    keys = [record.key for record in done.records]
    assert len(keys) == len(set(keys))
