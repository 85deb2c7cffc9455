"""Joining, rebalancing, static members, syncing, heartbeats and leaving: one test per numbered behaviour."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupValue
from muster.core.events import Leaver, TimerKey, TimerKind
from muster.core.seats import Member, Seats, _vote
from muster.core.states import LEGAL_MOVES, IllegalMove, State
from tests.core.world import NO_ANSWER, World

E = ErrorCode
RANGE = (("range", b"r"),)
BOTH = (("range", b"r"), ("roundrobin", b"rr"))


def joined(world: World, number: int) -> Any:
    answer = world.answer(number)
    assert answer is not NO_ANSWER, "still parked"
    assert answer.error is E.NONE, answer
    return answer


# C. New members.


def test_049_a_session_timeout_below_the_minimum() -> None:
    world = World(group_min_session_timeout_ms=10)
    assert world.answer(world.join(session=9)).error is E.INVALID_SESSION_TIMEOUT


def test_051_bounds_are_inclusive() -> None:
    world = World(group_min_session_timeout_ms=10, group_max_session_timeout_ms=10)
    assert world.answer(world.join(session=10)).error is E.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("instance", [None, "i"])
def test_052_a_made_up_id_creates_no_group(instance: str | None) -> None:
    world = World()
    assert world.answer(world.join(member_id="ghost", instance=instance)).error is E.UNKNOWN_MEMBER_ID
    assert world.state() == "Dead"


def test_053_old_clients_are_seated_at_once() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    first = world.join(version=3)
    assert world.is_parked(first)
    world.advance(50)
    answer = joined(world, first)
    assert (answer.generation, answer.leader, len(answer.members)) == (1, answer.member_id, 1)


def test_054_newer_ones_get_an_id_first() -> None:
    world = World()
    answer = world.answer(world.join(client="shop"))
    assert answer.error is E.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("shop-uuid-")
    assert (world.state(), len(world.group().pending_members)) == ("Empty", 1)


def test_056_a_refused_record_of_a_new_group_reaches_the_parked_join() -> None:
    world = World()
    world.hold_appends = True
    number = world.join(instance="i")
    world.refuse_with = E.NOT_LEADER_OR_FOLLOWER
    world.release_appends()
    assert world.answer(number).error is E.NOT_COORDINATOR
    assert world.state() == "Dead"


def test_057_static_members_need_no_id() -> None:
    world = World()
    number = world.join(instance="shelf")
    world.advance(0)
    assert joined(world, number).member_id.startswith("shelf-uuid-")


def test_058_an_empty_list_of_protocols_leaves_the_id_pending() -> None:
    world = World()
    member_id = world.answer(world.join()).member_id
    assert world.answer(world.join(member_id=member_id, protocols=())).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert member_id in world.group().pending_members
    number = world.join(member_id=member_id)
    world.advance(0)
    joined(world, number)


def test_059_a_pending_id_with_an_instance_id() -> None:
    world = World()
    member_id = world.answer(world.join()).member_id
    answer = world.answer(world.join(member_id=member_id, instance="i"))
    assert (answer.error, answer.member_id) == (E.UNKNOWN_SERVER_ERROR, "")


def test_061_no_protocols() -> None:
    world = World()
    assert world.answer(world.join(protocols=())).error is E.INCONSISTENT_GROUP_PROTOCOL


def test_062_another_protocol_type() -> None:
    world = World()
    world.stable("a")
    answer = world.answer(world.join(protocol_type="connect"))
    assert answer.error is E.INCONSISTENT_GROUP_PROTOCOL


def test_063_nothing_in_common() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    first, _ = world.join_new(protocols=RANGE)
    assert world.answer(world.join(protocols=(("roundrobin", b""),))).error is E.INCONSISTENT_GROUP_PROTOCOL
    world.advance(50)
    joined(world, first)


def test_064_an_unknown_id_in_an_existing_group() -> None:
    world = World()
    world.stable("a")
    assert world.answer(world.join(member_id="ghost")).error is E.UNKNOWN_MEMBER_ID


def test_067_what_an_error_looks_like() -> None:
    world = World()
    answer = world.answer(world.join(member_id="ghost"))
    assert (answer.generation, answer.leader, answer.protocol_type, answer.protocol, answer.members) == (
        -1, "", None, None, (),
    )  # fmt: skip


def test_068_protocol_type_for_leader_and_follower() -> None:
    world = World()
    a, b = world.stable("a", "b")
    first, second = world.join(member_id=a, client="a"), world.join(member_id=b, client="b")
    assert [joined(world, number).protocol_type for number in (first, second)] == ["consumer", "consumer"]


def test_071_a_new_member_does_not_wait_for_ever() -> None:
    world = World()
    (a,) = world.stable("a", rebalance=600_000, session=1_000_000)
    parked, _ = world.join_new(client="b", rebalance=600_000, session=20_000)
    for _ in range(30):
        world.advance(10_000)
        if not world.is_parked(parked):
            break
        world.heartbeat(a, 1)
    world.advance(1)
    answer = world.answer(parked)
    assert (answer.error, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "")
    assert list(world.group().members) == [a]


def test_072_the_same_during_the_initial_delay() -> None:
    world = World(group_initial_rebalance_delay_ms=600_000)
    parked, _ = world.join_new(rebalance=700_000)
    world.advance(300_000)
    assert world.answer(parked).error is E.UNKNOWN_MEMBER_ID
    assert world.state() == "Empty"


@pytest.mark.parametrize("sync", [False, True])
def test_073_074_after_its_first_generation_a_member_has_an_ordinary_session(sync: bool) -> None:
    world = World()
    (a,) = world.stable("a", session=1_000)
    parked, b = world.join_new(client="b", session=1_000)
    again = world.join(member_id=a, client="a", session=1_000)
    generation = joined(world, again).generation
    joined(world, parked)
    if sync:
        world.sync(a, generation, {})
        world.sync(b, generation)
    world.advance(1_001)
    assert world.state() == "Empty"


# D. Initial rebalance delay.


def test_076_the_first_join_waits_for_the_delay() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    number, _ = world.join_new()
    world.advance(25)
    assert world.is_parked(number)
    world.advance(26)
    joined(world, number)


def test_077_a_second_member_extends_it_once() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    first, _ = world.join_new(client="a", rebalance=150)
    world.advance(49)
    second, _ = world.join_new(client="b", rebalance=150)
    world.advance(28)
    assert world.is_parked(first)
    world.advance(24)
    assert [joined(world, number).generation for number in (first, second)] == [1, 1]


def test_078_but_not_past_the_rebalance_timeout() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    numbers = [world.join_new(client=client, rebalance=100)[0] for client in "ab"]
    world.advance(51)
    numbers.append(world.join_new(client="c", rebalance=100)[0])
    world.advance(48)
    assert all(world.is_parked(number) for number in numbers)
    world.advance(2)
    for number in numbers:
        joined(world, number)


def test_079_two_at_once_extend_it_once() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    numbers = [world.join_new(client=client, rebalance=500)[0] for client in "ab"]
    world.advance(99)
    assert all(world.is_parked(number) for number in numbers)
    world.advance(1)
    for number in numbers:
        joined(world, number)


def test_081_a_group_that_was_empty_extends_like_a_new_one() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    (a,) = world.stable("a")
    world.leave(Leaver(a))
    world.coordinator.rebalancing._config = world.config.__class__(
        group_initial_rebalance_delay_ms=50, group_min_session_timeout_ms=10
    )
    numbers = [world.join_new(client=client, rebalance=500)[0] for client in "ab"]
    world.advance(99)
    assert all(world.is_parked(number) for number in numbers)
    world.advance(1)
    for number in numbers:
        joined(world, number)


def test_082_joins_do_not_end_the_delay_early() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    number, member_id = world.join_new()
    again = world.join(member_id=member_id)
    assert world.is_parked(again)
    world.advance(50)
    joined(world, again)
    assert world.answer(number) is NO_ANSWER  # replaced by the newer one, and never answered


def test_084_everybody_leaves_during_the_delay() -> None:
    world = World(group_initial_rebalance_delay_ms=50)
    number, member_id = world.join_new()
    assert world.leave(Leaver(member_id)).members[0].error is E.NONE
    assert world.answer(number).error is E.UNKNOWN_MEMBER_ID
    world.advance(50)
    assert (world.state(), world.group().generation) == ("Empty", 1)
    _key, value = world.records()[-1]
    assert (value.generation, value.members) == (1, ())


# E. Existing members.


def test_086_093_a_lone_leader_that_rejoins_with_the_same_metadata_rebalances() -> None:
    world = World()
    (a,) = world.stable("a")
    assert joined(world, world.join(member_id=a, client="a")).generation == 2


def test_087_a_follower_with_another_list_starts_a_rebalance() -> None:
    world = World()
    _, b = world.stable("a", "b", protocols=RANGE)
    number = world.join(member_id=b, client="b", protocols=(("range", b"changed"),))
    assert world.is_parked(number)
    assert world.state() == "PreparingRebalance"


def test_088_089_a_follower_and_a_leader_join_while_the_assignment_is_awaited() -> None:
    world = World()
    a, b = world.stable("a", "b")
    world.join(member_id=a, client="a")
    world.join(member_id=b, client="b")
    assert world.state() == "CompletingRebalance"
    follower = joined(world, world.join(member_id=b, client="b"))
    leader = joined(world, world.join(member_id=a, client="a"))
    assert (len(follower.members), len(leader.members)) == (0, 2)
    assert world.state() == "CompletingRebalance"


def test_091_the_last_rejoin_completes_it() -> None:
    world = World()
    a, b = world.stable("a", "b")
    parked, _ = world.join_new(client="c")
    world.join(member_id=a, client="a")
    assert world.is_parked(parked)
    last = world.join(member_id=b, client="b")
    answer = joined(world, last)
    assert answer.leader == a
    assert answer.generation == world.group().generation


def test_092_whoever_does_not_rejoin_loses_the_seat() -> None:
    world = World()
    (_a,) = world.stable("a", rebalance=1_000, session=1_000_000)
    parked, b = world.join_new(client="b", rebalance=1_000)
    world.advance(1_000)
    answer = joined(world, parked)
    assert (answer.leader, answer.generation) == (b, 2)
    assert list(world.group().members) == [b]


def test_096_new_timeouts_count() -> None:
    world = World()
    (a,) = world.stable("a", session=1_000, rebalance=2_000)
    world.join(member_id=a, client="a", session=5_000, rebalance=9_000)
    member = world.group().members[a]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (5_000, 9_000)


def test_097_the_longest_rebalance_timeout_counts() -> None:
    world = World()
    world.stable("a", rebalance=10_000)
    parked, _ = world.join_new(client="b", rebalance=60_000)
    assert world.timers[TimerKey(TimerKind.JOIN, "g")] == world.now_ms + 60_000
    assert world.is_parked(parked)


def test_098_silent_static_members_keep_their_seats() -> None:
    world = World()
    a, b = world.stable("a", "b", instances=True, rebalance=1_000, session=1_000_000)
    world.join(member_id=a, client="a", instance="a", rebalance=1_000, session=1_000_000)
    world.leave(Leaver("", "a"))  # whoever had joined is gone: only a silent one is left
    world.advance(2_500)
    assert (world.state(), list(world.group().members)) == ("PreparingRebalance", [b])
    generation = world.group().generation
    answer = joined(world, world.join(member_id=b, client="b", instance="b", rebalance=1_000, session=1_000_000))
    assert answer.generation == generation + 1


# F. Static members.


def test_099_a_wrong_id_with_a_known_instance_is_fenced() -> None:
    world = World()
    world.stable("a", instances=True)
    assert world.answer(world.join(member_id="other", instance="a")).error is E.FENCED_INSTANCE_ID


def test_101_102_a_duplicate_fences_the_older_one_whose_sync_is_parked() -> None:
    world = World()
    a, b = world.stable("a", "b", instances=True, rebalance=1_000, session=600_000)
    for each in (a, b):
        world.join(member_id=each, client=each[0], instance=each[0], rebalance=1_000, session=600_000)
    generation = world.group().generation
    parked_sync = world.sync(b, generation, instance_id="b")
    duplicate = world.join(client="b", instance="b", rebalance=1_000, session=600_000)
    assert world.answer(parked_sync).error is E.FENCED_INSTANCE_ID
    assert world.state() == "PreparingRebalance"
    assert world.answer(world.join(member_id=b, client="b", instance="b")).error is E.FENCED_INSTANCE_ID
    world.advance(1_000)
    answer = joined(world, duplicate)
    assert (answer.leader, answer.generation) == (answer.member_id, generation + 1)


def test_104_a_restarted_leader_learns_that_nothing_is_to_be_assigned() -> None:
    world = World()
    a, b = world.stable("a", "b", instances=True)
    generation = world.group().generation
    answer = joined(world, world.join(client="a", instance="a", version=9))
    assert (answer.generation, answer.skip_assignment, answer.leader) == (generation, True, answer.member_id)
    assert {member.member_id for member in answer.members} == {answer.member_id, b}
    assert world.state() == "Stable"
    # 106, 107: the old id is fenced with its instance id, unknown without.
    assert world.answer(world.join(member_id=a, client="a", instance="a")).error is E.FENCED_INSTANCE_ID
    assert world.answer(world.sync(a, generation, instance_id="a")).error is E.FENCED_INSTANCE_ID
    assert world.answer(world.sync(a, generation)).error is E.UNKNOWN_MEMBER_ID


def test_104_an_older_client_hears_of_the_leader_before_it() -> None:
    world = World()
    a, _ = world.stable("a", "b", instances=True)
    answer = joined(world, world.join(client="a", instance="a", version=8))
    assert (answer.leader, answer.members, answer.skip_assignment) == (a, (), False)


def test_108_a_restarted_follower_keeps_its_assignment() -> None:
    world = World()
    _, b = world.stable("a", "b", instances=True)
    generation, before = world.group().generation, len(world.log)
    answer = joined(world, world.join(client="b", instance="b"))
    assert (answer.generation, answer.members) == (generation, ())
    assert world.answer(world.sync(answer.member_id, generation, instance_id="b")).assignment == b.encode()
    assert len(world.log) == before + 1
    assert world.records()[-1][1].members[1].member_id == answer.member_id


def test_111_a_subset_with_the_chosen_protocol_needs_no_rebalance() -> None:
    world = World()
    world.stable("a", "b", instances=True, protocols=BOTH)
    number = world.join(client="b", instance="b", protocols=RANGE)
    joined(world, number)
    assert world.state() == "Stable"


def test_112_113_a_refused_record_leaves_the_old_member_as_it_was() -> None:
    world = World()
    _a, b = world.stable("a", "b", instances=True, session=20_000)
    generation = world.group().generation
    world.refuse_with = E.MESSAGE_TOO_LARGE
    protocols = (("range", b""), ("roundrobin", b""))
    answer = world.answer(world.join(client="b", instance="b", session=30_000, rebalance=99_000, protocols=protocols))
    assert (answer.error, answer.member_id, answer.generation) == (E.UNKNOWN_SERVER_ERROR, "", generation)
    assert world.state() == "Stable"
    member = world.group().members[b]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 60_000)
    assert member.protocols == (("range", b""),)
    assert world.answer(world.sync(b, generation, instance_id="b")).error is E.NONE
    joined(world, world.join(member_id=b, client="b", instance="b", session=20_000))


def test_114_the_old_session_timeout_counts_until_the_next_heartbeat() -> None:
    world = World()
    _, _b = world.stable("a", "b", instances=True, session=10_000)
    new_b = joined(world, world.join(client="b", instance="b", session=20_000, rebalance=120_000)).member_id
    assert world.group().members[new_b].deadline_ms == world.now_ms + 10_000
    world.heartbeat(new_b, world.group().generation)
    assert world.group().members[new_b].deadline_ms == world.now_ms + 20_000


def test_117_a_silent_static_member_goes_with_its_session() -> None:
    world = World()
    a, _b = world.stable("a", "b", instances=True, session=500, rebalance=1_000)
    parked = world.join(member_id=a, client="a", instance="a", session=100_000, rebalance=1_000)
    world.advance(1_000)
    answer = joined(world, parked)
    assert [member.member_id for member in answer.members] == [a]


def test_118_a_silent_leader_hands_over() -> None:
    world = World()
    _, b = world.stable("a", "b", instances=True, session=600_000, rebalance=1_000, protocols=RANGE)
    parked = world.join(
        member_id=b, client="b", instance="b", session=600_000, rebalance=1_000, protocols=(("range", b"new"),)
    )
    world.advance(1_000)
    answer = joined(world, parked)
    assert (answer.leader, len(answer.members)) == (b, 2)


def test_119_121_sync_heartbeat_and_commit_with_ids_that_do_not_belong_together() -> None:
    world = World()
    a, b = world.stable("a", "b", instances=True)
    generation = world.group().generation
    assert world.answer(world.join(member_id=b, instance="a")).error is E.FENCED_INSTANCE_ID
    assert world.answer(world.join(member_id=a, instance="b")).error is E.FENCED_INSTANCE_ID
    assert world.answer(world.sync("wrong", generation, instance_id="a")).error is E.FENCED_INSTANCE_ID
    assert world.heartbeat("wrong", generation, instance="a") is E.FENCED_INSTANCE_ID
    assert world.heartbeat(a, generation) is E.NONE  # 122
    assert world.heartbeat(a, generation, instance="nobody") is E.UNKNOWN_MEMBER_ID  # 123


def test_131_132_the_last_silent_static_member_restarts_or_its_session_ends() -> None:
    world = World()
    a, _b = world.stable("a", "b", instances=True, rebalance=1_000, session=50_000)
    world.join(member_id=a, client="a", instance="a", rebalance=1_000, session=50_000)
    world.leave(Leaver(a, "a"))
    generation = world.group().generation
    answer = joined(world, world.join(client="b", instance="b", rebalance=1_000, session=50_000))
    assert (answer.generation, answer.leader, len(answer.members)) == (generation + 1, answer.member_id, 1)
    world.sync(answer.member_id, answer.generation, {})
    world.advance(50_001)
    assert (world.state(), world.group().leader) == ("Empty", None)


# G. group.max.size.


def test_134_136_the_fifth_of_four_members_is_refused() -> None:
    world = World(group_initial_rebalance_delay_ms=50, group_max_size=4)
    numbers = [world.join(client=str(number), version=3) for number in range(5)]
    world.advance(100)
    errors = [world.answer(number).error for number in numbers]
    assert errors == [E.NONE] * 4 + [E.GROUP_MAX_SIZE_REACHED]
    assert world.answer(numbers[4]).member_id == ""


def test_139_a_loaded_group_over_capacity_shrinks() -> None:
    big = World()
    ids = big.stable(*"abcdef")
    world = World(group_max_size=4)
    for offset, (record, producer) in enumerate(big.log):
        world.coordinator.replay(record, offset, producer)
    from muster.core.outcome import Outcome

    out = Outcome()
    world.coordinator.table.take_seats()
    world.coordinator.activate(world.now, out)
    world._carry_out(out)
    assert world.state() == "PreparingRebalance"
    errors = [world.answer(world.join(member_id=each, client=each[0])) for each in ids]
    refused = [answer for answer in errors if answer is not NO_ANSWER]
    assert [answer.error for answer in refused[-2:]] == [E.GROUP_MAX_SIZE_REACHED] * 2
    assert len(world.group().members) == 4


def test_141_a_full_group_turns_a_restarting_static_member_away() -> None:
    world = World(group_max_size=2)
    world.stable("a", "b", instances=True)
    assert world.answer(world.join(client="a", instance="a")).error is E.GROUP_MAX_SIZE_REACHED


# H. Syncing.


def test_142_an_empty_assignment() -> None:
    world = World()
    number, a = world.join_new()
    world.advance(0)
    answer = world.answer(world.sync(a, joined(world, number).generation))
    assert (answer.error, answer.assignment, world.state()) == (E.NONE, b"", "Stable")
    assert world.heartbeat(a, 1) is E.NONE


def test_143_144_147_a_sync_of_an_unknown_group_an_unknown_member_and_while_members_join() -> None:
    world = World()
    assert world.answer(world.sync("a", 1)).error is E.UNKNOWN_MEMBER_ID
    a, _ = world.stable("a", "b")
    generation = world.group().generation
    assert world.answer(world.sync("ghost", generation)).error is E.UNKNOWN_MEMBER_ID
    assert world.answer(world.sync(a, generation + 1)).error is E.ILLEGAL_GENERATION
    world.join_new(client="c")
    assert world.answer(world.sync(a, generation)).error is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("leader_first", [True, False])
def test_148_149_each_gets_its_own_assignment_whoever_syncs_first(leader_first: bool) -> None:
    world = World()
    a, b = world.stable("a", "b")
    world.join(member_id=a, client="a")
    world.join(member_id=b, client="b")
    generation = world.group().generation
    plan = {a: b"\x00", b: b"\x01"}
    if leader_first:
        first, second = world.sync(a, generation, plan), world.sync(b, generation)
    else:
        second = world.sync(b, generation)
        assert world.is_parked(second)
        first = world.sync(a, generation, plan)
    assert [world.answer(number).assignment for number in (first, second)] == [b"\x00", b"\x01"]


def test_151_154_a_sync_that_names_a_protocol_names_the_right_one() -> None:
    world = World()
    (a,) = world.stable("a")
    right = world.answer(world.sync(a, 1, protocol_type="consumer", protocol_name="range"))
    assert (right.error, right.protocol_type, right.protocol) == (E.NONE, "consumer", "range")
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
        answer = world.answer(world.sync(a, 1, **wrong))
        assert (answer.error, answer.protocol_type) == (E.INCONSISTENT_GROUP_PROTOCOL, None)


def test_156_a_refused_assignment_starts_again() -> None:
    world = World()
    a, b = world.stable("a", "b")
    world.join(member_id=a, client="a")
    world.join(member_id=b, client="b")
    generation = world.group().generation
    follower = world.sync(b, generation)
    world.refuse_with = E.NOT_LEADER_OR_FOLLOWER
    leader = world.sync(a, generation, {a: b"x"})
    assert [world.answer(number).error for number in (leader, follower)] == [E.NOT_COORDINATOR] * 2
    assert world.state() == "PreparingRebalance"


def test_157_an_assignment_that_comes_too_late_changes_nothing() -> None:
    world = World()
    a, b = world.stable("a", "b")
    world.join(member_id=a, client="a")
    world.join(member_id=b, client="b")
    generation = world.group().generation
    world.hold_appends = True
    number = world.sync(a, generation, {a: b"x"})
    world.join_new(client="c")
    assert world.answer(number).error is E.REBALANCE_IN_PROGRESS
    world.release_appends()
    assert world.state() == "PreparingRebalance"


def test_163_164_a_second_assignment_and_one_for_nobody_are_ignored() -> None:
    world = World()
    (a,) = world.stable("a")
    assert world.answer(world.sync(a, 1, {a: b"other"})).assignment == a.encode()
    number = world.join(member_id=a, client="a")
    world.sync(a, joined(world, number).generation, {a: b"x", "ghost": b"y"})
    assert [member.member_id for member in world.records()[-1][1].members] == [a]


# I. Heartbeats and sessions.


def test_166_169_171_heartbeats_of_an_unknown_group_an_unknown_member_and_a_stable_group() -> None:
    world = World()
    assert world.heartbeat("a", 1) is E.UNKNOWN_MEMBER_ID
    (a,) = world.stable("a")
    assert world.heartbeat("ghost", 1) is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, 1) is E.NONE
    assert world.heartbeat(a, 7) is E.ILLEGAL_GENERATION


def test_172_while_the_assignment_is_awaited_the_session_goes_on() -> None:
    world = World()
    number, a = world.join_new(session=1_000)
    world.advance(0)
    joined(world, number)
    world.advance(900)
    assert world.heartbeat(a, 1) is E.NONE
    world.advance(900)
    assert a in world.group().members


def test_174_183_a_rebalance_is_signalled_and_the_session_restarted_while_members_join() -> None:
    world = World()
    (a,) = world.stable("a")
    world.join_new(client="b")
    assert world.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS


def test_176_heartbeats_keep_the_session() -> None:
    world = World()
    (a,) = world.stable("a", session=1_000)
    world.advance(500)
    assert world.heartbeat(a, 1) is E.NONE
    world.advance(600)
    assert world.heartbeat(a, 1) is E.NONE
    world.advance(1_001)
    assert world.heartbeat(a, 1) is E.UNKNOWN_MEMBER_ID


def test_178_a_silent_member_is_dropped_from_a_rebalance() -> None:
    world = World()
    (a,) = world.stable("a", session=1_000, rebalance=2_000)
    parked, b = world.join_new(client="b", session=1_000, rebalance=2_000)
    world.advance(500)
    assert world.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    world.advance(1_100)
    assert joined(world, parked).leader == b


def test_179_a_static_member_that_only_heartbeats() -> None:
    world = World()
    (a,) = world.stable("a", instances=True, session=1_000, rebalance=1_200)
    parked, b = world.join_new(client="b", session=5_000, rebalance=1_200)
    for _ in range(4):
        world.advance(300)
        last = world.heartbeat(a, 1)
    answer = joined(world, parked)
    assert a in world.group().members
    assert last in (E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS)
    assert world.heartbeat(a, 1) is E.ILLEGAL_GENERATION
    world.sync(b, answer.generation, {})
    world.advance(1_001)
    assert world.heartbeat(b, answer.generation) is E.REBALANCE_IN_PROGRESS


def test_184_loaded_members_have_a_full_session() -> None:
    world = World()
    ids = world.stable("a", "b", session=4_000)
    other = World()
    for offset, (record, producer) in enumerate(world.log):
        other.coordinator.replay(record, offset, producer)
    from muster.core.outcome import Outcome

    out = Outcome()
    other.now_ms = 77_000
    other.coordinator.table.take_seats()
    other.coordinator.activate(other.now, out)
    deadlines = {timer.key[2]: timer.deadline_ms for timer in out.timers}
    assert deadlines == dict.fromkeys(ids, 81_000)


# J. Leaving.


def test_187_188_189_leaving_a_group_or_as_a_member_that_is_unknown() -> None:
    world = World()
    answer = world.leave(Leaver("", "x"), Leaver("", "y"))
    assert (answer.error, [each.error for each in answer.members]) == (E.NONE, [E.UNKNOWN_MEMBER_ID] * 2)
    world.stable("a")
    assert world.leave(Leaver("ghost")).members[0].error is E.UNKNOWN_MEMBER_ID


def test_191_the_last_one_out_leaves_a_record() -> None:
    world = World()
    (a,) = world.stable("a")
    assert world.leave(Leaver(a)).members[0].error is E.NONE
    assert (world.state(), world.group().generation) == ("Empty", 2)
    value = world.records()[-1][1]
    assert (value.protocol_type, value.generation, value.protocol, value.leader, value.members) == (
        "consumer", 2, None, None, (),
    )  # fmt: skip


def test_192_to_196_static_members_leave_by_name() -> None:
    world = World()
    a, b = world.stable("a", "b", instances=True)
    assert world.leave(Leaver("wrong", "a")).members[0].error is E.FENCED_INSTANCE_ID
    errors = [each.error for each in world.leave(Leaver("", "nobody"), Leaver("", "a")).members]
    assert errors == [E.UNKNOWN_MEMBER_ID, E.NONE]
    assert a not in world.group().members
    assert world.leave(Leaver("", "b")).members[0].error is E.NONE
    assert b not in world.group().members


def test_197_198_a_pending_member_leaves() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    a, b = world.stable("a", "b")
    pending = world.answer(world.join(client="c")).member_id
    first, second = world.join(member_id=a, client="a"), world.join(member_id=b, client="b")
    assert world.is_parked(first)
    errors = [each.error for each in world.leave(Leaver("", "nobody"), Leaver(pending)).members]
    assert errors == [E.UNKNOWN_MEMBER_ID, E.NONE]
    joined(world, first)
    joined(world, second)
    assert (world.state(), world.group().pending_members) == ("CompletingRebalance", {})


def test_199_everybody_leaves_at_once() -> None:
    world = World()
    a, b = world.stable("a", "b")
    pending = world.answer(world.join(client="c")).member_id
    first, second = world.join(member_id=a, client="a"), world.join(member_id=b, client="b")
    answer = world.leave(Leaver(a), Leaver(b), Leaver(pending))
    assert [each.error for each in answer.members] == [E.NONE] * 3
    assert [world.answer(number).error for number in (first, second)] == [E.UNKNOWN_MEMBER_ID] * 2
    assert world.state() == "Empty"


def test_202_a_follower_leaves_while_others_sync() -> None:
    world = World()
    a, b, c = world.stable("a", "b", "c")
    for each in (a, b, c):
        world.join(member_id=each, client=each[0])
    generation = world.group().generation
    parked = world.sync(b, generation)
    world.leave(Leaver(c))
    assert world.answer(parked).error is E.REBALANCE_IN_PROGRESS


# K. Pending members and the sync timeout.


def test_203_a_pending_id_runs_out() -> None:
    world = World()
    world.stable("a", session=100_000)
    world.join(client="b", session=5_000)
    world.advance(5_001)
    assert (world.state(), world.group().pending_members) == ("Stable", {})


def test_204_the_pending_member_completes_the_join() -> None:
    world = World()
    a, b = world.stable("a", "b")
    pending = world.answer(world.join(client="c")).member_id
    first, _ = world.join(member_id=a, client="a"), world.join(member_id=b, client="b")
    world.join(member_id=pending, client="c")
    assert len(joined(world, first).members) == 3


def test_206_a_pending_member_is_not_waited_for_past_the_timeout() -> None:
    world = World()
    (a,) = world.stable("a", rebalance=1_000, session=600_000)
    world.join(client="c", session=600_000)
    parked = world.join(member_id=a, client="a", rebalance=1_000, session=600_000)
    world.advance(999)
    assert world.is_parked(parked)
    world.advance(1)
    assert len(joined(world, parked).members) == 1


def test_207_nobody_syncs() -> None:
    world = World()
    ids = world.stable("a", "b", "c", rebalance=1_000, session=600_000)
    for each in ids:
        world.join(member_id=each, client=each[0], rebalance=1_000, session=600_000)
    generation = world.group().generation
    world.advance(999)
    assert {world.heartbeat(each, generation) for each in ids} == {E.NONE}
    world.advance(1)
    assert {world.heartbeat(each, generation) for each in ids} == {E.UNKNOWN_MEMBER_ID}


def test_208_209_only_the_leader_or_only_the_followers_sync() -> None:
    world = World()
    a, b, c = world.stable("a", "b", "c", rebalance=1_000, session=600_000)
    for each in (a, b, c):
        world.join(member_id=each, client=each[0], rebalance=1_000, session=600_000)
    generation = world.group().generation
    world.sync(a, generation, {})
    assert world.state() == "Stable"
    world.advance(1_000)
    assert list(world.group().members) == [a]
    assert world.heartbeat(a, generation) is E.REBALANCE_IN_PROGRESS


def test_212_the_sync_timer_takes_silent_static_members_too() -> None:
    world = World()
    a, b = world.stable("a", "b", instances=True, rebalance=1_000, session=600_000)
    parked = world.join(member_id=a, client="a", instance="a", rebalance=1_000, session=600_000)
    world.advance(1_000)
    answer = joined(world, parked)
    assert len(answer.members) == 2
    world.sync(a, answer.generation, {}, instance_id="a")
    world.advance(1_000)
    assert b not in world.group().members


# R. Unloading.


def test_331_parked_requests_hear_of_a_move() -> None:
    from muster.core.outcome import Outcome

    world = World()
    a, b = world.stable("a", "b")
    world.join(member_id=a, client="a")
    world.join(member_id=b, client="b")
    parked = world.sync(b, world.group().generation)
    out = Outcome()
    groups, _ = world.coordinator.unload(out)
    world._carry_out(out)
    assert groups == 1
    assert (world.answer(parked).error, world.answer(parked).assignment) == (E.NOT_COORDINATOR, b"")
    assert world.state() == "Dead"
    assert not world.timers


# T. The model.


def test_356_357_moves_that_do_not_exist_and_dead_stays_dead() -> None:
    world = World()
    world.stable("a")
    seats = world.group()
    for came_from in State:
        for to in State:
            if to in LEGAL_MOVES[came_from]:
                continue
            seats.state = came_from
            with pytest.raises(IllegalMove):
                seats.move(to, world.wall_ms)
    assert LEGAL_MOVES[State.DEAD] == (State.DEAD,)


def member(name: str, *protocols: str) -> Member:
    return Member(name, None, "c", "/h", 1, 1, tuple((protocol, b"") for protocol in protocols))


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ((("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range")), "roundrobin"),
        ((("range", "roundrobin"), ("roundrobin", "blah")), "roundrobin"),
    ],
)
def test_358_359_the_protocol_is_chosen_by_votes_among_those_in_common(
    lists: tuple[tuple[str, ...], ...], chosen: str
) -> None:
    group = Seats()
    for number, protocols in enumerate(lists):
        group.add(member(str(number), *protocols), "consumer")
    assert group.choose_protocol() == chosen


def test_361_who_may_join() -> None:
    group = Seats(State.PREPARING_REBALANCE)
    group.add(member("a", "range", "roundrobin"), "consumer")
    for offered, may in ((("roundrobin", "foo"), True), (("range", "bar"), True), (("foo", "bar"), False)):
        assert group.supports("consumer", [(name, b"") for name in offered]) is may


def test_369_a_vote_without_a_candidate() -> None:
    with pytest.raises(AssertionError):
        _vote(member("a", "foo").protocols, {"bar"})


# Hard state is what the log says.


def test_the_log_alone_explains_the_state() -> None:
    world = World()
    _a, _b = world.stable("a", "b", instances=True)
    world.join(client="b", instance="b")
    world.leave(Leaver("", "a"))
    world.advance(700_000)
    assert world.replayed().hard_state() == world.coordinator.hard_state()
    value = world.replayed().groups["g"].record
    assert isinstance(value, GroupValue)


# What a real broker does in corners that no page tells of.


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ((("range", "cooperative-sticky"), ("cooperative-sticky", "range")), "range"),
        ((("range", "sticky"), ("sticky", "range")), "sticky"),
        ((("roundrobin", "cooperative-sticky"), ("cooperative-sticky", "roundrobin")), "roundrobin"),
    ],
)
def test_a_tie_goes_to_the_name_that_a_hash_map_puts_first(lists: tuple[tuple[str, ...], ...], chosen: str) -> None:
    group = Seats()
    for number, protocols in enumerate(lists):
        group.add(member(str(number), *protocols), "consumer")
    assert group.choose_protocol() == chosen


def test_an_unused_id_that_runs_out_ends_the_initial_delay() -> None:
    world = World(group_initial_rebalance_delay_ms=2_500)
    a = world.join(client="a", version=3)
    world.join(client="p", session=600)
    world.advance(599)
    assert world.is_parked(a)
    world.advance(1)
    assert world.answer(a).generation == 1


def test_the_successor_of_a_static_member_outlives_its_session_while_it_waits() -> None:
    world = World(group_initial_rebalance_delay_ms=2_500)
    world.join(client="a", instance="i", session=500)
    successor = world.join(client="a", instance="i", session=500)
    world.advance(2_000)
    assert world.is_parked(successor)
    world.advance(500)
    assert world.answer(successor).error is E.NONE


def test_a_group_that_everybody_left_during_its_initial_delay_keeps_its_kind() -> None:
    world = World(group_initial_rebalance_delay_ms=2_500)
    world.join(client="a", version=3)
    (a,) = world.group("g").members
    world.leave(Leaver(a))
    assert (
        world.answer(world.join(client="b", version=3, protocol_type="connect")).error is E.INCONSISTENT_GROUP_PROTOCOL
    )
    other = world.join(client="b", version=3, protocols=(("another", b""),))
    assert world.is_parked(other)


def test_a_newcomer_of_long_ago_still_extends_an_initial_delay() -> None:
    world = World(group_initial_rebalance_delay_ms=2_500)
    for client in "ab":
        world.join(client=client, version=3, rebalance=2_500)
    world.advance(2_500)
    world.leave(*[Leaver(member_id) for member_id in world.group("g").members])
    world.advance(2_500)
    assert world.state() == "Empty"
    c = world.join(client="c", version=3, rebalance=60_000)
    world.advance(4_999)
    assert world.is_parked(c)
    world.advance(1)
    assert world.answer(c).error is E.NONE


def test_a_replaced_member_that_never_synced_still_costs_a_rebalance() -> None:
    world = World()
    for client in "ab":
        world.join(client=client, instance=client, rebalance=5_000)
    world.advance(0)
    a, b = world.group("g").members
    world.sync(a, 1, {})
    assert world.state() == "Stable"
    successor = world.answer(world.join(client="b", instance="b", rebalance=5_000)).member_id
    world.sync(successor, 1)
    world.advance(5_000)
    assert world.state() == "PreparingRebalance"
    assert set(world.group("g").members) == {a, successor}
    assert b not in world.group("g").members


def test_an_id_that_is_turned_away_is_waited_for_no_longer() -> None:
    world = World(group_max_size=1, group_initial_rebalance_delay_ms=100)
    late = world.answer(world.join(client="late")).member_id
    a = world.join(client="a", version=3)
    assert world.answer(world.join(member_id=late, client="late")).error is E.GROUP_MAX_SIZE_REACHED
    assert not world.group("g").pending_members
    world.advance(100)
    assert world.answer(a).generation == 1
