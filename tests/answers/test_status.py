"""Verdicts, forecasts and findings as people ask for them, over hand-made tables in which every number is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.answers.expiring import expiring
from muster.answers.findings import Finding, findings, level_of_findings
from muster.answers.levels import Level
from muster.answers.status import group_status, level_of, partition_status, told
from muster.cli.main import main
from muster.cli.questions.findings import alike
from muster.cli.status import Status
from muster.tables.reading import Tables, open_tables
from tests.tables.history import PUBLISHED_AT_MS, published
from tests.tables.made import made

MINUTE = 60_000
T = PUBLISHED_AT_MS
DAY = 86_400_000


def judged(group: str, partition: int, verdict: str | None, lag: int | None, **more: Any) -> dict[str, Any]:
    known = {"group_id": group, "topic": "orders", "partition": partition, "verdict": verdict, "lag": lag}
    times = {"verdict_since_ms": T - MINUTE, "at_ms": T, "last_commit_ms": T - MINUTE}
    return times | known | {"committed_offset": 100, "log_end_offset": 100 + (lag or 0)} | more


STATUS_ROWS = (
    judged("well", 0, "OK", 0, verdict_since_ms=T - 9 * MINUTE),
    judged("well", 1, "OK", 3),
    judged("stuck", 0, "OK", 1),
    judged("stuck", 1, "STALLED", 70, verdict_since_ms=T - 12 * MINUTE, lag_ms=748_000),
    judged("stuck", 2, "STALLED", 900, verdict_since_ms=T - 5 * MINUTE, lag_ms=5_000),
    judged("slow", 0, "WARN", 50),
    judged("unseen", 0, None, None),
    judged("gone soon", 0, "EXPIRING", 0),
    judged("losing", 0, "LOSING", 8, lost_records=5),
)
GROUPS = ("well", "stuck", "slow", "unseen", "gone soon", "losing", "new")
EXPIRY_ROWS = (
    {"group_id": "gone soon", "topic": "orders", "partition": 0, "expires_at_ms": T + DAY, "rule": "r"},
    {"group_id": "gone soon", "expires_at_ms": T + 3 * DAY, "rule": "r"},
    {"group_id": "well", "topic": "orders", "partition": 0, "rule": "kept"},
)
FINDING_ROWS = (
    {"kind": "commit-storm", "severity": "info", "group_id": "well", "at_ms": T},
    {"kind": "stuck-partition", "severity": "error", "group_id": "stuck", "topic": "orders", "partition": 1, "at_ms": T,
     "since_ms": T - 748_000, "evidence": '{"lag": 70}', "sentence": "it stands", "what_to_do": "look"},
    {"kind": "damage", "severity": "warning", "at_ms": T, "sentence": "a hole\x1b[2J"},
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged")
    groups = ({"group_id": name, "state": "Stable", "members": 2, "type": "classic"} for name in GROUPS)
    published(path, {
        "status": made("status", *STATUS_ROWS),
        "expiry": made("expiry", *EXPIRY_ROWS),
        "findings": made("findings", *FINDING_ROWS),
        "groups": made("groups", *groups),
    })  # fmt: skip
    return path


@pytest.fixture
def tables(folder: Path) -> Any:
    with open_tables(folder) as opened:
        yield opened


def test_the_worst_groups_come_first(tables: Tables) -> None:
    found = group_status(tables)
    assert [(one.group_id, one.overall, one.verdict) for one in found] == [
        ("losing", "ERR", "LOSING"),
        ("stuck", "ERR", "STALLED"),
        ("gone soon", "WARN", "EXPIRING"),
        ("slow", "WARN", "WARN"),
        ("well", "OK", "OK"),
        ("new", None, None),
        ("unseen", None, None),
    ]
    assert told(found) == "7 groups: 2 in error, 2 to be watched, 1 OK, 2 without a verdict"


def test_a_group_is_told_by_its_worst_partition(tables: Tables) -> None:
    (found,) = group_status(tables, ["stuck"])
    assert found.where == "orders-2"  # the one that is furthest behind
    assert found.verdict_since_ms == T - 12 * MINUTE  # the first, as pages say of moments of the past
    assert (found.partitions, found.partitions_not_ok, found.lag, found.lag_ms) == (3, 2, 971, 748_000)
    assert (found.state, found.members) == ("Stable", 2)
    (well,) = group_status(tables, ["well"])
    assert well.verdict_since_ms == T - MINUTE  # since all of it is


def test_when_the_first_of_a_group_expires(tables: Tables) -> None:
    by_group = {one.group_id: one.expires_at_ms for one in group_status(tables)}
    assert by_group["gone soon"] == T + DAY
    assert by_group["well"] is None


def test_partitions(tables: Tables) -> None:
    found = partition_status(tables, ["stuck", "los*"])
    assert [(one.group_id, one.partition, one.verdict) for one in found] == [
        ("losing", 0, "LOSING"), ("stuck", 2, "STALLED"), ("stuck", 1, "STALLED"), ("stuck", 0, "OK"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "level"),
    [
        (["OK", None], Level.WELL),
        ([], Level.WELL),
        (["OK", "WARN"], Level.WARNING),
        (["EXPIRING"], Level.WARNING),
        (["WARN", "STALLED"], Level.ERROR),
        (["LOSING"], Level.ERROR),
    ],
)
def test_how_much_attention_verdicts_need(verdicts: list[str | None], level: Level) -> None:
    assert level_of(verdicts) is level


def test_what_expires_until_a_moment(tables: Tables) -> None:
    found = expiring(tables, T + 2 * DAY, T)
    assert [(one.group_id, one.topic, one.in_ms) for one in found] == [("gone soon", "orders", DAY)]
    assert [one.topic for one in expiring(tables, T + 3 * DAY, T)] == ["orders", None]


def test_findings_come_gravest_first(tables: Tables) -> None:
    found = findings(tables)
    assert [one.kind for one in found] == ["stuck-partition", "damage", "commit-storm"]
    assert level_of_findings(found) is Level.ERROR
    assert level_of_findings(findings(tables, severities=["info"])) is Level.WELL
    assert [one.kind for one in findings(tables, ["well"])] == ["commit-storm"]


def ask(folder: Path, *command: str) -> int:
    return main([*command, "--tables", str(folder)])


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("status",), Status.ERROR),
        (("status", "well"), Status.OK),
        (("status", "slow", "well"), Status.WARNING),
        (("status", "unseen"), Status.OK),
        (("status", "wel"), Status.NOTHING_MATCHED),
        (("findings",), Status.ERROR),
        (("findings", "-s", "warning"), Status.WARNING),
        (("findings", "slow"), Status.OK),
        (("findings", "nobody"), Status.NOTHING_MATCHED),
        (("expiring", "--within", "1w"), Status.OK),
        (("expiring", "nobody"), Status.NOTHING_MATCHED),
    ],
)
def test_exit_codes(folder: Path, command: tuple[str, ...], code: Status, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(folder, *command) == code


def test_a_similar_name_is_offered(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ask(folder, "status", "wel")
    assert "no group called 'wel'. Did you mean 'well'?" in capfd.readouterr().err


def test_text_for_people(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ask(folder, "status")
    out, err = capfd.readouterr()
    assert out.splitlines()[0].split()[:6] == ["GROUP", "VERDICT", "SINCE", "LAG", "BEHIND", "WHERE"]
    assert "stuck      STALLED   " in out
    assert "12 min 28 s  orders-2" in out
    assert "\x1b" not in out
    assert "7 groups: 2 in error" in err
    assert "when the pipeline last looked" in err


def test_objects_for_programs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ask(folder, "status", "stuck", "--json")
    first = json.loads(capfd.readouterr().out.splitlines()[0])
    assert first["verdict"] == "STALLED"
    assert first["lag_ms"] == 5_000
    assert first["verdict_since"].endswith("Z")
    ask(folder, "findings", "--json")
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert lines[0]["evidence"] == {"lag": 70}
    assert set(lines[0]) >= {"severity", "kind", "group_id", "topic", "partition", "since", "at", "what_to_do"}


def test_findings_as_text_obey_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ask(folder, "findings")
    out = capfd.readouterr().out
    assert out.splitlines()[0].startswith("ERROR  stuck-partition  stuck  orders-1  since ")
    assert out.splitlines()[0].endswith("for 12 min 28 s")
    assert "    To do: look" in out
    assert "\x1b" not in out
    assert "a hole\\u001B[2J" in out


def test_the_same_of_several_partitions_is_said_once() -> None:
    def one(partition: int | None, group: str = "g", kind: str = "stuck-partition") -> Finding:
        return Finding("error", kind, group, "t", partition, None, None, f"{partition}", "look", None, T)

    found = [one(0), one(1), one(0, "h"), one(2), one(None, kind="damage"), one(None, kind="damage")]
    told = [(first.sentence, [each.sentence for each in others]) for first, others in alike(found)]
    assert told == [("0", ["1", "2"]), ("0", []), ("None", []), ("None", [])]


def test_a_moment_before_all_records_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing known must not look as if all were well."""
    names = ("status", "expiry", "findings", "groups", "verdicts")
    commit = {"kind": "commit", "group_id": "g", "topic": "t", "timestamp_ms": T - DAY, "committed_offset": 1}
    published(tmp_path, {name: made(name) for name in names} | {"commits": made("commits", commit)})
    for command in (("status",), ("findings",), ("expiring",), ("why", "g"), ("lag",)):
        assert ask(tmp_path, *command, "--as-of", str(T - 2 * DAY)) == Status.BAD_INPUT, command
        assert "the oldest record in the tables" in capfd.readouterr().err


def test_tables_without_verdicts_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    published(tmp_path, {"groups": made("groups")})
    for command in ("status", "findings", "expiring"):
        assert ask(tmp_path, command) == Status.BAD_INPUT
    assert "have no status and no expiry: no run has made them yet" in capfd.readouterr().err
