"""Stopped or killed under load, a server comes back with everything it acknowledged."""

import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.codec.partitioning import partition_for
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, running, wait_until_loaded

GROUPS = 6
PARTITIONS = 4
IN_FLIGHT = 8


class Committer(threading.Thread):
    """Commits ever larger offsets for a group, several requests in flight, and remembers what was acknowledged."""

    def __init__(self, address: tuple[str, int], group: str, first: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.group = group
        self.acknowledged: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self._next = first

    def run(self) -> None:
        try:
            with Raw(self.address) as raw:
                waiting: dict[int, tuple[int, int]] = {}
                while True:
                    while len(waiting) < IN_FLIGHT:
                        self._next += 1
                        partition = self._next % PARTITIONS
                        self.sent[partition] = self._next
                        body = commit_body(self.group, "orders", {partition: self._next})
                        waiting[raw.send(ApiKey.OFFSET_COMMIT, 8, **body)] = partition, self._next
                    number, answer = raw.hear(ApiKey.OFFSET_COMMIT, 8)
                    partition, offset = waiting.pop(number)
                    error = answer["topics"][0]["partitions"][0]["errorCode"]
                    if error == 0:
                        self.acknowledged[partition] = offset
        except (EOFError, OSError):
            return


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_acknowledgements(committers: list[Committer]) -> None:
    """Else a busy machine would have us kill a server that has not promised anything yet."""
    deadline = time.monotonic() + 20
    while not all(committer.acknowledged for committer in committers):
        assert time.monotonic() < deadline, "nothing was acknowledged"
        time.sleep(0.005)


def one_round(data: Path, first: int, how: str, rng: random.Random) -> int:
    """Serve, commit, end, serve again, compare; returns the largest offset used."""
    with running(data) as server:
        create_topic(server.address, "orders", PARTITIONS)
        committers = [Committer(server.address, f"group-{number}", first) for number in range(GROUPS)]
        for committer in committers:
            committer.start()
        wait_for_acknowledgements(committers)
        time.sleep(rng.uniform(0.0, 0.4))
        if how == "kill":
            server.kill()
        else:
            assert server.stop(signal.SIGTERM) == 0
        for committer in committers:
            committer.join(20)
            assert not committer.is_alive()
    with running(data) as server:
        for committer in committers:
            found = wait_until_loaded(server.address, committer.group)
            for partition, offset in committer.acknowledged.items():
                there = found.get(("orders", partition), -1)
                assert there >= offset, f"{committer.group} {partition}: {offset} was acknowledged, {there} is there"
                assert there <= committer.sent[partition], "an offset that nobody committed"
        assert server.stop() == 0
    return max(committer._next for committer in committers)


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    rng, first = random.Random(2), 0
    for how in ("stop", "kill"):
        first = one_round(tmp_path / "data", first, how, rng)


@pytest.mark.long
def test_nothing_acknowledged_is_lost_in_fifty_rounds(tmp_path: Path) -> None:
    rng, first = random.Random(50), 0
    for number in range(50):
        first = one_round(tmp_path / "data", first, "kill" if number % 5 else "stop", rng)


def test_a_group_goes_on_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        create_topic(server.address, "orders", 1)
        with Raw(server.address) as raw:
            join = {
                "groupId": "g", "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 30_000, "memberId": "",
                "groupInstanceId": "seat", "protocolType": "consumer",
                "protocols": [{"name": "range", "metadata": b"x"}],
            }  # fmt: skip
            joined = raw.ask(ApiKey.JOIN_GROUP, 5, **join)
            assert (joined["errorCode"], joined["generationId"]) == (0, 1)
            assigned = [{"memberId": joined["memberId"], "assignment": b"mine"}]
            me = {"groupId": "g", "generationId": 1, "memberId": joined["memberId"], "groupInstanceId": "seat"}
            assert raw.ask(ApiKey.SYNC_GROUP, 3, assignments=assigned, **me)["assignment"] == b"mine"
        server.kill()
    with running(data) as server:
        wait_until_loaded(server.address, "g")
        with Raw(server.address) as raw:
            assert raw.ask(ApiKey.HEARTBEAT, 3, **me)["errorCode"] == 0
            assert raw.ask(ApiKey.SYNC_GROUP, 3, assignments=[], **me)["assignment"] == b"mine"


def test_the_directory_is_nobody_elses_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path / "data"):
        other = ServerProcess(tmp_path / "data")
        with pytest.raises(AssertionError, match="is in use"):
            other.start()
        assert other.process is not None
        assert other.process.wait(10) == 3


# Data that is not where it was.


def refused(data: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what a server that does not start says last."""
    server = ServerProcess(data, *arguments)
    with pytest.raises(AssertionError, match=r"''; "), server:
        pytest.fail("it has started")
    assert server.process is not None
    return server.process.wait(20), server.log.read_text().splitlines()[-1]


def with_a_commit(data: Path) -> Path:
    """Serve, commit for a group, stop; the directory of the partition that the group is in."""
    with running(data) as server:
        create_topic(server.address, "orders", 1)
        with Raw(server.address) as raw:
            answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "orders", {0: 7}))
            assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
        assert server.stop() == 0
    return data / f"__consumer_offsets-{partition_for('g', 4)}"


def test_a_server_whose_log_has_lost_durable_records_does_not_start_unless_told_to(tmp_path: Path) -> None:
    partition = with_a_commit(tmp_path / "data")
    (segment,) = partition.glob("*.log")
    segment.write_bytes(b"")
    status, said = refused(tmp_path / "data")
    assert status == 4
    assert f"{partition.name}: durable up to 1, found up to 0, so offsets 0 to 0 are lost" in said
    assert "start once with --accept-data-loss" in said
    assert refused(tmp_path / "data")[0] == 4, "looking at it changes nothing"
    with running(tmp_path / "data", "--accept-data-loss") as server:
        assert "DATA LOST" in server.log.read_text()
        assert wait_until_loaded(server.address, "g") == {}
        assert server.stop() == 0
    with running(tmp_path / "data") as server:
        assert server.stop() == 0


def test_a_server_with_a_partition_less_does_not_start(tmp_path: Path) -> None:
    partition = with_a_commit(tmp_path / "data")
    shutil.rmtree(partition)
    status, said = refused(tmp_path / "data")
    assert (status, partition.exists()) == (4, False)
    assert f"{partition.name}: durable up to 1, its directory is missing, so offsets 0 to 0 are lost" in said


def test_a_disk_that_is_not_mounted_does_not_become_an_empty_cluster(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    status, said = refused(data, "--must-exist")
    assert status == 3
    assert f"{data} holds no data of a broker or of muster" in said
    assert list(data.iterdir()) == []
    (data / "lost+found").mkdir()
    with running(data) as server:
        assert f"{data} had no data of a broker: a NEW" in server.log.read_text()
        assert sum("a NEW data directory was made" in line for line in server.log.read_text().splitlines()) == 1
        assert server.stop() == 0
    with running(data, "--must-exist") as server:
        assert server.stop() == 0
        assert server.log.read_text().count("a NEW data directory was made") == 1


# Settings that say what the directory says too.


def test_log_dirs_names_the_data_directory_and_the_option_counts_before_it(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"log.dirs={tmp_path / 'kept'}\n")
    by_setting = ServerProcess(tmp_path / "unused", "--config", str(settings))
    option = by_setting._command.index("--data")
    del by_setting._command[option : option + 2]
    by_setting._command.append("--must-exist")
    with pytest.raises(AssertionError, match="kept holds no data"):
        by_setting.start()
    by_setting._command.remove("--must-exist")
    with by_setting as server:
        assert server.stop() == 0
    assert (tmp_path / "kept" / "meta.properties").exists()
    assert not (tmp_path / "unused").exists()
    with running(tmp_path / "data", "--set", f"log.dir={tmp_path / 'kept'}") as server:
        assert f"log.dirs is {tmp_path / 'kept'}; it is ignored, because --data" in server.log.read_text()
        assert server.stop() == 0
    assert (tmp_path / "data" / "meta.properties").exists()


def test_settings_that_the_directory_has_decided(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        assert server.stop() == 0
    assert "is ignored" not in server.log.read_text()
    with running(tmp_path / "data", "--set", "offsets.topic.num.partitions=8") as server:
        assert "offsets.topic.num.partitions is 8; it is ignored, because the data directory has 4" in (
            server.log.read_text()
        )
        assert server.stop() == 0
    status, said = refused(tmp_path / "data", "--node-id", "7")
    assert status == 3
    assert "data belongs to node 1, and this is node 7 (node.id)" in said
    assert "--node-id 1" in said


def test_a_topic_that_cannot_be_made_by_asking_is_told_once_for_each_client(tmp_path: Path) -> None:
    more = ("--set", "default.replication.factor=3", "--set", "muster.max.partitions=5")
    with running(tmp_path / "data", *more) as server, Raw(server.address) as raw:
        for name in ("one", "two", "two", "one"):
            raw.ask(ApiKey.METADATA, 4, topics=[{"name": name}], allowAutoTopicCreation=True)
        told = server.log.read_text()
        assert "default.replication.factor is 3; it is ignored: this is one node" in told
        assert "topic one: created" in told
        assert server.stop() == 0
    (line,) = [line for line in server.log.read_text().splitlines() if "cannot be made" in line]
    assert "asks for topic 'two'" in line
    assert "muster.max.partitions is 5" in line
