"""The questions as people and programs see them, over tables in which every number is known."""

import csv
import errno
import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from muster.cli.people import shown_duration
from muster.cli.questions import watching
from muster.cli.questions.completion import complete_group
from muster.cli.questions.lag import sparkline
from muster.cli.status import Status
from muster.errors import BadInput
from tests.answers.world import DAY_MS, EIGHT_MS, HISTORY, HOUR_MS, NOW_MS, STATE, at, publish
from tests.cli import command, plain, run, run_on_terminal
from tests.pipeline.world import run_here, unpacked

ROWS = ("status", "lag", "expiring", "findings")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("tables"))


def objects(*arguments: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").out.splitlines()]


def test_lag_for_people(tables: Path) -> None:
    status, out, err = run("lag", "--tables", tables, "--since", "2h")
    assert status == Status.OK
    head, first, *_ = out.splitlines()
    assert head.split()[:3] == ["GROUP", "LAG", "LOST"]
    assert "BEHIND-SINCE (UTC)  LAST 2 H" in head
    assert re.match(r"orders-app +100 +- +12 min 28 s +11-17 08:00 +▁.*▄.*█ +1/2", first)
    assert "< 11-17 08:05" in out
    assert "2 of 4 groups are behind, by 107 records in all; of 1 group it is not known." in err


def test_lag_as_of_a_moment_between_two_looks_is_drawn(tables: Path) -> None:
    status, out, err = run("lag", "orders-app", "--tables", tables, "--as-of", "2026-11-17T08:10")
    assert status == Status.OK
    rows = objects("lag", "orders-app", "--tables", tables, "--as-of", "2026-11-17T08:10")
    first = next(row for row in rows if row["partition"] == 0)
    assert 510 < first["log_end_offset"] < 600
    assert (first["log_end_by"], first["lag"]) == ("interpolated", first["log_end_offset"] - first["committed_offset"])
    assert f" {first['log_end_offset']} " in out
    told = "log ends are drawn between the looks before and after that moment, and lags by them."
    assert told in err
    assert told in run("lag", "--tables", tables, "--as-of", "2026-11-17T08:10").err
    assert "are drawn" not in run("lag", "orders-app", "--tables", tables).err


def test_lag_as_of_a_moment_before_the_first_look_is_unknown(tables: Path) -> None:
    status, _, err = run("lag", "--tables", tables, "--as-of", "2026-11-17T07:45")
    assert status == Status.OK
    assert "is the lag known" in err
    assert "behind" not in err


def test_the_trend_finds_room_on_a_terminal(tables: Path) -> None:
    assert "█" in run_on_terminal("lag", "--tables", tables, "--since", "2h", columns=80).out


def test_totals_of_lag_are_sums_of_the_table(tables: Path) -> None:
    rows, totals = objects("table", "lag", "--tables", tables), objects("lag", "--tables", tables)
    assert [each["group_id"] for each in totals] == ["orders-app", "billing", "nightly-audit", "new"]
    for each in totals:
        lags = [row["lag"] for row in rows if row["group_id"] == each["group_id"]]
        assert each["lag"] == (None if lags == [None] else sum(lags))
        assert each["partitions"] == len(lags)


def test_lag_of_one_group_is_by_partition_with_a_total(tables: Path) -> None:
    status, out, err = run("lag", "orders-app", "--tables", tables)
    assert status == Status.OK
    assert [line.split()[:2] for line in out.splitlines()] == [["TOPIC", "PARTITION"], ["orders", "0"], ["orders", "1"]]
    assert "in all: 100 records behind, 12 min 28 s, on 1 of 2 partitions." in err
    first = objects("lag", "orders-app", "--tables", tables)[0]
    assert (first["behind_since"], first["was_behind_before"], first["lag_ms"]) == (
        "2026-11-17T08:00:00.000Z", False, 748_561,
    )  # fmt: skip
    assert len(first["trend"]) == 24


@pytest.mark.parametrize("question", ROWS)
def test_programs_get_the_names_of_tables_and_nothing_for_a_terminal(tables: Path, question: str) -> None:
    rows = objects(question, "--tables", tables)
    assert rows
    names = {name.removesuffix("_ms") if name in ("since_ms", "at_ms") else name for name in rows[0]}
    assert not any(name.endswith("_ms") for name in names - {"lag_ms", "retention_ms", "in_ms"})
    out = run(question, "--tables", tables, "--csv").out
    assert [sorted(row) for row in csv.DictReader(io.StringIO(out))] == [sorted(row) for row in rows]
    assert "\x1b" not in out + run(question, "--tables", tables).out


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "question", [*ROWS, "lag orders-app", "status orders-app", "history orders-app", "compare 2026-11-17T07:00 now"]
)
def test_a_row_is_a_line_on_a_terminal(tables: Path, question: str, columns: int) -> None:
    ran = run_on_terminal(*question.split(), "--tables", tables, columns=columns)
    lines = [plain(line) for line in ran.out.splitlines() if not line.startswith("muster: ")]
    assert len(lines) > 2
    assert max(map(cell_len, lines)) <= columns


def test_history_for_people(tables: Path) -> None:
    status, out, _ = run("history", "orders-app", "--tables", tables)
    lines = [line.split(maxsplit=3) for line in out.splitlines()]
    assert status == Status.OK
    assert lines[0] == ["AT", "(UTC)", "EVENT", "WHAT"]
    assert lines[1] == ["2026-11-17", "05:55:00", "rebalance", "first members, 1 member: +shop-0"]
    assert lines[2][2:] == ["commits", "3 commits in 20 min"]
    assert ["reset", "orders-0 from 700 to 450, 250 back"] in [line[2:] for line in lines]
    assert ["expired", "old-0"] in [line[2:] for line in lines]
    assert lines[7][3] == "member joined, 2 members: +shop-0 +shop-1; 10 min without commits"
    few = run("history", "orders-app", "--tables", tables, "-n", "2")
    assert [line.split()[2] for line in few.out.splitlines()[1:]] == ["verdict", "commits"]
    assert "9 earlier events." in few.err
    first = objects("history", "orders-app", "--tables", tables)[0]
    assert (first["at"], first["until"], first["joined"]) == ("2026-11-17T05:55:00.000Z",) * 2 + (["shop-0"],)
    missing = run("history", "order-app", "--tables", tables)
    assert missing.status == Status.NOTHING_MATCHED
    assert "Did you mean 'orders-app'?" in missing.err


def test_compared_for_people(tables: Path) -> None:
    status, out, err = run("compare", "2026-11-17T07:00", "now", "--tables", tables)
    assert status == Status.OK
    assert out.splitlines()[1].split()[:8] == ["orders-app", "?", "→", "100", "0", "200", "0", "→"]
    assert "4 of 4 groups changed." in err
    assert "from 2026-11-17 07:00:00 UTC to 2026-11-17 08:33:04 UTC." in err
    status, out, err = run("compare", "2026-11-17T08:01", "now", "orders-app", "--tables", tables)
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["orders", "0"], ["orders", "1"]]
    assert "members: 0 → 2: +shop-0 +shop-1." in err
    assert "is not after T1" in run("compare", "2026-11-17T08:00", "2026-11-17T07:00", "--tables", tables).err
    late = run("compare", "2100-01-01", "now", "--tables", tables)
    assert (late.status, "or leave that moment out to see" in late.err) == (Status.BAD_INPUT, True)
    after = run("compare", "2026-11-17T08:33:04", "now", "--tables", tables)
    assert (after.status, "is not before 2026-11-17 08:33:04 UTC" in after.err) == (Status.BAD_INPUT, True)
    early = run("compare", "2020-01-01", "now", "--tables", tables)
    assert (early.status, early.out) == (Status.BAD_INPUT, "")
    assert "nothing is known of 2020-01-01 00:00:00 UTC. Ask for 2026-" in early.err


@pytest.mark.parametrize(
    "question", ["status", "lag", "compare 2026-11-17T08:01 now", "expiring --within 30d", "findings"]
)
def test_one_of_several_groups_is_not_there(tables: Path, question: str) -> None:
    """The others are answered for, and nobody takes it for an answer about all."""
    there = ("orders-app", "nightly-audit")
    status, out, err = run(*question.split(), *there, "order-app", "x*", "--tables", tables)
    assert any(group in out for group in there)
    assert "no group called 'order-app'. Did you mean 'orders-app'?" in err
    assert "no group matches 'x*'; there are 4." in err
    alone = run(*question.split(), *there, "--tables", tables).status
    assert status == (alone if alone != Status.OK else Status.NOTHING_MATCHED)


def test_many_groups_are_not_all_shown(tmp_path: Path) -> None:
    some = [row | {"group_id": f"group-{number}"} for number in range(50) for row in STATE["lag"][:1]]
    path = publish(tmp_path, lag=some)
    status, out, err = run("lag", "--tables", path)
    assert (status, len(out.splitlines())) == (Status.OK, 41)
    assert "10 more rows. --limit 0 shows all, --json and --csv do too." in err
    assert len(run("lag", "--tables", path, "--limit", "0").out.splitlines()) == 51
    assert len(objects("lag", "--tables", path)) == 50
    assert "muster: 48 more rows. --limit 0 shows all.\n" in run("lag", "--tables", path, "--json", "-n", "2").err
    assert " ?  " in out  # there is no history of these
    assert "? for BEHIND-SINCE: longer than history was looked through, or nobody saw it begin" in err


@pytest.mark.parametrize("question", [*ROWS, "why", "history"])
def test_a_group_that_is_not_there(tables: Path, question: str) -> None:
    status, out, err = run(question, "order-app", "--tables", tables)
    assert (status, out) == (Status.NOTHING_MATCHED, "")
    assert "no group called 'order-app'. Did you mean 'orders-app'? `muster table groups` shows all 4." in err


@pytest.mark.parametrize("question", ROWS)
def test_moments_that_the_tables_do_not_know(tables: Path, question: str) -> None:
    status, _, err = run(question, "--tables", tables, "--as-of", "2100-01-01")
    assert status == Status.BAD_INPUT
    assert "end at 2026-11-17 08:33:04 UTC" in err


@pytest.mark.parametrize("question", ROWS)
def test_again_and_again_until_it_is_stopped(tables: Path, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(length_s: float) -> None:
        slept.append(length_s)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching, "sleep", sleep)
    once = run(question, "--tables", tables)
    again = run(question, "--tables", tables, "--watch", "10s")
    assert (again.status, slept) == (Status.OK, [10.0] * 3)
    assert again.out == once.out * 3
    assert "\x1b" not in again.out
    slept.clear()
    assert run_on_terminal(question, "--tables", tables, "--watch", "2s").out.count("\x1b[H\x1b[2J") == 3
    assert "does not go with --as-of" in run(question, "--tables", tables, "--watch", "9s", "--as-of", "1h").err
    assert run(question, "--tables", tables, "--watch", "0s").status == Status.USAGE


def test_what_was_answered_once_is_asked_again_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [Status.OK, BadInput("the tables were cleaned up."), OSError("The store is away"), Status.OK]

    def answer() -> Status:
        answered = left.pop(0)
        if isinstance(answered, Exception):
            raise answered
        return answered

    def sleep(length_s: float) -> None:
        if not left:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching, "sleep", sleep)
    assert watching.again(1.0, answer) is Status.OK
    assert capsys.readouterr().err == (
        "muster: the tables were cleaned up. It is asked again.\nmuster: The store is away. It is asked again.\n"
    )
    left.append(BadInput("there are no tables."))
    with pytest.raises(BadInput):
        watching.again(1.0, answer)
    left += [Status.OK, OSError(errno.ENOSPC, "No space left on device")]  # where the answer is written to
    with pytest.raises(OSError, match="No space left"):
        watching.again(1.0, answer)


def test_tables_that_nobody_renews_are_a_warning(tables: Path) -> None:
    well = ("status", "new", "--tables", tables)
    assert run(*well).status == Status.OK
    late = run(*well, "--max-age", "15m")
    assert late.status == Status.WARNING
    assert "longer than --max-age" in late.err
    assert run(*well, "--max-age", "100000d").status == Status.OK
    assert run("status", "--tables", tables, "--max-age", "15m").status == Status.ERROR, "the worse counts"
    assert run(*well, "--max-age", "soon").status == Status.USAGE


def test_partitions_whose_lag_is_unknown_are_told_of(tables: Path) -> None:
    head, *lines = run("lag", "--tables", tables).out.splitlines()
    assert head.split()[-1] == "UNKNOWN"
    assert {line.split()[0]: line.split()[-1] for line in lines}["new"] == "1"
    assert "UNKNOWN" not in run("lag", "orders-*", "--tables", tables).out


def test_why_prints_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    """The name of an assignor is a client's, as all names are."""
    group = STATE["groups"][0] | {"protocol": "range\x1b[2J\x9b2J"}
    path = publish(tmp_path, groups=[group, *STATE["groups"][1:]])
    out = run("why", "orders-app", "--tables", path).out
    assert "assigned by range\\u001B[2J\\u009B2J" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("question", [*ROWS, "why", "history"])
def test_a_pattern_that_no_group_is_like(tables: Path, question: str) -> None:
    status, out, err = run(question, "zz*", "--tables", tables)
    assert (status, out) == (Status.NOTHING_MATCHED, "")
    assert "no group matches 'zz*'; there are 4." in err


@pytest.mark.parametrize("question", ["why", "history"])
def test_a_pattern_is_one_group_or_a_choice(tables: Path, question: str) -> None:
    whole, short = (run(question, name, "--tables", tables) for name in ("orders-app", "ord*"))
    assert short.out == whole.out
    assert short.status == whole.status
    several = run(question, "n*", "--tables", tables)
    assert (several.status, several.out) == (Status.NOTHING_MATCHED, "")
    assert "2 groups match 'n*'. Did you mean one of 'new', 'nightly-audit'?" in several.err


@pytest.mark.parametrize("question", [*ROWS, "why"])
def test_a_group_that_was_deleted(tmp_path: Path, question: str) -> None:
    gone = [
        at(
            "gone",
            "orders",
            0,
            kind=kind,
            log_offset=500 + place,
            timestamp_ms=EIGHT_MS + place,
            committed_offset=offset,
        )
        for place, (kind, offset) in enumerate((("commit", 5), ("expired", None)))
    ]
    path = publish(tmp_path, commits=HISTORY["commits"] + gone)
    status, _, err = run(question, "gone", "--tables", path)
    assert status == Status.NOTHING_MATCHED
    assert "the group 'gone' is gone: its offsets expired at 2026-11-17 08:00:00 UTC." in err
    assert run("history", "gone", "--tables", path).status == Status.OK


def test_groups_and_partitions_are_judged_in_the_same_words(tables: Path) -> None:
    by_partition: dict[str, set[str | None]] = {}
    for row in objects("status", "--partitions", "--tables", tables):
        by_partition.setdefault(row["group_id"], set()).add(row["verdict"])
    groups = {row["group_id"]: row["verdict"] for row in objects("status", "--tables", tables)}
    assert groups["orders-app"] == "STALLED"
    assert all(groups[name] in verdicts for name, verdicts in by_partition.items())


def test_nothing_to_judge_is_not_well(tables: Path) -> None:
    status, _, err = run("status", "new", "--tables", tables, "--json")
    assert status == Status.OK
    assert "nothing could be judged: no end of a log was seen" in err
    assert "nothing could be judged" not in run("status", "--tables", tables).err


def test_one_clock_for_all_of_an_answer(tables: Path, tmp_path: Path) -> None:
    """A log that is read years later is as it was: nothing in an answer counts from another time."""
    path = publish(tmp_path / "old", read_at_ms=NOW_MS + 1000 * DAY_MS)
    for question in ("status", "lag", "findings", "expiring", "why orders-app"):
        words = question.split()
        late = run(*words, "--tables", path)
        assert late.out == run(*words, "--tables", tables).out
        assert "as of 2026-11-17 08:33:04 UTC, the newest record; read at 2029-08-13 08:33:04 UTC, " in late.err
    assert "20 h" in run("expiring", "--tables", path).out
    assert "What happened since 2026-11-16 08:33:04 UTC" in run("why", "orders-app", "--tables", path).out
    read = "as of 2026-11-17 08:33:04 UTC, the newest record; read at 2029-08-13 08:33:04 UTC, "
    assert read in run("table", "lag", "--tables", path).err
    events = run("history", "orders-app", "--tables", path, "--since", "30 min").out.splitlines()
    assert [line.split()[2] for line in events[1:]] == ["commits"]


def test_what_is_due_is_said_to_be(tmp_path: Path) -> None:
    path = publish(tmp_path, expiry=[STATE["expiry"][-1] | {"expires_at_ms": NOW_MS - HOUR_MS}])
    assert "  due  " in run("expiring", "--tables", path).out
    assert objects("expiring", "--tables", path)[0]["in_ms"] == -HOUR_MS


def test_what_compaction_took_is_told(tmp_path: Path, tables: Path) -> None:
    path = publish(tmp_path, complete_since_ms=EIGHT_MS)
    asked = ("status", "--as-of", str(EIGHT_MS - HOUR_MS)), ("history", "orders-app"), ("why", "orders-app")
    for question in (*asked, ("lag",), ("compare", "2026-11-17T07:00")):
        told = "the log had been compacted before it was first read"
        assert told in run(*question, "--tables", path).err, question
        assert told not in run(*question, "--tables", tables).err
    assert "0 (complete since 2026-11-17 08:00:00 UTC)" in run("history", "orders-app", "--tables", path).err


def test_words_agree_with_their_numbers(tables: Path) -> None:
    assert "1 of 2 partitions is not OK." in run("why", "orders-app", "--tables", tables).out
    billing = run("why", "billing", "--tables", tables)
    assert "1 of 1 partition is not OK." in billing.out
    assert "on 1 of 1 partition" in run("lag", "billing", "--tables", tables).err
    assert "Nothing, and no commit either." in run("why", "new", "--tables", tables).out


def test_nothing_but_commits(tmp_path: Path) -> None:
    commits = [at("new", "gone", 5, kind="commit", log_offset=1, timestamp_ms=NOW_MS - HOUR_MS, committed_offset=9)]
    path = publish(tmp_path, commits=commits)
    assert "Nothing but 1 commit." in run("why", "new", "--tables", path).out
    assert "no commit either" in run("why", "new", "--tables", path, "--since", "5 min").out


def test_help_whose_reader_has_gone() -> None:
    with subprocess.Popen(command("sql", "--help"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == Status.OK


class Typed:
    """What typer knows of the words before."""

    def __init__(self, **params: Any) -> None:
        self.params = params


def test_names_of_groups_are_completed(tables: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert complete_group(Typed(tables=str(tables)), "") == ["billing", "new", "nightly-audit", "orders-app"]
    monkeypatch.setenv("MUSTER_TABLES", str(tables))
    assert complete_group(Typed(), "or") == ["orders-app"]
    assert complete_group(Typed(tables=str(tmp_path)), "or") == []
    monkeypatch.delenv("MUSTER_TABLES")
    assert complete_group(Typed(), "or") == []


def test_small_things_for_people() -> None:
    assert sparkline([0, 1, None, 7, 14]) == "▁▁ ▄█"
    assert sparkline([0, 0]) == "▁▁"
    assert shown_duration(748_561) == "12 min 28 s"


def test_lists_in_csv_are_json(tables: Path) -> None:
    [heading, *rows] = csv.reader(run("lag", "--tables", tables, "--csv").out.splitlines())
    trends = [json.loads(row[heading.index("trend")]) for row in rows]
    assert trends
    assert all(isinstance(trend, list) for trend in trends)


def test_tables_of_state_alone_are_said_to_need_others(tmp_path: Path) -> None:
    run_here(tmp_path / "t", unpacked("mini-zstd-43", tmp_path), history=False)
    ran = run("status", "--tables", tmp_path / "t")
    assert ran.status == Status.BAD_INPUT
    assert "they are of state alone (--state-only)" in ran.err
    assert "with another directory for TABLES" in ran.err
    history = run("history", "fraud-check", "--tables", tmp_path / "t")
    assert history.status == Status.BAD_INPUT
    assert "have no history: they are of state alone (--state-only)" in history.err
    sql = run("sql", "SELECT count(*) FROM commits", "--tables", tmp_path / "t")
    assert sql.status == Status.BAD_INPUT
    assert "the tables are of state alone (--state-only): commits is not kept." in sql.err
    assert run("sql", "SELECT count(*) FROM offsets", "--tables", tmp_path / "t").status == Status.OK
    assert "lag_history is not kept" in run("lag", "--tables", tmp_path / "t").err
    for line in run("lag", "--tables", tmp_path / "t", "--json").out.splitlines():
        assert set(json.loads(line)["trend"][:-1]) == {None}
