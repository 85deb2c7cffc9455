"""`muster table` over tables made of a real log."""

import csv
import io
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len

from muster.cli.people import shown_duration, shown_time
from muster.cli.status import Status
from muster.cli.tables import NAMES
from muster.cli.tables.command import complete_name
from muster.cli.tables.run import SHOWN
from muster.pipeline import job
from muster.pipeline.engine import LocalEngine
from muster.tables.reading import ORDERS
from muster.tables.schemas import ANALYTICS, JUDGED, MOMENTS, PUBLISHED, TABLES, published_form
from muster.tables.storage.manifest import PartitionProgress
from tests.cli import corpus, plain, run, run_on_terminal, run_process
from tests.pipeline.world import run_here, unpacked
from tests.tables.history import PUBLISHED_AT_MS, published, state_at_the_end

NEWEST_MS = 1_794_806_000_000
PROGRESS = {
    0: PartitionProgress(100, 0, 40, 50, 1_794_805_600_000, NEWEST_MS),
    1: PartitionProgress(9, 0, 0, 0, None, NEWEST_MS),
}
LAST_RUN = re.compile(
    r"muster: as of 2026-11-16 17:26:40 UTC, the last run, .* ago; the newest record is of 2026-11-16 05:13:20 UTC\.\n"
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    published(path, state_at_the_end("k43-full"), PROGRESS)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a whole run: rebalances and lag are made by it alone."""
    path = tmp_path_factory.mktemp("made")
    job.run(LocalEngine(), job.Request([corpus("k43-full")], str(path)))
    return path


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def in_text(table: str, rows: pa.Table) -> list[dict[str, Any]]:
    """Inner rows as programs get them: published, moments as text."""
    moments = [name for name in rows.schema.names if name in MOMENTS]
    shown = []
    for row in rows.to_pylist():
        for name in moments:
            ms = row.pop(name)
            time = None if ms is None else datetime.fromtimestamp(ms // 1000, UTC)
            row[name.removesuffix("_ms")] = None if time is None else f"{time:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"
        shown.append({name: row[name] for name in PUBLISHED[table].names})
    return shown


def test_rows_as_json_have_the_documented_columns(tables: Path) -> None:
    status, out, err = run("table", "offsets", "--tables", tables, "--json")
    assert status == Status.OK
    assert LAST_RUN.fullmatch(err)
    rows = objects(out)
    expected = in_text("offsets", state_at_the_end("k43-full")["offsets"])
    assert rows == sorted(expected, key=lambda row: (row["group_id"], row["topic"], row["partition"]))
    assert list(rows[0]) == PUBLISHED["offsets"].names
    assert all(re.fullmatch(r"2026-11-16T05:\d\d:\d\d\.\d{3}Z", row["commit_timestamp"]) for row in rows)


def test_csv_has_a_header_and_nothing_for_null(tables: Path) -> None:
    status, out, _ = run("table", "members", "--tables", tables, "--csv")
    assert status == Status.OK
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = state_at_the_end("k43-full")["members"].to_pylist()
    assert len(rows) == len(expected)
    by_member = {row["member_id"]: row for row in expected}
    for row in rows:
        assert json.loads(row["assignment"] or "null") == by_member[row["member_id"]]["assignment"]
        assert row["instance_id"] == (by_member[row["member_id"]]["instance_id"] or "")


def test_bytes_are_base64_in_json(tables: Path) -> None:
    status, out, _ = run("table", "group_records", "--tables", tables, "--json")
    assert status == Status.OK
    assert len(objects(out)) == state_at_the_end("k43-full")["group_records"].num_rows


def test_text_is_for_people(tables: Path) -> None:
    status, out, err = run("table", "groups", "--tables", tables, "--group", "billing")
    assert status == Status.OK
    assert LAST_RUN.fullmatch(err)
    head, line = out.splitlines()
    assert head.split() == ["GROUP", "TYPE", "STATE", "GENERATION", "PROTOCOL", "MEMBERS", "COMMITTED-PARTITIONS",
                            "LAST-COMMIT"]  # fmt: skip
    assert line.split()[:5] == ["billing", "classic", "Stable", "5", "range"]


WIDE_IDS = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.mark.parametrize("columns", [80, 120, 160])
@pytest.mark.parametrize("name", ["rebalances", "lag", "commits"])
def test_a_row_is_a_line_on_a_terminal(made: Path, name: str, columns: int) -> None:
    ran = run_on_terminal("table", name, "--tables", made, "-n", "40", columns=columns)
    lines = [plain(line) for line in ran.out.splitlines() if not line.startswith("muster: ")]
    assert len(lines) >= 10
    assert max(map(cell_len, lines)) <= columns


def test_members_have_short_names_unless_asked_for_more(made: Path) -> None:
    text = run("table", "rebalances", "--tables", made).out
    assert not re.search(WIDE_IDS, text)
    assert "\x1b" not in text
    assert text.split("\n")[0].split() == [
        "GROUP", "AT", "GENERATION", "CAUSE", "MEMBERS", "MOVED", "COMMIT-GAP", "WHO",
    ]  # fmt: skip
    assert re.search(WIDE_IDS, run("table", "rebalances", "--tables", made, "--wide").out)
    assert re.search(WIDE_IDS, run("table", "rebalances", "--tables", made, "--json").out)


def test_lag_in_time_is_in_words_for_people_and_in_milliseconds_for_programs(made: Path) -> None:
    rows = objects(run("table", "lag", "--tables", made, "--json").out)
    shown = run("table", "lag", "--tables", made).out
    assert shown.split("\n")[0].split()[7] == "LAG-TIME"
    lengths = [row["lag_ms"] for row in rows if row["lag_ms"]]
    assert lengths
    assert shown_duration(lengths[0]) in shown
    assert str(lengths[0]) not in shown


def test_lengths_of_time_are_no_dates(made: Path) -> None:
    """`longest_silence_ms` and the like; and on 80 columns the least telling columns give way."""
    status, out, _ = run("table", "group_hours", "--tables", made, "--limit", "0")
    assert status == Status.OK
    assert "1970-01-01" not in out
    assert re.search(r"\d\.\d s$", out, re.MULTILINE)
    shown = plain(run_on_terminal("table", "group_hours", "--tables", made, columns=80).out)
    assert re.search(r"MEMBERS +REBAL .*COMMITS +SILENCE", shown)


@pytest.mark.parametrize("name", NAMES)
def test_every_table_can_be_shown_in_every_form(tables: Path, name: str) -> None:
    """With all its rows; those that only the job makes are not there, and shown as tables without rows."""
    made = state_at_the_end("k43-full")
    rows = made[name].num_rows if name in made else 0
    assert (rows > 0) == (name not in ("rebalances", "lag", "log_ends", "activity", "verdicts", *ANALYTICS, *JUDGED))
    status, out, _ = run("table", name, "--tables", tables, "--limit", "0")
    assert (status, len(out.splitlines())) == (Status.OK, 1 + rows)
    status, out, _ = run("table", name, "--tables", tables, "--json")
    assert (status, len(objects(out))) == (Status.OK, rows)
    status, out, _ = run("table", name, "--tables", tables, "--csv")
    parsed = csv.DictReader(io.StringIO(out))
    assert (status, len(list(parsed)), parsed.fieldnames) == (Status.OK, rows, PUBLISHED[name].names)


def test_names_are_the_same_everywhere() -> None:
    assert NAMES.keys() == ORDERS.keys() == SHOWN.keys()
    for name, columns in SHOWN.items():
        assert set(columns.split()) - {"who"} <= set(TABLES[name].names)
    assert TABLES.keys() - NAMES.keys() == {"latest_rebalances"}  # shown among the rebalances
    assert [name for name, _ in complete_name("gr")] == ["groups", "group_records", "group_state", "group_hours"]


def test_a_long_table_stops_and_says_so(tables: Path) -> None:
    status, out, err = run("table", "commits", "--tables", tables, "--limit", "3")
    assert (status, len(out.splitlines())) == (Status.OK, 4)
    assert "stopped after 3 rows. --limit 0 shows all" in err
    assert len(run("table", "commits", "--tables", tables).out.splitlines()) == 201
    assert len(run("table", "offsets", "--tables", tables, "--json", "-n", "3").out.splitlines()) == 3
    assert len(run("table", "offsets", "--tables", tables, "-n", "0").out.splitlines()) == 94


def test_as_of_says_which_moment_and_what_is_unknown(tables: Path) -> None:
    asked = ("table", "offsets", "--tables", tables, "--as-of")
    early = run(*asked, "2026-11-16T05:06:00", "--json")
    assert "as of 2026-11-16 05:06:00 UTC." in early.err
    assert "0 (complete since 2026-11-16 " in early.err
    assert "A key that is not shown is unknown, not absent." in early.err
    rows = objects(run(*asked, "1794805560000", "--json").out)
    assert rows
    assert all(row["complete_since"] == {"0": "2026-11-16T05:06:40.000Z"} for row in rows)
    late = run(*asked, str(PUBLISHED_AT_MS), "--json")
    assert "unknown" not in late.err
    assert "as of 2026-11-16 17:26:40 UTC; the newest record is of 2026-11-16 05:13:20 UTC." in late.err
    assert objects(late.out) == objects(run("table", "offsets", "--tables", tables, "--json").out)


def test_a_moment_that_the_tables_do_not_know_is_told(tables: Path) -> None:
    asked = ("table", "groups", "--tables", tables, "--as-of")
    for moment in ("2030-01-01", str(PUBLISHED_AT_MS + 1)):
        status, out, err = run(*asked, moment, "--json")
        assert (status, out) == (Status.BAD_INPUT, "")
        assert "end at 2026-11-16 17:26:40 UTC, when the last run looked; nothing is known of 20" in err
    for form in ((), ("--json",), ("--csv",), ("--group", "billing")):
        status, out, err = run(*asked, "2020-01-01", *form)
        assert (status, out) == (Status.BAD_INPUT, "")
        told = re.search(
            r"of 2026-11-16 .* UTC: nothing is known of 2020-01-01 00:00:00 UTC\. Ask for --as-of (\S+) ", err
        )
        assert told, err
        assert run("table", "group_records", "--tables", tables, "--as-of", told[1]).status == Status.OK


def test_lag_says_when_log_ends_were_observed(made: Path) -> None:
    rows = objects(run("table", "lag", "--tables", made, "--json").out)
    observed = max(row["observed_at"] for row in rows if row["observed_at"] is not None)
    observed_ms = int(datetime.fromisoformat(observed).timestamp() * 1000)
    for form in ((), ("--json",), ("--csv",)):
        err = run("table", "lag", "--tables", made, *form).err
        assert f"Log ends were observed at {shown_time(observed_ms)} UTC." in err
    assert "Log ends" not in run("table", "offsets", "--tables", made).err


def test_a_group_that_was_deleted_is_no_unknown_group(tables: Path) -> None:
    state = state_at_the_end("k43-full")
    there = set(state["groups"]["group_id"].to_pylist())
    deleted = next(
        row for row in state["commits"].to_pylist() if row["kind"] == "deleted" and row["group_id"] not in there
    )
    asked = ("table", "offsets", "--tables", tables, "--group", deleted["group_id"])
    status, _, err = run(*asked)
    assert status == Status.NOTHING_MATCHED
    name = deleted["group_id"]
    told = re.search(rf"the group '{name}' was deleted at 2026-11-16 .* UTC\. --as-of (\d+) shows it", err)
    assert told, err
    then = run(*asked, "--as-of", told[1], "--json")
    assert then.status == Status.OK
    assert {row["group_id"] for row in objects(then.out)} == {name}


def test_without_a_name_the_tables_are_listed(tables: Path) -> None:
    status, out, err = run("table", "--tables", tables)
    assert status == Status.OK
    assert "run a-run: as of 2026-11-16 17:26:40 UTC, the last run, " in err
    assert [line.split()[0] for line in out.splitlines()] == ["TABLE", *ORDERS]
    rows = {row["table"]: row for row in objects(run("table", "--tables", tables, "--json").out)}
    assert rows["offsets"]["rows"] == 93
    assert run("table", "--tables", tables, "--as-of", "2h").status == Status.USAGE


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("comits",), Status.USAGE, "no table 'comits'. Did you mean 'commits'?"),
        (("qqq",), Status.USAGE, "no table 'qqq'. There are: commits, offsets"),
        (("offsets", "--group", "biling"), Status.NOTHING_MATCHED, "no group called 'biling'. Did you mean 'billing'?"),
        (("offsets", "--topic", "q*"), Status.NOTHING_MATCHED, "no row of offsets passed the filters."),
        (("markers", "--group", "x"), Status.BAD_INPUT, "the table markers has no column group_id"),
        (("offsets", "--as-of", "soon"), Status.USAGE, "'soon' is not a time."),
        (("offsets", "--json", "--csv"), Status.USAGE, "--json: it does not go with --csv"),
        (("offsets", "--storage-option", "x"), Status.USAGE, "'x' is not NAME=VALUE"),
        (("activity", "--as-of", "1794805560000"), Status.BAD_INPUT, "is kept for now only. Leave --as-of out."),
    ],
)
def test_what_cannot_be_is_a_sentence(tables: Path, arguments: tuple[str, ...], status: Status, said: str) -> None:
    ran = run("table", *arguments, "--tables", tables)
    assert ran.status == status
    assert said in ran.err


def test_where_there_are_no_tables_it_says_how_to_make_them(tmp_path: Path) -> None:
    ran = run("table", "offsets", "--tables", tmp_path)
    assert ran.status == Status.BAD_INPUT
    assert f"there are no tables at {tmp_path}. `muster pipeline run --source SOURCE --out {tmp_path}`" in ran.err
    (tmp_path / "commits").mkdir()
    ran = run("table", "offsets", "--tables", tmp_path)
    assert (ran.status, len(ran.err.splitlines())) == (Status.BAD_INPUT, 1)
    assert "has tables of muster, but not their _manifest" in ran.err
    (tmp_path / "photos").mkdir()
    ran = run("table", "offsets", "--tables", tmp_path)
    assert (ran.status, len(ran.err.splitlines())) == (Status.BAD_INPUT, 1)
    assert (
        f"no tables at {tmp_path}, which has other things in it (photos). Name the directory that has them" in ran.err
    )
    assert f"--out {tmp_path}/tables` makes them." in ran.err
    assert run("table", "offsets", "--tables", "http://x/y").err.startswith("muster: tables cannot be kept at http")


def test_it_is_quick_and_starts_no_spark(tables: Path) -> None:
    """Processor time of a whole process: a busy machine does not fail this, an import of pyspark would."""
    script = (
        "import sys, time; from muster.cli.main import main;"
        f"main(['table', 'offsets', '--tables', {str(tables)!r}, '--json']);"
        "print(time.process_time(), 'pyspark' in sys.modules, 'pandas' in sys.modules, file=sys.stderr)"
    )
    import subprocess
    import sys

    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    seconds, spark, pandas = ended.stderr.splitlines()[-1].split()
    assert (spark, pandas) == ("False", "False")
    assert float(seconds) < 1.5, time.monotonic() - began
    assert len(ended.stdout.splitlines()) == 93
    assert run_process("table", "--help").status == Status.OK


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl"])
def test_a_table_in_a_file(made: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    ran = run("table", "members", "--tables", made, "-o", file)
    assert ran.status == Status.OK
    assert ran.out == ""
    shown = objects(run("table", "members", "--tables", made, "--json").out)
    assert f"muster: {len(shown):,} rows in {file}.\n" in ran.err
    if name.endswith("parquet"):
        found = pq.read_table(file)
        assert found.schema.equals(published_form(TABLES["members"]))
        assert [row["member_id"] for row in found.to_pylist()] == [row["member_id"] for row in shown]
    elif name.endswith("csv"):
        assert file.read_text() == run("table", "members", "--tables", made, "--csv").out
    else:
        assert objects(file.read_text()) == shown
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_is_not_overwritten_unless_told(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("mine")
    asked = ("table", "groups", "--tables", made, "-o", file, "--format", "csv")
    refused = run(*asked)
    assert refused.status == Status.BAD_INPUT
    assert refused.err.endswith(f"{file} is there already. --force replaces it, or choose another name.\n")
    assert file.read_text() == "mine"
    assert run(*asked, "--force").status == Status.OK
    assert file.read_text() == run("table", "groups", "--tables", made, "--format", "csv").out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-o", "rows"), "does not tell a format. Add --format parquet, csv or json"),
        (("--format", "parquet"), "parquet is for a file: name one with -o FILE"),
        (("--format", "csv", "--json"), "it does not go with --json"),
        (
            ("-o", "rows.csv", "--json"),
            "--json: the name of rows.csv says csv. Leave one of the two out, or write --format json",
        ),
        (("-o", "rows.parquet", "--csv-exact"), "--csv-exact: the name of rows.parquet says parquet."),
        (("-o", "rows.csv", "--wide"), "it is for a terminal: a file is parquet, csv or json"),
        (("--force",), "it is about a file: name one with -o FILE"),
        (("-o", "no/such/rows.csv"), "there is no directory no/such. Create it first."),
    ],
)
def test_files_that_cannot_be_written(made: Path, options: tuple[str, ...], sentence: str) -> None:
    ran = run("table", "groups", "--tables", made, *options)
    assert ran.status in (Status.USAGE, Status.BAD_INPUT)
    assert sentence in " ".join(plain(ran.err).replace("│", " ").split())


def test_an_interrupted_file_is_not_there(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("muster.cli.tables.run._json_lines", broken)
    run("table", "groups", "--tables", made, "-o", tmp_path / "rows.json")
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_not_kept_says_so(tmp_path: Path) -> None:
    log = unpacked("mini-zstd-43", tmp_path)
    run_here(tmp_path / "state", log, history=False)
    told = run("table", "commits", "--tables", tmp_path / "state", "--json")
    assert "the tables are of state alone (--state-only): commits is not kept." in told.err
    run_here(tmp_path / "plain", log, analytics=False)
    told = run("table", "rates", "--tables", tmp_path / "plain", "--group", "nobody")
    assert "rates was never made (--no-analytics)" in told.err
    assert "filters" not in told.err
