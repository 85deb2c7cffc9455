"""ConsumerGroupHeartbeat, versions 0 and 1: how a member of the newer group protocol (KIP-848) joins and stays.

muster serves classic groups only, and answers as a Kafka broker does whose newer protocol is switched off: with
UNSUPPORTED_VERSION. It is answered at all, and advertised, because librdkafka waits without a word for ever where the
API is missing; at this answer every client stops, with an error of its own.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
MESSAGE = "muster serves classic groups only: set group.protocol=classic."


def decode_consumer_group_heartbeat(version: int, data: Buffer, position: int, end: int) -> str:
    """The group, for the log."""
    group_id: str = decode_request(KEY, version, data, position, end)["groupId"]
    return group_id


def encode_consumer_group_heartbeat(version: int, correlation_id: int, answer: None) -> bytes:
    """The whole frame: always the same refusal."""
    refused = {"errorCode": ErrorCode.UNSUPPORTED_VERSION, "errorMessage": MESSAGE}
    return encode_response(KEY, version, correlation_id, refused)
