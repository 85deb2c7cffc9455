"""Clients that want what muster does not serve yet: one line for each, with what to do about it."""

from muster.server.server_log import RateLimitedLog

MOST_REMEMBERED = 1_000
LONGEST_ID = 200


class Unserved:
    """Says each thing once for each client id. Of a great many ids the older ones are forgotten, and told again."""

    def __init__(self, remarks: RateLimitedLog) -> None:
        self._remarks = remarks
        self._told: dict[tuple[str, str], None] = {}

    def producer(self, client_id: str, peer: str) -> None:
        self._say(
            "producer", client_id, peer,
            "is a producer, and muster keeps no records yet: Produce is refused with POLICY_VIOLATION(44). Produce to "
            "a Kafka cluster instead",
        )  # fmt: skip

    def newer_consumer(self, client_id: str, peer: str, group_id: str) -> None:
        self._say(
            "consumer", client_id, peer,
            f"joins group {group_id[:LONGEST_ID]!r} with group.protocol=consumer, and muster serves classic groups: it "
            "is refused with UNSUPPORTED_VERSION(35). Set group.protocol=classic",
        )  # fmt: skip

    def _say(self, kind: str, client_id: str, peer: str, what: str) -> None:
        shown_id = client_id[:LONGEST_ID]
        if (kind, shown_id) in self._told:
            return
        if len(self._told) >= MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[kind, shown_id] = None
        self._remarks.say(f"client {shown_id!r} at {peer} {what}.", peer=peer, client_id=shown_id)
