"""Stories about offsets in transactions: AddOffsetsToTxn, TxnOffsetCommit, and what others see of them."""

from tests.server.wire_diff.bodies import commit, join, leave, offset_delete, sync
from tests.server.wire_diff.transactions.telling import (
    ADD_OFFSETS,
    COMMIT,
    TOPIC,
    Producer,
    Teller,
    story,
)

OLD_COMMIT = range(5)
FETCH = range(1, 10)
STRANGER = Producer(4_711, 0)


def plain_commit(tx: Teller, offset: int, **more: object) -> None:
    tx.ask("OffsetCommit", 8, commit(tx.group, {(TOPIC, tx.here): offset}, **more))


@story(OLD_COMMIT)
def offsets_of_old_committed(tx: Teller) -> None:
    tx.init()
    tx.add_offsets(v=min(tx.version, 4))
    tx.describe()
    tx.commit_offsets({tx.here: 5, tx.here + 1: 6}, v=tx.version)
    tx.offsets(tx.here, is_stable=False)
    tx.offsets(tx.here, tx.here + 1)
    tx.offsets()
    tx.end(v=min(tx.version, 4))
    tx.ended()
    tx.offsets(tx.here, tx.here + 1)
    tx.offsets()
    tx.describe()


@story(OLD_COMMIT)
def offsets_of_old_aborted(tx: Teller) -> None:
    plain_commit(tx, 1)
    tx.init()
    tx.add_offsets(v=min(tx.version, 4))
    tx.commit_offsets({tx.here: 5}, v=tx.version)
    tx.offsets(tx.here, is_stable=False)
    tx.offsets(tx.here)
    tx.end(is_commit=False)
    tx.ended(is_commit=False)
    tx.offsets(tx.here)


@story((True, False))
def offsets_of_new(tx: Teller) -> None:
    is_commit = bool(tx.version)
    tx.init(v=5)
    tx.commit_offsets({tx.here: 5}, v=5)
    tx.describe()
    tx.offsets(tx.here)
    tx.end(is_commit, v=5)
    tx.ended(is_commit)
    tx.offsets(tx.here)
    tx.commit_offsets({tx.here: 7}, v=5)
    tx.produce("a", v=12)
    tx.describe()
    tx.end(v=5)
    tx.ended()
    tx.offsets(tx.here)


@story(COMMIT)
def offsets_without_a_transaction(tx: Teller) -> None:
    tx.init()
    tx.commit_offsets({tx.here: 5}, v=tx.version)
    tx.describe()
    tx.offsets(tx.here)
    tx.add(tx.here)
    tx.commit_offsets({tx.here: 5}, v=tx.version)
    tx.describe()
    tx.end()
    tx.ended()
    tx.offsets(tx.here)


@story(COMMIT)
def offsets_for_an_id_that_is_not_there(tx: Teller) -> None:
    tx.commit_offsets({tx.here: 5}, v=tx.version, producer=STRANGER)
    tx.commit_offsets({tx.here: 5}, v=tx.version, producer=STRANGER, id="")
    tx.offsets(tx.here)


@story(COMMIT)
def offsets_of_another_producer_or_epoch(tx: Teller) -> None:
    tx.init()
    tx.init()
    tx.add_offsets()
    for producer in (tx.of_id(1), tx.at_epoch(-1), tx.at_epoch(1), tx.at_epoch(-2), Producer(-1, -1)):
        tx.commit_offsets({tx.here: 5}, v=tx.version, producer=producer)
    tx.commit_offsets({tx.here: 5}, v=tx.version)
    for producer in (tx.of_id(1), tx.at_epoch(-1), tx.at_epoch(1)):
        tx.commit_offsets({tx.here: 6}, v=tx.version, producer=producer)
    tx.end()
    tx.ended()
    tx.offsets(tx.here)


@story(COMMIT)
def offsets_after_the_end(tx: Teller) -> None:
    tx.init()
    for is_commit in (True, False):
        tx.add_offsets()
        tx.end(is_commit)
        tx.ended(is_commit)
        tx.commit_offsets({tx.here: 5}, v=tx.version)
        tx.offsets(tx.here)
        tx.end()
        tx.until("CompleteCommit", "CompleteAbort")


@story(COMMIT)
def offsets_of_topics_that_are_not_there(tx: Teller) -> None:
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({0: 5, 1: 6}, v=tx.version, topic="nowhere")
    tx.commit_offsets({tx.here: 5, 100_000: 6}, v=tx.version)
    tx.commit_offsets({}, v=tx.version)
    tx.describe()
    tx.end()
    tx.ended()
    tx.offsets()


@story(COMMIT)
def offsets_of_a_group_without_a_name(tx: Teller) -> None:
    tx.init()
    tx.add_offsets(group="")
    tx.commit_offsets({tx.here: 5}, v=tx.version, group="")
    tx.describe()


@story(COMMIT)
def offsets_with_strange_numbers(tx: Teller) -> None:
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({tx.here: -1}, v=tx.version)
    tx.commit_offsets({tx.here: 2**63 - 1, tx.here + 1: -(2**63)}, v=tx.version)
    tx.end()
    tx.ended()
    tx.offsets()


@story(ADD_OFFSETS)
def adding_a_group_in_every_state(tx: Teller) -> None:
    tx.add_offsets(v=tx.version, producer=STRANGER)
    tx.add_offsets(v=tx.version, producer=STRANGER, id="")
    tx.init()
    tx.init()
    tx.add_offsets(v=tx.version, producer=tx.at_epoch(-1))
    tx.add_offsets(v=tx.version, producer=tx.at_epoch(1))
    tx.add_offsets(v=tx.version, producer=tx.of_id(1))
    tx.add_offsets(v=tx.version)
    tx.add_offsets(v=tx.version)
    tx.add_offsets(v=tx.version, group=f"{tx.group}-other")
    tx.add_offsets(v=tx.version, producer=tx.at_epoch(-1))
    tx.end()
    tx.ended()
    tx.add_offsets(v=tx.version)
    tx.end(is_commit=False)
    tx.ended(is_commit=False)


@story(ADD_OFFSETS)
def adding_a_group_while_markers_are_awaited(tx: Teller) -> None:
    tx.init()
    tx.stalled()
    tx.add_offsets(v=tx.version)
    tx.add_offsets(v=tx.version, producer=tx.at_epoch(-1))
    for version in COMMIT:
        tx.commit_offsets({tx.here: 1}, v=version)
    tx.offsets(tx.here)


def joined(tx: Teller, instance: str | None = None) -> tuple[int, str]:
    """A group of one member, alone and assigned."""
    answer = tx.ask("JoinGroup", 5, join(tx.group, instance=instance))
    if answer["ErrorCode"]:
        answer = tx.ask("JoinGroup", 5, join(tx.group, answer["MemberId"]))
    generation, member = answer["GenerationId"], answer["MemberId"]
    tx.ask("SyncGroup", 3, sync(tx.group, generation, member, {member: b""}, GroupInstanceId=instance))
    return generation, member


@story((3, 4, 5))
def offsets_of_members(tx: Teller) -> None:
    generation, member = joined(tx)
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({tx.here: 5}, v=tx.version, GenerationId=generation, MemberId=member)
    tx.commit_offsets({tx.here: 6}, v=tx.version, GenerationId=generation - 1, MemberId=member)
    tx.commit_offsets({tx.here: 6}, v=tx.version, GenerationId=generation + 1, MemberId=member)
    tx.commit_offsets({tx.here: 6}, v=tx.version, GenerationId=generation, MemberId="somebody")
    tx.commit_offsets({tx.here: 6}, v=tx.version, GenerationId=generation, MemberId="")
    tx.commit_offsets({tx.here: 6}, v=tx.version, GenerationId=-1, MemberId=member)
    tx.commit_offsets({tx.here: 7}, v=tx.version)
    tx.end()
    tx.ended()
    tx.offsets(tx.here)
    tx.ask("LeaveGroup", 3, leave(tx.group, member))


@story((3, 4, 5))
def offsets_of_members_with_names(tx: Teller) -> None:
    generation, member = joined(tx, instance="me")
    tx.init()
    tx.add_offsets()
    who = {"GenerationId": generation, "MemberId": member}
    tx.commit_offsets({tx.here: 5}, v=tx.version, GroupInstanceId="me", **who)
    tx.commit_offsets({tx.here: 5}, v=tx.version, GroupInstanceId="you", **who)
    tx.commit_offsets({tx.here: 5}, v=tx.version, GroupInstanceId="me", GenerationId=generation, MemberId="other")
    tx.end()
    tx.ended()
    tx.offsets(tx.here)


@story((3, 4, 5))
def offsets_of_members_without_a_group(tx: Teller) -> None:
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({tx.here: 5}, v=tx.version, GenerationId=3, MemberId="somebody")
    tx.commit_offsets({tx.here: 5}, v=tx.version, GenerationId=-1, MemberId="somebody")
    tx.commit_offsets({tx.here: 5}, v=tx.version, GroupInstanceId="me")
    tx.offsets()
    tx.end()
    tx.ended()
    tx.offsets()


@story(FETCH)
def pending_offsets_in_every_version_of_offset_fetch(tx: Teller) -> None:
    plain_commit(tx, 1)
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({tx.here: 5})
    for is_stable in (True, False):
        tx.offsets(tx.here, tx.here + 1, is_stable=is_stable, v=tx.version)
        if tx.version > 1:
            tx.offsets(is_stable=is_stable, v=tx.version)
    tx.end()
    tx.ended()
    tx.offsets(tx.here, v=tx.version)


@story((True, False))
def a_plain_commit_beside_a_pending_one(tx: Teller) -> None:
    is_commit = bool(tx.version)
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({tx.here: 5})
    plain_commit(tx, 9)
    tx.offsets(tx.here, is_stable=False)
    tx.offsets(tx.here)
    tx.end(is_commit)
    tx.ended(is_commit)
    tx.offsets(tx.here)


@story((True, False))
def two_producers_of_one_offset(tx: Teller) -> None:
    is_commit = bool(tx.version)
    second = tx.other("-b")
    for one in (tx, second):
        one.init()
        one.add_offsets(group=tx.group)
    tx.commit_offsets({tx.here: 5})
    second.commit_offsets({tx.here: 7}, group=tx.group)
    tx.offsets(tx.here)
    tx.end(is_commit)
    tx.ended(is_commit)
    tx.offsets(tx.here)
    tx.offsets(tx.here, is_stable=False)
    second.end()
    second.ended()
    tx.offsets(tx.here)


@story((True, False))
def a_group_deleted_beside_pending_offsets(tx: Teller) -> None:
    is_commit = bool(tx.version)
    plain_commit(tx, 1)
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({tx.here: 5})
    tx.ask("OffsetDelete", 0, offset_delete(tx.group, {TOPIC: [tx.here]}))
    tx.offsets(tx.here, is_stable=False)
    tx.offsets(tx.here)
    tx.commit_offsets({tx.here: 6})
    tx.ask("DeleteGroups", 2, {"GroupsNames": [tx.group]})
    tx.offsets(tx.here)
    tx.end(is_commit)
    tx.ended(is_commit)
    tx.offsets(tx.here)
    tx.ask("DeleteGroups", 2, {"GroupsNames": [tx.group]})


@story((True, False))
def pending_offsets_of_several_groups(tx: Teller) -> None:
    is_commit = bool(tx.version)
    names = [f"{tx.group}-{number}" for number in range(6)]
    tx.init(v=5)
    for number, name in enumerate(names):
        tx.commit_offsets({tx.here: number}, v=5, group=name)
    tx.describe()
    tx.end(is_commit, v=5)
    tx.ended(is_commit)
    for name in names:
        tx.offsets(tx.here, group=name)


@story()
def a_group_of_pending_offsets_alone(tx: Teller) -> None:
    """It is there while they are pending, and is not, or is, when they are gone."""
    tx.init()
    tx.add_offsets()
    tx.commit_offsets({tx.here: 5})
    tx.ask("DescribeGroups", 5, {"Groups": [tx.group], "IncludeAuthorizedOperations": False})
    tx.ask("DeleteGroups", 2, {"GroupsNames": [tx.group]})
    tx.offsets()
    tx.end(is_commit=False)
    tx.ended(is_commit=False)
    tx.ask("DescribeGroups", 5, {"Groups": [tx.group], "IncludeAuthorizedOperations": False})
    tx.offsets()


@story(COMMIT)
def metadata_too_large(tx: Teller) -> None:
    tx.init()
    tx.add_offsets()
    partitions = [
        {"PartitionIndex": tx.here, "CommittedOffset": 5, "CommittedMetadata": "x" * 4097},
        {"PartitionIndex": tx.here + 1, "CommittedOffset": 6, "CommittedMetadata": None},
    ]
    asked = {"TransactionalId": tx.id, "GroupId": tx.group, "ProducerId": tx.producer.id,
             "ProducerEpoch": tx.producer.epoch, "Topics": [{"Name": TOPIC, "Partitions": partitions}]}  # fmt: skip
    tx.ask("TxnOffsetCommit", tx.version, asked)
    tx.end()
    tx.ended()
    tx.offsets()
