"""Logs that real brokers wrote: offsets and members are what the brokers answered, rebalances what the table tells."""

import io
import json
import re
import tarfile
from collections import Counter
from functools import cache

import cramjam
import pytest

from muster.codec.batches import iter_batches
from muster.codec.primitives import java_text
from muster.exporter.groups import Group, OffsetsPartition, Room
from muster.exporter.limits import LeftOut, Limits, Wanted
from muster.pipeline.rebalances.causes import DELETED
from tests.codec.corpus_records import CORPORA
from tests.pipeline.test_rebalances import rebalances

# Those whose logs are whole: what a broker answers without one, nobody can read there.
NAMES = ["k26-full", "k39-full", "k43-full", "k43-all", "mini-zstd-43"]
LOG = re.compile(r"(?:.*/)?__consumer_offsets-(\d+)/(\d+)\.log")


def logs(name: str) -> list[tuple[int, int, bytes]]:
    """Partition, first offset and bytes of the segments, in order."""
    data = bytes(cramjam.zstd.decompress((CORPORA / name / f"{name}.tar.zst").read_bytes()))
    found = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            match = LOG.fullmatch(member.name)
            if match and (file := archive.extractfile(member)) is not None:
                found.append((int(match[1]), int(match[2]), file.read()))
    return sorted(found)


@cache
def groups(name: str) -> dict[str, Group]:
    """All partitions of a corpus, followed from their first record on."""
    room = Room(Limits(), LeftOut())
    partitions: dict[int, OffsetsPartition] = {}
    for number, _, data in logs(name):
        if number not in partitions:
            partitions[number] = OffsetsPartition(room, Wanted(), lambda where: None)
            partitions[number].go_live()
        for batch in iter_batches(data):
            assert batch.problem is None
            partitions[number].take(batch.header, batch.records)
    return {group_id: group for one in partitions.values() for group_id, group in one.groups.items()}


@pytest.mark.parametrize("name", NAMES)
def test_offsets_and_members_are_what_the_broker_answered(name: str) -> None:
    answered = json.loads((CORPORA / name / "expected" / "groups.json").read_text())["groups"]
    assert answered
    found = {java_text(group_id): group for group_id, group in groups(name).items()}
    for theirs in answered:
        ours = found.get(theirs["groupId"], Group())
        committed = {f"{topic}-{number}": one.window[-1].offset for (topic, number), one in ours.positions.items()}
        expected = {where: one["offset"] for where, one in (theirs.get("committed") or {}).items()}
        assert committed == expected, theirs["groupId"]
        if theirs["state"] in ("Stable", "Empty"):
            assert len(ours.members) == len(theirs["members"]), theirs["groupId"]


@pytest.mark.parametrize("name", NAMES)
def test_rebalances_are_those_of_the_table(name: str) -> None:
    found = {java_text(group_id): group.rebalances for group_id, group in groups(name).items()}
    seen = 0
    for group_id, rows in rebalances(name).items():
        ours = found.get(group_id)
        if ours is None or any(row["cause"] == DELETED for row in rows):
            continue  # with a group its counts go
        for _ in range(2):
            ours.settle()
        expected = Counter(row["cause"] or "unknown" for row in rows if row["generation"] != row["previous_generation"])
        assert ours.by_cause == expected, group_id
        seen += 1
    assert seen or name == "mini-zstd-43"
