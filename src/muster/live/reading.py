"""Fetch at the leaders of some partitions."""

from collections.abc import Mapping

from muster.errors import ClusterError
from muster.live.cluster import Asked, Cluster
from muster.live.connection import Connection
from muster.live.fetch import LAST_BY_NAME, Fetched, FetchFrom, decode_fetch, encode_fetch
from muster.live.frames import Api, error_name
from muster.live.messages import NO_TOPIC_ID, TopicPartition

NO_WAIT_MS = 0
"""We never wait for records that are not there yet: what a run reads ends where the log ended when it began."""


def fetch(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, FetchFrom],
    max_bytes: int,
    patience_s: float | None = None,
) -> Asked[Fetched]:
    """What is in the log at these offsets. An answer may be OFFSET_OUT_OF_RANGE or another error that stays."""

    def ask(connection: Connection, share: Mapping[TopicPartition, FetchFrom]) -> dict[TopicPartition, Fetched]:
        ids = {topic: cluster.topic_id(topic) for topic, _ in share}
        version = connection.version_of(Api.FETCH, LAST_BY_NAME if NO_TOPIC_ID in ids.values() else None)
        throttle_ms, error, partitions = connection.ask(
            Api.FETCH,
            version,
            encode_fetch(version, share, ids, max_bytes, NO_WAIT_MS),
            lambda frame, position: decode_fetch(version, frame, position, ids),
        )
        connection.throttle(throttle_ms)
        if error:
            raise ClusterError(f"{connection.address} answers Fetch with {error_name(error)}.")
        return partitions

    return cluster.at_leaders(wanted, ask, patience_s)
