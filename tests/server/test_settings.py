"""Settings by Kafka's names: from text to values, and what is said of those that make no sense."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.config.broker import BrokerConfig, broker_settings
from muster.config.properties import parse_properties
from muster.config.types import BadValue, ConfigType, java_double, parse_value, render_value
from muster.core.config import GroupConfig
from muster.errors import ConfigError
from muster.server.listeners import Endpoint, advertised_listener, client_listener, open_to_others
from muster.server.settings import settings_from

DOCS = Path(__file__).parents[2] / "docs"


def test_values_become_what_they_are() -> None:
    given = {
        "num.partitions": " 4 ",
        "auto.create.topics.enable": "FALSE",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "listeners": "PLAINTEXT://:9092 , CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "log.retention.ms": "-1",
        "broker.rack": "r1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.retention.check.interval.ms": "9223372036854775807",
        "inter.broker.protocol.version": "2.6",
        "muster.max.groups": "7",
    }
    groups, broker, ignored = settings_from(given)
    assert not ignored
    assert (broker.num_partitions, broker.auto_create_topics_enable) == (4, False)
    assert broker.log_cleaner_min_cleanable_ratio == 0.25
    assert broker.listeners == ("PLAINTEXT://:9092", "CONTROLLER://:9093")
    assert (broker.log_retention_ms, broker.broker_rack) == (-1, "r1")
    assert (groups.group_initial_rebalance_delay_ms, groups.muster_max_groups) == (0, 7)
    assert groups.offsets_retention_check_interval_ms == 2**63 - 1
    assert groups.inter_broker_protocol_version == "2.6"


def test_nothing_given_is_all_defaults() -> None:
    assert settings_from({}) == (GroupConfig(), BrokerConfig(), ())


def test_the_last_of_two_counts() -> None:
    assert settings_from([("num.partitions", "2"), ("num.partitions", "3")]).broker.num_partitions == 3


def test_other_names_of_a_setting() -> None:
    assert settings_from({"broker.id": "7", "log.dir": "/a"}).broker == BrokerConfig(node_id=7, log_dirs=("/a",))
    assert settings_from({"broker.id": "7", "node.id": "8"}).broker.node_id == 8


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("num.partitions", "many", "num.partitions is 'many'; it must be a whole number of 32 bits."),
        ("num.partitions", "1_000", "num.partitions is '1_000'; it must be a whole number of 32 bits."),
        ("num.partitions", "2147483648", "num.partitions is '2147483648'; it must be a whole number of 32 bits."),
        ("num.partitions", "0", "num.partitions is 0; it must be at least 1."),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable is 'yes'; it must be true or false."),
        ("log.cleaner.min.cleanable.ratio", "2", "ratio is 2.0; it must be between 0 and 1."),
        ("log.cleaner.min.cleanable.ratio", "half", "ratio is 'half'; it must be a number."),
        ("log.cleanup.policy", "shred", "log.cleanup.policy is shred; it must be one of compact, delete."),
        ("muster.flush", "never", "muster.flush is never; it must be one of always, interval, os."),
        ("log.dirs", "/a,/b", "log.dirs names 2 directories; muster keeps its data in one."),
        ("group.min.session.timeout.ms", "-1", "group.min.session.timeout.ms is -1; it must be at least 0."),
        ("group.max.size", "0", "group.max.size is 0; it must be at least 1."),
        ("group.max.size", "x" * 1000, "group.max.size is 'xxx"),
    ],
)
def test_values_that_cannot_be_are_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)) as caught:
        settings_from({name: value})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("zookeeper.connect", "zookeeper.connect is a setting of Kafka's that muster has no use for; it is ignored."),
        ("ssl.keystore.location", "is a setting of Kafka's"),
        ("listener.name.internal.ssl.keystore.location", "is a setting of Kafka's"),
        ("num.partition", "is not a setting of muster or Kafka; it is ignored. Did you mean num.partitions?"),
        ("Num.Partitions", "Did you mean num.partitions?"),
        ("group.initial.rebalance.delay", "Did you mean group.initial.rebalance.delay.ms?"),
        ("num.io.thread", "Did you mean num.io.threads?"),
        ("qwerty", "qwerty is not a setting of muster or Kafka; it is ignored."),
        ("q" * 100_000, "it is ignored."),
    ],
)
def test_names_that_are_not_used(name: str, sentence: str) -> None:
    settings = settings_from({name: "1", "num.partitions": "2"})
    assert settings.broker == BrokerConfig(num_partitions=2)
    (ignored,) = settings.ignored
    assert sentence in str(ignored)
    assert ignored.is_kafkas == ("setting of Kafka's" in sentence)


def test_more_replicas_than_nodes_count_as_one() -> None:
    settings = settings_from({"default.replication.factor": "3"})
    assert settings.broker == BrokerConfig()
    assert "default.replication.factor is 3; it is ignored: this is one node" in str(settings.ignored[0])


def test_the_largest_request_must_find_room() -> None:
    with pytest.raises(ConfigError, match="a request of that size would find no room"):
        settings_from({"queued.max.request.bytes": "1000000"})
    given = {"queued.max.request.bytes": "1000000", "socket.request.max.bytes": "1000000"}
    assert settings_from(given).broker.queued_max_request_bytes == 1_000_000


def test_kafkas_own_sample_file_is_taken() -> None:
    """The lines that are not comments in the `server.properties` that comes with Kafka 4.3."""
    text = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
    settings = settings_from(parse_properties(text))
    assert all(ignored.is_kafkas for ignored in settings.ignored)
    assert client_listener(settings.broker) == Endpoint("PLAINTEXT", "", 9092)
    assert advertised_listener(settings.broker) == Endpoint("PLAINTEXT", "localhost", 9092)
    assert settings.broker.log_dirs == ("/tmp/kraft-combined-logs",)


def test_retention_and_rolling_in_whatever_unit() -> None:
    def retention(**settings: int) -> int:
        return BrokerConfig(**settings).retention_ms  # type: ignore[arg-type]

    assert retention() == 168 * 3_600_000
    assert retention(log_retention_hours=2) == 2 * 3_600_000
    assert retention(log_retention_minutes=3, log_retention_hours=2) == 3 * 60_000
    assert retention(log_retention_ms=4, log_retention_minutes=3) == 4
    assert retention(log_retention_hours=-1) == retention(log_retention_minutes=-1) == -1
    assert BrokerConfig().roll_ms == 604_800_000
    assert BrokerConfig(log_roll_ms=5, log_roll_hours=1).roll_ms == 5


@pytest.mark.parametrize(
    ("listener", "endpoint"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://:0", ("PLAINTEXT", "", 0)),
        ("OUTSIDE://[::1]:9092", ("OUTSIDE", "::1", 9092)),
        ("PLAINTEXT://broker.example:65535", ("PLAINTEXT", "broker.example", 65535)),
    ],
)
def test_listeners(listener: str, endpoint: tuple[str, str, int]) -> None:
    assert client_listener(BrokerConfig(listeners=(listener,))) == endpoint


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (BrokerConfig(listeners=("127.0.0.1:9092",)), "must look like PLAINTEXT://127.0.0.1:9092"),
        (BrokerConfig(listeners=("PLAINTEXT://h:99999",)), "must look like"),
        (BrokerConfig(listeners=("PLAINTEXT://h",)), "must look like"),
        (BrokerConfig(listeners=("SSL://h:1",)), "Make it PLAINTEXT://HOST:PORT, or give --listen"),
        (BrokerConfig(listeners=()), "has 0 listeners for clients"),
        (BrokerConfig(listeners=("A://h:1", "B://h:2")), "has 2 listeners for clients"),
        (BrokerConfig(listeners=("A://h:1",), controller_listener_names=("A",)), "has 0 listeners for clients"),
    ],
)
def test_listeners_that_cannot_be(config: BrokerConfig, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        client_listener(config)


def test_advertised_listeners() -> None:
    assert advertised_listener(BrokerConfig()) is None
    for nowhere in ("PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092"):
        with pytest.raises(ConfigError, match="no host that a client could connect to"):
            advertised_listener(BrokerConfig(advertised_listeners=(nowhere,)))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.LONG, "+5", 5),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.BOOLEAN, " True\n", True),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b,", ("a", "b", "")),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.DOUBLE, "1.5f", 1.5),
    ],
)
def test_types(kind: ConfigType, text: str, value: object) -> None:
    assert parse_value(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.INT, "2147483648"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9" * 5_000),
        (ConfigType.LONG, "1_0"),
        (ConfigType.LONG, ""),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "1e"),
        (ConfigType.BOOLEAN, "1"),
    ],
)
def test_what_is_not_of_a_type(kind: ConfigType, text: str) -> None:
    with pytest.raises(BadValue):
        parse_value(kind, text)


# Double.toString of Java 21.
DOUBLES = {
    0.5: "0.5", 1.0: "1.0", -0.0: "-0.0", 0.001: "0.001", 0.0001: "1.0E-4", 9999999.0: "9999999.0", 1e7: "1.0E7",
    2147483647.0: "2.147483647E9", 1.7976931348623157e308: "1.7976931348623157E308", float("inf"): "Infinity",
    float("-inf"): "-Infinity",
}  # fmt: skip


@pytest.mark.parametrize(("number", "text"), DOUBLES.items())
def test_doubles_as_java_writes_them(number: float, text: str) -> None:
    assert java_double(number) == text
    assert java_double(float("nan")) == "NaN"


@given(st.floats(allow_nan=False))
def test_a_double_comes_back(number: float) -> None:
    assert parse_value(ConfigType.DOUBLE, java_double(number)) == number


class Listening:
    def __init__(self, host: str) -> None:
        self._host = host

    def getsockname(self) -> tuple[object, ...]:
        return (self._host, 9092, 0, 0) if ":" in self._host else (self._host, 9092)


def test_a_warning_for_listeners_that_other_machines_reach() -> None:
    assert open_to_others([Listening("127.0.0.1"), Listening("127.8.0.1"), Listening("::1")]) is None
    for host in ("0.0.0.0", "::", "192.168.0.7", "fe80::1%eth0"):
        warning = open_to_others([Listening("127.0.0.1"), Listening(host)])
        assert warning is not None
        assert f"{host}:9092 can be reached from other machines, and muster has no authentication" in warning
        assert "Listen on 127.0.0.1, or let a firewall" in warning


def test_every_setting_is_documented_with_its_default() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("configuration*.md"))
    for setting in broker_settings().values():
        default = render_value(setting.default)
        shown = "not set" if default is None else default or "none"
        assert f"| `{setting.name}` | {shown} | {setting.help} |" in text
