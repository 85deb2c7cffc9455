"""Ports that are closed, silent, something else, or garbled: a sentence with a next step, and soon."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable
from muster.live import cluster as live_cluster
from muster.live.cluster import Cluster
from muster.live.connection import Connection
from muster.live.requests import SPOKEN
from muster.live.settings import Address, client_settings
from muster.protocol.apis import ApiKey
from tests.kit.kafka import free_ports
from tests.live.fake import HANG, HANG_UP, TOPIC, FakeBroker, FakeCluster, FakeLog, batch, says

SECURE = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}


def asked(port: int, **config: str) -> ClusterError:
    """What somebody is told who asks that port for metadata."""
    given = {"bootstrap.servers": f"127.0.0.1:{port}"} | {
        name.replace("_", "."): value for name, value in config.items()
    }
    with pytest.raises(ClusterError) as caught, Cluster(given) as cluster:
        cluster.metadata()
    return caught.value


def test_a_closed_port() -> None:
    started = time.monotonic()
    problem = asked(free_ports(1)[0])
    assert isinstance(problem, ClusterUnreachable)
    assert "Connection refused" in str(problem)
    assert "Is the broker up" in str(problem)
    assert time.monotonic() - started < 2


def test_several_servers_of_which_one_answers() -> None:
    closed, other = free_ports(2)
    with FakeCluster(FakeLog.of(batch(0))) as fake:
        servers = f"127.0.0.1:{closed}, 127.0.0.1:{other},{fake.config['bootstrap.servers']}"
        with Cluster({"bootstrap.servers": servers}) as cluster:
            assert cluster.metadata().cluster_id == "fake"
    with pytest.raises(ClusterUnreachable, match="none of 2 brokers"), Cluster({
        "bootstrap.servers": f"127.0.0.1:{closed},127.0.0.1:{other}"
    }) as cluster:  # fmt: skip
        cluster.metadata()


def test_a_name_that_nobody_knows() -> None:
    problem = asked(1, bootstrap_servers="no-such-host.invalid:9092")
    assert "no-such-host.invalid:9092 cannot be resolved" in str(problem)


def test_a_port_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_cluster, "FIRST_CONTACT_S", 0.3)
    with says() as port:
        problem = asked(port)
        assert "does not answer ApiVersions" in str(problem)
        problem = asked(port, **SECURE)
        assert "was not answered" in str(problem)
        assert "security.protocol=PLAINTEXT" in str(problem)


def test_the_whole_of_the_first_contact_has_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting works and takes its time, then there is silence: ten seconds at most, not ten for each."""
    assert live_cluster.FIRST_CONTACT_S + 1 < 10
    monkeypatch.setattr(live_cluster, "FIRST_CONTACT_S", 1.5)

    def script(api: ApiKey, version: int, body: object) -> object:
        if api is ApiKey.METADATA:
            return HANG
        time.sleep(1.2)
        return None

    with FakeBroker(script) as broker:
        started = time.monotonic()
        assert "does not answer Metadata" in str(asked(broker.port))
        assert time.monotonic() - started < 1.2 + 1.5, "the silence had a limit of its own"


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS: set security.protocol=SSL"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is a web server"),
        (b"SSH-2.0-OpenSSH_9\r\n", r"begins its answer with b'SSH-'"),
        (struct.pack(">i", 2) + b"??", "begins its answer with"),
        (struct.pack(">i", 1 << 30), "begins its answer with"),
        (struct.pack(">iihi", 10, 1, 0, 1000), "cannot be read"),
        (struct.pack(">iihi", 10, 4711, 0, 0), "answer 4711 to request 1"),
        (struct.pack(">iihi", 10, 1, 35, 0), "answers ApiVersions with UNSUPPORTED_VERSION"),
        (struct.pack(">iihi", 10, 1, 0, 0), "does not serve Metadata"),
        (
            struct.pack(">iihihhh", 16, 1, 0, 1, ApiKey.METADATA, 14, 20),
            "speaks Metadata 14 to 20, and this release 4 to 13",
        ),
    ],
)
def test_something_else_than_an_answer(said: bytes, what: str) -> None:
    with says(said) as port, pytest.raises(ClusterError, match=what), Cluster({
        "bootstrap.servers": f"127.0.0.1:{port}"
    }) as cluster:  # fmt: skip
        cluster.metadata()


def test_an_answer_cut_short_by_silence_or_the_end() -> None:
    settings = client_settings({"bootstrap.servers": "x"})
    with says(struct.pack(">ii", 100, 1)) as port, pytest.raises(ClusterUnreachable, match="does not answer"):
        Connection(Address("127.0.0.1", port), settings, timeout_s=0.2)
    with FakeBroker(lambda api, version, body: HANG_UP) as broker:
        assert "hangs up at the first request" in str(asked(broker.port))
    with FakeBroker(lambda api, version, body: HANG_UP if api is ApiKey.METADATA else None) as broker:
        assert "A port that wants SASL" in str(asked(broker.port))


def test_tls_at_a_port_that_does_not_speak_it() -> None:
    with says(b"\0\0\0\4????") as port:
        assert "probably does not speak TLS" in str(asked(port, **SECURE))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        assert "probably does not speak TLS" in str(asked(listener.getsockname()[1], **SECURE))


def test_an_answer_that_is_too_large_names_the_setting() -> None:
    def script(api: ApiKey, version: int, body: object) -> object:
        return struct.pack(">i", 5000) if api is ApiKey.METADATA else None

    with FakeBroker(script) as broker:
        problem = asked(broker.port, receive_message_max_bytes="4000")
    assert "an answer of 5000 bytes, and receive.message.max.bytes is 4000" in str(problem)


def test_an_address_that_only_the_broker_can_reach() -> None:
    with FakeCluster(FakeLog.of(batch(0))) as fake, Cluster(fake.config, patience_s=0.1) as cluster:
        (closed,) = free_ports(1)
        fake.brokers[1].port = closed
        (ends,) = cluster.log_ends([(TOPIC, 0)]).values()
    assert ends.high_watermark is None
    assert f"broker 1 gives 127.0.0.1:{closed} as its address (advertised.listeners)" in str(ends.problem)


def test_versions_are_negotiated() -> None:
    with FakeCluster(FakeLog.of(batch(0)), versions=SPOKEN | {ApiKey.LIST_OFFSETS: (0, 3)}) as fake:
        with Cluster(fake.config) as cluster:
            assert cluster.log_ends([(TOPIC, 0)])[TOPIC, 0].high_watermark == 1
        asked = {(api, version) for api, version, _ in fake.brokers[1].asked}
        assert asked == {(ApiKey.METADATA, 13), (ApiKey.LIST_OFFSETS, 3)}


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for_longer() -> None:
    """Each byte comes in time, and the whole of it would take a hundred seconds."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            link, _ = listener.accept()
            with link, contextlib.suppress(OSError):
                link.sendall(struct.pack(">i", 1000))
                while not done.wait(0.1):
                    link.sendall(b"\0")

        threading.Thread(target=drip, daemon=True).start()
        started = time.monotonic()
        address, settings = Address("127.0.0.1", listener.getsockname()[1]), client_settings({"bootstrap.servers": "x"})
        with pytest.raises(ClusterUnreachable, match="does not answer"):
            Connection(address, settings, timeout_s=0.5)
        assert time.monotonic() - started < 3
        done.set()


class TestTokens:
    """OAUTHBEARER at a broker that has it, with an endpoint for tokens that may be silent."""

    def config(self, broker: FakeBroker, **oauth: str) -> dict[str, str]:
        given = broker.config | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        return given | {name.replace("_", "."): value for name, value in oauth.items()}

    def unsecured(self, broker: FakeBroker) -> dict[str, str]:
        return self.config(broker, enable_sasl_oauthbearer_unsecure_jwt="true", sasl_oauthbearer_config="principal=me")

    def script(self, *answers: dict[str, object]) -> Callable[[ApiKey, int, Any], Any]:
        left = list(answers)

        def answer(api: ApiKey, version: int, body: Any) -> Any:
            match api:
                case ApiKey.SASL_HANDSHAKE:
                    return {"errorCode": 0, "mechanisms": ["OAUTHBEARER"]}
                case ApiKey.SASL_AUTHENTICATE:
                    return left.pop(0)
            return None

        return answer

    def test_one_token_serves_all_connections(self) -> None:
        with FakeBroker(self.script({}, {})) as broker:
            settings = client_settings(self.unsecured(broker))
            for _ in range(2):
                Connection(settings.bootstrap[0], settings).close()
            first, second = (body["authBytes"] for api, _, body in broker.asked if api is ApiKey.SASL_AUTHENTICATE)
        assert first == second
        assert first.startswith(b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.")

    @pytest.mark.parametrize(
        ("answer", "what"),
        [
            ({"authBytes": b'{"status":"invalid_token"}'}, "failed: the server says .*invalid_token"),
            (
                {"errorCode": 58, "errorMessage": "no"},
                r"does not let us in: authentication failed \(no\)\. Check sasl\.oa",
            ),
        ],
    )
    def test_a_token_that_is_refused(self, answer: dict[str, object], what: str) -> None:
        with (
            FakeBroker(self.script(answer)) as broker,
            Cluster(self.unsecured(broker)) as cluster,
            pytest.raises(ClusterRefused, match=what),
        ):
            cluster.metadata()

    def test_an_endpoint_that_is_silent_or_slow(self) -> None:
        """The time is for all of it, also where each byte comes soon enough for itself."""
        drop_by_drop = (b"HTTP/1.1 200 OK\r\n",)
        for parts in ((), drop_by_drop):
            with FakeBroker(self.script()) as broker, says(*parts) as port:
                config = self.config(
                    broker,
                    sasl_oauthbearer_method="oidc", sasl_oauthbearer_client_id="me", sasl_oauthbearer_client_secret="s",
                    sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{port}/token",
                )  # fmt: skip
                settings = client_settings(config)
                started = time.monotonic()
                with pytest.raises(ClusterUnreachable, match=r"token endpoint .*(does not answer in time|timed out)"):
                    Connection(settings.bootstrap[0], settings, timeout_s=0.4)
                assert time.monotonic() - started < 2
