"""Leaders of the offsets topic move between two real brokers while an exporter follows it."""

import threading

import pytest

from muster.codec.partitioning import partition_for
from muster.exporter.page import Page
from muster.exporter.poll import Plan, Poller
from tests.exporter.pages import Labels, read, value
from tests.real.test_leader_change import NONE, PARTITIONS, leader_of, move, sides_of, told, two_brokers, until
from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import Link

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

GROUP, TOPIC, MOVES = "shop", "orders", 3


class Rounds:
    """One after the other in a thread; every page is kept."""

    def __init__(self, bootstrap: str) -> None:
        self.pages: list[bytes] = []
        self.lines: list[str] = []
        self._page, self._is_over = Page("test"), threading.Event()
        self._poller = Poller(Plan({"bootstrap.servers": bootstrap}, cluster_name="lab"), self._page, self.lines.append)
        self._poller.meet()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            self._poller.round()
            self.pages.append(self._page.text())

    def offset(self) -> float | None:
        return value(self.pages[-1], "kafka_consumergroup_group_offset", group=GROUP) if self.pages else None

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._poller.close()


def counters(page: bytes) -> dict[tuple[str, Labels], float]:
    """Burrow calls a gauge `_total`."""
    found = {name: lines for name, lines in read(page).items() if name.endswith("_total") and name[:6] != "burrow"}
    return {(name, labels): one for name, lines in found.items() for labels, one in lines.items()}


def test_values_go_on_and_no_counter_goes_back() -> None:
    with two_brokers() as brokers:
        links = {node: Link(side) for node, side in sides_of(brokers).items()}
        until(lambda: len(told(links[1], "Metadata", 12, {"Topics": None})["Brokers"]) == 2)
        topic = {"Name": TOPIC, "NumPartitions": 1, "ReplicationFactor": 2}
        made = told(links[1], "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 20_000})
        assert made["Topics"][0]["ErrorCode"] == NONE
        until(lambda: told(links[1], "FindCoordinator", 4, bodies.find(GROUP))["Coordinators"][0]["ErrorCode"] == NONE)
        partition = partition_for(GROUP, PARTITIONS)
        until(lambda: leader_of(links[1], partition) in links)

        def is_committed(offset: int) -> bool:
            coordinator = links[leader_of(links[1], partition)]
            answer = told(coordinator, "OffsetCommit", 8, bodies.commit(GROUP, {(TOPIC, 0): offset}))
            return bool(answer["Topics"][0]["Partitions"][0]["ErrorCode"] == NONE)

        until(lambda: is_committed(1))
        rounds = Rounds(",".join(broker.bootstrap for broker in brokers.values()))
        try:
            until(lambda: rounds.offset() == 1)
            for turn in range(MOVES):
                old = leader_of(links[1], partition)
                move(links[1], partition, to=3 - old, from_=old)
                until(lambda: is_committed(10 + turn))  # noqa: B023
                until(lambda: rounds.offset() == 10 + turn)  # noqa: B023
        finally:
            rounds.stop()
        known: dict[tuple[str, Labels], float] = {}
        for page in rounds.pages:
            now = counters(page)
            assert {key for key, before in known.items() if now.get(key, -1) < before} == set()
            known = now
        assert value(rounds.pages[-1], "muster_group_offset_commits_total", group=GROUP) == MOVES
        assert value(rounds.pages[-1], "muster_exporter_up") == 1
        told_of_trouble = [line for line in rounds.lines if "answered again" not in line]
        assert len(told_of_trouble) <= MOVES
