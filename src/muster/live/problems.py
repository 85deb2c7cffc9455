"""Sentences for what a cluster answers when it does not give what was asked, and which of it asking again may cure."""

from muster.codec.error_codes import ErrorCode
from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable, NotThereYet
from muster.live.frames import error_name
from muster.live.messages import TopicPartition

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that newer metadata, or a moment's patience, may cure."""


class NoSuchTopic(ClusterError, NotThereYet):
    """Not cured by asking again at once."""


def shown(where: TopicPartition) -> str:
    return f"{where[0]}-{where[1]}"


def topic_problem(topic: str, error: int) -> ClusterError:
    """The sentence for a topic that cannot be read."""
    match error:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return ClusterRefused(
                f"no rights on topic {topic}. Reading it takes the operations Describe and Read: kafka-acls --add "
                f"--allow-principal User:NAME --operation Read --operation Describe --topic {topic}"
            )
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            hint = " A cluster makes it when the first group appears." if topic == "__consumer_offsets" else ""
            return NoSuchTopic(f"the cluster has no topic {topic}, or does not let us see it.{hint}")
        case _ if error in RETRIABLE:
            return ClusterUnreachable(f"topic {topic}: the cluster answers {error_name(error)}.")
        case _:
            return ClusterError(f"topic {topic}: the cluster answers {error_name(error)}.")


def partition_problem(where: TopicPartition, error: int) -> ClusterError:
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic_problem(where[0], error)
    family = ClusterUnreachable if error in RETRIABLE else ClusterError
    return family(f"{shown(where)}: its leader answers {error_name(error)}.")
