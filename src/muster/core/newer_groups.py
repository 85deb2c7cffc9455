"""Groups of the newer protocols: consumer (KIP-848), share (KIP-932), streams (KIP-1071). Record types 3 to 23.

Today they are only kept safe. Their records are remembered as bytes, so that a tombstone ends what it is for and
a group ends with its last record; a group is listed with its type, in the state "Unknown"; its offsets can be read. No
request changes it: the rest of the coordinator asks `kinds` and refuses.

A full implementation comes in here, along the same lines as classic groups. `replay` decodes each record and sets it in
a hard `ConsumerGroup` (group epoch and subscription metadata, member records, target assignment, current assignment by
member), which changes nowhere else. A soft object beside it holds sessions, rebalance timeouts of members that have to
revoke, and the regular expressions being resolved. A handler for ConsumerGroupHeartbeat decides, as `Membership` does
for classic groups, and its writes join the decisions of `outcome.py`. Conversions between classic and consumer groups
are writes with records of both kinds.
"""

from muster.codec.offsets_topic import TypedKey

_CONSUMER_TYPES = frozenset({3, 4, 5, 6, 7, 8, 16})
_SHARE_TYPES = frozenset(range(9, 16))


def kind_of_group(record_type: int) -> str:
    """Which kind of group a record of a newer type belongs to."""
    if record_type in _CONSUMER_TYPES:
        return "consumer"
    return "share" if record_type in _SHARE_TYPES else "streams"


class NewerGroups:
    """The newer groups of one partition. They change in `replay` alone."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        """The type of each group, by its id."""
        self.records: dict[str, dict[bytes, bytes]] = {}
        """The records of each group as they stand in the log: values by keys."""

    def replay(self, key: TypedKey, raw_key: bytes, raw_value: bytes | None) -> None:
        """Let one record count. The last tombstone of a group ends the group."""
        records = self.records.setdefault(key.group_id, {})
        if raw_value is not None:
            records[raw_key] = raw_value
            self.kinds[key.group_id] = kind_of_group(key.record_type)
            return
        records.pop(raw_key, None)
        if not records:
            del self.records[key.group_id]
            self.kinds.pop(key.group_id, None)
