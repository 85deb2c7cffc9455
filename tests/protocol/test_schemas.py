"""The layouts are Kafka's, line by line; and the notation says what it seems to say."""

import pytest

from muster.codec import consumer_protocol, group_records
from muster.codec.layouts import Field, Message, Versions, parse_messages
from muster.protocol.apis import APIS, NEVER, Api
from muster.protocol.messages import REQUEST, RESPONSE
from tests.kit.kafka import Kafka, require_kafka
from tests.protocol.definitions import definition, limited
from tests.protocol.strategies import message

EXAMPLE = """
ExampleRequest 2-10 flexible 8+
  groupId string
  instanceId string 7+ ? =null
  topics []struct ?3-9
    name string 2-9
    offset int64 =-1
  extra bool 8+ #1 =true
"""


def test_the_notation() -> None:
    valid, later = Versions(2, 10), Versions(7, 0x7FFF)
    assert parse_messages(EXAMPLE) == {
        "ExampleRequest": Message(
            "ExampleRequest",
            valid,
            Versions(8, 0x7FFF),
            (
                Field("groupId", "string", False, valid, Versions(0, -1), None, ""),
                Field("instanceId", "string", False, later, later, None, None),
                Field(
                    "topics", "struct", True, valid, Versions(3, 9), None, [],
                    (
                        Field("name", "string", False, Versions(2, 9), Versions(0, -1), None, ""),
                        Field("offset", "int64", False, valid, Versions(0, -1), None, -1),
                    ),
                ),
                Field("extra", "bool", False, Versions(8, 0x7FFF), Versions(0, -1), 1, True),
            ),
        )
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["Example 1-2", "Example 1-2 stiff 1+", "Example 1-x flexible none", "Example 1 flexible none\n  name text"],
)
def test_a_line_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_messages(text)


@pytest.fixture(scope="module")
def release() -> Kafka:
    return require_kafka()


@pytest.mark.kafka
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
def test_the_layouts_are_those_of_kafka(release: Kafka, api: Api, direction: str) -> None:
    theirs = definition(release, api.name + direction)
    assert limited(message(api.key, direction)) == limited(theirs)
    assert api.min_version in theirs.versions
    assert api.max_version in theirs.versions
    assert api.flexible_from == (theirs.flexible.low if theirs.flexible.high >= 0 else NEVER)


# Kafka 4.3 has no share groups' partition metadata any more; 4.0 had.
RECORDS = sorted(known.name for number, known in group_records.RECORD_TYPES.items() if number != 9)


@pytest.mark.kafka
@pytest.mark.parametrize("name", RECORDS)
def test_the_newer_records_are_those_of_kafka(release: Kafka, name: str) -> None:
    ours = parse_messages(group_records.MESSAGES)[f"{name}Value"]
    assert limited(ours) == limited(definition(release, f"{name}Value", "kafka-group-coordinator"))


@pytest.mark.kafka
@pytest.mark.parametrize("name", [consumer_protocol.SUBSCRIPTION, consumer_protocol.ASSIGNMENT])
def test_the_blobs_of_consumers_are_those_of_kafka(release: Kafka, name: str) -> None:
    assert limited(parse_messages(consumer_protocol.MESSAGES)[name]) == limited(definition(release, name))
