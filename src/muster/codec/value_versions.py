"""Which value version a broker writes, given its `inter.broker.protocol.version`.

The protocol version is what every broker of the cluster can read, so an old one makes a new broker write old layouts,
and what they cannot hold is silently lost at the next restart: leader epochs below commit version 3, state timestamps
below group version 2, instance ids below 3, rebalance timeouts at 0.

A version reads `2.1-IV1`: a release, and a step of its development. Without a step it means the last one of the
release. Releases before 1.0 have three numbers, later ones two, and whatever follows is ignored (`2.6.3` is `2.6`).
"""

import re

from muster.errors import BadInput

_PROTOCOL_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:-IV(\d+))?", re.ASCII)
_LAST_STEP = 1 << 31

ProtocolVersion = tuple[int, int, int, int]

_0_10_1_IV0: ProtocolVersion = (0, 10, 1, 0)
_2_1_IV0: ProtocolVersion = (2, 1, 0, 0)
_2_1_IV1: ProtocolVersion = (2, 1, 0, 1)
_2_3_IV0: ProtocolVersion = (2, 3, 0, 0)
_4_1_IV0: ProtocolVersion = (4, 1, 0, 0)


def parse_protocol_version(text: str) -> ProtocolVersion:
    """Release and step as a tuple that compares the way the versions follow each other."""
    match = _PROTOCOL_VERSION.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"inter.broker.protocol.version {text!r} is not a version; it looks like 2.1 or 2.1-IV1")
    major, minor = int(match[1]), int(match[2])
    patch = int(match[3] or 0) if major == 0 else 0
    return major, minor, patch, _LAST_STEP if match[4] is None else int(match[4])


def offset_value_version(inter_broker_protocol: str | None = None, has_expire_timestamp: bool = False) -> int:
    """The version to write a commit in; without a protocol version, what Kafka 4.3 writes.

    Version 1 is the only one with room for an expire timestamp, so a commit that has one always gets it.
    """
    if has_expire_timestamp:
        return 1
    if inter_broker_protocol is None:
        return 4
    protocol = parse_protocol_version(inter_broker_protocol)
    if protocol < _2_1_IV0:
        return 1
    if protocol < _2_1_IV1:
        return 2
    return 3 if protocol < _4_1_IV0 else 4


def group_value_version(inter_broker_protocol: str | None = None) -> int:
    """The version to write a classic group in. Version 4 can be read, but no release writes it."""
    if inter_broker_protocol is None:
        return 3
    protocol = parse_protocol_version(inter_broker_protocol)
    if protocol < _0_10_1_IV0:
        return 0
    if protocol < _2_1_IV0:
        return 1
    return 2 if protocol < _2_3_IV0 else 3
