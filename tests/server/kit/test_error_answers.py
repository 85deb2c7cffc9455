"""An error for every API in every version: it can be read, it says the error, and it names what was asked for."""

from typing import Any

import pytest

from muster.codec.layouts import Field
from muster.protocol.apis import APIS, ApiKey
from muster.protocol.messages import REQUEST, decode_response, message
from muster.server.cluster.cluster import Node
from muster.server.kit.error_answers import ERRORS, error_response

CODE = 51
NODE = Node(7, "here", 9092)
SERVED = [key for key in APIS if key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)]


def request_of(fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """A request that names one of everything."""
    return {field.name: _value(field, version) for field in fields}


def _value(field: Field, version: int) -> Any:
    if version not in field.versions:
        return [] if field.is_array else field.default
    one: Any = {"string": f"a-{field.name}", "uuid": b"0123456789abcdef"}.get(field.kind, field.default)
    if field.kind in ("int8", "int16", "int32", "int64"):
        one = 3
    if field.kind == "struct":
        one = request_of(field.fields, version)
    return [one] if field.is_array else one


def codes(body: Any) -> list[int]:
    if isinstance(body, list):
        return [code for one in body for code in codes(one)]
    if isinstance(body, dict):
        return [value for name, value in body.items() if name in ERRORS] + [
            code for name, value in body.items() if name not in ERRORS for code in codes(value)
        ]
    return []


@pytest.mark.parametrize("api_key", SERVED, ids=lambda key: APIS[key].name)
def test_an_error_is_said_in_every_version(api_key: ApiKey) -> None:
    for version in range(APIS[api_key].min_version, APIS[api_key].max_version + 1):
        request = request_of(message(api_key, REQUEST).fields, version)
        _, body = decode_response(
            api_key, version, error_response(api_key, version, 1, request, CODE, "ordered", NODE)
        )  # fmt: skip
        assert CODE in codes(body), f"version {version}: {body}"


@pytest.mark.parametrize(
    ("api_key", "version", "request_body", "expected"),
    [
        (
            ApiKey.OFFSET_COMMIT, 8,
            {"groupId": "g", "topics": [{"name": "t", "partitions": [{"partitionIndex": 0}, {"partitionIndex": 4}]}]},
            {"topics": [{"name": "t", "partitions": [
                {"partitionIndex": 0, "errorCode": CODE}, {"partitionIndex": 4, "errorCode": CODE}]}]},
        ),
        (
            ApiKey.PRODUCE, 9,
            {"topicData": [{"name": "t", "partitionData": [{"index": 2, "records": b""}]}]},
            {"responses": [{"name": "t", "partitionResponses": [{"index": 2, "errorCode": CODE, "baseOffset": -1}]}]},
        ),
        (
            ApiKey.OFFSET_FETCH, 1,
            {"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [5]}]},
            {"topics": [
                {"name": "t", "partitions": [{"partitionIndex": 5, "errorCode": CODE, "committedOffset": -1}]}]},
        ),
        (
            ApiKey.OFFSET_FETCH, 8, {"groups": [{"groupId": "g", "topics": [{"name": "t"}]}]},
            {"groups": [{"groupId": "g", "errorCode": CODE, "topics": []}]},
        ),
        (
            ApiKey.FIND_COORDINATOR, 4, {"coordinatorKeys": ["g", "h"]},
            {"coordinators": [{"key": "g", "errorCode": CODE}, {"key": "h", "errorCode": CODE}]},
        ),
        (
            ApiKey.METADATA, 13, {"topics": [{"name": "t", "topicId": bytes(16)}]},
            {"errorCode": 0, "brokers": [{"nodeId": 7, "host": "here"}], "topics": [{"name": "t", "errorCode": CODE}]},
        ),
        (ApiKey.JOIN_GROUP, 7, {"groupId": "g", "memberId": "m"}, {"errorCode": CODE, "memberId": "m", "members": []}),
    ],
    ids=str,
)  # fmt: skip
def test_what_was_asked_for_is_named(
    api_key: ApiKey, version: int, request_body: dict[str, Any], expected: dict[str, Any]
) -> None:
    _, body = decode_response(
        api_key, version, error_response(api_key, version, 1, request_body, CODE, "ordered", NODE)
    )  # fmt: skip
    assert _part(body, expected) == expected


def _part(body: Any, like: Any) -> Any:
    """As much of a body as is expected."""
    if isinstance(like, dict):
        return {name: _part(body[name], value) for name, value in like.items()}
    if isinstance(like, list):
        return [_part(one, value) for one, value in zip(body, like, strict=True)]
    return body
