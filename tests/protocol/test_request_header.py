"""Headers of requests: three versions, and what is wrong with the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.protocol.apis import Api, ApiKey
from muster.protocol.errors import BadHeader, NotServed, WireError
from muster.protocol.messages import decode_header, decode_rest, encode_request
from muster.protocol.reader import WireReader
from tests.protocol.strategies import every_api, int32s, patient, texts, versions_of

# Laid out by hand: Heartbeat, versions 3 and 4, correlation id 258, client id "me"; version 4 has a section of tags.
OLD = bytes.fromhex("000c 0003 00000102 0002 6d65")
FLEXIBLE = bytes.fromhex("000c 0004 00000102 0002 6d65 00")
# The same with the tagged fields 1 ("ab") and 200 (nothing).
TAGGED = bytes.fromhex("000c 0004 00000102 0002 6d65 02 01026162 c80100")


@pytest.mark.parametrize("data", [OLD, FLEXIBLE, TAGGED], ids=["v1", "v2", "v2 with tags"])
def test_a_header_and_every_part_of_it(data: bytes) -> None:
    for buffer in (data, memoryview(data), bytearray(data)):
        assert decode_header(buffer) == (12, 4 if data is not OLD else 3, 258, "me", len(data))
    framed = b"\x00\x00\x00\x63" + data + b"the body"
    assert decode_header(framed, 4)[4] == 4 + len(data)
    for end in range(len(data)):
        with pytest.raises(BadHeader):
            decode_header(data[:end])
        with pytest.raises(BadHeader):  # the bytes go on, but they are another frame's
            decode_header(framed, 4, 4 + end)


@pytest.mark.parametrize(("version", "client_id", "size"), [(0, "", 0), (1, "me", 4), (2, "me", 5)])
def test_each_version_adds_something(version: int, client_id: str, size: int) -> None:
    reader = WireReader(b"\x00\x02me\x00\x77")
    assert decode_rest(reader, version) == client_id
    assert reader.position == size


def test_no_client_id_is_an_empty_one() -> None:
    assert decode_header(bytes.fromhex("000c 0003 00000102 ffff"))[3] == ""
    assert decode_header(bytes.fromhex("000c 0004 00000102 ffff 00"))[3] == ""
    assert decode_header(bytes.fromhex("000c 0003 00000102 fffe"))[3] == "", "as to Kafka: any negative length is null"


def test_a_client_id_may_be_any_bytes() -> None:
    client_id = decode_header(bytes.fromhex("000c 0003 00000102 0002 ff41"))[3]
    assert client_id.encode("utf-8", "surrogateescape") == b"\xffA"


def test_the_header_of_an_unknown_api_cannot_be_read() -> None:
    with pytest.raises(NotServed, match="API 99 "):
        decode_header(bytes.fromhex("0063 0000 00000001 0000"))


@pytest.mark.parametrize("version", [-1, 5, 1000])
def test_apiversions_of_any_version_has_a_header(version: int) -> None:
    data = b"\x00\x12" + version.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x09\x00\x01c\x00"
    assert decode_header(data)[:4] == (ApiKey.API_VERSIONS, version, 9, "c")


@settings(patient, max_examples=10)
@given(correlation_id=int32s, client_id=texts)
@every_api
def test_every_header_is_read(api: Api, correlation_id: int, client_id: str) -> None:
    size = len(client_id.encode("utf-8", "surrogateescape"))
    for version in versions_of(api):
        frame = encode_request(api.key, version, correlation_id, client_id, {})
        body = 4 + 10 + size + (version >= api.flexible_from)
        assert decode_header(frame, 4) == (api.key, version, correlation_id, client_id, body)


@patient
@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_an_error(data: bytes) -> None:
    try:
        position = decode_header(data)[4]
    except WireError:
        return
    assert 8 <= position <= len(data)
