"""Changes of a data directory, here and now; a server makes them in steps, with waits in other threads."""

from collections.abc import Mapping
from dataclasses import replace

from muster.codec.error_codes import ErrorCode
from muster.errors import LogDamaged
from muster.log.directory import LogDirectory
from muster.log.partition import DiskLog
from muster.log.topics import ChangeUnsettled, Topic, TopicRefused
from muster.segments.checkpoints import new_topic_id


def create_topic(
    directory: LogDirectory, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> Topic:
    """Make a topic; it is there for good when this returns. Raises why it is not."""
    if _known(directory, name) is not None:
        raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {name} already")
    return _made(directory, Topic(name, new_topic_id(), partitions, dict(configs or {})))


def add_partitions(directory: LogDirectory, name: str, partitions: int) -> Topic:
    return _made(directory, replace(_there(directory, name), partitions=partitions))


def _made(directory: LogDirectory, topic: Topic) -> Topic:
    (made,) = directory.make_topics([topic])
    if made.error is not None:
        raise made.error
    directory.adopt(made.logs)
    return topic


def set_configs(directory: LogDirectory, name: str, configs: Mapping[str, str]) -> Topic:
    """Write other settings of a topic down; its logs go by them when they are opened next."""
    changed = replace(_there(directory, name), configs=dict(configs))
    directory.registry.put(changed)
    return changed


def delete_topic(directory: LogDirectory, name: str) -> None:
    """Remove a topic with all its records; it is gone for good when this returns."""
    topic = _there(directory, name)
    logs = directory.let_go({name})
    try:
        left = directory.remove_topics([topic], logs)
    except (LogDamaged, ChangeUnsettled):
        directory.adopt(logs)
        raise
    if left is not None:
        directory.notes.append(left)


def _known(directory: LogDirectory, name: str) -> Topic | None:
    topic = directory.registry.get(name)
    return topic if topic is not None and topic.is_whole else None


def _there(directory: LogDirectory, name: str) -> Topic:
    topic = _known(directory, name)
    if topic is None:
        raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic


def checkpoint(directory: LogDirectory) -> None:
    """Make every log durable, indexes too, and write down how far they are."""
    for log in directory.logs.values():
        if log.failure is None:
            checkpoint_log(log)
    directory.write_checkpoints()


def checkpoint_log(log: DiskLog) -> None:
    """Make everything durable, indexes too, so that `recovery_point` is the end of the log."""
    log.take_snapshot()
    log.flush(indexes=True)
