"""What happened to a group, over tables of a real log and over hand-made ones."""

import json
from pathlib import Path

import pytest

from muster.answers.why import why
from muster.cli.main import main
from muster.cli.status import Status
from muster.tables.reading import open_tables
from tests.tables.history import PUBLISHED_AT_MS, published
from tests.tables.made import made

T = PUBLISHED_AT_MS
MINUTE = 60_000
GROUP = "odd*\x1b[2J"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("why")
    key = {"group_id": GROUP, "topic": "orders", "partition": 0}
    other = {"group_id": "odd one", "topic": "orders", "partition": 0}
    known = {"state": "Stable", "members": 2, "type": "classic", "generation": 7, "committed_partitions": 1}
    published(path, {
        "groups": made("groups", {"group_id": GROUP, "protocol": "range", **known}, {"group_id": "odd one", **known}),
        "offsets": made("offsets", key | {"committed_offset": 5}, other | {"committed_offset": 9}),
        "status": made("status", key | {"verdict": "STALLED", "verdict_since_ms": T - 9 * MINUTE, "at_ms": T, "lag": 70,
                                        "lag_ms": 748_000, "last_commit_ms": T - MINUTE}),
        "expiry": made("expiry", key | {"expires_at_ms": T + 60 * MINUTE, "rule": "r"}),
        "verdicts": made("verdicts", key | {"at_ms": T - 9 * MINUTE, "verdict": "STALLED", "verdict_before": "OK"},
                         other | {"at_ms": T - 9 * MINUTE, "verdict": "OK"}),
        "rebalances": made("rebalances",
                           {"group_id": GROUP, "at_ms": T - 20 * MINUTE, "cause": "member left", "members": 2,
                            "joined": [], "left": ["c-3f"], "commit_gap_ms": 30_000, "type": "classic"},
                           {"group_id": GROUP, "at_ms": T - 18 * MINUTE, "cause": "static member returned",
                            "members": 2, "joined": ["c-4a"], "left": ["c-2b"], "commit_gap_ms": 3},
                           {"group_id": GROUP, "at_ms": T - 999 * MINUTE, "cause": "member joined", "members": 3}),
        "rates": made("rates", key | {"interval_start_ms": T - 15 * MINUTE, "interval_ms": 5 * MINUTE, "rewinds": 2,
                                      "rewound": 1200}),
        "commits": made("commits", key | {"kind": "deleted", "timestamp_ms": T - 12 * MINUTE}),
        "findings": made("findings", key | {"kind": "stuck-partition", "severity": "error", "at_ms": T,
                                            "sentence": "it stands", "what_to_do": "skip it", "evidence": "{}"}),
    })  # fmt: skip
    return path


def test_facts_in_order(folder: Path) -> None:
    with open_tables(folder) as tables:
        told = why(tables, GROUP, T - 60 * MINUTE)
        assert why(tables, "odd", 0) is None
    assert told is not None
    assert (told.group.generation, told.group.topics) == (7, ("orders",))
    assert told.status.verdict == "STALLED"
    assert [(event.kind, event.what, event.number) for event in told.events] == [
        ("rebalance", "member left", 2),
        ("return", "static member returned", 2),
        ("rewind", "2 times", 1200),
        ("deletion", "deleted", 1),
        ("verdict", "STALLED", 1),
    ]
    assert told.events[0].who == ("-c-3f",)
    assert [finding.kind for finding in told.findings] == ["stuck-partition"]


def test_a_name_with_wildcards_is_a_name(folder: Path) -> None:
    with open_tables(folder) as tables:
        told = why(tables, GROUP, 0)
    assert told is not None
    assert len(told.events) == 6
    assert told.group.committed_partitions == 1


def test_the_page(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    since = str(T - 60 * MINUTE)
    assert main(["why", GROUP, "--tables", str(folder), "--since", since]) == Status.ERROR
    out = capfd.readouterr().out
    assert "\x1b" not in out
    for line in (
        "is a classic group, Stable, generation 7, with 2 members, assigned by range.",
        "STALLED, since ",
        "70 records wait; the oldest has waited 12 min 28 s.",
        "rebalance: member left, 2 members now, nobody committed for 30.0 s  -c-3f",
        "  no rebalance: a static member returned  +c-4a -c-2b\n",
        "went back 1,200 records (2 times within 5 min)",
        "1 offset deleted",
        "Its first offset will be deleted at ",
        "error: it stands",
        "    skip it",
    ):
        assert line in out, line
    assert out.index("went back") < out.index("1 offset deleted") < out.index("STALLED on 1 partition")


def test_one_object_for_programs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["why", GROUP, "--tables", str(folder), "--json", "--since", str(T - 60 * MINUTE)])
    told = json.loads(capfd.readouterr().out)
    assert told["group"]["group_id"] == GROUP
    assert told["status"]["verdict_since"].endswith("Z")
    assert [event["kind"] for event in told["events"]] == ["rebalance", "return", "rewind", "deletion", "verdict"]


def test_a_group_that_is_not_there(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "odd two", "--tables", str(folder)]) == Status.NOTHING_MATCHED
    assert "Did you mean 'odd one'?" in capfd.readouterr().err


def test_a_group_that_is_behind_is_not_said_to_keep_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [{"group_id": group, "topic": "orders", "partition": 0} for group in ("falls", "reads", "idle")]
    known = {"state": "Stable", "members": 1, "type": "classic", "committed_partitions": 1}
    judged = zip(keys, ("WARN", "OK", "OK"), (70, 70, 0), strict=True)
    published(tmp_path, {
        "groups": made("groups", *({"group_id": key["group_id"], **known} for key in keys)),
        "offsets": made("offsets", *(key | {"committed_offset": 5} for key in keys)),
        "status": made("status", *(key | {"verdict": said, "at_ms": T, "lag": lag} for key, said, lag in judged)),
        "expiry": made("expiry"), "verdicts": made("verdicts"), "findings": made("findings"),
    })  # fmt: skip
    said = {}
    for key in keys:
        main(["why", str(key["group_id"]), "--tables", str(tmp_path)])
        said[key["group_id"]] = capsys.readouterr().out
    assert "It reads, and falls behind" in said["falls"]
    assert "Give it more members" in said["falls"]
    assert "It reads on; nothing says yet that it falls behind." in said["reads"]
    assert "It keeps up." in said["idle"]
    assert "Nothing that muster knows of." in said["idle"]
