"""Scripts about topics: made, deleted, given partitions; their settings; what a cluster of one node says of itself."""

from typing import Any

from tests.server.wire_diff.scripts import ID, TOPIC, Script, Step, ask, id_of, made, named
from tests.server.wire_diff.scripts.records import batch, fetch, in_session, of_topic, produce, wanted
from tests.server.wire_diff.talk import Message

NOBODYS_ID, NO_ID = b"\x07" * 16, bytes(16)
CREATE, DELETE, GROW = range(2, 8), range(1, 7), range(4)
DESCRIBE, ALTER, CHANGE = range(1, 5), range(3), range(2)
LONGEST, TOO_LONG = "x" * 249, "x" * 250


# Requests


def topic(name: Any, partitions: int = 1, replicas: int = 1, **more: Any) -> Message:
    return {"Name": name, "NumPartitions": partitions, "ReplicationFactor": replicas, **more}


def assigned(name: Any, *replicas: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> Message:
    given = [{"PartitionIndex": index, "BrokerIds": nodes} for index, nodes in replicas]
    return topic(name, partitions, factor, Assignments=given)


def configured(name: Any, **settings: str | None) -> Message:
    given = [{"Name": key.replace("_", "."), "Value": value} for key, value in settings.items()]
    return topic(name, Configs=given)


def create(*topics: Message, version: int | None = None, only_validate: bool = False) -> Step:
    return ask("CreateTopics", {"Topics": list(topics), "timeoutMs": 20_000, "validateOnly": only_validate}, version)


def delete(*names: Any) -> Step:
    """By name, in every version."""
    return ask("DeleteTopics", {
        "TopicNames": list(names), "Topics": [{"Name": name, "TopicId": NO_ID} for name in names], "TimeoutMs": 20_000,
    })  # fmt: skip


def delete_by(*topics: tuple[Any, Any]) -> Step:
    """By name or id, from version 6 on."""
    return ask("DeleteTopics", {
        "Topics": [{"Name": name, "TopicId": topic_id} for name, topic_id in topics], "TimeoutMs": 20_000,
    })  # fmt: skip


def grow(*wanted: tuple[Any, int, list[list[int]] | None], only_validate: bool = False) -> Step:
    topics = [
        {"Name": name, "Count": count, "Assignments": nodes and [{"BrokerIds": one} for one in nodes]}
        for name, count, nodes in wanted
    ]
    return ask("CreatePartitions", {"Topics": topics, "TimeoutMs": 20_000, "ValidateOnly": only_validate})


def there(name: Any, partitions: int = 1) -> Step:
    """Wait until a broker has heard from its controller; none is until it is gone."""

    def is_so(answer: Message) -> bool:
        told = answer["Topics"][0]
        return len(told["Partitions"]) == partitions and all(not one["ErrorCode"] for one in told["Partitions"])

    return ask("Metadata", {"Topics": [{"Name": name}], "AllowAutoTopicCreation": False}, 12, until=is_so)


def led(name: Any) -> Step:
    """Wait until a broker has the log of a topic too."""
    asked = [{"Name": name, "Partitions": [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}]}]
    message = {"ReplicaId": -1, "Topics": asked}
    return ask("ListOffsets", message, 7, until=lambda answer: not answer["Topics"][0]["Partitions"][0]["ErrorCode"])


A, B = named("a"), named("b")

CREATED = [
    Script("create: a topic, and once more", [create(topic(A, 2)), there(A, 2), create(topic(A)), create(topic(A, 9))],
           CREATE, ""),
    Script("create: names", [
        create(topic(name)) for name in ("", ".", "..", "a b", "a/b", "é", TOO_LONG, "x\n")
    ], CREATE, ""),
    Script("create: the longest name", [create(topic(LONGEST), only_validate=True)], CREATE, ""),
    Script("create: so many partitions", [
        create(topic(A, partitions), only_validate=True) for partitions in (0, -1, -2, 1, 3)
    ], CREATE, ""),
    Script("create: so many replicas", [
        create(topic(A, 1, replicas), only_validate=True) for replicas in (0, -1, -2, 2, 99)
    ], CREATE, ""),
    Script("create: what is where", [
        create(assigned(A, *where), only_validate=True)
        for where in ([(0, [1])], [(0, [9])], [(0, [1, 1])], [(0, [])], [(0, [1]), (2, [1])], [(1, [1])],
                      [(0, [1]), (1, [1, 9])], [(0, [1]), (0, [1])], [(-1, [1])])
    ], CREATE, ""),
    Script("create: what is where, and so many", [
        create(assigned(A, (0, [1]), partitions=partitions, factor=factor), only_validate=True)
        for partitions, factor in ((1, -1), (-1, 1), (1, 1), (0, 0))
    ], CREATE, ""),
    Script("create: settings", [
        create(configured(A, **settings), only_validate=True)
        for settings in ({"retention_ms": "1000"}, {"retention_ms": "soon"}, {"retention_ms": "-2"},
                         {"unheard_of": "1"}, {"retention_ms": None}, {"cleanup_policy": "compact,delete"},
                         {"cleanup_policy": "burn"}, {"cleanup_policy": ""}, {"max_message_bytes": "-1"},
                         {"message_timestamp_type": "Yesterday"}, {"compression_type": "zip"},
                         {"compression_type": "zstd"}, {"min_insync_replicas": "0"}, {"segment_bytes": "1"})
    ], CREATE, ""),
    Script("create: settings that do not go together", [
        create(configured(A, min_compaction_lag_ms="100", max_compaction_lag_ms="10"), only_validate=True),
        create(configured(A, retention_ms="5", local_retention_ms="10"), only_validate=True),
    ], CREATE, ""),
    Script("create: to see whether it would do", [
        create(topic(A), only_validate=True), create(topic(A)), there(A), create(topic(A), only_validate=True),
    ], CREATE, ""),
    Script("create: one name twice", [create(topic(A), topic(A)), create(topic(A), topic(B), topic(A, 2)), there(B)],
           CREATE, ""),
    Script("create: names that clash", [
        create(topic(named("c.d"))), there(named("c.d")), create(topic(named("c_d"))), create(topic(named("c.d"))),
    ], CREATE, ""),
    Script("create: several, some of them wrong", [
        create(topic(A), topic("a b"), topic(B, 0)), there(A), create(topic(A), topic(B)), there(B),
    ], CREATE, ""),
    Script("create: internal topics", [
        create(topic(name), only_validate=True) for name in ("__consumer_offsets", "__cluster_metadata")
    ], CREATE, ""),
    Script("create: none", [create()], CREATE, ""),
]  # fmt: skip

DELETED = [
    Script("delete: a topic, and once more", [
        create(topic(A), version=7), there(A), delete(A), there(A, 0), delete(A), create(topic(A), version=7), there(A),
    ], DELETE, ""),
    Script("delete: what is not there", [delete(name) for name in ("nowhere", "", "a b", TOO_LONG)], DELETE, ""),
    Script("delete: one name twice", [create(topic(A), version=7), there(A), delete(A, A), delete(A, B)], DELETE, ""),
    Script("delete: several, some of them not there", [
        create(topic(A), version=7), there(A), delete(A, B, "a b"), there(A, 0),
    ], DELETE, ""),
    Script("delete: none", [delete()], DELETE, ""),
    Script("delete: by id", [
        create(topic(A), version=7), there(A), delete_by((None, made(0))), there(A, 0), delete_by((None, made(0))),
    ], (6,), ""),
    Script("delete: by an id of nobody's", [
        delete_by((None, NOBODYS_ID)), delete_by((None, NO_ID)), delete_by((None, NOBODYS_ID), (None, NOBODYS_ID)),
    ], (6,), ""),
    Script("delete: by name and id", [delete_by((TOPIC, ID)), delete_by(("nowhere", NOBODYS_ID))], (6,)),
    Script("delete: by name, and again by id", [
        create(topic(A), version=7), there(A), delete_by((A, NO_ID), (None, made(0))),
    ], (6,), ""),
]  # fmt: skip


def of_a(topic_id: Any, offset: int = 0) -> Message:
    return of_topic(wanted(offset, 0), topic=A, topic_id=topic_id)


def written_to(topic_id: Any, version: int) -> Step:
    return ask("Produce", produce(batch("a"), topic=A, topic_id=topic_id, partition=0), version)


BEFORE = [create(topic(A), version=7), led(A), written_to(made(0), 12)]
GONE = [delete_by((None, made(0)))._replace(version=6), there(A, 0)]
AGAIN = [create(topic(A), version=7), there(A), led(A)]
ANEW = [
    Script("anew: produced by name", [
        *BEFORE, *GONE, written_to(made(0), 12), *AGAIN, written_to(made(0), 12),
        ask("Fetch", fetch(of_a(made(0))), 12),
    ], (0,), ""),
    Script("anew: produced by id", [
        *BEFORE, written_to(made(0), 13), *GONE, written_to(made(0), 13), *AGAIN, written_to(made(0), 13),
        written_to(made(1), 13),
    ], (0,), ""),
    Script("anew: fetched", [
        *BEFORE, ask("Fetch", fetch(of_a(made(0)))), *GONE, ask("Fetch", fetch(of_a(made(0)))), *AGAIN,
        ask("Fetch", fetch(of_a(made(0)))), ask("Fetch", fetch(of_a(made(1)))),
        ask("Fetch", fetch(of_a(made(0)), of_a(made(1)))),
    ], (4, 12, 13, 18), ""),
    Script("anew: in a session", [
        *BEFORE, ask("Fetch", in_session(0, of_a(made(0)), session=0)), *GONE, ask("Fetch", in_session(1)),
        ask("Fetch", in_session(2)), *AGAIN, ask("Fetch", in_session(3)), written_to(made(1), 13),
        ask("Fetch", in_session(4)), ask("Fetch", in_session(5, of_a(made(1)))), ask("Fetch", in_session(6)),
    ], (7, 12), ""),
]  # fmt: skip


def grown(name: str, *steps: Step) -> Script:
    return Script(f"partitions: {name}", [create(topic(A, 2), version=7), there(A, 2), *steps], GROW, "")


GROWN = [
    grown("more", grow((A, 3, None)), there(A, 3), grow((A, 5, None)), there(A, 5)),
    grown("fewer, or as many", grow((A, 2, None)), grow((A, 1, None)), grow((A, 0, None)), grow((A, -1, None))),
    grown("to see whether it would do", grow((A, 3, None), only_validate=True), grow((A, 1, None), only_validate=True),
          there(A, 2)),
    grown("of what is not there", grow(("nowhere", 3, None)), grow(("", 3, None)), grow(("a b", 3, None))),
    grown("of one twice", grow((A, 3, None), (A, 4, None)), grow((A, 3, None), (A, 3, None), (B, 2, None))),
    grown("what is where", *[
        grow((A, count, nodes), only_validate=True)
        for count, nodes in ((3, [[1]]), (4, [[1]]), (3, [[1], [1]]), (3, [[9]]), (3, [[1, 1]]), (3, [[]]), (3, []),
                             (3, [[1, 9]]), (2, [[1]]))
    ]),
    grown("none", grow()),
]  # fmt: skip


# Settings


def resource(kind: int, name: Any, **more: Any) -> Message:
    return {"ResourceType": kind, "ResourceName": name, **more}


def describe(*resources: Message, **more: Any) -> Step:
    return ask("DescribeConfigs", {"Resources": list(resources), "IncludeSynonyms": False, **more})


def change(*changes: tuple[str, int, str | None], kind: int = 2, name: Any = A, **more: Any) -> Step:
    configs = [{"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in changes]
    asked = {"Resources": [resource(kind, name, Configs=configs)], "ValidateOnly": False, **more}
    return ask("IncrementalAlterConfigs", asked)


def alter(*settings: tuple[str, str | None], name: Any = A, **more: Any) -> Step:
    configs = [{"Name": key, "Value": value} for key, value in settings]
    return ask("AlterConfigs", {"Resources": [resource(2, name, Configs=configs)], "ValidateOnly": False, **more})


def says(key: str, value: str) -> Step:
    """Wait until a broker has heard of a change, and all before it, from its controller."""

    def is_so(answer: Message) -> bool:
        return [one["Value"] for one in answer["Results"][0]["Configs"]] == [value]

    asked = resource(2, A, ConfigurationKeys=[key])
    return ask("DescribeConfigs", {"Resources": [asked], "IncludeSynonyms": False}, 4, until=is_so)


SET, REMOVE, APPEND, SUBTRACT = 0, 1, 2, 3
NOTICED = ["cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes"]
SHOWN = ask("DescribeConfigs", {"Resources": [resource(2, A, ConfigurationKeys=NOTICED)]}, 4)


def changed(name: str, *steps: Step, versions: range = CHANGE) -> Script:
    return Script(f"settings: {name}", [create(topic(A), version=7), there(A), *steps], versions, "")


SETTINGS = [
    Script("settings: of a topic", [
        describe(resource(2, TOPIC, ConfigurationKeys=None)), describe(resource(2, TOPIC, ConfigurationKeys=[])),
        describe(resource(2, TOPIC, ConfigurationKeys=["retention.ms", "unheard.of"])),
        describe(resource(2, TOPIC, ConfigurationKeys=["max.message.bytes"]), IncludeSynonyms=True),
    ], DESCRIBE, "small"),
    Script("settings: of what is not there", [
        describe(resource(kind, name, ConfigurationKeys=["retention.ms"]))
        for kind, name in ((2, "nowhere"), (2, ""), (2, "a b"), (4, "9"), (4, "x"), (0, "plain"), (99, "plain"))
    ], DESCRIBE, ""),
    Script("settings: of several", [
        describe(resource(2, TOPIC, ConfigurationKeys=["retention.ms"]), resource(2, "nowhere", ConfigurationKeys=[])),
        describe(),
    ], DESCRIBE),
    changed("set and taken back", change(("retention.ms", SET, "1000")), says("retention.ms", "1000"), SHOWN,
            change(("retention.ms", REMOVE, None)), says("retention.ms", "604800000"), SHOWN),
    changed("lists", change(("cleanup.policy", APPEND, "compact")), says("cleanup.policy", "delete,compact"), SHOWN,
            change(("cleanup.policy", SUBTRACT, "delete")), says("cleanup.policy", "compact"), SHOWN,
            change(("cleanup.policy", APPEND, "compact")), change(("retention.ms", APPEND, "5")),
            change(("retention.ms", SUBTRACT, "5"))),
    changed("wrong values", *[
        change((key, SET, value)) for key, value in (
            ("retention.ms", "soon"), ("retention.ms", None), ("retention.ms", "-2"), ("unheard.of", "1"),
            ("cleanup.policy", "burn"), ("max.message.bytes", "-1"), ("compression.type", "zip"))
    ]),
    changed("wrong ways", change(("retention.ms", 9, "5")), change(("retention.ms", -1, "5")),
            change(("retention.ms", SET, "1"), ("retention.ms", REMOVE, None)), change(), versions=range(1, 2)),
    changed("to see whether they would do", change(("retention.ms", SET, "77"), ValidateOnly=True),
            change(("retention.ms", SET, "x"), ValidateOnly=True), SHOWN),
    changed("of nobody", *[
        change(("retention.ms", SET, "5"), kind=kind, name=name)
        for kind, name in ((2, "nowhere"), (2, ""), (2, "a b"), (0, "x"), (99, "x"))
    ]),
    changed("all at once", alter(("retention.ms", "5"), ("cleanup.policy", "compact")), says("retention.ms", "5"),
            SHOWN, alter(("retention.ms", "6")), says("retention.ms", "6"), SHOWN, alter(),
            says("retention.ms", "604800000"), SHOWN, versions=ALTER),
    changed("all at once, wrong", alter(("retention.ms", None)), alter(("unheard.of", "1")),
            alter(("retention.ms", "x")), alter(("retention.ms", "5"), name="nowhere"),
            alter(("retention.ms", "9"), ValidateOnly=True), SHOWN,
            versions=ALTER),
]  # fmt: skip


# What a cluster of one node says of itself


def replicas(*wanted: tuple[Any, int, list[int] | None], **more: Any) -> Step:
    topics = [
        {"Name": name, "Partitions": [{"PartitionIndex": index, "Replicas": nodes}]} for name, index, nodes in wanted
    ]
    return ask("AlterPartitionReassignments", {"TimeoutMs": 20_000, "Topics": topics, **more})


def elect(kind: int, *wanted: tuple[Any, list[int]]) -> Step:
    topics = [{"Topic": name, "Partitions": partitions} for name, partitions in wanted]
    return ask("ElectLeaders", {"ElectionType": kind, "TopicPartitions": topics or None, "TimeoutMs": 20_000})


def log_dirs(*asked: tuple[Any, list[int]]) -> Step:
    return ask("DescribeLogDirs", {"Topics": [{"Topic": name, "Partitions": numbers} for name, numbers in asked]})


def quorum(topic: str, *partitions: int) -> Step:
    asked = [{"TopicName": topic, "Partitions": [{"PartitionIndex": index} for index in partitions]}]
    return ask("DescribeQuorum", {"Topics": asked})


RULE = {
    "ResourceTypeFilter": 2, "ResourceNameFilter": "plain", "PatternTypeFilter": 3, "PrincipalFilter": None,
    "HostFilter": None, "Operation": 3, "PermissionType": 3,
}  # fmt: skip
GRANT = {
    "ResourceType": 2, "ResourceName": "plain", "ResourcePatternType": 3, "Principal": "User:a", "Host": "*",
    "Operation": 3, "PermissionType": 3,
}  # fmt: skip
CLUSTER = [
    Script("reassign: to where it is", [replicas((TOPIC, 0, [1]))], CHANGE, "lonely"),
    Script("reassign: to nodes that are not there", [
        replicas((TOPIC, 0, nodes)) for nodes in ([9], [1, 9], [1, 1], [], [-1])
    ], CHANGE, "lonely"),
    Script("reassign: given up where none is under way", [replicas((TOPIC, 0, None))], CHANGE, "lonely"),
    Script("reassign: what is not there", [
        replicas(("nowhere", 0, [1])), replicas((TOPIC, 99, [1])), replicas((TOPIC, -1, [1])), replicas(("", 0, [1])),
    ], CHANGE, "lonely"),
    Script("reassign: several, and none", [replicas((TOPIC, 0, [1]), ("nowhere", 0, [1])), replicas()], CHANGE,
           "lonely"),
    Script("reassign: one twice", [replicas((TOPIC, 0, [1]), (TOPIC, 0, [9]))], CHANGE, "lonely"),
    Script("reassign: as many replicas as before", [
        replicas((TOPIC, 0, nodes), AllowReplicationFactorChange=False) for nodes in ([1], [1, 9], [])
    ], (1,), "lonely"),
    Script("reassignments: under way", [
        ask("ListPartitionReassignments", {"TimeoutMs": 20_000, "Topics": topics})
        for topics in (None, [], [{"Name": TOPIC, "PartitionIndexes": [0]}],
                       [{"Name": "nowhere", "PartitionIndexes": [0, 99]}])
    ], (0,), "lonely"),
    Script("leaders: the preferred ones", [
        elect(0, (TOPIC, [0])), elect(0, (TOPIC, [0, 99, -1])), elect(0, ("nowhere", [0])), elect(0, (TOPIC, [])),
        elect(0),
    ], range(3), "lonely"),
    Script("leaders: any", [elect(1, (TOPIC, [0])), elect(1, ("nowhere", [0]))], range(1, 3), "lonely"),
    Script("leaders: elections that there are not", [elect(2, (TOPIC, [0])), elect(-1, (TOPIC, [0]))], range(1, 3),
           "lonely"),
    Script("leaders: one twice", [elect(0, (TOPIC, [0, 0]), (TOPIC, [0]))], range(3), "lonely"),
    Script("log directories", [
        log_dirs(("lonely", [0])), log_dirs(("lonely", [99, -1])), log_dirs(("nowhere", [0])), log_dirs(),
        log_dirs(("lonely", [])),
    ], range(1, 6), "lonely"),
    Script("resources with settings: of what kinds", [
        ask("ListConfigResources", {"ResourceTypes": kinds})
        for kinds in ([8], [16], [2], [], [4], [32], [99], [0], [16, 99])
    ], range(1, 2), ""),
    Script("resources with settings: telemetry", [ask("ListConfigResources", {})], range(1), ""),
    Script("the quorum: of what is not there", [
        quorum("nowhere", 0), quorum("__cluster_metadata", 1), quorum("__cluster_metadata"), quorum("plain", 0),
        ask("DescribeQuorum", {"Topics": []}),
    ], range(3), ""),
    Script("the quorum", [quorum("__cluster_metadata", 0)], range(3), ""),
    Script("access control: what there is", [ask("DescribeAcls", {**RULE, "Operation": 1})], range(1, 4), ""),
    Script("access control: more", [ask("CreateAcls", {"Creations": rules}) for rules in ([GRANT], [GRANT, GRANT], [])],
           range(1, 4), ""),
    Script("access control: less", [ask("DeleteAcls", {"Filters": rules}) for rules in ([RULE], [RULE, RULE], [])],
           range(1, 4), ""),
    Script("the cluster", [
        ask("Metadata", {"Topics": [{"Name": None, "TopicId": id_of("plain")}]}, version) for version in (12, 13)
    ], (0,), ""),
]  # fmt: skip

SCRIPTS = [*CREATED, *DELETED, *ANEW, *GROWN, *SETTINGS, *CLUSTER]
