"""Describe and list groups. Deleting them is in `offsets`, because offsets are what goes.

Of groups of the newer protocols only the id and the type are known here. They are listed, in the state "Unknown", which
no filter asks for; to be described as a classic group is something they refuse in Kafka too.
"""

from muster.codec.error_codes import ErrorCode
from muster.core.answers import DescribeAnswer, DescribedMember, ListAnswer, ListedGroup
from muster.core.events import DescribeGroup, Instant, ListGroups
from muster.core.groups import GroupTable
from muster.core.outcome import Outcome, Reply
from muster.core.seats import Member, Seats
from muster.core.states import State

CLASSIC_TYPE = "classic"
UNKNOWN_STATE = "Unknown"
_FIRST_VERSION_WITH_NOT_FOUND = 6


class Admin:
    """Questions about the groups of one partition."""

    def __init__(self, table: GroupTable) -> None:
        self._groups = table.groups
        self._newer = table.newer.kinds

    def describe(self, event: DescribeGroup, now: Instant, out: Outcome) -> None:
        """One group. Until version 5 one that does not exist is merely Dead."""
        group = self._groups.get(event.group_id)
        if event.group_id in self._newer:
            answer = _absent(event, f"Group {event.group_id} is not a classic group.")
        elif group is None or group.seats.state is State.DEAD:
            answer = _absent(event, f"Group {event.group_id} not found.")
        else:
            answer = _described(group.seats)
        out.replies.append(Reply(event.reply_to, answer))

    def list_groups(self, event: ListGroups, now: Instant, out: Outcome) -> None:
        """All groups that pass both filters; names that mean nothing match nothing."""
        states = {state.lower().strip() for state in event.states}
        types = {group_type.lower() for group_type in event.types}
        groups = tuple(
            [
                listed
                for listed in self._listed()
                if (not states or listed.state.lower() in states) and (not types or listed.type in types)
            ]
        )
        out.replies.append(Reply(event.reply_to, ListAnswer(ErrorCode.NONE, groups)))

    def _listed(self) -> list[ListedGroup]:
        classic = [
            ListedGroup(group_id, group.seats.protocol_type or "", group.seats.state.value, CLASSIC_TYPE)
            for group_id, group in self._groups.items()
            if group_id not in self._newer and group.seats.state is not State.DEAD
        ]
        # A newer group has its type for a protocol type: consumer, share or streams.
        return classic + [ListedGroup(group_id, kind, UNKNOWN_STATE, kind) for group_id, kind in self._newer.items()]


def _absent(event: DescribeGroup, message: str) -> DescribeAnswer:
    if event.version < _FIRST_VERSION_WITH_NOT_FOUND:
        return DescribeAnswer(ErrorCode.NONE, State.DEAD.value)
    return DescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD.value, message=message)


def _described(seats: Seats) -> DescribeAnswer:
    """Protocol and metadata are told of a Stable group only; the last assignment stays with its member throughout."""
    state = seats.state
    protocol = seats.protocol if state is State.STABLE else None
    return DescribeAnswer(
        ErrorCode.NONE,
        state.value,
        seats.protocol_type or "",
        protocol or "",
        tuple([_described_member(member, protocol) for member in seats.members.values()]),
    )


def _described_member(member: Member, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        b"" if protocol is None else member.metadata(protocol),
        member.assignment,
    )
