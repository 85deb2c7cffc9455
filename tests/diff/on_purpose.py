"""Where muster answers and Kafka 4.3.0 does not, or not sensibly; docs/protocol.md says so.

Each rule forgives one answer to one request, and nothing that follows from it: whoever forgives too much would see the
transcripts part again at the next step. If Kafka does answer later what it left unanswered, that is a difference again.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.diff.script import Step

NONE = 0
UNKNOWN_SERVER_ERROR = -1
UNKNOWN_MEMBER_ID = 25
INCONSISTENT_GROUP_PROTOCOL = 23


class Rule(NamedTuple):
    name: str
    documented: str
    """Words that docs/protocol.md must have."""
    forgives: Callable[[Step, Step, int | None, int | None], bool]
    """Of the step after which it is seen, the step that asked, Kafka's error (None: no answer) and ours."""


def _leaves_while_syncing(seen: Step, asked: Step, theirs: int | None, ours: int | None) -> bool:
    is_silent = theirs is None and ours == UNKNOWN_MEMBER_ID
    return is_silent and seen.verb == "leave" and asked.verb == "sync"


def _names_a_protocol_twice(seen: Step, asked: Step, theirs: int | None, ours: int | None) -> bool:
    offered = [each.partition(":")[0] for each in asked.arguments.get("protocols", "").split(",")]
    is_twice = asked.verb == "join" and len(offered) != len(set(offered))
    return is_twice and theirs in (None, UNKNOWN_SERVER_ERROR) and ours == INCONSISTENT_GROUP_PROTOCOL


def _subscribes_to_who_knows_what(seen: Step, asked: Step, theirs: int | None, ours: int | None) -> bool:
    is_raw = asked.verb == "join" and asked.arguments.get("protocols", "").startswith("range:x")
    return is_raw and theirs is None and ours == NONE


RULES = (
    Rule(
        "a member leaves while its SyncGroup waits",
        "A member that leaves while its SyncGroup waits",
        _leaves_while_syncing,
    ),
    Rule(
        "a JoinGroup lists one protocol name twice",
        "A JoinGroup that lists one protocol name twice",
        _names_a_protocol_twice,
    ),
    Rule(
        "a JoinGroup whose subscription cannot be read",
        "Subscriptions that cannot be read",
        _subscribes_to_who_knows_what,
    ),
)


def forgiving_rule(seen: Step, asked: Step, theirs: int | None, ours: int | None) -> Rule | None:
    """The rule under which two answers may differ."""
    return next((rule for rule in RULES if rule.forgives(seen, asked, theirs, ours)), None)
