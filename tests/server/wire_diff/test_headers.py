"""What comes before the body: sizes, API keys, versions, client ids, tagged fields; and who a client says it is."""

from struct import pack

import pytest

from muster.protocol.apis import APIS
from tests.server.wire_diff import bodies
from tests.server.wire_diff.samples import samples
from tests.server.wire_diff.talk import CLIENT_ID, CLOSED, Both, Side, frame_of, header

pytestmark = pytest.mark.kafka

HIGHEST_KEY = 100
NAMES = (
    "raw", "a", "librdkafka", "apache-kafka-java", "a.b-c", "A9", "0", "x" * 200,
    "", "-raw", "raw-", ".raw", "raw.", "ra w", "ra_w", "rä", "ra/w", "raw\n", "\nraw", "-", "raw\x00",
)  # fmt: skip


def test_sizes_that_no_frame_has(both: Both) -> None:
    """A frame that is not there, that is larger than may be, or that owes bytes."""

    def story(side: Side) -> None:
        for size in (0, -1, -(2**31), 100 * 1024 * 1024 + 1, 2**31 - 1):
            link = side.connect()
            link.say(pack(">i", size))
            link.hear("Heartbeat", 0)
        for size in (1, 100, 100 * 1024 * 1024):
            link = side.connect()
            link.say(pack(">i", size))
            link.is_silent(f"{size} bytes to come")

    assert both.same(story) == [CLOSED] * 5 + [{"connection": "silent"}] * 3


def test_keys_and_versions_that_nobody_serves(both: Both) -> None:
    def story(side: Side) -> None:
        for key in (-1, -(2**15), 2**15 - 1, HIGHEST_KEY, 4, 5, 6, 7):
            for version in (0, 1, 9):
                link = side.connect()
                link.say(frame_of(pack(">hhih", key, version, 7, 3) + b"raw" + bytes(40)))
                link.hear("Heartbeat", 0)
        for api in samples():
            versions = both.judge.served(api)
            for version in (-1, versions[0] - 1, versions[-1] + 1, 2**15 - 1, -(2**15)):
                link = side.connect()
                link.say(frame_of(pack(">hhih", both.judge.api_key(api), version, 7, 3) + b"raw" + bytes(40)))
                link.hear("ApiVersions" if api == "ApiVersions" else "Heartbeat", 0)

    answers = both.same(story)
    assert {answer.get("ErrorCode") for answer in answers} == {None, 35}, "ApiVersions alone is answered"


def test_client_ids(both: Both) -> None:
    """The group tells them back, also the one that was not given."""

    def story(side: Side) -> None:
        for number, client_id in enumerate((None, "", "raw", "ü", "日本", "a b\tc", "-", "x" * 300, "\x00", "%s{}")):
            for version in (3, 9):
                group, link = f"client-{number}-{version}", side.connect()
                member = link.ask("JoinGroup", version, bodies.join(group), client_id)["MemberId"]
                if version == 9:
                    link.ask("JoinGroup", version, bodies.join(group, member), client_id)
                link.ask("DescribeGroups", 5, bodies.describe(group), client_id)

    both.same(story)


def test_lengths_of_client_ids(both: Both) -> None:
    def story(side: Side) -> None:
        for size in (-1, -2, -(2**15), 0, 1, 3, 4, 2**15 - 1):
            for version, end in ((3, b""), (4, b"\x00")):
                body = side.judge.encode_request("Heartbeat", version, bodies.heartbeat("never-seen", 1, "nobody"))
                link = side.connect()
                link.say(frame_of(pack(">hhih", 12, version, 7, size) + b"raw"[: max(size, 0)] + end + body))
                link.hear("Heartbeat", version)

    both.same(story)


def test_tagged_fields_that_nobody_knows(both: Both) -> None:
    """In the header, and behind the fields of a body; a varint may be longer than it need be."""
    tags = {
        "none": b"\x00",
        "one": b"\x01\x07\x02ab",
        "two": b"\x02\x07\x02ab\x09\x00",
        "none, padded": b"\x80\x00",
        "not in order": b"\x02\x09\x00\x07\x02ab",
        "the same twice": b"\x02\x07\x00\x07\x00",
        "longer than the rest": b"\x01\x07\xff\x01ab",
        "a size of many bytes": b"\x01\x07\xff\xff\xff\xff\x0f",
        "more than there are": b"\x05\x07\x00",
        "very many": b"\xff\xff\xff\xff\x07",
        "a count that is negative in Java": b"\xff\xff\xff\xff\x0f",
        "too long a varint": b"\x80\x80\x80\x80\x80\x00",
        "a tag of many bytes": b"\x01\xff\xff\xff\xff\x0f\x00",
    }

    def story(side: Side) -> None:
        for api, version in (("Heartbeat", 4), ("OffsetCommit", 8), ("OffsetFetch", 9), ("DescribeGroups", 6)):
            head = header(side.judge, api, version, 7, CLIENT_ID)[:-1]
            body = side.judge.encode_request(api, version, samples()[api])[:-1]
            for in_header, in_body in [(tag, b"\x00") for tag in tags.values()] + [
                (b"\x00", tag) for tag in tags.values()
            ]:
                link = side.connect()
                link.say(frame_of(head + in_header + body + in_body))
                link.hear(api, version)

    both.same(story)


def test_lengths_that_are_negative_in_java(both: Both) -> None:
    """Compact lengths of 2^31 and more, where null may and where it may not be."""
    lengths = (
        b"\x00",
        b"\xff\xff\xff\xff\x0f",
        b"\x80\x80\x80\x80\x08",
        b"\xff\xff\xff\xff\x07",
        b"\x81\x80\x80\x80\x10",
    )

    def story(side: Side) -> None:
        head = header(side.judge, "Heartbeat", 4, 7, CLIENT_ID)
        for length in lengths:
            for body in (
                length + pack(">i", 1) + b"\x02m\x00\x00",
                b"\x02g" + pack(">i", 1) + length + b"\x00\x00",
                b"\x02g" + pack(">i", 1) + b"\x02m" + length + b"\x00",
            ):
                link = side.connect()
                link.say(frame_of(head + body))
                link.hear("Heartbeat", 4)
        head = header(side.judge, "OffsetFetch", 7, 7, CLIENT_ID)
        for length in lengths:
            link = side.connect()
            link.say(frame_of(head + b"\x08nowhere" + length + b"\x00\x00"))
            link.hear("OffsetFetch", 7)

    both.same(story)


def test_who_a_client_says_it_is(both: Both) -> None:
    def asked(name: str) -> list[tuple[str, int, int]]:
        side = both.side(name)
        heard = []
        for version in (3, 4):
            for software in NAMES:
                for body in ({"ClientSoftwareName": software, "ClientSoftwareVersion": "1"},
                             {"ClientSoftwareName": "raw", "ClientSoftwareVersion": software}):  # fmt: skip
                    answer = side.connect().ask("ApiVersions", version, body)
                    heard.append(
                        (software, answer["ErrorCode"], 0 if answer["ErrorCode"] == 0 else len(answer["ApiKeys"]))
                    )
        side.close()
        return heard

    theirs = asked("Kafka")
    assert asked("muster") == theirs
    assert {error for _, error, _ in theirs} == {0, 42}


def test_api_versions_of_the_future(both: Both) -> None:
    """Answered in the form of version 0, so that anybody can read it, and the connection goes on."""

    def story(side: Side) -> None:
        for version in (5, 6, 100, 2**15 - 1, -1):
            link = side.connect()
            for body in (b"", b"\x00", b"\x02a\x02b\x00", b"\xff" * 9):
                link.say(frame_of(pack(">hhih", 18, version, 7, 3) + b"raw" + body))
                link.hear("ApiVersions", 0)
            link.ask("Heartbeat", 4, bodies.heartbeat("never-seen", 1, "nobody"))

    both.same(story)


def test_what_muster_does_not_serve_it_does_not_advertise(both: Both) -> None:
    """Whoever asks all the same is hung up on, as by a broker that has never heard of it."""
    side = both.side("muster")
    told = side.connect().ask("ApiVersions", 4, {"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1"})
    served = {each["ApiKey"] for each in told["ApiKeys"]}
    unserved = sorted(set(range(HIGHEST_KEY)) - served)
    assert 48 in unserved, "quotas"
    assert served <= APIS.keys()
    for key in unserved:
        link = side.connect()
        link.say(frame_of(pack(">hhih", key, 0, 7, 3) + b"raw" + bytes(40)))
        assert link.read() == CLOSED
    side.close()
