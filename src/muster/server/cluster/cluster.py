"""The cluster as this node knows it: itself, the topics, the settings. What every handler is given."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.server.cluster.partitions import EMPTY_PARTITION, PartitionOffsets
from muster.server.cluster.topics import Topic, Topics

NO_TOPIC_ID = bytes(16)
NOT_ASKED = -(2**31)
"""Authorized operations where nobody wanted to know them."""
ALL_TOPIC_OPERATIONS = 3576
ALL_CLUSTER_OPERATIONS = 8096
"""A bit for each operation that Kafka has for a topic, for a cluster; without an authorizer all of them are allowed."""


class Node(NamedTuple):
    """A broker, as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class Cluster:
    """One node leads every partition and is the controller too.

    `fresh_topic_id` gives sixteen random bytes that are nobody's id yet. `partition_of` finds the log of a partition;
    without it they are all empty.
    """

    cluster_id: str
    node: Node
    topics: Topics
    fresh_topic_id: Callable[[], bytes]
    config: BrokerConfig = field(default_factory=BrokerConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    partition_of: Callable[[Topic, int], PartitionOffsets] = lambda topic, partition: EMPTY_PARTITION
