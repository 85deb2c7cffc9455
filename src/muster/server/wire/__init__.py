"""The edge of the server: bytes of requests to events of the core, its answers to bytes. No sockets here, no loop.

`TopicNames` is what the codecs know of the cluster.
"""

from collections.abc import Mapping
from typing import NamedTuple


class TopicNames(NamedTuple):
    """The topics of the cluster, both ways. The mappings may change under us between requests."""

    by_name: Mapping[str, tuple[bytes, int]]
    """The topic's id and how many partitions it has."""
    by_id: Mapping[bytes, str]
