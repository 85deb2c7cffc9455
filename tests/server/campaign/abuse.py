"""Clients that do not behave. Each does its worst from a generator of its own, and keeps its connections for the round.

Nobody asks what they are answered: they may be refused, sent away, or ignored. What counts is what the others notice.
"""

import contextlib
import random
import socket
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from crc32c import crc32c

from muster.protocol.apis import ApiKey
from muster.protocol.messages import encode_request
from tests.server.raw import Raw, commit_body
from tests.server.records.talking import FETCH, PRODUCE, batch, fetch_body, produce_body

PATIENCE_S = 2.0
MARK = "stretched-" * 4
"""Stands in a frame for what is too long for our own encoder to write."""


class Abuser:
    """Somebody with a purpose and any number of connections."""

    def __init__(self, address: tuple[str, int], rng: random.Random, prefix: str) -> None:
        self.address = address
        self.rng = rng
        self.prefix = prefix
        """For names that nobody else has."""
        self.sockets: list[socket.socket] = []

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        connected = socket.socket()
        if receive_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connected.settimeout(PATIENCE_S)
        connected.connect(self.address)
        self.sockets.append(connected)
        return connected

    def say(self, *frames: bytes) -> socket.socket:
        """On a connection of its own."""
        connected = self.connect()
        connected.sendall(b"".join(frames))
        return connected

    def raw(self) -> Raw:
        """A connection for requests whose answers matter."""
        raw = Raw(self.address, PATIENCE_S)
        self.sockets.append(raw.socket)
        return raw

    def hear(self, connected: socket.socket, at_most: int = 1 << 26) -> None:
        """Read and forget, until nothing comes for a while."""
        connected.settimeout(0.3)
        heard = 0
        with contextlib.suppress(OSError):
            while heard < at_most and (data := connected.recv(1 << 20)):
                heard += len(data)

    def leave(self) -> None:
        for connected in self.sockets:
            if self.rng.random() < 0.3:
                with contextlib.suppress(OSError):  # with a reset
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connected.close()
        self.sockets.clear()


def join(group: str, **other: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "groupId": group, "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 30_000, "memberId": "",
        "groupInstanceId": None, "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b"x"}],
    }  # fmt: skip
    return {**body, **other}


def stretched(frame: bytes, text: bytes) -> bytes:
    """A frame of a flexible version with a longer string in the place of `MARK`."""
    marked = _uvarint(len(MARK) + 1) + MARK.encode()
    assert marked in frame
    longer = frame[4:].replace(marked, _uvarint(len(text) + 1) + text)
    return struct.pack(">i", len(longer)) + longer


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# Answers and names that cannot be written.


def long_client_ids(abuser: Abuser) -> None:
    """A client id may have 32,767 bytes; a member id made of it cannot be written in the older versions."""
    name = "c" * abuser.rng.choice([32_767, 32_740, 32_700])
    for number in range(abuser.rng.randint(3, 20)):
        version = abuser.rng.randint(0, 5)
        group = f"{abuser.prefix}-{number % 4}"
        abuser.say(encode_request(ApiKey.JOIN_GROUP, version, 1, name, join(group, sessionTimeoutMs=1_000)))


def long_names(abuser: Abuser) -> None:
    """Names of 32,768 bytes and more, which no record and no older version can hold."""
    text = b"n" * abuser.rng.choice([32_768, 32_769, 40_000, 65_535, 70_000])
    commit = commit_body(MARK, "orders", {0: 1})
    frames = [
        encode_request(ApiKey.JOIN_GROUP, 6, 1, "long", join(MARK, sessionTimeoutMs=1_000)),
        encode_request(ApiKey.JOIN_GROUP, 9, 1, "long", join(f"{abuser.prefix}-type", protocolType=MARK)),
        encode_request(
            ApiKey.JOIN_GROUP, 7, 1, "long",
            join(f"{abuser.prefix}-name", protocols=[{"name": MARK, "metadata": b"x"}]),
        ),
        encode_request(ApiKey.JOIN_GROUP, 8, 1, "long", join(f"{abuser.prefix}-seat", groupInstanceId=MARK)),
        encode_request(ApiKey.JOIN_GROUP, 9, 1, "long", join(f"{abuser.prefix}-member", memberId=MARK)),
        encode_request(ApiKey.JOIN_GROUP, 9, 1, "long", join(f"{abuser.prefix}-reason", reason=MARK)),
        encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "long", commit),
        encode_request(ApiKey.OFFSET_COMMIT, 9, 1, "long", commit_body(f"{abuser.prefix}-topic", MARK, {0: 1})),
        encode_request(ApiKey.FIND_COORDINATOR, 4, 1, "long", {"keyType": 0, "coordinatorKeys": [MARK]}),
        encode_request(
            ApiKey.DESCRIBE_GROUPS, 5, 1, "long", {"groups": [MARK], "includeAuthorizedOperations": False}
        ),
        encode_request(ApiKey.DELETE_GROUPS, 2, 1, "long", {"groupsNames": [MARK]}),
        encode_request(
            ApiKey.HEARTBEAT, 4, 1, "long",
            {"groupId": MARK, "generationId": 1, "memberId": MARK, "groupInstanceId": None},
        ),
    ]  # fmt: skip
    abuser.rng.shuffle(frames)
    for frame in frames:
        abuser.say(stretched(frame, text))


# A little in, a lot out.


def repeated_groups(abuser: Abuser) -> None:
    """One large group described again and again, and one group's offsets fetched again and again."""
    group = f"{abuser.prefix}-large"
    large = join(group, protocols=[{"name": "range", "metadata": bytes(abuser.rng.choice([1_000, 400_000]))}])
    abuser.say(encode_request(ApiKey.JOIN_GROUP, 3, 1, "large", large))
    count = abuser.rng.choice([500, 5_000])
    described = {"groups": [group] * count, "includeAuthorizedOperations": False}
    asked = [{"groupId": "honest-0", "memberId": None, "memberEpoch": -1, "topics": None}] * count
    frames = [
        encode_request(ApiKey.DESCRIBE_GROUPS, 5, 1, "again", described),
        encode_request(ApiKey.OFFSET_FETCH, 9, 1, "again", {"groups": asked, "requireStable": False}),
    ]
    for frame in frames:
        connected = abuser.say(frame)
        if abuser.rng.random() < 0.5:
            abuser.hear(connected)


@cache
def _configs(count: int, resource_type: int, name: str) -> bytes:
    wanted = {"resourceType": resource_type, "resourceName": name, "configurationKeys": None}
    body = {"resources": [wanted] * count, "includeSynonyms": True, "includeDocumentation": True}
    return encode_request(ApiKey.DESCRIBE_CONFIGS, 4, 1, "configs", body)


def repeated_configs(abuser: Abuser) -> None:
    kind, name = abuser.rng.choice([(2, "orders"), (4, "1")])
    connected = abuser.say(_configs(abuser.rng.choice([2_000, 20_000]), kind, name))
    if abuser.rng.random() < 0.5:
        abuser.hear(connected)


# Memory.


def hoarders(abuser: Abuser) -> None:
    """Large frames of which the end never comes."""
    size = 1 << 20
    for _ in range(abuser.rng.choice([8, 40])):
        with contextlib.suppress(OSError):
            connected = abuser.connect()
            connected.settimeout(0.2)
            connected.sendall(struct.pack(">ihhi", 2 * size, ApiKey.OFFSET_COMMIT, 8, 1) + bytes(size))


def large_members(abuser: Abuser) -> None:
    """Metadata of a great many bytes, of members who then go away and are members all the same."""
    count, size = abuser.rng.choice([(3, 1 << 20), (6, 8 << 20), (6, 8 << 20), (40, 30 << 20)])
    frame = encode_request(
        ApiKey.JOIN_GROUP, 5, 1, "large",
        join(f"{abuser.prefix}-heavy", groupInstanceId="@@@@", protocols=[{"name": "range", "metadata": bytes(size)}]),
    )  # fmt: skip
    for number in range(count):
        with contextlib.suppress(OSError):
            abuser.say(frame.replace(b"@@@@", b"%4d" % number, 1)).close()


def parked_fetches(abuser: Abuser) -> None:
    partition = {
        "partition": 0, "currentLeaderEpoch": -1, "fetchOffset": 0, "logStartOffset": -1, "partitionMaxBytes": 1 << 20,
    }  # fmt: skip
    fetch = {
        "replicaId": -1, "maxWaitMs": 60_000, "minBytes": 1, "maxBytes": 1 << 20, "isolationLevel": 0, "sessionId": 0,
        "sessionEpoch": -1, "forgottenTopicsData": [], "rackId": "r" * abuser.rng.choice([1, 30_000]),
        "topics": [{"topic": "orders", "partitions": [partition]}],
    }  # fmt: skip
    frame = encode_request(ApiKey.FETCH, 11, 1, "parked", fetch)
    for _ in range(abuser.rng.choice([50, 200, 1_500])):
        abuser.say(frame)


def deaf(abuser: Abuser) -> None:
    """Asks and never reads."""
    frame = encode_request(ApiKey.METADATA, 1, 1, "deaf", {"topics": None})
    for _ in range(abuser.rng.randint(1, 4)):
        connected = abuser.connect(receive_bytes=4_096)
        connected.settimeout(0.1)
        with contextlib.suppress(OSError):
            connected.sendall(frame * 5_000)


# Time and timers.


def silent_static_members(abuser: Abuser) -> None:
    """A group in which, when the other member has left, a silent one is left that gives rebalances no time at all."""
    for number in range(abuser.rng.randint(1, 4)):
        group = f"{abuser.prefix}-silent-{number}"
        seat, other = abuser.raw(), abuser.raw()
        first = join(group, groupInstanceId="seat", rebalanceTimeoutMs=5_000)
        member_id = seat.ask(ApiKey.JOIN_GROUP, 5, **first)["memberId"]
        other.send(ApiKey.JOIN_GROUP, 3, **join(group, rebalanceTimeoutMs=5_000))
        seat.ask(ApiKey.JOIN_GROUP, 5, **{**first, "memberId": member_id})
        joined = other.hear(ApiKey.JOIN_GROUP, 3)[1]
        for raw, who in ((seat, member_id), (other, joined["memberId"])):
            raw.send(
                ApiKey.SYNC_GROUP, 2, groupId=group, generationId=joined["generationId"], memberId=who,
                assignments=[{"memberId": who, "assignment": b"yours"}],
            )  # fmt: skip
        other.hear(ApiKey.SYNC_GROUP, 2)
        first["rebalanceTimeoutMs"] = abuser.rng.choice([0, -1, -(2**31)])
        abuser.raw().ask(ApiKey.JOIN_GROUP, 5, **first)  # takes its own seat again, which makes nobody rebalance
        other.ask(ApiKey.LEAVE_GROUP, 1, groupId=group, memberId=joined["memberId"])


def leavers(abuser: Abuser) -> None:
    """Join and hang up, again and again."""
    body = join(f"{abuser.prefix}-leavers", sessionTimeoutMs=50)
    for _ in range(abuser.rng.randint(5, 50)):
        abuser.say(encode_request(ApiKey.JOIN_GROUP, 3, 1, "leaver", body)).close()


# Topics and groups.


def auto_creation(abuser: Abuser) -> None:
    names = [{"name": f"{abuser.prefix}-{number}"} for number in range(abuser.rng.choice([20, 1_000, 9_900]))]
    body = {
        "topics": names, "allowAutoTopicCreation": True, "includeClusterAuthorizedOperations": False,
        "includeTopicAuthorizedOperations": False,
    }  # fmt: skip
    abuser.hear(abuser.say(encode_request(ApiKey.METADATA, 8, 1, "names", body)))


def many_partitions(abuser: Abuser) -> None:
    topics = [
        {
            "name": f"{abuser.prefix}-{number}", "replicationFactor": abuser.rng.choice([1, 1, 1, -1, 3]),
            "numPartitions": abuser.rng.choice([1, 10, 40, 100, 10_000, 2**31 - 1, 0, -2]), "assignments": [],
            "configs": abuser.rng.choice([[], [{"name": "cleanup.policy", "value": "nonsense"}]]),
        }
        for number in range(abuser.rng.randint(1, 5))
    ]  # fmt: skip
    body = {"topics": topics, "timeoutMs": 5_000, "validateOnly": False}
    abuser.hear(abuser.say(encode_request(ApiKey.CREATE_TOPICS, 5, 1, "topics", body)))


def large_commits(abuser: Abuser) -> None:
    """More offsets than a batch has room for, with names as long as they may be; and then the group goes."""
    group, topic = f"{abuser.prefix}-{abuser.rng.choice(['c', 'c' * 3_000])}", "t" * 240
    connected = abuser.connect()
    for start in range(0, abuser.rng.choice([400, 4_000]), 200):
        offsets = dict.fromkeys(range(start, start + 200), 1)
        connected.sendall(encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "large", commit_body(group, topic, offsets)))
    connected.sendall(encode_request(ApiKey.DELETE_GROUPS, 2, 1, "large", {"groupsNames": [group]}))
    abuser.hear(connected)


# Bytes.


def torn_frames(abuser: Abuser) -> None:
    """Connects, says half of it and hangs up."""
    frame = encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "torn", commit_body(f"{abuser.prefix}-torn", "orders", {0: 1}))
    for _ in range(abuser.rng.randint(10, 60)):
        abuser.say(frame[: abuser.rng.randrange(len(frame))])
        if abuser.rng.random() < 0.5:
            abuser.leave()


def garbage(abuser: Abuser) -> None:
    """Noise, and requests with a few bytes changed."""
    frames = [
        encode_request(ApiKey.JOIN_GROUP, 9, 1, "noise", join(f"{abuser.prefix}-noise", sessionTimeoutMs=500)),
        encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "noise", commit_body(f"{abuser.prefix}-noise", "orders", {0: 1})),
        encode_request(ApiKey.METADATA, 12, 1, "noise", {
            "topics": None, "allowAutoTopicCreation": False, "includeTopicAuthorizedOperations": False,
        }),
    ]  # fmt: skip
    for _ in range(abuser.rng.randint(10, 40)):
        if abuser.rng.random() < 0.2:
            abuser.say(abuser.rng.randbytes(abuser.rng.randint(1, 4_096)))
            continue
        frame = bytearray(abuser.rng.choice(frames))
        for _ in range(abuser.rng.randint(1, 4)):
            frame[abuser.rng.randrange(8, len(frame))] = abuser.rng.randrange(256)
        abuser.say(bytes(frame))


def odd_batches(abuser: Abuser) -> None:
    """Batches with a few bytes changed, some with the right checksum again; and some that unpack to a great deal."""
    bomb = batch("x" * 20_000_000, codec=abuser.rng.choice([1, 4]))
    for _ in range(abuser.rng.randint(5, 30)):
        data = bytearray(batch("odd" * 50, "one", codec=abuser.rng.randrange(5), producer_id=7, base_sequence=0))
        for _ in range(abuser.rng.randint(1, 3)):
            data[abuser.rng.randrange(8, len(data))] = abuser.rng.randrange(256)
        if abuser.rng.random() < 0.7:
            struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        sent = bomb if abuser.rng.random() < 0.1 else bytes(data)
        body = produce_body("orders", {abuser.rng.randrange(20): sent}, acks=abuser.rng.choice([0, 1, -1, -1]))
        abuser.say(encode_request(ApiKey.PRODUCE, PRODUCE, 1, "odd", body))


def endless_fetches(abuser: Abuser) -> None:
    """Wait for more records than there will ever be, of all that there are."""
    body = fetch_body("sales", {0: 0, 1: 0}, maxWaitMs=60_000, minBytes=2**31 - 1, maxBytes=2**31 - 1)
    for partition in body["topics"][0]["partitions"]:
        partition["partitionMaxBytes"] = 2**31 - 1
    frame = encode_request(ApiKey.FETCH, FETCH, 1, "endless", body)
    for _ in range(abuser.rng.choice([10, 100])):
        abuser.say(frame)


ABUSES: dict[str, Callable[[Abuser], None]] = {
    abuse.__name__.replace("_", " "): abuse
    for abuse in (
        long_client_ids, long_names, repeated_groups, repeated_configs, hoarders, large_members, parked_fetches, deaf,
        silent_static_members, leavers, auto_creation, many_partitions, large_commits, torn_frames, garbage,
        odd_batches, endless_fetches,
    )
}  # fmt: skip


def abuse(kind: str, abuser: Abuser) -> None:
    """Do it, and do not mind being sent away in the middle."""
    with contextlib.suppress(OSError, EOFError):
        ABUSES[kind](abuser)
