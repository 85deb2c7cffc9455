"""`muster groups` from the outside, with a cluster made up here: options, exit codes, and what is said on stderr."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from muster.cli.groups import cluster as asking
from muster.cli.groups import connect
from muster.cli.groups.cluster import Unreachable
from muster.cli.groups.model import (
    Committed,
    Group,
    GroupListing,
    GroupType,
    LogOffsets,
    Member,
    Node,
    Refusal,
    State,
    TopicPartition,
)
from muster.cli.status import Status
from tests.cli import Ran, command, run, run_process

ORDERS = [TopicPartition("orders", number) for number in range(3)]
NODE = Node(1, "kafka-1", 9092)
MEMBER = Member("one-1", "one", "/10.0.0.1", None, (ORDERS[0], ORDERS[1]))
NOT_ALLOWED = Refusal("GROUP_AUTHORIZATION_FAILED", "Group authorization failed")


class MadeUp:
    """A cluster with four groups, answering what `Cluster` would; `refusals` by group for one to be refused."""

    def __init__(self) -> None:
        self.settings = {"bootstrap.servers": "made-up:9092"}
        self.groups = {
            "busy": Group("busy", GroupType.CLASSIC, State.STABLE, "range", NODE, (MEMBER,)),
            "idle": Group("idle", GroupType.CLASSIC, State.EMPTY, "", NODE),
            "moving": Group("moving", GroupType.CLASSIC, State.PREPARING_REBALANCE, "", NODE, (MEMBER,)),
            "blank": Group("blank", GroupType.CONSUMER, State.EMPTY, "", NODE),
        }
        self.offsets = {
            "busy": {ORDERS[0]: Committed(5)},
            "idle": {ORDERS[0]: Committed(3), ORDERS[2]: Committed(30)},
        }
        self.ends = dict(zip(ORDERS, (10, 20, 30), strict=True))
        self.refusals: dict[str, Refusal] = {}
        self.unlisted: list[Refusal] = []
        self.altered: dict[str, dict[TopicPartition, int]] = {}
        self.alter_refusals: dict[str, dict[TopicPartition, Refusal]] = {}
        self.is_gone = False

    def _knock(self) -> None:
        if self.is_gone:
            raise Unreachable("no answer from made-up:9092 within 8 s.")

    def listings(self) -> tuple[list[GroupListing], list[Refusal]]:
        self._knock()
        return [GroupListing(name, each.type, each.state) for name, each in self.groups.items()], self.unlisted

    def describe(self, group_ids: Iterable[str]) -> dict[str, Group | Refusal]:
        self._knock()
        return {
            name: self.refusals.get(name) or self.groups.get(name) or Group(name, GroupType.UNKNOWN, State.DEAD)
            for name in group_ids
        }

    def describe_many(self, group_ids: Iterable[str], types: Mapping[str, GroupType]) -> dict[str, Group | Refusal]:
        return self.describe(group_ids)

    def committed(self, group_ids: Iterable[str], advance: Any) -> dict[str, dict[TopicPartition, Committed] | Refusal]:
        assert self.groups.keys() >= set(group_ids), "of groups that exist"
        return {name: self.refusals.get(f"offsets of {name}") or self.offsets.get(name, {}) for name in group_ids}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> LogOffsets:
        return LogOffsets({each: self.ends[each] for each in partitions if each in self.ends}, {})

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> LogOffsets:
        return LogOffsets(dict.fromkeys(partitions, 0), {})

    def offsets_at(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> LogOffsets:
        return LogOffsets(dict.fromkeys(partitions, 7), {})

    def partitions_of(self, topics: Iterable[str]) -> dict[str, list[TopicPartition] | Refusal]:
        unknown = Refusal("UNKNOWN_TOPIC_OR_PART", "Unknown topic or partition")
        return {topic: ORDERS if topic == "orders" else unknown for topic in topics}

    def alter(self, new_offsets: dict[str, dict[TopicPartition, int]]) -> dict[str, dict[TopicPartition, Refusal]]:
        self.altered = new_offsets
        return self.alter_refusals

    def delete(self, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
        not_empty, unknown = Refusal("NON_EMPTY_GROUP", "not empty"), Refusal("GROUP_ID_NOT_FOUND", "no such")
        return {
            name: unknown if name not in self.groups else not_empty if self.groups[name].members else None
            for name in group_ids
        }

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Refusal | None]:
        assert group_id == "idle"
        subscribed = Refusal("GROUP_SUBSCRIBED_TO_TOPIC", "Subscribed")
        return {each: subscribed if each == ORDERS[1] else None for each in partitions}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    made_up = MadeUp()
    monkeypatch.setattr(connect, "_opened", lambda settings, asked: made_up)
    return made_up


def groups(*arguments: str | Path) -> Ran:
    return run("groups", *arguments, "-b", "made-up:9092")


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in groups(*arguments, "--json").out.splitlines()]


class TestList:
    def test_all_in_order(self, cluster: MadeUp) -> None:
        assert groups("list") == Ran(
            Status.OK,
            "GROUP   TYPE      STATE\n"
            "blank   Consumer  Empty\n"
            "busy    Classic   Stable\n"
            "idle    Classic   Empty\n"
            "moving  Classic   PreparingRebalance\n",
            "",
        )

    @pytest.mark.parametrize(
        ("filters", "names"),
        [
            (["--state", "empty"], ["blank", "idle"]),
            (["--state", "Stable, preparing-rebalance"], ["busy", "moving"]),
            (["--type", "consumer"], ["blank"]),
            (["--type", "CLASSIC", "--state", "empty"], ["idle"]),
        ],
    )
    def test_filters(self, cluster: MadeUp, filters: list[str], names: list[str]) -> None:
        assert [row["group_id"] for row in rows("list", *filters)] == names

    def test_nothing_like_that(self, cluster: MadeUp) -> None:
        ran = groups("list", "--state", "dead", "--json")
        assert ran == Ran(Status.NOTHING_MATCHED, "", "muster: none of the 4 groups is like that.\n")

    def test_no_groups_at_all_is_no_failure(self, cluster: MadeUp) -> None:
        cluster.groups = {}
        assert groups("list", "--json") == Ran(Status.OK, "", "muster: there are no groups.\n")

    def test_a_broker_that_cannot_list_is_told(self, cluster: MadeUp) -> None:
        cluster.unlisted = [Refusal("COORDINATOR_LOAD_IN_PROGRESS", "")] * 2
        ran = groups("list", "--json")
        assert ran.status == Status.UNREACHABLE
        assert len(ran.out.splitlines()) == 4
        assert ran.err == (
            "muster: a broker could not list its groups, and they are missing here: "
            "its coordinator is still loading. Try again in a moment.\n"
        )

    def test_states_that_do_not_exist(self, cluster: MadeUp) -> None:
        ran = groups("list", "--state", "stabel")
        assert ran.status == Status.USAGE
        assert "'stabel' is none of unknown, preparingrebalance" in ran.err


class TestDescribe:
    def test_every_group_with_what_is_known(self, cluster: MadeUp) -> None:
        found = [
            (row["group_id"], row["partition"], row["lag"], row["member_id"])
            for row in rows("describe", "--all-groups")
        ]
        assert found == [
            ("busy", 0, 5, "one-1"),
            ("busy", 1, None, "one-1"),
            ("idle", 0, 7, None),
            ("idle", 2, 0, None),
            ("moving", 0, None, "one-1"),
            ("moving", 1, None, "one-1"),
        ]

    def test_what_kafkas_tool_says_beside_it(self, cluster: MadeUp) -> None:
        ran = groups("describe", "-g", "idle", "-g", "moving")
        assert ran.err == "muster: group 'idle' has no active members.\nmuster: group 'moving' is rebalancing.\n"
        assert groups("describe", "-g", "idle", "-g", "moving", "--quiet").err == ""

    def test_many_empty_groups_get_one_sentence(self, cluster: MadeUp) -> None:
        cluster.groups = {f"g{number}": Group(f"g{number}", GroupType.CLASSIC, State.EMPTY) for number in range(30)}
        assert groups("describe", "--all-groups").err == "muster: 30 groups have no active members.\n"

    @pytest.mark.parametrize("view", ["describe", "offsets", "members", "state"])
    def test_a_group_that_is_not_there(self, cluster: MadeUp, view: str) -> None:
        ran = groups(view, "-g", "bussy", "--json")
        assert ran == Ran(
            Status.NOTHING_MATCHED,
            "",
            "muster: no group called 'bussy'. Did you mean 'busy'? `muster groups list` shows all 4.\n",
        )
        assert groups(view, "-g", "bussy").out == ""  # not even titles

    def test_one_missing_group_does_not_hide_the_others(self, cluster: MadeUp) -> None:
        ran = groups("state", "-g", "zzz", "-g", "busy", "--csv")
        assert ran.status == Status.NOTHING_MATCHED
        assert ran.out.splitlines() == [
            "group_id,coordinator,protocol,state,members",
            "busy,kafka-1:9092  (1),range,Stable,1",
        ]

    def test_names_may_have_wildcards(self, cluster: MadeUp) -> None:
        assert [row["group_id"] for row in rows("state", "-g", "b*", "-g", "?oving", "-g", "busy")] == [
            "blank", "busy", "moving",
        ]  # fmt: skip
        ran = groups("state", "-g", "zz*", "-g", "idle", "--json")
        assert ran.status == Status.NOTHING_MATCHED
        assert json.loads(ran.out)["group_id"] == "idle"
        assert "no group is called like 'zz*'. `muster groups list` shows all." in ran.err
        assert "no group called 'b*'" in groups("state", "-g", r"b\*").err

    def test_a_refusal_is_named_and_the_rest_shown(self, cluster: MadeUp) -> None:
        why = "you are not allowed to. It needs an ACL for the group; --command-config says who you are."
        cluster.refusals = {"idle": NOT_ALLOWED, "offsets of busy": NOT_ALLOWED}
        ran = groups("describe", "-g", "busy", "-g", "idle", "-g", "moving", "--json", "-q")
        assert ran.status == Status.REFUSED
        assert {json.loads(line)["group_id"] for line in ran.out.splitlines()} == {"moving"}
        assert ran.err.splitlines() == [
            f"muster: group 'idle': {why}",
            f"muster: group 'busy': its offsets cannot be read: {why}",
        ]

    def test_the_flags_of_kafkas_tool_choose_the_view(self, cluster: MadeUp) -> None:
        for flag in ("members", "state", "offsets"):
            assert groups("describe", f"--{flag}", "--all-groups") == groups(flag, "--all-groups")
        assert groups("describe", "--members", "--state", "-g", "busy").status == Status.USAGE

    def test_members_with_assignments(self, cluster: MadeUp) -> None:
        (row,) = rows("members", "-g", "busy", "--verbose")
        assert (row["partitions_assigned"], row["assignment"]) == (
            2,
            [{"topic": "orders", "partitions": [0, 1]}],
        )

    def test_without_a_group(self, cluster: MadeUp) -> None:
        assert "name a group, or take --all-groups" in groups("describe").err
        assert groups("describe", "-g", "a", "--all-groups").status == Status.USAGE
        assert groups("describe", "-g", "").status == Status.USAGE
        assert groups("describe", "-g", "\udcff").status == Status.USAGE

    def test_nobody_answers(self, cluster: MadeUp) -> None:
        cluster.is_gone = True
        for arguments in (
            ["list"],
            ["describe", "-g", "busy"],
            ["delete", "--all-groups"],
            ["members", "--all-groups"],
        ):
            ran = groups(*arguments)
            assert ran == Ran(Status.UNREACHABLE, "", "muster: no answer from made-up:9092 within 8 s.\n")

    def test_debug_shows_where(self, cluster: MadeUp) -> None:
        cluster.is_gone = True
        assert "Traceback" in groups("list", "--debug").err


class TestReset:
    SCOPE = ("reset-offsets", "-g", "idle", "--all-topics")

    def test_a_dry_run_is_the_default_and_says_so_unless_it_was_asked_for(self, cluster: MadeUp) -> None:
        ran = groups(*self.SCOPE, "--to-earliest")
        assert ran.out == (
            "GROUP  TOPIC   PARTITION  NEW-OFFSET\n"
            "idle   orders          0           0\n"
            "idle   orders          2           0\n"
        )  # fmt: skip
        assert ran.err == "muster: a dry run: nothing was changed. Add --execute to reset these offsets.\n"
        assert groups(*self.SCOPE, "--to-earliest", "--dry-run").err == ""
        assert cluster.altered == {}

    def test_execute(self, cluster: MadeUp) -> None:
        ran = groups(*self.SCOPE, "--to-offset", "25", "--execute", "--json")
        assert cluster.altered == {"idle": {ORDERS[0]: 10, ORDERS[2]: 25}}
        assert (ran.status, len(ran.out.splitlines())) == (Status.OK, 2)
        assert ran.err == "muster: 25 is beyond the end of orders-0: taking its end, 10.\nmuster: 2 offsets reset.\n"

    def test_verbose_shows_where_the_group_is(self, cluster: MadeUp) -> None:
        found = rows("reset-offsets", "-g", "idle", "-t", "orders", "--to-latest", "--verbose")
        assert [(row["committed_offset"], row["new_offset"]) for row in found] == [(3, 10), (None, 20), (30, 30)]

    def test_groups_in_use_are_left_alone(self, cluster: MadeUp) -> None:
        ran = groups("reset-offsets", "--all-groups", "--topic", "orders:1", "--to-latest", "--execute", "-q")
        assert ran.status == Status.REFUSED
        assert cluster.altered == {"idle": {ORDERS[1]: 20}, "blank": {ORDERS[1]: 20}}
        assert ran.err.splitlines() == [
            "muster: offsets can only be reset while nobody uses the group, and 'busy' is Stable with 1 member. "
            "Stop them first.",
            "muster: offsets can only be reset while nobody uses the group, and 'moving' is PreparingRebalance with "
            "1 member. Stop them first.",
        ]

    def test_a_new_group_gets_its_first_offsets(self, cluster: MadeUp) -> None:
        ran = groups("reset-offsets", "-g", "fresh", "-t", "orders", "--to-latest", "--dry-run")
        assert len(ran.out.splitlines()) == 4
        assert ran.err == "muster: group 'fresh' does not exist yet; --execute would create it.\n"
        fresh = rows("reset-offsets", "-g", "fresh", "-t", "orders:0", "--to-latest", "--verbose")
        assert [row["committed_offset"] for row in fresh] == [None]

    def test_nothing_was_ever_committed(self, cluster: MadeUp) -> None:
        ran = groups("reset-offsets", "-g", "blank", "--all-topics", "--to-latest")
        assert (ran.status, ran.out) == (Status.NOTHING_MATCHED, "")
        assert ran.err.startswith("muster: nothing to reset")

    def test_a_topic_that_is_not_there_stops_everything(self, cluster: MadeUp) -> None:
        ran = groups("reset-offsets", "-g", "idle", "-t", "orders", "-t", "odrers", "--to-latest", "--execute")
        assert (ran.status, ran.out, cluster.altered) == (Status.REFUSED, "", {})
        assert ran.err == "muster: topic 'odrers': there is no such topic or partition. Nothing is reset.\n"

    def test_one_impossible_group_does_not_stop_the_others(self, cluster: MadeUp) -> None:
        cluster.groups["other"] = cluster.groups["idle"]._replace(group_id="other")
        cluster.offsets["other"] = {ORDERS[1]: Committed(4)}
        ran = groups("reset-offsets", "-g", "idle", "-g", "other", "-t", "orders:1", "--shift-by", "1", "--execute")
        assert ran.status == Status.REFUSED
        assert cluster.altered == {"other": {ORDERS[1]: 5}}
        assert "group 'idle' has no committed offset of orders-1 to shift" in ran.err

    def test_what_the_cluster_refuses_is_not_shown_as_done(self, cluster: MadeUp) -> None:
        cluster.alter_refusals = {"idle": {ORDERS[2]: Refusal("UNKNOWN_MEMBER_ID", "Unknown member")}}
        ran = groups(*self.SCOPE, "--to-latest", "--execute", "--json")
        assert ran.status == Status.REFUSED
        assert [json.loads(line)["partition"] for line in ran.out.splitlines()] == [0]
        assert "orders-2 was not reset: somebody joined it meanwhile" in ran.err

    def test_export_and_back(self, cluster: MadeUp, tmp_path: Path) -> None:
        ran = groups(*self.SCOPE, "--to-current", "--export", "-q")
        assert ran.out == "orders,0,3\norders,2,30\n"
        plan = tmp_path / "plan.csv"
        plan.write_text(ran.out)
        groups("reset-offsets", "-g", "idle", "--from-file", plan, "--execute")
        assert cluster.altered == {"idle": {ORDERS[0]: 3, ORDERS[2]: 30}}

    def test_several_groups_are_exported_by_name(self, cluster: MadeUp, tmp_path: Path) -> None:
        ran = groups("reset-offsets", "-g", "idle", "-g", "fresh", "-t", "orders:0", "--to-latest", "--export", "-q")
        assert ran.out == "fresh,orders,0,10\nidle,orders,0,10\n"
        plan = tmp_path / "plan.csv"
        plan.write_text("fresh,orders,0,4\n")
        ran = groups("reset-offsets", "-g", "idle", "-g", "fresh", "--from-file", plan, "--execute")
        assert (ran.status, cluster.altered) == (Status.REFUSED, {"fresh": {ORDERS[0]: 4}})
        assert "the file has no offset for group 'idle'" in ran.err
        assert groups("reset-offsets", "--all-groups", "--from-file", plan).status == Status.REFUSED  # two are in use

    def test_times(self, cluster: MadeUp) -> None:
        for spec in (["--to-datetime", "2026-01-31T12:30:00.000"], ["--by-duration", "PT2H"]):
            assert [row["new_offset"] for row in rows(*self.SCOPE, *spec)] == [7, 7]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "choose one of --to-earliest, --to-latest, --to-current"),
            (["--to-latest", "--to-earliest"], "choose one of --to-earliest and --to-latest"),
            (["--to-latest", "--dry-run", "--execute"], "it does not go with --execute"),
            (["--to-latest", "--topic", "orders"], "it does not go with --all-topics"),
            (["--to-latest", "--export", "--json"], "it does not go with --json"),
            (["--to-datetime", "tomorrow"], "'tomorrow' is not a time"),
            (["--by-duration", "2h"], "'2h' is not a duration"),
            (["--to-latest", "--json", "--csv"], "it does not go with --csv"),
        ],
    )
    def test_contradictions(self, cluster: MadeUp, arguments: list[str], words: str) -> None:
        ran = groups(*self.SCOPE, *arguments)
        assert (ran.status, ran.out) == (Status.USAGE, "")
        assert words in ran.err

    def test_a_scope_is_needed_and_a_file_is_one(self, cluster: MadeUp, tmp_path: Path) -> None:
        assert "take --all-topics" in groups("reset-offsets", "-g", "idle", "--to-latest").err
        plan = tmp_path / "plan.csv"
        plan.write_text("orders,0,1\n")
        assert groups("reset-offsets", "-g", "idle", "--from-file", plan, "--all-topics").status == Status.USAGE
        for scope in (["--all-groups"], ["-g", "idle", "-g", "blank"]):
            ran = groups("reset-offsets", *scope, "--from-file", plan)
            assert (ran.status, "its lines name no group" in ran.err) == (Status.USAGE, True)
        missing = groups("reset-offsets", "-g", "idle", "--from-file", tmp_path / "none.csv")
        assert (missing.status, "none.csv does not exist" in missing.err) == (Status.BAD_INPUT, True)


class TestDelete:
    def test_what_went_and_what_did_not(self, cluster: MadeUp) -> None:
        ran = groups("delete", "-g", "idle", "-g", "busy")
        assert ran.status == Status.REFUSED
        assert ran.out == "GROUP  STATUS\nbusy   Error: not empty\nidle   Successful\n"
        assert ran.err.startswith("muster: group 'busy' was not deleted: it still has members. Stop them")

    def test_no_such_group(self, cluster: MadeUp) -> None:
        ran = groups("delete", "-g", "zzz", "--json")
        assert ran.status == Status.NOTHING_MATCHED
        assert json.loads(ran.out)["error_code"] == "GROUP_ID_NOT_FOUND"

    def test_groups_by_a_pattern(self, cluster: MadeUp) -> None:
        assert [row["group_id"] for row in rows("delete", "-g", "?dle")] == ["idle"]
        assert groups("delete", "-g", "zz*") == Ran(
            Status.NOTHING_MATCHED, "", "muster: no group is called like 'zz*'. `muster groups list` shows all.\n"
        )
        assert "one group at a time" in groups("delete-offsets", "-g", "i*", "-t", "orders").err

    def test_all_or_none_when_some_cannot_be_listed(self, cluster: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
        assert [row["status"] for row in rows("delete", "--all-groups")].count("Successful") == 2
        cluster.unlisted = [NOT_ALLOWED]
        monkeypatch.setattr(cluster, "delete", pytest.fail)
        assert groups("delete", "--all-groups").status == Status.UNREACHABLE

    def test_offsets_want_a_group_and_topics(self, cluster: MadeUp) -> None:
        assert "name a group" in groups("delete-offsets", "-t", "orders").err
        assert "name the topics" in groups("delete-offsets", "-g", "idle").err
        assert groups("delete-offsets", "-g", "idle", "-t", "orders:x").status == Status.USAGE
        missing = groups("delete-offsets", "-g", "zzz", "-t", "orders")
        assert (missing.status, missing.out) == (Status.NOTHING_MATCHED, "")

    def test_offsets(self, cluster: MadeUp) -> None:
        ran = groups("delete-offsets", "-g", "idle", "-t", "orders", "-t", "typo")
        assert ran.status == Status.REFUSED
        assert ran.out.splitlines() == [
            "TOPIC   PARTITION  STATUS",
            "orders          0  Successful",
            "orders          1  Error: Subscribed",
            "orders          2  Successful",
            "typo            -  Error: Unknown topic or partition",
        ]
        assert "orders-1 was not forgotten: its members are subscribed to the topic" in ran.err


class TestUnreachable:
    """Against sockets of our own: real waiting, so few and short."""

    def test_nobody_listens(self) -> None:
        started = time.monotonic()
        ran = run("groups", "list", "-b", "127.0.0.1:1")
        assert time.monotonic() - started < 10
        assert (ran.status, ran.out) == (Status.UNREACHABLE, "")
        assert re.search(r"no answer from 127\.0\.0\.1:1 within [2-6] s \(Connect to", ran.err)
        assert "Connection refused" in ran.err
        assert "(after" not in ran.err

    def test_somebody_listens_and_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asking, "FIRST_ANSWER_S", 1.0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            started = time.monotonic()
            ran = run("groups", "describe", "-g", "any", "-b", f"127.0.0.1:{port}")
            assert 0.9 < time.monotonic() - started < 7
        assert ran.status == Status.UNREACHABLE

    def test_it_is_no_broker(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as web:

            def answer() -> None:
                while True:
                    try:
                        link, _ = web.accept()
                    except OSError:
                        return
                    with link:
                        link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            threading.Thread(target=answer, daemon=True).start()
            ran = run("groups", "delete-offsets", "-g", "a", "-t", "b:0", "-b", f"127.0.0.1:{web.getsockname()[1]}")
        assert ran.status == Status.UNREACHABLE

    def test_it_must_be_named(self) -> None:
        ran = run("groups", "list")
        assert ran.status == Status.USAGE
        assert "--bootstrap-server: name a broker of the cluster" in ran.err


class TestProcess:
    def test_other_commands_do_not_load_the_client_library(self) -> None:
        script = (
            "import sys; from muster.cli.main import main; main(['groups', 'describe', '--help']);"
            "print([name for name in ('confluent_kafka', 'muster.codec', 'muster.cli.groups.look') "
            "if name in sys.modules])"
        )
        ran = subprocess.run([command()[0], "-c", script], capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines()[-1] == "[]"

    def test_without_the_client_library_it_says_what_to_install(self) -> None:
        script = (
            "import sys; sys.modules['confluent_kafka'] = None; from muster.cli.main import main;"
            "sys.exit(main(['groups', 'list', '-b', 'there:9092']))"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert ran.returncode == Status.BAD_INPUT
        assert "`muster groups` needs confluent_kafka: pip install 'muster[groups]'." in ran.stderr

    def test_the_real_entry_point_knows_all_commands(self) -> None:
        ran = run_process("groups", "--help")
        for name in ("list", "describe", "members", "state", "offsets", "reset-offsets", "delete", "delete-offsets"):
            assert f" {name} " in ran.out
