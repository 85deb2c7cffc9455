"""Requests for the tests of the hot codecs, and ways to damage them."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from muster.codec.primitives import Buffer, Writer
from muster.protocol.messages import REQUEST, decode_header, encode_request, layout
from muster.server.wire import TopicNames

ORDERS_ID, CLICKS_ID, LONG_ID = bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48))
LONG_TOPIC = "long" * 50
TOPICS = TopicNames(
    {"orders": (ORDERS_ID, 3), "clicks": (CLICKS_ID, 200), LONG_TOPIC: (LONG_ID, 1)},
    {ORDERS_ID: "orders", CLICKS_ID: "clicks", LONG_ID: LONG_TOPIC},
)
"""Three topics, of 3, 200 and 1 partitions; the name of the last takes two bytes for its length."""

topic_keys = st.sampled_from(
    [("orders", ORDERS_ID), ("clicks", CLICKS_ID), (LONG_TOPIC, LONG_ID), ("gone", b"gone" * 4), ("", bytes(16))]
)
"""Name and id of topics, two of which do not exist."""
metadata = st.sampled_from(["", "seen", "m" * 126, "m" * 127, "m" * 300, "é", "\udcff"])


def body_of(frame: bytes) -> bytes:
    """A request without length and header."""
    return frame[decode_header(frame, 4)[4] :]


def body(api_key: int, version: int, message: dict[str, Any]) -> bytes:
    return body_of(encode_request(api_key, version, 0, None, message))


def tagged_body(api_key: int, version: int, message: dict[str, Any]) -> bytes:
    """The same with unknown tagged fields, in every struct that can have some."""
    writer = _Tagging()
    layout(api_key, version, REQUEST).write(writer, message)
    return writer.finish()


class _Tagging(Writer):
    __slots__ = ()

    def tagged_fields(self, fields: Any) -> None:
        super().tagged_fields((*fields, (70, b"what"), (3000, b"")))


def placed(data: bytes) -> Iterator[tuple[Buffer, int, int]]:
    """A body where a shell may have it: alone, and with others' bytes around it, in every kind of buffer."""
    around = b"\x00\x01before" + data + b"\x00\x00\x05after"
    yield data, 0, len(data)
    for buffer in (around, bytearray(around), memoryview(around)):
        yield buffer, 8, 8 + len(data)


def cut_short(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Everything shorter than the body, where the buffer ends with it and where it goes on."""
    for end in range(len(data)):
        yield data[:end], 0, end
        yield data, 0, end
        yield data[:end] + b"\x01" * 40, 0, end


def changed_everywhere(data: bytes) -> Iterator[bytes]:
    """The body with each byte changed to something else that could be a length there.

    Other bytes follow, which a body may have behind it: so a length that leads too far leads to something readable.
    """
    for padding in (bytes(5000), b"\x01" * 300):
        for place, was in enumerate(data):
            for value in {0, 1, 0x7F, 0x80, 0x81, 0xFE, 0xFF, (was + 1) & 0xFF, (was - 1) & 0xFF} - {was}:
                yield data[:place] + bytes([value]) + data[place + 1 :] + padding


def lengths_in_two_bytes(data: bytes) -> Iterator[bytes]:
    """The body with each byte written as a length that takes two bytes, as Kafka accepts it.

    A reader that takes the first of them for the whole length finds the rest of the body where that leads.
    """
    for place, was in enumerate(data):
        if 0 < was < 0x80:
            longer = data[:place] + bytes([was | 0x80, 0]) + data[place + 1 :]
            yield longer.ljust(place + (was | 0x80), b"\x00") + data[place + was :]


@st.composite
def damaged(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """A body with a few bytes changed, taken out or put in."""
    data = bytearray(draw(bodies))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 2)):
            case 0:
                data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                del data[place : place + draw(st.integers(1, 4))]
            case _:
                data[place:place] = draw(st.binary(min_size=1, max_size=4))
    return bytes(data)
