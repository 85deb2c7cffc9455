"""Conversations about topics and records, as data: `records` and `topics` have them, `play` plays one.

    Script("produce: a gap", steps=[ask("Produce", produce(row(0))), ask("Produce", produce(row(2)))], versions=PRODUCE)

A script is played once for each of its versions, on one connection, to a topic and a partition of its own: `topic` is
the kind, of which there is one with that many partitions. Whatever in a message is a function is called with the run
to have its value: `ID`, `HERE`, `at(3)`, `row(0)`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.server.wire_diff.talk import PATIENCE_S, Link, Message, Side

OF_RUN = None
NO_ID = bytes(16)
"""The version of a step that goes with the version of the run."""
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "200"},
    "punctual": {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"},
    "lonely": {"min.insync.replicas": "2"},
}
"""Topics of the scripts, by their settings."""


class Step(NamedTuple):
    """A request; `version` is the run's if it is None. With `until` it is asked again until that is so, unheard."""

    api: str
    message: Mapping[str, Any]
    version: int | None = OF_RUN
    is_answered: bool = True
    until: Callable[[Message], bool] | None = None


@dataclass(slots=True)
class Script:
    name: str
    steps: list[Step]
    versions: Iterable[int] = (0,)
    topic: str = "plain"
    partition: int = 0
    """Its own; given when all scripts are there."""

    @property
    def label(self) -> str:
        """For names of topics that a script makes."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)


@dataclass(slots=True)
class Run:
    """A script as it is played to one side in one version."""

    side: Side
    script: Script
    version: int
    end: int = 0
    """Where the partition ended before."""
    heard: Message = field(default_factory=dict)
    """The last answer."""
    session: int = 0
    made: list[bytes] = field(default_factory=list)
    """Ids of the topics that this run made, one after the other."""

    def producer(self, number: int) -> int:
        """An id that no other run has."""
        return 1_000_000 + self.script.partition * 1_000 + self.version * 10 + number


Value = Callable[[Run], Any]


def ID(run: Run) -> bytes:
    return run.side.topic_ids[run.script.topic]


def TOPIC(run: Run) -> str:
    return run.script.topic


def HERE(run: Run) -> int:
    return run.script.partition


def SESSION(run: Run) -> int:
    return run.session


def at(offset: int) -> Value:
    return lambda run: run.end + offset


def named(name: str) -> Value:
    """A name of this script, in this version."""
    return lambda run: f"{run.script.label}-{run.version}-{name}"


def made(number: int) -> Value:
    """The id of a topic that this run made."""
    return lambda run: run.made[number]


def id_of(name: str) -> Value:
    return lambda run: run.side.topic_ids.get(name, b"\x07" * 16)


def ask(api: str, message: Mapping[str, Any], version: int | None = OF_RUN, **more: Any) -> Step:
    return Step(api, message, version, **more)


def settled(value: Any, run: Run) -> Any:
    """A message with all its values."""
    if callable(value):
        return value(run)
    if isinstance(value, Mapping):
        return {name: settled(one, run) for name, one in value.items()}
    return [settled(one, run) for one in value] if isinstance(value, list) else value


def play(script: Script, side: Side, end_of: Callable[[Link, Side, str, int], int]) -> None:
    link = side.connect()
    for version in script.versions:
        run = Run(side, script, version)
        if script.topic:
            run.end = end_of(link, side, script.topic, script.partition)
        for step in script.steps:
            at_version = version if step.version is None else step.version
            message = settled(step.message, run)
            if step.until is not None:
                with side.connect() as other:
                    _wait(other, step, at_version, message)
                continue
            link.post(step.api, at_version, message)
            if not step.is_answered:
                continue
            run.heard = link.hear(step.api, at_version)
            if "connection" in run.heard:
                link = side.connect()
            if step.api == "CreateTopics":
                run.made += [topic["TopicId"] for topic in run.heard["Topics"] if "TopicId" in topic]
            label, answer = side.heard[-1]
            _without_chance(answer, run)
            side.heard[-1] = label, _in_order(answer) if step.api in FROM_HASH_MAPS else answer


def _wait(link: Link, step: Step, version: int, message: Message) -> None:
    assert step.until is not None
    deadline = time.monotonic() + PATIENCE_S
    while True:
        link.post(step.api, version, message)
        frame = link.read()
        assert isinstance(frame, bytes), frame
        if step.until(link.decoded(step.api, version, frame)):
            return
        assert time.monotonic() < deadline, (step.api, message)
        time.sleep(0.01)


FROM_HASH_MAPS = frozenset({
    "CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs",
    "DescribeLogDirs", "ListConfigResources", "ElectLeaders", "AlterPartitionReassignments", "DescribeQuorum",
    "ListPartitionReassignments", "Metadata",
})  # fmt: skip
"""Their lists come in no order."""


def _in_order(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _in_order(one) for name, one in value.items()}
    return sorted(map(_in_order, value), key=repr) if isinstance(value, list) else value


def _without_chance(answer: Message, run: Run) -> None:
    """Put names in the place of what is drawn by lot, and leave out sentences of Kafka's about its own classes."""
    if answer.get("SessionId"):
        run.session = run.heard["SessionId"]
        answer["SessionId"] = "a session"
    answer.pop("ClusterId", None)
    for topic in (*answer.get("Topics", ()), *answer.get("Responses", ())):
        if topic.get("TopicId", NO_ID) != NO_ID and not isinstance(topic["TopicId"], str):
            topic["TopicId"] = "an id"
        for told in topic.get("Partitions", ()):
            if "CurrentVoters" in told and not told["ErrorCode"]:
                _without_progress(told, answer)
    answer["ConfigResources"] = [
        one for one in answer.pop("ConfigResources", ()) if not one["ResourceName"].startswith("__")
    ]
    for result in answer.get("Results", ()):
        if "LogDir" in result:
            _without_place(result)
    if answer.get("ProducerId", -1) >= 0:
        answer["ProducerId"] = "a producer"
    for topic in answer.get("Topics", ()):
        for told in topic.get("Partitions", ()):
            if "ActiveProducers" in told:
                told["ActiveProducers"].sort(key=lambda producer: producer["ProducerId"])  # of a hash map
    for topic in answer.get("Responses", ()):
        for fetched in topic.get("Partitions", ()):
            if "Records" in fetched:
                fetched["Records"] = _whole(fetched["Records"], is_stamped=run.script.topic == "stamped")
        for response in topic.get("PartitionResponses", ()):
            response.pop("ErrorMessage", None)
            if response["LogAppendTimeMs"] > 0:
                response["LogAppendTimeMs"] = "a time"
            for record in response.get("RecordErrors", ()):
                record.pop("BatchIndexErrorMessage", None)


def _without_progress(quorum: Message, answer: Message) -> None:
    """How far a controller has come, and where it listens."""
    for name in ("LeaderEpoch", "HighWatermark"):
        quorum.pop(name)
    for voter in quorum["CurrentVoters"]:
        for name in ("ReplicaDirectoryId", "LogEndOffset", "LastFetchTimestamp", "LastCaughtUpTimestamp"):
            voter.pop(name, None)
    for node in answer.get("Nodes", ()):
        for listener in node["Listeners"]:
            listener.pop("Port")


def _without_place(log_dir: Message) -> None:
    assert log_dir.pop("LogDir").startswith("/")
    assert 0 < log_dir.pop("UsableBytes", 1) <= log_dir.pop("TotalBytes", 1)
    # Topics of the broker's own are not the same, and those of other scripts have been written to.
    log_dir["Topics"] = [topic for topic in log_dir["Topics"] if not topic["Name"].startswith("__")]


def _whole(records: bytes | None, is_stamped: bool) -> list[bytes]:
    """The batches without one that is cut short, which Kafka may send, and without times of the log and their sums."""
    batches, position = [], 0
    while records and position + 12 <= len(records):
        end = position + 12 + int.from_bytes(records[position + 8 : position + 12], "big")
        if end <= len(records):
            one = records[position:end]
            batches.append(one[:17] + one[21:27] + one[43:] if is_stamped else one)
        position = end
    return batches
