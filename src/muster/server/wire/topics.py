"""What the codecs need to know of the topics there are. Whoever keeps them hands over two mappings."""

from collections.abc import Mapping
from typing import NamedTuple

NO_TOPIC_ID = bytes(16)


class Topics(NamedTuple):
    """The topics of the cluster, both ways. The mappings may change under us between requests."""

    by_name: Mapping[str, tuple[bytes, int]]
    """The topic's id and how many partitions it has."""
    by_id: Mapping[bytes, str]


NO_TOPICS = Topics({}, {})
