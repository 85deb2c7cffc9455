"""ApiVersions: the one API that is answered whatever the version."""

import pytest

from muster.protocol.apis import APIS, ApiKey
from muster.protocol.messages import decode_response
from muster.server.wire.discovery import (
    Features,
    Software,
    decode_api_versions,
    encode_api_versions,
    encode_improper,
    encode_unsupported,
    is_proper,
    is_served,
)
from tests.server.wire.requests import body, placed

KEY = ApiKey.API_VERSIONS
VERSIONS = range(5)
# Laid out by hand: correlation id 7, error 35, and ApiVersions 0 to 4 alone; `test_broker` gets the same from Kafka.
UNSUPPORTED = bytes.fromhex("00000010 00000007 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize("version", VERSIONS)
def test_request(version: int) -> None:
    said = {"clientSoftwareName": "librdkafka", "clientSoftwareVersion": "2.16.1"}
    expected = Software("librdkafka", "2.16.1") if version >= 3 else Software("", "")
    for buffer, position, end in placed(body(KEY, version, said)):
        assert decode_api_versions(version, buffer, position, end) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_answer(version: int) -> None:
    handled = {ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.API_VERSIONS}
    features = Features({"group.version": (0, 1), "metadata.version": (7, 29)}, {"group.version": 1, "x": 0}, 12)
    correlation_id, told = decode_response(KEY, version, encode_api_versions(version, 7, handled, features))
    assert correlation_id == 7
    assert told["errorCode"] == 0
    apis = [(one["apiKey"], one["minVersion"], one["maxVersion"]) for one in told["apiKeys"]]
    assert apis == [(0, 0, 13), (12, 0, 4), (18, 0, 4)]
    supported = [(one["name"], one["minVersion"], one["maxVersion"]) for one in told["supportedFeatures"]]
    if version < 3:
        assert supported == told["finalizedFeatures"] == []
        return
    assert supported == ([("group.version", 0, 1)] if version >= 4 else []) + [("metadata.version", 7, 29)]
    assert told["finalizedFeatures"] == [{"name": "group.version", "maxVersionLevel": 1, "minVersionLevel": 1}]
    assert told["finalizedFeaturesEpoch"] == 12


def test_the_header_of_the_answer_is_the_old_one_in_every_version() -> None:
    for version in VERSIONS:
        frame = encode_api_versions(version, 7, APIS)
        assert frame[4:10] == b"\x00\x00\x00\x07\x00\x00", "correlation id, and the error right behind it"


def test_a_version_from_the_future_is_answered_in_version_0() -> None:
    assert [version for version in range(-2, 8) if is_served(version)] == list(VERSIONS)
    assert encode_unsupported(7) == UNSUPPORTED


@pytest.mark.parametrize("name", ["librdkafka", "a", "7", "apache-kafka-java", "a.b-c", "x" * 300])
def test_proper_names(name: str) -> None:
    assert is_proper(3, Software(name, "1.0"))
    assert is_proper(3, Software("name", name))


@pytest.mark.parametrize("name", ["", "_", "a_b", "a b", "-a", "a-", ".a", "a.", "é", "a\n"])
def test_improper_names(name: str) -> None:
    for version in VERSIONS:
        assert is_proper(version, Software(name, "1.0")) == (version < 3)
        assert is_proper(version, Software("name", name)) == (version < 3)


@pytest.mark.parametrize("version", [3, 4])
def test_an_improper_name_is_told_nothing(version: int) -> None:
    _, told = decode_response(KEY, version, encode_improper(version, 7))
    assert told["errorCode"] == 42
    assert told["apiKeys"] == []
