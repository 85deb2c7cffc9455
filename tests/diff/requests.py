"""A step becomes a request: names become ids, generations numbers, offsets structs.

`Cast` is what the clients of one run have learned: who was given which id, what generation they were told, which ids
their producers have. It also reads the other way round: `told` puts names back into an answer.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from muster.codec.primitives import Writer
from tests.diff.script import Step

MEMBER_ID_REQUIRED = 79
SESSION_MS = 600_000
REBALANCE_MS = 300_000
TRANSACTION_MS = 600_000
NO_TOPIC_ID = bytes(16)
UUID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(slots=True)
class Client:
    name: str
    member_ids: list[str] = field(default_factory=list)
    learned_at: list[int] = field(default_factory=list)
    """The step in which each id was learned."""
    generation: int = -1
    producer: tuple[int, int] = (-1, -1)

    @property
    def member_id(self) -> str:
        return self.member_ids[-1] if self.member_ids else ""


@dataclass(slots=True)
class Cast:
    """Everybody in one run of a script. `topic_ids` are those of the other side."""

    prefix: str
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # Names to ids.

    def group_id(self, name: str) -> str:
        return f"{self.prefix}{name}" if name else ""

    def transactional_id(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def member_id(self, said: str | None, own: str) -> str:
        if said is None:
            return own
        if said.startswith("!"):
            return said[1:]
        return self.client(said).member_id if said else ""

    def generation(self, said: str | None, own: int) -> int:
        if said is None:
            return own
        known = re.fullmatch(r"@(\w+)([+-]\d+)?", said)
        if known is None:
            return int(said)
        return self.client(known[1]).generation + int(known[2] or 0)

    def learn(self, step: Step, response: dict[str, Any], number: int) -> None:
        """A client remembers what it was told in the step of this number."""
        client = self.client(step.client)
        error = response.get("error_code")
        if step.api == "JoinGroup" and error in (0, MEMBER_ID_REQUIRED):
            if response["member_id"] not in ("", client.member_id):
                client.member_ids.append(response["member_id"])
                client.learned_at.append(number)
            if error == 0:
                client.generation = response["generation_id"]
        elif step.api == "InitProducerId" and error == 0:
            client.producer = response["producer_id"], response["producer_epoch"]

    # Ids to names.

    def as_of(self, number: int) -> "Cast":
        """What was known of ids after a step; what comes later must not change how it looks."""
        known = {
            name: Client(name, client.member_ids[: sum(learned <= number for learned in client.learned_at)])
            for name, client in self.clients.items()
        }
        return Cast(self.prefix, self.topic_ids, known)

    def member_name(self, member_id: str) -> str:
        """The client that holds it; `a#2` is the second id of one client, `a-?` one that nobody was told of."""
        for client in self.clients.values():
            if member_id and member_id in client.member_ids:
                number = client.member_ids.index(member_id) + 1
                return client.name if number == 1 else f"{client.name}#{number}"
        return UUID.sub("-?", member_id)

    def group_name(self, group_id: str) -> str | None:
        """None for a group of somebody else's."""
        if not group_id:
            return ""
        return group_id.removeprefix(self.prefix) if group_id.startswith(self.prefix) else None

    def topic_name(self, topic_id: bytes) -> str:
        names = {value: name for name, value in self.topic_ids.items()}
        return "none" if topic_id == NO_TOPIC_ID else f"id of {names.get(topic_id, topic_id.hex())}"

    def producer_name(self, producer_id: int) -> str | None:
        """None for a producer of somebody else's. A transactional id keeps its producer id in a run this short."""
        return next((each.name for each in self.clients.values() if each.producer[0] == producer_id >= 0), None)


def subscription(text: str) -> bytes:
    """`t0+t1~more` as the bytes a consumer sends, or the bytes themselves behind an x."""
    if text.startswith("x"):
        return bytes.fromhex(text[1:])
    topics, _, user_data = text.partition("~")
    out = Writer()
    out.int16(0)
    names = topics.split("+") if topics else []
    out.array_count(len(names))
    for name in names:
        out.string(name)
    out.bytes_(_repeated(user_data).encode())
    return out.finish()


def protocols(text: str) -> list[dict[str, Any]]:
    pairs = [each.partition(":") for each in text.split(",")] if text else []
    return [{"name": name, "metadata": subscription(metadata)} for name, _, metadata in pairs]


def _repeated(text: str) -> str:
    many = re.fullmatch(r"(\d+)\*(.+)", text)
    return many[2] * int(many[1]) if many else text


def _assignment(text: str) -> bytes:
    """`x0102`, or `9*x01` for nine times the same."""
    count, _, data = text.rpartition("*")
    return bytes.fromhex(data[1:]) * int(count or 1)


def _partition(text: str) -> tuple[str, dict[str, Any]]:
    said = re.fullmatch(r"([\w.]+)/(\d+)(?::(-?\d+))?(?:@(-?\d+))?(~.*)?", text)
    assert said is not None, f"not a partition: {text}"
    topic, partition, offset, epoch, metadata = said.groups()
    return topic, {
        "partition_index": int(partition),
        "committed_offset": int(offset or 0),
        "committed_leader_epoch": int(epoch or -1),
        "committed_metadata": None if metadata is None else _repeated(metadata[1:]),
    }


def topics(text: str, cast: Cast) -> list[dict[str, Any]]:
    """Partitions by topic, in the order they were said."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in text.split(",") if text else ():
        count, said = re.fullmatch(r"(?:(\d+)\*)?(.*)", each).groups("1")  # type: ignore[union-attr]
        topic, partition = _partition(said)
        found.setdefault(topic, []).extend([partition] * int(count))
    return [
        {
            "name": name,
            "topic_id": cast.topic_ids.get(name, b"?" * 16),
            "partitions": parts,
            "partition_indexes": [each["partition_index"] for each in parts],
        }
        for name, parts in found.items()
    ]


def _nullable(said: str | None, default: str) -> str | None:
    return default if said is None else None if said == "-" else said


def body_of(step: Step, cast: Cast) -> dict[str, Any]:
    """The request, in the words of its schema; what its version has no field for is left out when it is encoded."""
    said, me = step.arguments, cast.client(step.client)
    group_id = cast.group_id(step.groups[0]) if step.groups else ""
    who = {
        "group_id": group_id,
        "member_id": cast.member_id(said.get("member"), me.member_id),
        "generation_id": cast.generation(said.get("generation"), me.generation),
        "group_instance_id": said.get("instance"),
    }
    match step.verb:
        case "join":
            return who | {
                "session_timeout_ms": int(said.get("session", SESSION_MS)),
                "rebalance_timeout_ms": int(said.get("rebalance", REBALANCE_MS)),
                "protocol_type": said.get("type", "consumer"),
                "protocols": protocols(said.get("protocols", "range:t0")),
                "reason": said.get("reason"),
            }
        case "sync":
            pairs = (each.partition(":") for each in said["assign"].split(",")) if said.get("assign") else ()
            return who | {
                "protocol_type": _nullable(said.get("type"), "consumer"),
                "protocol_name": _nullable(said.get("protocol"), "range"),
                "assignments": [
                    {"member_id": cast.member_id(name, ""), "assignment": _assignment(data)} for name, _, data in pairs
                ],
            }
        case "heartbeat":
            return who
        case "leave":
            leavers = _leavers(said.get("members", step.client), said.get("reason"), cast)
            return who | {"member_id": leavers[0]["member_id"], "members": leavers}
        case "commit":
            return who | {
                "generation_id_or_member_epoch": who["generation_id"],
                "retention_time_ms": int(said.get("retention", -1)),
                "topics": topics(said["offsets"], cast),
            }
        case "txncommit":
            return {
                **who,
                "member_id": cast.member_id(said.get("member"), ""),
                "generation_id": cast.generation(said.get("generation"), -1),
                "topics": topics(said["offsets"], cast),
                **_producer(me, cast),
            }
        case "fetch":
            wanted = None if said["offsets"] == "all" else topics(said["offsets"], cast)
            return {
                "group_id": group_id,
                "topics": wanted,
                "groups": [{"group_id": cast.group_id(group), "topics": wanted} for group in step.groups],
                "require_stable": "stable" in said,
            }
        case "forget":
            return {"group_id": group_id, "topics": topics(said["offsets"], cast)}
        case "describe":
            asked = [cast.group_id(group) for group in step.groups]
            return {"groups": asked, "include_authorized_operations": "operations" in said}
        case "list":
            return {"states_filter": _words(said.get("states")), "types_filter": _words(said.get("types"))}
        case "delete":
            return {"groups_names": [cast.group_id(group) for group in step.groups]}
        case "init":
            return _producer(me, cast) | {
                "transaction_timeout_ms": TRANSACTION_MS,
                "producer_id": -1,
                "producer_epoch": -1,
            }
        case "add":
            return _producer(me, cast) | {"group_id": group_id}
        case "end":
            return _producer(me, cast) | {"committed": said.get("outcome", "commit") == "commit"}
    raise AssertionError(step.verb)


def _words(said: str | None) -> list[str]:
    return said.split(",") if said else []


def _leavers(said: str, reason: str | None, cast: Cast) -> list[dict[str, Any]]:
    pairs = (each.partition("/") for each in said.split(","))
    return [
        {"member_id": cast.member_id(name, ""), "group_instance_id": instance or None, "reason": reason}
        for name, _, instance in pairs
    ]


def _producer(me: Client, cast: Cast) -> dict[str, Any]:
    producer_id, epoch = me.producer
    return {
        "transactional_id": cast.transactional_id(me.name),
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


# Answers in the words of the script.

_MEMBER_FIELDS = {"member_id", "leader"}
_UNORDERED = {"topics", "partitions", "groups", "results"}
_SILENT = {"throttle_time_ms"}
_OF_PRODUCERS = {"InitProducerId", "AddOffsetsToTxn", "EndTxn"}


def told(step: Step, response: dict[str, Any], cast: Cast) -> dict[str, Any]:
    """An answer with names for ids, hex for bytes, and an order where the protocol has none.

    The members of a group come in the order of a hash map; those of a LeaveGroup in that of the request, so it stays.
    """
    if step.api in _OF_PRODUCERS:
        return {"error_code": response["error_code"]}
    if step.api == "ListGroups":  # everybody is listed; the group without a name is nobody's in particular
        ours = [each for each in response["groups"] if cast.group_name(each["group_id"])]
        response = response | {"groups": ours}
    unordered = _UNORDERED | (set() if step.api == "LeaveGroup" else {"members"})
    return _told(response, cast, unordered)


def _told(value: dict[str, Any], cast: Cast, unordered: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in value.items():
        if name in _SILENT:
            continue
        if isinstance(each, list):
            items = [_told(item, cast, unordered) for item in each if _is_ours(item, cast)]
            found[name] = sorted(items, key=_order) if name in unordered else items
        elif name in _MEMBER_FIELDS:
            found[name] = cast.member_name(each)
        elif name == "group_id":
            found[name] = cast.group_name(each)
        elif name == "topic_id":
            found[name] = cast.topic_name(each)
        elif name == "error_message" and each is not None:
            found[name] = each.replace(cast.prefix, "")
        else:
            found[name] = each.hex() if isinstance(each, bytes) else each
    return found


def _is_ours(item: dict[str, Any], cast: Cast) -> bool:
    return "group_id" not in item or cast.group_name(item["group_id"]) is not None


def _order(item: dict[str, Any]) -> tuple[str, ...]:
    keys: Iterable[str] = ("group_id", "name", "topic_id", "partition_index", "member_id")
    return tuple(str(item.get(key, "")) for key in keys)
