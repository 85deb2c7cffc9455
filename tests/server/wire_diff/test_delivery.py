"""How bytes arrive and answers leave: in pieces, many at once, behind one that waits; and clients that hang up."""

import time

import pytest

from tests.server.wire_diff import bodies
from tests.server.wire_diff.samples import samples
from tests.server.wire_diff.talk import Both, Link, Side

pytestmark = pytest.mark.kafka


def beat(link: Link, group: str = "never-seen") -> bytes:
    return link.frame("Heartbeat", 4, bodies.heartbeat(group, 1, "nobody"))


def member_of(link: Link, group: str, **more: int) -> str:
    """Ask for an id."""
    member: str = link.ask("JoinGroup", 9, bodies.join(group, **more))["MemberId"]
    return member


def stable(side: Side, group: str, **more: int) -> tuple[Link, str]:
    """The only member of a group in generation 1, and its connection."""
    link = side.connect()
    member = member_of(link, group, **more)
    link.ask("JoinGroup", 9, bodies.join(group, member, **more))
    link.ask("SyncGroup", 5, bodies.sync(group, 1, member, {member: b"mine"}))
    return link, member


def test_byte_by_byte(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        for api, message in samples(dict(side.topic_ids)).items():
            version = side.judge.served(api)[-1]
            if api != "ApiVersions":
                for byte in link.frame(api, version, message):
                    link.say(bytes([byte]))
                    time.sleep(0.0005)
                link.hear(api, version)

    assert len(both.same(story)) == len(samples()) - 1


def test_in_odd_pieces(both: Both) -> None:
    """Sizes cut in two, and the end of one request with the beginning of the next."""

    def story(side: Side) -> None:
        for piece in (1, 2, 3, 5, 7, 11, 64, 1000):
            link = side.connect()
            data = b"".join(beat(link) for _ in range(20))
            for start in range(0, len(data), piece):
                link.say(data[start : start + piece])
                if start % (5 * piece) == 0:
                    time.sleep(0.002)
            for _ in range(20):
                link.hear("Heartbeat", 4)

    answers = both.same(story)
    assert [answer["CorrelationId"] for answer in answers] == [*range(1, 21)] * 8


def test_many_in_one_write_are_answered_in_order(both: Both) -> None:
    def story(side: Side) -> None:
        for _ in range(3):
            link = side.connect()
            asked = [
                (api, side.judge.served(api)[-1], message)
                for api, message in samples(dict(side.topic_ids)).items()
                if api != "ApiVersions"
            ] * 4
            side.changes({"GroupId": "bent"})
            side.fence()
            link.say(b"".join(link.frame(*each) for each in asked))
            for api, version, _ in asked:
                link.hear(api, version)

    answers = both.same(story)
    assert [answer["CorrelationId"] for answer in answers] == [*range(1, len(answers) // 3 + 1)] * 3


def test_nothing_overtakes_a_join_that_waits(both: Both) -> None:
    def story(side: Side) -> None:
        first, leader = stable(side, "overtake")
        link = side.connect()
        second = member_of(link, "overtake")
        link.post("JoinGroup", 9, bodies.join("overtake", second))
        behind = bodies.commit("behind", {("orders", 0): 5})
        link.say(
            beat(link) + link.frame("OffsetCommit", 8, behind) + link.frame("FindCoordinator", 4, bodies.find("a"))
        )
        link.is_silent("behind a join")
        link.say(link.frame("OffsetCommit", 8, bodies.commit("behind-later", {("orders", 0): 5})))
        link.is_silent("behind a join, and later")
        first.ask("OffsetFetch", 8, bodies.fetch({"behind": None, "behind-later": None}))  # nobody has looked at them
        first.ask("Heartbeat", 4, bodies.heartbeat("overtake", 1, leader))
        first.ask("JoinGroup", 9, bodies.join("overtake", leader))
        link.hear("JoinGroup", 9)
        link.hear("Heartbeat", 4)
        link.hear("OffsetCommit", 8)
        link.hear("FindCoordinator", 4)
        link.hear("OffsetCommit", 8)
        first.ask("OffsetFetch", 8, bodies.fetch({"behind": None, "behind-later": None}))
        link.post("SyncGroup", 5, bodies.sync("overtake", 2, second, {}))
        link.say(beat(link))
        link.is_silent("behind a sync")
        first.ask("SyncGroup", 5, bodies.sync("overtake", 2, leader, {leader: b"1", second: b"2"}))
        link.hear("SyncGroup", 5)
        link.hear("Heartbeat", 4)

    both.same(story)


def test_a_bad_request_behind_a_join_that_waits(both: Both) -> None:
    """Nobody looks at it until the join is answered; then it is the end."""

    def story(side: Side) -> None:
        first, leader = stable(side, "bad-behind")
        link = side.connect()
        second = member_of(link, "bad-behind")
        link.post("JoinGroup", 9, bodies.join("bad-behind", second))
        link.say(b"\x00\x00\x00\x02\x7f\x7f" + beat(link))
        link.is_silent("behind a join")
        first.ask("JoinGroup", 9, bodies.join("bad-behind", leader))
        link.hear("JoinGroup", 9)
        link.hear("Heartbeat", 4)

    answers = both.same(story)
    assert answers[-1] == {"connection": "closed"}


@pytest.mark.parametrize("how", ["close", "half", "reset"])
def test_hanging_up_while_a_join_waits(both: Both, how: str) -> None:
    """The member keeps its seat; the others do not wait for it any longer than for one that is there."""

    def story(side: Side) -> None:
        group = f"hang-up-{how}"
        first, leader = stable(side, group)
        link = side.connect()
        second = member_of(link, group)
        link.post("JoinGroup", 9, bodies.join(group, second))
        link.is_silent("a join")
        if how == "half":
            link.socket.shutdown(1)
        elif how == "reset":
            link.socket.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER of no time: RST
        if how != "half":
            link.close()
        time.sleep(0.2)
        first.ask("DescribeGroups", 6, bodies.describe(group))
        first.ask("Heartbeat", 4, bodies.heartbeat(group, 1, leader))
        joined = first.ask("JoinGroup", 9, bodies.join(group, leader))
        first.ask("SyncGroup", 5, bodies.sync(group, joined["GenerationId"], leader, {leader: b"1", second: b"2"}))
        again = side.connect()
        again.ask("Heartbeat", 4, bodies.heartbeat(group, joined["GenerationId"], second))
        again.ask("SyncGroup", 5, bodies.sync(group, joined["GenerationId"], second, {}))
        again.ask("DescribeGroups", 6, bodies.describe(group))

    both.same(story)


def test_hanging_up_in_the_middle_of_a_request(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        commit = link.frame("OffsetCommit", 8, bodies.commit("half-sent", {("orders", 0): 5}))
        link.say(commit[:-1])
        link.close()
        other = side.connect()
        time.sleep(0.1)
        other.ask("OffsetFetch", 8, bodies.fetch({"half-sent": None}))
        other.ask("DescribeGroups", 6, bodies.describe("half-sent"))

    both.same(story)


def test_a_client_that_never_reads_does_not_hold_up_others(both: Both) -> None:
    def story(side: Side) -> None:
        greedy = side.connect()
        data = b"".join(greedy.frame("DescribeGroups", 5, bodies.describe(*["never-seen"] * 50)) for _ in range(50))
        greedy.socket.settimeout(0.5)
        try:
            for _ in range(20):
                greedy.socket.sendall(data)
        except OSError:
            pass
        side.connect().ask("Heartbeat", 4, bodies.heartbeat("never-seen", 1, "nobody"))

    both.same(story)
