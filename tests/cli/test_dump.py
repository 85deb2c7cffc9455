"""`muster dump` from the outside: formats, filters, summaries, exit codes, and what goes to which stream."""

import gzip
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from muster.cli.dump import run as running
from muster.cli.dump.table import columns_for, fitted, shown_time
from muster.cli.main import app
from muster.cli.options import parse_type
from muster.cli.status import Status
from muster.codec.batches import encode_batch
from muster.codec.columns.schema import RECORDS
from muster.tables.clocks import parse_time
from tests.cli import CORPORA, Ran, command, corpus, run, run_on_terminal, run_process
from tests.segments import START_MS, batch, commit, tombstone, write_segment

NAMES = sorted(path.parent.name for path in CORPORA.glob("*/expected"))
UNDAMAGED = [name for name in NAMES if not name.startswith("damaged")]


def expected_lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(CORPORA / name / "expected" / "records.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def json_lines(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("dump", "--json", *arguments).out.splitlines()]


class TestText:
    @pytest.mark.parametrize("name", ["k08-to-26", "k36-gzip", "k43-full", "damaged-torn"])
    def test_line_for_line_what_kafka_dump_log_prints(self, name: str) -> None:
        """In another order only at the end: Kafka's trailer is in the order of a hash map."""
        expected: list[str] = []
        trailer: list[str] = []
        for path in sorted((CORPORA / name / "expected").glob("dump-*.txt.gz")):
            text = gzip.decompress(path.read_bytes()).decode()
            body, mark, rest = text.partition("Non-consecutive offsets in ")
            expected += body.splitlines()
            trailer += (mark + rest).splitlines()
        ran = run("dump", corpus(name))
        lines = ran.out.splitlines()
        assert lines[: len(expected)] == expected
        assert sorted(lines[len(expected) :]) == sorted(trailer)
        assert ran.status == (Status.DAMAGED if name.startswith("damaged") else Status.OK)

    def test_a_filter_leaves_out_other_batches_and_the_trailer(self) -> None:
        ran = run("dump", corpus("k43-all"), "--group", "billing")
        assert ran.status == Status.OK
        assert "Non-consecutive" not in ran.out
        records = [line for line in ran.out.splitlines() if line.startswith("| offset")]
        assert records
        assert all('"group":"billing"' in line or '"groupId":"billing"' in line for line in records)

    def test_the_limit_counts_records_over_all_partitions(self) -> None:
        ran = run("dump", corpus("k43-full"), "--limit", "1300")
        assert sum(line.startswith("| offset") for line in ran.out.splitlines()) == 1300
        assert ran.out.count("Dumping __consumer_offsets-1/") == 1  # partition 0 has 1289


class TestJson:
    @pytest.mark.parametrize("name", ["k43-all", "mini-lz4-39", "k26-formats"])
    def test_an_object_for_every_record(self, name: str) -> None:
        expected = [(line["partition"], line["offset"]) for line in expected_lines(name) if "offset" in line]
        found = json_lines(corpus(name))
        assert [(line["partition"], line["offset"]) for line in found if "offset" in line] == expected

    def test_to_a_file(self, tmp_path: Path) -> None:
        ran = run("dump", corpus("k43-all"), "--json", "--out", tmp_path / "all.jsonl")
        assert (ran.status, ran.out) == (Status.OK, "")
        assert (
            ran.err
            == f"muster: 2,294 records in {tmp_path}/all.jsonl ({(tmp_path / 'all.jsonl').stat().st_size:,} bytes).\n"
        )
        assert (tmp_path / "all.jsonl").read_text() == run("dump", corpus("k43-all"), "--json").out


class TestColumns:
    @pytest.mark.parametrize("name", ["k43-all", "k26-formats"])
    def test_parquet(self, name: str, tmp_path: Path) -> None:
        path = tmp_path / "records.parquet"
        assert run("dump", corpus(name), "-f", "parquet", "-o", path).status == Status.OK
        table = pyarrow.parquet.read_table(path)
        expected = [(line["partition"], line["offset"]) for line in expected_lines(name) if "offset" in line]
        found = zip(table["offsets_partition"].to_pylist(), table["log_offset"].to_pylist(), strict=True)
        assert list(found) == expected
        assert table.schema.equals(RECORDS)
        metadata = pyarrow.parquet.read_metadata(path)
        assert metadata.num_row_groups == 1  # although it came from many segments
        assert metadata.row_group(0).column(1).compression == "ZSTD"

    def test_arrow_holds_the_same_as_parquet(self, tmp_path: Path) -> None:
        for format in ("parquet", "arrow"):
            run("dump", corpus("k43-all"), "-f", format, "-o", tmp_path / format, "--topic", "orders*")
        with pyarrow.ipc.open_file(str(tmp_path / "arrow")) as file:
            table = file.read_all()
        assert table.equals(pyarrow.parquet.read_table(tmp_path / "parquet"))
        assert set(table["topic"].to_pylist()) >= {"orders"}

    def test_row_groups_have_a_size(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("muster.cli.dump.run.ROWS_AT_ONCE", 500)
        run("dump", corpus("k43-full"), "-f", "parquet", "-o", tmp_path / "x")
        metadata = pyarrow.parquet.read_metadata(tmp_path / "x")
        assert metadata.num_rows == 6674
        assert 5 < metadata.num_row_groups <= 14

    def test_an_empty_result_is_a_file_too(self, tmp_path: Path) -> None:
        assert run("dump", corpus("k43-all"), "-f", "parquet", "-o", tmp_path / "x", "-g", "none").status == 5
        assert pyarrow.parquet.read_table(tmp_path / "x").schema.equals(RECORDS)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), RuntimeError])
    @pytest.mark.parametrize("format", ["parquet", "arrow", "json"])
    def test_whole_or_not_at_all(
        self, format: str, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "out").write_text("what was there before")

        def fail(*arguments: object, **more: object) -> None:
            raise error

        monkeypatch.setattr(running._Dump, "feed_all", fail)
        ran = run("dump", corpus("k43-all"), "-f", format, "-o", tmp_path / "out")
        assert ran.status in (Status.INTERRUPTED, Status.BAD_INPUT, Status.BUG)
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        assert (tmp_path / "out").read_text() == "what was there before"


class TestLatest:
    @pytest.mark.parametrize("name", UNDAMAGED)
    def test_the_offsets_in_force_are_those_the_broker_answered(self, name: str) -> None:
        groups = json.loads((CORPORA / name / "expected" / "groups.json").read_text())["groups"]
        expected = {
            (group["groupId"], partition): (committed["offset"], committed["metadata"])
            for group in groups
            for partition, committed in (group.get("committed") or {}).items()
            if committed
        }
        found = {}
        for line in json_lines(corpus(name), "--latest", "--type", "0", "--type", "1", "--no-tombstones"):
            key, value = line["key"]["data"], line["value"]["data"]
            assert (key["group"], f"{key['topic']}-{key['partition']}") not in found
            found[key["group"], f"{key['topic']}-{key['partition']}"] = (value["offset"], value["metadata"])
        assert found == expected

    def test_a_tombstone_is_the_newest_record_and_does_not_bring_back_the_older(self, tmp_path: Path) -> None:
        write_segment(tmp_path, encode_batch([commit(0, "a"), commit(1, "b"), tombstone(2, "a"), commit(3, "b")]))
        assert [line["offset"] for line in json_lines(tmp_path, "--latest")] == [2, 3]
        assert [line["offset"] for line in json_lines(tmp_path, "--latest", "--no-tombstones")] == [3]
        assert [line["offset"] for line in json_lines(tmp_path, "--latest", "--tombstones")] == [2]

    def test_as_of_a_time_or_an_offset(self, tmp_path: Path) -> None:
        write_segment(tmp_path, encode_batch([commit(0, "a"), commit(1, "b"), tombstone(2, "a"), commit(3, "b")]))
        assert [line["offset"] for line in json_lines(tmp_path, "--latest", "--to-offset", "1")] == [0, 1]
        assert [line["offset"] for line in json_lines(tmp_path, "--latest", "--until", str(START_MS + 2000))] == [1, 2]

    def test_records_know_their_segment(self, tmp_path: Path) -> None:
        write_segment(tmp_path, batch(0, 3, "a"), 0)
        write_segment(tmp_path, batch(3, 1, "b"), 3)
        found = [(line["offset"], line["segment"]) for line in json_lines(tmp_path, "--latest")]
        assert found == [(2, f"{0:020}.log"), (3, f"{3:020}.log")]

    def test_partitions_do_not_hide_each_other_and_the_limit_holds_over_all(self, tmp_path: Path) -> None:
        for partition in range(3):
            write_segment(tmp_path, batch(0, 3), 0, partition)
        assert [line["partition"] for line in json_lines(tmp_path, "--latest")] == [0, 1, 2]
        assert [line["partition"] for line in json_lines(tmp_path, "--latest", "-n", "2")] == [0, 1]

    def test_in_columns(self, tmp_path: Path) -> None:
        run("dump", corpus("k43-full"), "--latest", "-f", "parquet", "-o", tmp_path / "x", "--type", "1")
        table = pyarrow.parquet.read_table(tmp_path / "x")
        keys = list(zip(*(table[name].to_pylist() for name in ("group_id", "topic", "partition")), strict=True))
        assert len(keys) == len(set(keys)) > 90


class TestFilters:
    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (["--group", "billing"], lambda line: line.get("group") == "billing"),
            (
                ["-g", "*once*", "-g", "short-?ived"],
                lambda line: re.search("once|^short-lived$", line.get("group", "")),
            ),
            (["--topic", "orders"], lambda line: line.get("topic") == "orders"),
            (["--type", "group-metadata"], lambda line: line.get("type") == 2),
            (["--type", "3", "--type", "GroupMetadata"], lambda line: line.get("type") in (2, 3)),
            (["--type", "control"], lambda line: "control" in line),
            (["--tombstones"], lambda line: "control" not in line and line["value"] is None),
            (["--no-tombstones"], lambda line: "control" in line or line["value"] is not None),
            (["--from-offset", "500", "--to-offset", "600"], lambda line: 500 <= line["offset"] <= 600),
            (["--since", "2026-11-16T05:02:00Z"], lambda line: line["timestamp"] >= 1794805320000),
            (["--until", "1794805320000"], lambda line: line["timestamp"] <= 1794805320000),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_filters_let_pass_what_they_say(self, options: list[str], wanted: Any) -> None:
        def flat(line: dict[str, Any]) -> dict[str, Any]:
            data = (line.get("key") or {}).get("data", {})
            group = data.get("group", data.get("groupId"))
            names = {"group": group, "topic": data.get("topic"), "type": (line.get("key") or {}).get("type")}
            return line | {"group": ""} | {name: value for name, value in names.items() if value is not None}

        expected = [
            (line["partition"], line["offset"])
            for line in expected_lines("k43-all")
            if "offset" in line and wanted(flat(line))
        ]
        found = [(line["partition"], line["offset"]) for line in json_lines(corpus("k43-all"), *options)]
        assert found == expected
        assert 0 < len(found) < 2294

    def test_nothing_matched(self) -> None:
        assert run("dump", corpus("k43-all"), "--json", "-g", "bil*", "--to-offset", "-1") == Ran(
            Status.NOTHING_MATCHED, "", "muster: no record passed the filters.\n"
        )

    @pytest.mark.parametrize("format", ["text", "json", "table"])
    def test_a_group_that_is_not_there_is_one_sentence_with_a_suggestion(self, format: str) -> None:
        ran = run("dump", corpus("k43-all"), "-f", format, "-g", "biling")
        assert (ran.status, ran.out) == (Status.NOTHING_MATCHED, "")
        assert ran.err == (
            "muster: no group called 'biling'. Did you mean 'billing'? `muster dump --summary` shows the busiest of "
            "37.\n"
        )

    def test_text_has_the_header_of_segments_that_have_something_to_show(self) -> None:
        lines = run("dump", corpus("k43-all"), "-f", "text", "-g", "billing").out.splitlines()
        headers = [number for number, line in enumerate(lines) if line.startswith("Dumping ")]
        assert headers
        assert all(lines[number + 2].startswith("baseOffset: ") for number in headers)

    def test_an_empty_log_is_not_a_filter_without_a_match(self, tmp_path: Path) -> None:
        write_segment(tmp_path, b"")
        assert run("dump", tmp_path, "--json") == Ran(Status.OK, "", "")

    NOW_MS = 1_794_805_200_000

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2h", NOW_MS - 7_200_000),
            ("3d ago", NOW_MS - 259_200_000),
            ("90 s", NOW_MS - 90_000),
            ("2 min ago", NOW_MS - 120_000),
            ("5mins", NOW_MS - 300_000),
            ("1 minute ago", NOW_MS - 60_000),
            ("2 hours ago", NOW_MS - 7_200_000),
            ("3 days", NOW_MS - 259_200_000),
            ("1w", NOW_MS - 604_800_000),
            ("1794805709859", 1794805709859),
            ("2026-01-31", 1769817600000),
            ("20260131", 1769817600000),
            ("2026-01-31T12:30", 1769862600000),
            ("2026-01-31 12:30:00.5", 1769862600500),
            ("2026-01-31T12:30+01:00", 1769859000000),
            ("2026-01-31T12:30Z", 1769862600000),
        ],
    )
    def test_times(self, text: str, expected: int) -> None:
        assert parse_time(text, self.NOW_MS) == expected

    @pytest.mark.parametrize(
        "text", ["tomorrow", "", "25:00", "yesterday at noon", "1794805709", "2026-13-01", "-2h", "2 fortnights"]
    )
    def test_what_is_no_time(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"is not a time. Write 14:05, .*or how long ago: 90s, 5 min,"):
            parse_time(text, self.NOW_MS)

    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("0", 0), ("23", 23), ("offset-commit", 1), ("OffsetCommit", 1), ("OFFSET_COMMIT", 1), ("groupMetadata", 2),
            ("ConsumerGroupMemberMetadata", 5), ("consumer-group-regular-expression", 16), ("StreamsGroupTopology", 23),
            ("legacy-offset-commit", 0), ("control", -1),
        ],
    )  # fmt: skip
    def test_types(self, text: str, number: int) -> None:
        assert parse_type(text) == number

    def test_what_is_no_type(self) -> None:
        with pytest.raises(ValueError, match="Did you mean 'offset-commit'"):
            parse_type("offset-comit")
        with pytest.raises(ValueError, match="0 to 23"):
            parse_type("25")


class TestTable:
    def test_on_a_terminal_a_table_in_colour_and_no_wider_than_it(self) -> None:
        ran = run_on_terminal("dump", corpus("k43-all"), columns=100)
        assert ran.status == Status.OK
        plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
        lines = plain.splitlines()
        assert lines[0].split() == ["part", "offset", "time", "(UTC)", "record", "group", "what"]
        assert len(lines) == 202
        assert max(map(len, lines)) <= 100
        assert lines[-1] == "muster: stopped after 200 records. --limit 0 shows all, --summary counts them."
        assert "\x1b[32mcommit " in ran.out  # green
        assert "\x1b[?25l" not in ran.out  # no bar between the lines

    def test_without_a_terminal_it_has_no_colours(self) -> None:
        ran = run("dump", corpus("k43-all"), "-f", "table", "-g", "billing", "-n", "0")
        assert "\x1b" not in ran.out
        assert ran.err == ""
        lines = ran.out.splitlines()
        assert len(lines) == 1 + len(json_lines(corpus("k43-all"), "-g", "billing"))
        group = next(line for line in lines if "generation" in line)
        assert "generation 5, 1 member, range: b3" in group

    def test_every_kind_of_record_has_a_line(self) -> None:
        ran = run("dump", corpus("k43-full"), "-f", "table", "-n", "0")
        assert len(ran.out.splitlines()) == 6675
        for words in ("streams topology", "share state", "COMMIT of producer", "aborted: ", "open: ", "deleted "):
            assert words in ran.out
        assert max(map(len, ran.out.splitlines())) <= 160

    def test_what_could_not_be_read_says_why(self, tmp_path: Path) -> None:
        write_segment(
            tmp_path, encode_batch([commit(0)._replace(value=b"\x00\x03bad"), commit(1)._replace(key=b"\x00\x63")])
        )
        lines = run("dump", tmp_path, "-f", "table").out.splitlines()
        assert "unread" in lines[1]
        assert "unknown record type 99" in lines[2]

    def test_cells(self) -> None:
        assert fitted("short", 8) == "short   "
        assert fitted("much too long", 8) == "much to…"
        assert fitted("消费消费消费", 8) in ("消费消 …", "消费消…")
        assert fitted("größe", 8) == "größe   "
        assert fitted("a\x1b[31mb\n", 8) == "a·[31mb·"
        assert fitted("123456789", 4, to_the_right=True) == "123456789"  # never half a number
        assert shown_time(1794805709859) == "2026-11-16 05:08:29"
        assert shown_time(1 << 62) == str(1 << 62)
        assert shown_time(None) == ""
        for width in (80, 100, 160, 300):
            assert sum(column.width + 2 for column in columns_for(width)) - 2 == width


class TestSummary:
    def test_as_json(self) -> None:
        told = json.loads(run("dump", "--summary", "--json", corpus("k43-kill")).out)
        assert (told["records"], told["batches"], told["partitions"], told["segments"]) == (1716, 493, 5, 25)
        assert told["transactions"]["committed"] == 7
        assert told["damage"] == []

    def test_in_a_pipe_it_is_plain(self) -> None:
        ran = run("dump", "--summary", corpus("k43-kill"))
        assert ran.status == Status.OK
        assert "\x1b" not in ran.out
        assert "│" not in ran.out
        assert re.search(r"^records +1,716 \(62 tombstones\)$", ran.out, re.MULTILINE)
        assert re.search(r"^ +1 +OffsetCommit +v4 +zstd +1,567 +91\.3%$", ran.out, re.MULTILINE)
        assert re.search(r"^__consumer_offsets-1 +2 +6 +15 +1\.1 KB +0\.\.466 +3 +452 +0$", ran.out, re.MULTILINE)
        assert re.search(r"^__consumer_offsets-0 +4 +36 +2026-11-16 05:05:44 +2 +exactly-once$", ran.out, re.MULTILINE)

    def test_on_a_terminal_it_fits(self) -> None:
        for columns in (80, 100, 160):
            ran = run_on_terminal("dump", "--summary", corpus("k26-formats"), "--no-progress", columns=columns)
            plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
            assert max(map(len, plain.splitlines())) <= columns
            assert "╭" in plain
            assert "v2" in plain

    def test_damage_is_in_it_and_on_stderr(self) -> None:
        ran = run("dump", "--summary", corpus("damaged-flip"))
        assert ran.status == Status.DAMAGED
        assert re.search(r"^damage +2 places$", ran.out, re.MULTILINE)
        assert ran.err.count("muster: __consumer_offsets-") == 2


class TestDamage:
    def test_it_is_told_after_the_output_and_by_the_exit_code(self) -> None:
        ran = run("dump", "--json", corpus("damaged-flip"))
        assert ran.status == Status.DAMAGED
        lines = [json.loads(line) for line in ran.out.splitlines()]
        assert sum("offset" in line for line in lines) == 5066
        assert ran.err.splitlines() == [
            "muster: __consumer_offsets-0/00000000000000002372.log at byte 328: batch 2 (base offset 2376) "
            "says CRC d5c0a9c9, its bytes give e552bc9d. The batches before and after it are whole.",
            "muster: __consumer_offsets-1/00000000000000000000.log at byte 7933: batch 37 (base offset 101) "
            "says CRC 49129e00, its bytes give e7c9f490. The batches before and after it are whole.",
        ]

    def test_quiet_leaves_only_the_exit_code(self) -> None:
        ran = run("dump", "--json", "--quiet", corpus("damaged-flip"))
        assert (ran.status, ran.err) == (Status.DAMAGED, "")

    def test_damage_counts_more_than_no_match(self) -> None:
        assert run("dump", "--json", "-g", "none", corpus("damaged-flip")).status == Status.DAMAGED

    def test_much_damage_is_counted_and_json_lists_it(self, tmp_path: Path) -> None:
        data = bytearray(b"".join(batch(offset) for offset in range(30)))
        for number in range(30):
            data[number * len(data) // 30 + 70] ^= 1
        write_segment(tmp_path, bytes(data))
        ran = run("dump", "--json", tmp_path)
        assert len(ran.err.splitlines()) == 21
        assert ran.err.splitlines()[-1].startswith("muster: and 10 more damaged places;")
        told = json.loads(run("dump", "--summary", "--json", tmp_path).out)
        assert len(told["damage"]) == 30


class TestProcess:
    def test_the_real_entry_point(self) -> None:
        ran = run_process("dump", corpus("k43-kill"), "--json")
        assert (ran.status, ran.err) == (Status.OK, "")
        assert len(ran.out.splitlines()) == 1716

    @pytest.mark.parametrize(
        "arguments",
        ["--json", *(pytest.param(words, marks=pytest.mark.long) for words in ("-f text", "-f table -n 0"))],
    )
    def test_a_closed_pipe_ends_it_quietly(self, arguments: str, tmp_path: Path) -> None:
        write_segment(tmp_path, b"".join(batch(offset, 500) for offset in range(0, 20_000, 500)))
        with (tmp_path / "err").open("w+b") as errors:
            asked = command("dump", tmp_path, *arguments.split())
            process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=errors)
            assert process.stdout is not None
            process.stdout.read(1000)
            process.stdout.close()
            assert process.wait(60) == Status.OK
            errors.seek(0)
            assert errors.read() == b""

    @pytest.mark.skipif(os.name != "posix", reason="signals")
    def test_ctrl_c_says_one_word(self, tmp_path: Path) -> None:
        write_segment(tmp_path, b"".join(batch(offset, 500) for offset in range(0, 20_000, 500)))
        process = subprocess.Popen(
            command("dump", tmp_path, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()  # it is at work, and soon blocked by the full pipe
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == Status.INTERRUPTED
        assert err == "muster: interrupted.\n"

    def test_the_bar_is_there_on_a_terminal_and_can_be_left_out(self, tmp_path: Path) -> None:
        hidden_cursor = "\x1b[?25l"
        out = tmp_path / "x"
        assert hidden_cursor in run_on_terminal("dump", corpus("k43-all"), "-f", "parquet", "-o", out).out
        for option in ("--no-progress", "--quiet"):
            assert (
                hidden_cursor not in run_on_terminal("dump", corpus("k43-all"), "-f", "parquet", "-o", out, option).out
            )

    def test_help_is_quick_because_it_imports_nothing_heavy(self) -> None:
        script = (
            "import sys; from muster.cli.main import main; main(['dump', '--help']);"
            "print([name for name in ('numba', 'numpy', 'pyarrow', 'asyncio', 'muster.codec') if name in sys.modules])"
        )
        ran = subprocess.run([command()[0], "-c", script], capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines()[-1] == "[]"

    def test_version(self) -> None:
        assert run_process("--version") == Ran(0, "muster 0.1.0\n", "")

    @pytest.mark.parametrize(
        ("typed", "expected"),
        [("muster du", ["dump"]), ("muster dump --ty", ["--type"]), ("muster dump --type share-group-m", None)],
    )
    def test_tab_completes(self, typed: str, expected: list[str] | None) -> None:
        environment = os.environ | {
            "_MUSTER_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
            "_TYPER_COMPLETE_ARGS": typed,
        }
        ran = subprocess.run([command()[0], "-m", "muster"], env=environment, capture_output=True, text=True)
        words = ran.stdout.split()
        assert words == (expected or ["share-group-member-metadata", "share-group-metadata"])


def test_the_app_has_the_commands_of_the_docs() -> None:
    names = [command.callback.__name__ for command in app.registered_commands if command.callback]
    assert names == [
        "dump", "serve", "status", "why", "findings", "expiring", "lag", "history", "compare", "sql", "table",
        "exporter", "dashboard", "report",
    ]  # fmt: skip
