"""Which scripts are played when: all of them is minutes, every day is a choice that reaches the same cells."""

import zlib
from collections.abc import Iterable, Iterator
from functools import cache

from tests.diff.generate import systematic
from tests.diff.handwritten import handwritten
from tests.diff.script import Script
from tests.diff.walks import walks

WALKS_A_DAY = 60
ONE_IN = {"admin": 26, "join": 11, "sync": 11, "heartbeat": 9, "leave": 7, "commit": 9, "txncommit": 15}
"""Of the systematic scripts about each request, every so-manieth is played every day."""
ALWAYS = {
    # The others of a day leave out a cell that one of these reaches.
    "completing+pending/join/follower-short-session",
    "completing-one/txncommit/too-large",
    "completing-static/commit/others-instance",
    "completing-static/heartbeat/others-instance",
    "completing-static/join/restarted-twice",
    "completing-static/leave/others-instance",
    "completing-static/sync/others-instance",
    "completing-static/txncommit/instance-alone",
    "deleted/join/no-type",
    "deleted/join/short-session",
    "deleted/txncommit/aborted-generation-zero",
    "deleted/txncommit/metadata-too-long",
    "full-preparing/txncommit/next-generation",
    "initial+pending/commit/too-large-of-a-member-without-generation",
    "initial+pending/join/pending-with-instance",
    "initial-left/join/long-session",
    "initial-left/sync/ghost",
    "initial-left/txncommit/metadata-too-long",
    "initial-static/join/ghost-as-follower",
    "initial-static/leave/ghost-as-follower",
    "initial/admin/forget-nothing",
    "initial/sync/no-type",
    "initial/txncommit/too-large",
    "one/commit/too-large-of-a-member",
    "pending/join/long-session",
    "preparing-static/leave/others-instance",
    "preparing-static/txncommit/others-instance",
    "preparing/commit/metadata-too-long-of-a-member",
    "preparing/txncommit/metadata-too-long",
    "simple/txncommit/ghost",
    "simple/txncommit/metadata-too-long",
    "simple/txncommit/too-large",
    "stable/txncommit/metadata-too-long",
}


def _is_daily(name: str) -> bool:
    request = name.split("/")[1]
    return name in ALWAYS or zlib.crc32(name.encode()) % ONE_IN[request] == 0


@cache
def daily() -> list[Script]:
    return [*handwritten(), *systematic(_is_daily), *walks(WALKS_A_DAY)]


def everything(more_walks: int = 0) -> list[Script]:
    return [*handwritten(), *systematic(), *walks(WALKS_A_DAY + more_walks)]


def by_delay(scripts: Iterable[Script]) -> Iterator[tuple[int, list[Script]]]:
    """One broker has one initial rebalance delay."""
    found: dict[int, list[Script]] = {}
    for script in scripts:
        found.setdefault(script.delay_ms, []).append(script)
    yield from sorted(found.items())
