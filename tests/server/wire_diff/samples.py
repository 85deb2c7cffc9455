"""A request of every kind that is answered at once and has something in every list: to be cut, stretched and bent."""

from tests.server.wire_diff import bodies
from tests.server.wire_diff.bodies import Message


def samples(ids: dict[str, bytes] | None = None) -> dict[str, Message]:
    """By API. Nobody is a member of the group, so that nothing has to be waited for."""
    group = "bent"
    return {
        "JoinGroup": bodies.join(group, "nobody", "one"),
        "SyncGroup": bodies.sync(group, 1, "nobody", {"nobody": b"mine"}, GroupInstanceId="one"),
        "Heartbeat": bodies.heartbeat(group, 1, "nobody", "one"),
        "LeaveGroup": bodies.leave(group, "nobody", instance="one"),
        "OffsetCommit": bodies.commit(group, {("orders", 0): 5, ("payments", 1): 6}, ids, GroupInstanceId="one"),
        "OffsetFetch": bodies.fetch({group: {"orders": [0, 1]}}, ids),
        "OffsetDelete": bodies.offset_delete(group, {"orders": [1]}),
        "DescribeGroups": bodies.describe("nobodys", "bent"),
        "ListGroups": bodies.list_groups(("Dead",), ("consumer",)),
        "DeleteGroups": {"GroupsNames": ["nobodys", "never"]},
        "FindCoordinator": bodies.find(group, "other"),
        "ApiVersions": {"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1.0"},
    }
