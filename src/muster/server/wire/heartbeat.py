"""Heartbeat, versions 0 to 4: the commonest request of all, so the usual one is read in one go.

Version 3 adds the instance id (None before), version 4 is flexible. The response has a throttle time from version 1 on.
"""

from struct import Struct
from struct import error as struct_error

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.core.events import Heartbeat
from muster.errors import CodecError
from muster.protocol.errors import BadBody
from muster.protocol.reader import WireReader

_FIRST_WITH_THROTTLE, _FIRST_WITH_INSTANCE, _FIRST_FLEXIBLE = 1, 3, 4

_pack_0 = Struct(">iih").pack
_pack_1 = Struct(">iiih").pack
_pack_4 = Struct(">iiBihB").pack


def decode_heartbeat(version: int, data: Buffer, position: int, end: int) -> Heartbeat:
    """The event, without `reply_to`; the body begins at `position`."""
    if version >= _FIRST_FLEXIBLE:
        try:
            event = _decode_usual(data, position, end)
            if event is not None:
                return event
        except _UNUSUAL:
            pass
    return _decode_plain(version, WireReader(data, position, end))


def encode_heartbeat(reply: tuple[int, int], error: ErrorCode) -> bytes:
    """The whole frame; `reply` is the version and the correlation id."""
    version, correlation_id = reply
    if version >= _FIRST_FLEXIBLE:
        return _pack_4(12, correlation_id, 0, 0, error, 0)
    if version >= _FIRST_WITH_THROTTLE:
        return _pack_1(10, correlation_id, 0, error)
    return _pack_0(6, correlation_id, error)


def _decode_plain(version: int, reader: WireReader) -> Heartbeat:
    try:
        if version >= _FIRST_FLEXIBLE:
            event = Heartbeat(
                None,
                reader.compact_string(),
                reader.int32(),
                reader.compact_string(),
                reader.compact_nullable_string(),
            )
            reader.skip_tagged_fields()
            return event
        group_id, generation, member_id = reader.string(), reader.int32(), reader.string()
        instance_id = reader.nullable_string() if version >= _FIRST_WITH_INSTANCE else None
        return Heartbeat(None, group_id, generation, member_id, instance_id)
    except CodecError as error:
        raise BadBody(f"HeartbeatRequest version {version}: {error}") from error


_UNUSUAL = (IndexError, UnicodeDecodeError, struct_error)
_generation_and_size = Struct(">iB").unpack_from


def _decode_usual(data: Buffer, position: int, end: int) -> Heartbeat | None:
    """Version 4 with short names, no instance id, no tagged fields; None if it is not that.

    A compact length is one more than it says. A frame that ends early may run on into the next one; the comparison with
    `end` finds that out.
    """
    group_size = data[position]
    after_group = position + group_size
    generation, member_size = _generation_and_size(data, after_group)
    after_member = after_group + 4 + member_size
    if (
        data[after_member] == 0
        and data[after_member + 1] == 0
        and after_member + 2 <= end
        and 0 < group_size < 0x80
        and 0 < member_size < 0x80
    ):
        return Heartbeat(
            None,
            str(data[position + 1 : after_group], "utf-8"),
            generation,
            str(data[after_group + 5 : after_member], "utf-8"),
        )
    return None
