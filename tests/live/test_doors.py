"""`muster groups` through every door of a real Kafka, with one file of settings for librdkafka and for us.

`describe` asks through librdkafka, `delete-offsets` over our own connection: what lets one in lets the other in.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from muster.cli.status import Status
from muster.config.client import read_client_properties
from muster.errors import ClusterRefused
from muster.live.cluster import Cluster
from tests.cli import Ran, run
from tests.kit.kafka import CLUSTER_ID
from tests.live.broker import DATA, MECHANISMS, PASSWORDS, GuardedBroker
from tests.live.endpoint import CLIENT, Endpoint, jwt
from tests.live.life import QUIET

pytestmark = pytest.mark.kafka

DOORS = {
    "plain": ("PLAINTEXT", ""),
    "tls": ("SSL", ""),
    "tls_text": ("SSL", ""),
    "tls_store": ("SSL", ""),
    "tls_revocations": ("SSL", ""),
    **{mechanism: ("SASL_PLAINTEXT", mechanism) for mechanism in MECHANISMS},
    "over_tls": ("SASL_SSL", "SCRAM-SHA-512"),
    "java": ("SASL_SSL", "SCRAM-SHA-256"),
    "oidc": ("SASL_SSL", "OAUTHBEARER"),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint()
    one.usual = (200, b'{"access_token": "%s"}' % jwt(sub="reader", exp=int(time.time()) + 3600).encode())
    yield one
    one.close()


def settings(guarded: GuardedBroker, door: str, endpoint: Endpoint) -> dict[str, str]:
    """As they stand in a file."""
    config = guarded.config(*DOORS[door])
    folder = guarded.data_dir
    own = ("ssl.certificate.location", "ssl.key.location", "ssl.key.password")
    without = {name: value for name, value in config.items() if name not in own}
    match door:
        case "tls_text":
            texts = {"ssl.certificate.pem": "client.crt", "ssl.key.pem": "client.plain", "ssl.ca.pem": "ca.pem"}
            del without["ssl.ca.location"]
            return without | {name: (folder / file).read_text() for name, file in texts.items()}
        case "tls_store":
            store = {"ssl.keystore.location": str(folder / "client.p12"), "ssl.keystore.password": "store-password"}
            return without | store | {"ssl.keystore.type": "PKCS12"}
        case "tls_revocations":
            return config | {"ssl.crl.location": str(folder / "crl.pem")}
        case "java":
            quoted = PASSWORDS["reader"].replace("\\", "\\\\").replace('"', '\\"')
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            return {
                name: value for name, value in config.items() if "username" not in name and "password" not in name
            } | {"sasl.jaas.config": f'{module} required username="reader" password="{quoted}";'}
        case "oidc":
            oauth = {name: value for name, value in config.items() if "oauthbearer" not in name}
            return oauth | CLIENT | {"sasl.oauthbearer.token.endpoint.url": endpoint.url}
    return config


def groups(path: Path, *arguments: str) -> Ran:
    return run("groups", *arguments, "--command-config", path)


@pytest.mark.parametrize("door", DOORS)
def test_offsets_are_deleted_through_every_door(
    guarded: GuardedBroker, door: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    group_id = f"door-{door}"
    admin = AdminClient(QUIET | guarded.config())
    wanted = [TopicPartition(DATA, 0, 3), TopicPartition(DATA, 1, 4)]
    (written,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id, wanted)]).values()
    written.result(20)

    path = tmp_path / "client.properties"
    escaped = {
        name: value.replace("\\", "\\\\").replace("\n", "\\n")
        for name, value in settings(guarded, door, endpoint).items()
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    before = groups(path, "describe", "-g", group_id)
    assert before.status == Status.OK, before.err
    assert [line.split()[:4] for line in before.out.splitlines()[1:]] == [
        [group_id, DATA, "0", "3"],
        [group_id, DATA, "1", "4"],
    ]
    deleted = groups(path, "delete-offsets", "-g", group_id, "-t", f"{DATA}:0")
    assert deleted.status == Status.OK, deleted.err
    after = groups(path, "describe", "-g", group_id)
    assert [line.split()[:4] for line in after.out.splitlines()[1:]] == [[group_id, DATA, "1", "4"]]
    with Cluster(read_client_properties(path)) as cluster:
        assert cluster.metadata().cluster_id == CLUSTER_ID


def test_a_token_that_the_broker_does_not_take(guarded: GuardedBroker, endpoint: Endpoint) -> None:
    config = settings(guarded, "oidc", endpoint)
    endpoint.answers.append((200, b'{"access_token": "%s"}' % jwt(sub="reader", exp=5).encode()))
    said = r"authentication at .* failed: the server says .*invalid_token"
    with Cluster(config) as cluster, pytest.raises(ClusterRefused, match=said):
        cluster.metadata()


def test_no_rights_on_a_group(guarded: GuardedBroker) -> None:
    for user, error in (("reader", 69), ("stranger", 30)):
        with Cluster(guarded.config("SASL_PLAINTEXT", user=user)) as cluster:
            assert cluster.delete_offsets("no such group", [(DATA, 0)]) == (error, {})
