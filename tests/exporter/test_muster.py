"""muster's own broker, asked as any other cluster: what is committed, restarts, logs that are not the same any more."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

import muster
from muster.exporter import follow, poll
from muster.exporter.from_tables import FromTables
from muster.exporter.limits import Wanted
from muster.exporter.page import Page
from muster.exporter.poll import Plan, Poller
from muster.tables.storage.store import TableStore
from tests.exporter.pages import read, value
from tests.kit.kafka import free_ports
from tests.real.drive import QUIET, poll_until
from tests.server.raw import ApiKey, Raw, ServerProcess, commit_body, create_topic
from tests.server.records.talking import batch, produce


class Asked:
    """An exporter without a port and without pauses; its clock can be moved."""

    def __init__(self, address: tuple[str, int], tables: Path | None = None, **plan: object) -> None:
        config = {"bootstrap.servers": "{}:{}".format(*address)}
        self.page = Page("test")
        self.told: list[str] = []
        self.tables = None if tables is None else FromTables(TableStore(tables), Wanted(), self.told.append)
        asked = Plan(config, cluster_name="lab", **plan)  # type: ignore[arg-type]
        self._poller = Poller(asked, self.page, self.told.append, self.tables)
        self._poller.meet()
        self._poller.begin_from_tables()

    def round(self) -> bytes:
        self._poller.round()
        return self.page.text()

    def round_until_answered(self) -> bytes:
        """Connections may be found dead in the first one."""
        for _ in range(50):
            if value(page := self.round(), "muster_exporter_up") == 1:
                return page
        raise AssertionError(self.told)

    def close(self) -> None:
        self._poller.close()


@contextmanager
def asking(address: tuple[str, int], tables: Path | None = None, **plan: object) -> Iterator[Asked]:
    asked = Asked(address, tables, **plan)
    try:
        yield asked
    finally:
        asked.close()


def commit(address: tuple[str, int], group: str, topic: str, offsets: dict[int, int]) -> None:
    with Raw(address) as raw:
        raw.ask(ApiKey.OFFSET_COMMIT, 7, **commit_body(group, topic, offsets))


def write(address: tuple[str, int], topic: str, partition: int, count: int) -> None:
    with Raw(address) as raw:
        assert produce(raw, topic, partition, batch(*["x"] * count))[0] == 0


class Here(NamedTuple):
    address: tuple[str, int]


@contextmanager
def in_this_process(**settings: str) -> Iterator[Here]:
    with muster.Broker(settings={"offsets.topic.num.partitions": "4"} | settings) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        yield Here((host, int(port)))


def test_commits_lag_and_what_is_not_known() -> None:
    with in_this_process() as server, asking(server.address) as asked:
        page = asked.round()  # nothing is there yet
        assert value(page, "muster_exporter_up") == 1
        assert value(page, "muster_exporter_offsets_partitions", state="followed") == 4
        create_topic(server.address, "orders", 2)
        write(server.address, "orders", 0, 10)
        commit(server.address, "shop", "orders", {0: 4, 1: 0})
        page = asked.round()
        assert value(page, "kafka_consumergroup_group_offset", group="shop", topic="orders", partition="0") == 4
        assert value(page, "kafka_consumergroup_group_lag", group="shop", topic="orders", partition="0") == 6
        assert value(page, "kafka_consumergroup_group_lag", group="shop", topic="orders", partition="1") == 0
        assert value(page, "kafka_consumergroup_group_sum_lag", group="shop") == 6
        assert value(page, "kafka_partition_latest_offset", topic="orders", partition="0") == 10
        assert value(page, "muster_group_partitions_without_lag", group="shop") == 0
        assert value(page, "muster_group_state", group="shop", state="Empty", type="classic") == 1
        assert value(page, "muster_group_offset_commits_total", group="shop") == 2
        # Written before the first look at the log, so the record itself was read.
        assert value(page, "muster_exporter_lag_seconds_values", method="read") == 1
        behind_s = value(page, "kafka_consumergroup_group_lag_seconds", group="shop", topic="orders", partition="0")
        assert behind_s is not None
        assert 0 <= behind_s < 60
        assert asked.told == []
        commit(server.address, "shop", "orders", {0: 10})
        write(server.address, "orders", 0, 5)
        page = asked.round()
        assert value(page, "kafka_consumergroup_group_lag", group="shop", topic="orders", partition="0") == 5
        assert value(page, "muster_exporter_lag_seconds_values", method="interpolated") == 1
        with Raw(server.address) as raw:
            raw.ask(ApiKey.DELETE_GROUPS, 2, groupsNames=["shop"])
        page = asked.round()
        assert read(page).keys() & {"kafka_consumergroup_group_lag", "kafka_partition_latest_offset"} == set()


def test_members_and_rebalances() -> None:
    with in_this_process() as server, asking(server.address, groups=("sh*",)) as asked:
        create_topic(server.address, "orders", 2)
        asked.round()
        settings = QUIET | {"bootstrap.servers": "{}:{}".format(*server.address), "group.id": "shop", "client.id": "me"}
        member = Consumer(settings | {"enable.auto.commit": False})
        try:
            member.subscribe(["orders"])
            poll_until(lambda: len(member.assignment()) == 2, member)
            commit(server.address, "other", "orders", {0: 0})
            offsets = member.position(member.assignment())
            for one in offsets:
                one.offset = 0
            member.commit(offsets=offsets, asynchronous=False)
            page = asked.round()
        finally:
            member.close()
        assert value(page, "muster_group_members", group="shop") == 1
        assert value(page, "muster_group_state", group="shop", state="Stable") == 1
        assert value(page, "muster_group_rebalances_total", group="shop", cause="first members") == 1
        assert value(page, "kafka_consumergroup_group_lag", group="shop", client_id="me", partition="1") == 0
        assert value(page, "kminion_kafka_consumer_group_info", group_id="shop", state="Stable", protocol="range") == 1
        page = asked.round()
        assert value(page, "muster_group_members", group="shop") == 0
        assert value(page, "muster_group_rebalances_total", group="shop", cause="group emptied") == 1
        assert value(page, "muster_group_members", group="other") is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a broker that is away on purpose."""
    monkeypatch.setattr(poll, "PATIENCE_S", 0.2)


@pytest.mark.usefixtures("quick")
def test_values_outlive_a_broker_that_is_away_and_not_one_that_is_another(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with ServerProcess(tmp_path / "data", port=port) as server, asking(server.address) as asked:
        create_topic(server.address, "orders", 1)
        write(server.address, "orders", 0, 10)
        commit(server.address, "shop", "orders", {0: 4})
        asked.round()
        server.kill()
        page = asked.round()
        assert value(page, "muster_exporter_up") == 0
        assert value(page, "kafka_consumergroup_group_lag", group="shop") == 6
        ages = [value(one, "muster_exporter_age_seconds", of="commits") for one in (page, asked.page.text())]
        assert ages[0] is not None
        assert ages[1] is not None
        assert ages[0] < ages[1]
        assert len(asked.told) == 1
        server.start()
        commit(server.address, "shop", "orders", {0: 9})
        page = asked.round_until_answered()
        assert value(page, "kafka_consumergroup_group_lag", group="shop") == 1
        assert (value(page, "muster_exporter_failed_rounds_total") or 0) >= 1
        assert asked.told[1:] == ["all questions are answered again."]
        server.kill()
        with ServerProcess(tmp_path / "another", port=port) as anew:  # at the same address
            create_topic(anew.address, "payments", 1)
            commit(anew.address, "till", "payments", {0: 0})
            page = asked.round_until_answered()
            assert value(page, "muster_group_members", group="till") == 0
            assert value(page, "muster_group_members", group="shop") is None


def test_a_large_log_in_small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is not read whole is not on the page."""
    with in_this_process(**{"offsets.topic.num.partitions": "1"}) as server:
        create_topic(server.address, "orders", 1)
        with Raw(server.address) as raw:
            for number in range(50):
                raw.ask(ApiKey.OFFSET_COMMIT, 7, **commit_body(f"g{number}", "orders", {0: number}))
        for name in ("FETCH_BYTES", "LARGE_FETCH_BYTES"):
            monkeypatch.setattr(follow, name, 1000)
        with asking(server.address) as asked:
            with monkeypatch.context() as patch:
                unread, left = follow.Follower._unread, iter(range(3))  # there is time for three answers
                patch.setattr(follow.Follower, "_unread", lambda self: {} if next(left, None) is None else unread(self))
                page = asked.round()
            assert value(page, "muster_exporter_offsets_partitions", state="loading") == 1
            assert 0 < (value(page, "muster_exporter_records_total") or 0) < 50
            assert "muster_group_members" not in read(page)
            page = asked.round()
            assert value(page, "muster_exporter_offsets_partitions", state="followed") == 1
            assert len(read(page)["muster_group_members"]) == 50
            assert value(page, "kafka_consumergroup_group_offset", group="g49") == 49
            assert value(page, "muster_exporter_records_total") == 50
