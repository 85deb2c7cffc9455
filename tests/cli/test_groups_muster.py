"""`muster groups` against muster itself: every action once, as it goes with Kafka in test_groups_real.py."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import muster
from muster.cli.status import Status
from tests.cli import Ran, run
from tests.real.drive import QUIET, WAIT_S, check, consumer, poll_until


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with a static member of `seated`, and `simple`, where nobody is."""
    with muster.Broker() as broker:
        here: Any = SimpleNamespace(bootstrap=broker.bootstrap_servers)
        admin = AdminClient(QUIET | {"bootstrap.servers": here.bootstrap})
        for created in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            created.result(WAIT_S)
        static = {"client.id": "one", "group.instance.id": "seat-1", "session.timeout.ms": 60_000}
        with consumer(here, "seated", **static) as member, consumer(here, "simple") as simple:
            member.subscribe(["orders"])
            poll_until(lambda: len(member.assignment()) == 2, member)
            check(simple.commit(offsets=[Offset("orders", 0, 0), Offset("orders", 1, 5)], asynchronous=False))
            yield here.bootstrap


def rows(ran: Ran, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(line)[key] for key in keys) for line in ran.out.splitlines()]


def test_a_dry_run_of_delete_names_what_would_go_and_what_would_not(bootstrap: str) -> None:
    asked = ("groups", "delete", "--all-groups", "--dry-run", "-b", bootstrap)
    ran = run(*asked, "--json")
    assert ran.status == Status.REFUSED
    assert rows(ran, "group_id", "committed_partitions") == [("simple", 2)]
    assert "group 'seated' would not be deleted: it still has members." in ran.err
    assert "a dry run: nothing was deleted." in ran.err
    assert {group for (group,) in rows(run("groups", "list", "-b", bootstrap, "--json"), "group_id")} == {
        "seated", "simple",
    }  # fmt: skip
    missing = run("groups", "delete", "-g", "simpel", "--dry-run", "-b", bootstrap)
    assert missing.status == Status.NOTHING_MATCHED
    assert "Did you mean 'simple'?" in missing.err


@pytest.mark.parametrize("option", ["--command-config", "--kafka-config"])
def test_the_client_s_settings_have_one_name_and_an_older_one(bootstrap: str, option: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={bootstrap}\n")
    assert run("groups", "list", option, config, "-q").status == Status.OK


def test_tls_to_a_port_without_it_is_one_exit_code_whoever_asks(bootstrap: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    groups = run("groups", "list", "-b", bootstrap, "--command-config", config)
    out = tmp_path / "tables"
    pipeline = run("pipeline", "run", "--source", f"kafka://{bootstrap}", "--out", out, "--command-config", config)
    assert (groups.status, pipeline.status) == (Status.UNREACHABLE, Status.UNREACHABLE)
    assert "does it want other security settings? (--command-config FILE)" in groups.err
    assert "That port probably does not speak TLS: set security.protocol=PLAINTEXT" in pipeline.err


def test_every_action(bootstrap: str) -> None:
    def groups(*arguments: str) -> Ran:
        return run("groups", *arguments, "-b", bootstrap, "--json", "-q")

    assert rows(groups("list"), "group_id", "type", "state") == [
        ("seated", "classic", "Stable"),
        ("simple", "classic", "Empty"),
    ]
    assert rows(
        groups("describe", "--all-groups"), "group_id", "partition", "committed_offset", "lag", "client_id"
    ) == [
        ("seated", 0, None, None, "one"),
        ("seated", 1, None, None, "one"),
        ("simple", 0, 0, 0, None),
        ("simple", 1, 5, -5, None),
    ]
    assert rows(groups("members", "-g", "seated", "--verbose"), "instance_id", "assignment") == [
        ("seat-1", [{"topic": "orders", "partitions": [0, 1]}])
    ]
    assert rows(groups("state", "-g", "seated"), "protocol", "members") == [("range", 1)]
    reset = groups("reset-offsets", "-g", "simple", "--all-topics", "--to-latest", "--execute")
    assert rows(reset, "partition", "new_offset") == [(0, 0), (1, 0)]
    assert rows(groups("offsets", "-g", "simple"), "committed_offset") == [(0,), (0,)]
    assert groups("reset-offsets", "-g", "seated", "-t", "orders", "--to-latest").status == Status.REFUSED
    assert groups("delete-offsets", "-g", "seated", "-t", "orders:0").status == Status.REFUSED
    assert groups("delete-offsets", "-g", "simple", "-t", "orders:0").status == Status.OK
    assert rows(groups("offsets", "-g", "simple"), "partition") == [(1,)]
    assert rows(groups("delete", "-g", "simple", "-g", "seated"), "group_id", "error_code") == [
        ("seated", "NON_EMPTY_GROUP"),
        ("simple", None),
    ]
    assert groups("describe", "-g", "simple").status == Status.NOTHING_MATCHED
