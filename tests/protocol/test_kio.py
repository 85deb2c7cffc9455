"""Every message in every version is what the independent library `kio` makes of it.

It is asked only what it can answer: it knows no text that is not UTF-8, no error code that Kafka does not have, no
retention of three hundred thousand years, and stamps of whole seconds only.
"""

import io
from dataclasses import fields as fields_of
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from muster.codec.layouts import Field
from muster.protocol.apis import APIS, Api
from muster.protocol.messages import REQUEST, RESPONSE, decode_header, encode_request, encode_response
from tests.protocol.strategies import bodies, long_names, message, more_at_length, names, patient

text = names | long_names
LONGEST_MS = 10**14
stamps = st.integers(0, 4 * 10**9).map(lambda seconds: 1000 * seconds)
SCHEMAS = {REQUEST: load_request_schema, RESPONSE: load_response_schema}


def special(field: Field) -> st.SearchStrategy[Any] | None:
    """Values for what kio takes for more than a number."""
    if field.name.lower().endswith("errorcode"):
        return st.sampled_from([int(code) for code in KioErrorCode])
    if field.name in ("retentionTimeMs", "sessionLifetimeMs"):
        return st.integers(-LONGEST_MS, LONGEST_MS)
    if field.name == "logAppendTimeMs":
        return st.just(-1) | stamps
    if field.name == "transactionStartTimeMs":
        return stamps
    return None


def entity(kind: Any, fields: tuple[Field, ...], version: int, body: dict[str, Any]) -> Any:
    """One of kio's objects with the values of one of our dicts; their fields are ours, in our order."""
    ours = [field for field in fields if version in field.versions]
    theirs = fields_of(kind)
    assert [plain(field.name) for field in theirs] == [plain(field.name) for field in ours]
    values = {
        theirs.name: value_of(theirs, ours, version, body[ours.name]) for theirs, ours in zip(theirs, ours, strict=True)
    }
    return kind(**values)


def plain(name: str) -> str:
    """`throttleTimeMs` and `throttle_time` are the same name."""
    return name.lower().replace("_", "").removesuffix("ms")


def value_of(theirs: Any, ours: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if ours.is_array:
        return tuple([single(theirs, ours, version, one) for one in value])
    return single(theirs, ours, version, value)


def single(theirs: Any, ours: Field, version: int, value: Any) -> Any:
    match theirs.metadata.get("kafka_type"):
        case None:
            return entity(innermost(theirs.type), ours.fields, version, value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(value // 1000, UTC)
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return UUID(bytes=value) if any(value) else None
        case _:
            return value


def innermost(kind: Any) -> Any:
    """`X` of `tuple[X, ...]`, `X | None` and both together."""
    if get_origin(kind) in (tuple, UnionType):
        return innermost(next(one for one in get_args(kind) if one not in (NoneType, Ellipsis)))
    return kind


def written_by_kio(api_key: int, version: int, direction: str, body: dict[str, Any]) -> tuple[Any, bytes]:
    kind = SCHEMAS[direction](api_key, version)
    made = entity(kind, message(api_key, direction).fields, version, body)
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, made)
    return made, buffer.getvalue()


def read_by_kio(api_key: int, version: int, direction: str, data: bytes) -> Any:
    made, size = entity_reader(SCHEMAS[direction](api_key, version))(data, 0)
    assert size == len(data), "kio left something over"
    return made


def body_of(api_key: int, version: int, direction: str, frame: bytes) -> bytes:
    if direction == REQUEST:
        return frame[decode_header(frame, 4)[4] :]
    return frame[8 + APIS[api_key].response_header_version(version) :]


def encode(api_key: int, version: int, direction: str, body: dict[str, Any]) -> bytes:
    if direction == REQUEST:
        return body_of(api_key, version, direction, encode_request(api_key, version, 7, "me", body))
    return body_of(api_key, version, direction, encode_response(api_key, version, 7, body))


@settings(patient, max_examples=10)
@given(data=st.data())
@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@more_at_length
def test_every_message_is_the_same(api: Api, again: int, direction: str, data: st.DataObject) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version))
    body = data.draw(bodies(api.key, version, direction, text, special))
    made, theirs = written_by_kio(api.key, version, direction, body)
    ours = encode(api.key, version, direction, body)
    assert ours == theirs
    assert read_by_kio(api.key, version, direction, ours) == made
