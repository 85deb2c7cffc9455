"""A broker as somebody to play scripts to, many side by side, and its log read afterwards.

Every script has groups of its own, so hundreds share one broker and wait at the same time. What a script has left in
the log is read from the broker's own files once all are through, up to where the log ended when the script did: a
session that runs out after the last step is nobody's business.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from muster.codec.batches import ReadBatch, iter_batches
from muster.codec.partitioning import partition_for
from muster.errors import Truncated
from tests.diff.core_messages import TOPIC_IDS
from tests.diff.core_target import MAX_GROUP_SIZE, MIN_SESSION_MS, PARTITIONS
from tests.diff.play import Moment, Transcript, play
from tests.diff.records import LogIndex
from tests.diff.script import Script
from tests.diff.wire import WireTarget

SIDE_BY_SIDE = 24
PATIENCE_S = 5.0
PATIENCE_WITH_TIMERS_S = 0.6
"""Shorter than any timer of a script, or an answer that only a timer gave would pass for one that came at once."""
OFFSETS_TOPIC = "__consumer_offsets"
LATEST_OFFSET = -1
KNOWN = "muster-diff"
GROUP, TRANSACTION = 0, 1
PARTITIONS_OF_A_TOPIC = 4


def settings(delay_ms: int) -> dict[str, str]:
    """What a broker must be told to be comparable with `CoreTarget`."""
    return {
        "offsets.topic.num.partitions": str(PARTITIONS),
        "group.initial.rebalance.delay.ms": str(delay_ms),
        "group.min.session.timeout.ms": str(MIN_SESSION_MS),
        "group.max.size": str(MAX_GROUP_SIZE),
    }


class BrokerTarget:
    """One broker for many scripts: where it listens, and where it keeps its log."""

    def __init__(self, bootstrap: str, log_dir: Path, key_types: Sequence[int] = (GROUP, TRANSACTION)) -> None:
        """`key_types`: the coordinators that it has."""
        self._log_dir = log_dir
        self._key_types = key_types
        host, port = bootstrap.rsplit(":", 1)
        self._address = host, int(port)
        self._topic_ids: dict[str, bytes] = {}
        self._runs = 0

    def run(
        self, scripts: Iterable[Script], expected: dict[str, list[Moment]], side_by_side: int = SIDE_BY_SIDE
    ) -> list[Transcript]:
        """Play them all; `expected` by name of the script, for `play`."""
        transcripts = asyncio.run(self._run(list(scripts), expected, side_by_side))
        self._read_records(transcripts)
        return transcripts

    async def _run(
        self, scripts: list[Script], expected: dict[str, list[Moment]], side_by_side: int
    ) -> list[Transcript]:
        await self._prepare()
        room = asyncio.Semaphore(side_by_side)

        async def one(script: Script) -> Transcript:
            async with room:
                return await self._play(script, expected.get(script.name))

        # Those that wait longest go first, so that nobody waits for them alone at the end.
        queue = sorted(scripts, key=lambda each: -sum(step.wait_ms for step in each.steps))
        played = await asyncio.gather(*(one(script) for script in queue))
        by_name = {transcript.script.name: transcript for transcript in played}
        return [by_name[script.name] for script in scripts]

    async def _play(self, script: Script, expected: list[Moment] | None) -> Transcript:
        patience_s = PATIENCE_WITH_TIMERS_S if script.has_timers else PATIENCE_S
        target = WireTarget(self._address, self._topic_ids, patience_s)
        self._runs += 1
        try:
            transcript = await play(script, target, f"{KNOWN}-{self._runs}.", expected)
            for group in script.groups:
                partition = partition_for(transcript.cast.group_id(group), PARTITIONS)
                transcript.end_offsets[group] = partition, await self._end_offset(target, partition)
            return transcript
        finally:
            await target.close()

    async def _end_offset(self, target: WireTarget, partition: int) -> int:
        asked = {"partition_index": partition, "timestamp": LATEST_OFFSET}
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": OFFSETS_TOPIC, "partitions": [asked]}]}
        answer = await target.ask("ListOffsets", 7, KNOWN, body)
        offset: int = answer["topics"][0]["partitions"][0]["offset"]
        return offset

    async def _prepare(self) -> None:
        """Topics, and coordinators that are awake."""
        if self._topic_ids:
            return
        target = WireTarget(self._address, {})
        for key_type in self._key_types:
            body = {"key_type": key_type, "coordinator_keys": [KNOWN]}
            await _until(target, "FindCoordinator", 4, body, lambda answer: answer["coordinators"][0]["error_code"])
        topic = {"num_partitions": PARTITIONS_OF_A_TOPIC, "replication_factor": 1, "assignments": [], "configs": []}
        asked = {"topics": [{"name": name, **topic} for name in TOPIC_IDS], "timeout_ms": 20_000}
        answer = await target.ask("CreateTopics", 7, KNOWN, asked)
        for created in answer["topics"]:
            assert created["error_code"] == 0, created
            self._topic_ids[created["name"]] = created["topic_id"]
        # Every partition of the offsets topic has been loaded when each has answered for a group of its own.
        for partition in range(PARTITIONS):
            name = next(f"{KNOWN}{n}" for n in range(1000) if partition_for(f"{KNOWN}{n}", PARTITIONS) == partition)
            described = {"groups": [name]}
            await _until(target, "DescribeGroups", 5, described, lambda answer: answer["groups"][0]["error_code"])
        await target.close()

    def _read_records(self, transcripts: list[Transcript]) -> None:
        logs = [LogIndex(self._batches(partition)) for partition in range(PARTITIONS)]
        for transcript in transcripts:
            for group, (partition, until_offset) in transcript.end_offsets.items():
                transcript.records[group] = logs[partition].told(group, transcript.cast, until_offset)

    def _batches(self, partition: int) -> Iterator[ReadBatch]:
        """All batches; the last one may be half written, by a session that runs out just now, and is nobody's then."""
        for path in sorted((self._log_dir / f"{OFFSETS_TOPIC}-{partition}").glob("*.log")):
            with contextlib.suppress(Truncated):
                yield from iter_batches(path.read_bytes())


async def _until(
    target: WireTarget, api: str, version: int, body: dict[str, Any], error: Callable[[dict[str, Any]], int]
) -> None:
    """Ask until there is no error; a broker that has just begun has many."""
    for _ in range(600):
        if error(await target.ask(api, version, KNOWN, body)) == 0:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the broker is not ready: {api} {body}")
