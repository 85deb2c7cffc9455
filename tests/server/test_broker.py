"""`muster.Broker` as a developer meets it: names that are wrong, things that are too early, things done twice."""

import io
import re
from pathlib import Path

import pytest

import muster
from muster.errors import ConfigError
from muster.protocol.apis import APIS, ApiKey
from tests.server.raw import Raw


def test_it_is_where_an_editor_looks_for_it() -> None:
    assert "Broker" in dir(muster)
    assert "Broker" in muster.__all__


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nonsense": 1}, "Broker: nonsense is not a setting of muster or Kafka. docs/configuration.md lists all"),
        ({"dta": "x"}, "Broker: dta is not a setting of muster or Kafka. Did you mean data?"),
        ({"offsets_topic_num_partition": 3}, "Did you mean offsets.topic.num.partitions?"),
        ({"settings": {"zookeeper.connect": "x"}}, "that muster has no use for. Leave it out."),
    ],
)
def test_a_setting_that_does_not_exist_is_refused_at_once(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        muster.Broker(**given)  # type: ignore[arg-type]
    assert said in str(refused.value)
    assert "ignored" not in str(refused.value)


def test_a_process_logs_to_a_file() -> None:
    with pytest.raises(ConfigError, match="cannot log into a StringIO; give it a file, or read log_text"):
        muster.Broker(process=True, log=io.StringIO())


def test_there_is_no_address_before_the_start() -> None:
    broker = muster.Broker()
    with pytest.raises(ConfigError, match="has not started, so it has no port yet"):
        _ = broker.bootstrap_servers


def test_a_topic_needs_a_broker_that_runs() -> None:
    broker = muster.Broker()
    with pytest.raises(ConfigError, match="This broker does not run"):
        broker.create_topic("too-early")
    with broker:
        broker.create_topic("orders")
    with pytest.raises(ConfigError, match="This broker does not run"):
        broker.create_topic("too-late")


def test_a_topic_that_exists_and_one_without_partitions_are_told_apart() -> None:
    with muster.Broker() as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        broker.create_topic("orders", 4)
        with pytest.raises(ConfigError, match="topic orders exists already, with 4 partitions"):
            broker.create_topic("orders")
        with pytest.raises(ConfigError, match="a topic has one partition at least"):
            broker.create_topic("empty", 0)
        with pytest.raises(ConfigError, match="the empty string is not allowed"):
            broker.create_topic("")


def test_the_page_lists_what_is_advertised() -> None:
    with muster.Broker() as broker, Raw((broker.host, broker.port)) as raw:
        told = raw.ask(ApiKey.API_VERSIONS, 3, clientSoftwareName="page", clientSoftwareVersion="1")["apiKeys"]
    page = Path(__file__).parents[2].joinpath("docs/protocol.md").read_text()
    listed = re.findall(r"(?m)^\| (\d+) \| (\w+) \| (\d+)(?:–(\d+))? \| .+ \|$", page)
    assert {int(key): (name, int(first), int(last or first)) for key, name, first, last in listed} == {
        one["apiKey"]: (api.name, api.min_version, api.max_version) for one in told if (api := APIS[one["apiKey"]])
    }
