"""Requests that are cut, stretched or bent: what Kafka answers is answered, and what it hangs up on is hung up on."""

import random
from collections.abc import Iterator

import pytest

from tests.server.wire_diff import bodies
from tests.server.wire_diff.samples import samples
from tests.server.wire_diff.talk import CLIENT_ID, CLOSED, FROM_A_HASH_MAP, IN_ORDER, Both, Link, Side, frame_of, header

pytestmark = pytest.mark.kafka

IDS = {"orders": b"no topic has it!", "payments": b"nor has any that"}
RETENTION_AT = 12
"""In OffsetCommit 2 to 4: behind the group, the generation and an empty member id."""
BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
NOT_COMPARED = {"ApiKeys", "SupportedFeatures", "FinalizedFeatures", "FinalizedFeaturesEpoch"}


class Asker:
    """Sends one thing after another, on a new connection whenever the old one was closed."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._link: Link | None = None

    def ask(self, label: str, api: str, version: int, payload: bytes) -> None:
        if self._link is None:
            self._link = self._side.connect()
        self._link.say(frame_of(payload))
        heard = self._link.read()
        if isinstance(heard, bytes):
            # What is advertised differs, and has a test of its own.
            answer = self._link.decoded(api, version, heard)
            kept = {name: each for name, each in answer.items() if name not in NOT_COMPARED}
            name = "OffsetFetch of all" if api == "OffsetFetch" else api
            self._side.note(label, kept, FROM_A_HASH_MAP.get(name, IN_ORDER))
        else:
            self._side.note(label, heard)
            self._link.close()
            self._link = None


def payloads(side: Side) -> Iterator[tuple[str, int, bytes, int]]:
    """API, version, a whole request and where its body begins."""
    for api, message in samples(IDS).items():
        for version in side.judge.served(api):
            head = header(side.judge, api, version, 7, CLIENT_ID)
            yield api, version, head + side.judge.encode_request(api, version, message), len(head)


def test_cut_anywhere(both: Both) -> None:
    def story(side: Side) -> None:
        asker = Asker(side)
        for api, version, payload, _ in payloads(side):
            for size in range(len(payload)):
                asker.ask(f"{api} v{version} cut after {size} of {len(payload)}", api, version, payload[:size])

    answers = both.same(story)
    assert len(answers) > 3500
    assert {str(answer) for answer in answers} == {str(CLOSED)}


def test_requests_with_bytes_behind_their_end(both: Both) -> None:
    def story(side: Side) -> None:
        asker = Asker(side)
        for api, version, payload, _ in payloads(side):
            for more in 0, 1, 5, 1000:
                asker.ask(f"{api} v{version} and {more} bytes", api, version, payload + b"\x01" * more)

    both.same(story)


def bends(both: Both, share: float) -> int:
    """One byte of the body is another; `share` is how many of the ways there are."""

    def story(side: Side) -> None:
        asker, dice = Asker(side), random.Random(43)
        for api, version, payload, body in payloads(side):
            for place in range(body, len(payload)):
                for value in BYTES:
                    if dice.random() < share and not differs(api, version, place - body, value):
                        bent = payload[:place] + bytes([value]) + payload[place + 1 :]
                        asker.ask(f"{api} v{version} byte {place - body} is {value}: {bent.hex()}", api, version, bent)

    return len(both.same(story))


def differs(api: str, version: int, place: int, value: int) -> bool:
    """Whether this would leave both in different states: docs/protocol.md on transactions, and text not in UTF-8."""
    is_in_group_id = 1 <= place <= len("bent") + 1
    is_of_transactions = api == "FindCoordinator" and value == 1
    return is_of_transactions or (api == "OffsetCommit" and is_in_group_id and value >= 0x80)


def test_a_retention_beyond_all_time(both: Both) -> None:
    def story(side: Side) -> None:
        for version in 2, 3, 4:
            for retention_ms in 2**63 - 1, 2**62, -2, -(2**63):
                body = bodies.commit("endless", {("orders", 0): 5}, RetentionTimeMs=retention_ms)
                side.connect().ask("OffsetCommit", version, body)

    both.same(story)


def test_bent(both: Both) -> None:
    assert bends(both, 0.2) > 2000


@pytest.mark.long
def test_bent_everywhere(both: Both) -> None:
    assert bends(both, 1.0) > 15000
