"""A live broker's own log, decoded by muster and by Kafka's tools: the same, record by record."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.segments.reader import record_batches
from tests.kit.kafka import KafkaBroker
from tests.real.drive import Drive

pytestmark = pytest.mark.kafka

FORMATTERS = {"OffsetsMessageFormatter": (0, 1), "GroupMetadataMessageFormatter": (2,)}


@pytest.fixture(scope="module")
def snapshot(kafka: KafkaBroker, driven: Drive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The offsets topic of the broker at one moment, so that both readers see the same bytes."""
    folder = tmp_path_factory.mktemp("snapshot")
    for partition in sorted(kafka.log_dir.glob("__consumer_offsets-*")):
        shutil.copytree(partition, folder / partition.name)
    return folder


def muster_dump(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "muster", "dump", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()


def test_text_is_what_dump_log_prints(kafka: KafkaBroker, snapshot: Path) -> None:
    segments = sorted(snapshot.glob("*/*.log"))
    theirs = kafka.dump_log(segments).replace(f"Dumping {snapshot}/", "Dumping ")
    assert muster_dump(snapshot, "--format", "text").splitlines() == theirs.splitlines()
    assert theirs.count('"type":"1"') > 10
    assert "endTxnMarker: COMMIT" in theirs
    assert "endTxnMarker: ABORT" in theirs
    assert "<DELETE>" in theirs


@pytest.mark.parametrize(
    "formatter",
    [
        "OffsetsMessageFormatter",
        pytest.param("GroupMetadataMessageFormatter", marks=pytest.mark.matrix),
    ],
)
def test_json_is_what_the_console_formatters_print(kafka: KafkaBroker, snapshot: Path, formatter: str) -> None:
    ours = [json.loads(line) for line in muster_dump(snapshot, "--format", "json").splitlines()]
    busiest = max({record["partition"] for record in ours}, key=lambda number: _size(snapshot, number))
    wanted = [
        {"key": record["key"], "value": record["value"]}
        for record in ours
        if record["partition"] == busiest and "key" in record and record["key"]["type"] in FORMATTERS[formatter]
    ]
    assert wanted
    printed = kafka.console_consumer_offsets(
        formatter, partition=busiest, is_enough=lambda printed: len(_objects(printed)) >= len(wanted)
    )
    theirs = _objects(printed)
    assert theirs[: len(wanted)] == wanted  # the broker may have written more since


def _size(snapshot: Path, partition: int) -> int:
    return sum(path.stat().st_size for path in (snapshot / f"__consumer_offsets-{partition}").glob("*.log"))


def _objects(text: str) -> list[dict[str, Any]]:
    """JSON objects with nothing between them, as the console consumer prints them."""
    decoder, objects, position = json.JSONDecoder(), [], 0
    while position < len(text.rstrip()):
        found, position = decoder.raw_decode(text, position)
        objects.append(found)
    return objects


def test_the_columns_hold_what_was_done(snapshot: Path, driven: Drive) -> None:
    damage: list[Any] = []
    in_force: dict[tuple[str, str, int], tuple[int, int]] = {}
    seen: dict[str, set[tuple[str, str, int]]] = {"aborted": set(), "open": set(), "deleted": set()}
    for batch in record_batches(snapshot, damage=damage):
        for row in batch.to_pylist():
            if row["topic"] is None:
                continue
            key = row["group_id"], row["topic"], row["partition"]
            if row["is_tombstone"]:
                in_force.pop(key, None)
                seen["deleted"].add(key)
            elif row["txn_outcome"] in (None, "committed"):
                in_force[key] = row["log_offset"], row["committed_offset"]
            else:
                seen[row["txn_outcome"]].add(key)
    assert damage == []
    assert {key: offset for key, (_, offset) in in_force.items() if key in driven.committed} == driven.committed
    assert seen["aborted"] >= driven.aborted.keys()
    assert seen["open"] >= driven.pending.keys()
    assert seen["deleted"] >= set(driven.deleted)
    assert not any(group in driven.deleted_groups for group, _, _ in in_force)
