"""Rows and their three renderings, from answers made up here: no cluster."""

import csv
import io
import json

import pytest

from muster.cli.groups.model import (
    Committed,
    Group,
    GroupListing,
    GroupType,
    Member,
    Node,
    Refusal,
    State,
    TopicPartition,
    deleted_groups_table,
    deleted_offsets_table,
    lag,
    list_table,
    members_table,
    offsets_table,
    reset_table,
    state_table,
)
from muster.cli.people import shown_duration
from muster.cli.tabular import Column, Kind, Table, csv_text, fitted, json_lines, plain_text

ORDERS_0, ORDERS_1, PAY_0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("pay", 0)
NODE = Node(3, "kafka-3", 9092)


def stable(*members: Member, group_id: str = "app", state: State = State.STABLE) -> Group:
    return Group(group_id, GroupType.CLASSIC, state, "range", NODE, members)


def objects(table: Table) -> list[dict[str, object]]:
    return [json.loads(line) for line in json_lines(table).splitlines()]


@pytest.mark.parametrize(
    ("committed", "end", "expected"),
    [(3, 10, 7), (10, 10, 0), (100, 10, -90), (None, 10, None), (3, None, None), (0, 0, 0)],
)
def test_lag_is_what_is_left_to_read_and_unknown_is_not_zero(
    committed: int | None, end: int | None, expected: int | None
) -> None:
    assert lag(committed, end) == expected


class TestOffsets:
    def test_partitions_of_members_then_of_nobody_in_order_of_topic_and_partition(self) -> None:
        group = stable(Member("m-1", "one", "/10.0.0.1", assignment=(PAY_0, ORDERS_1)))
        committed = {"app": {ORDERS_1: Committed(5, 2), ORDERS_0: Committed(9)}}
        table = offsets_table([group], committed, {ORDERS_0: 9, ORDERS_1: 7, PAY_0: 4})
        assert table.rows == [
            ("app", "orders", 0, 9, 9, 0, None, None, None),
            ("app", "orders", 1, 5, 7, 2, "m-1", "/10.0.0.1", "one"),
            ("app", "pay", 0, None, 4, None, "m-1", "/10.0.0.1", "one"),
        ]

    def test_verbose_adds_the_leader_epoch(self) -> None:
        group = Group("app", GroupType.CLASSIC, State.EMPTY)
        table = offsets_table([group], {"app": {ORDERS_0: Committed(1, 7), ORDERS_1: Committed(2)}}, {}, verbose=True)
        assert [column.title for column in table.columns][2:5] == ["PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET"]
        assert [row[3] for row in table.rows] == [7, None]

    def test_a_member_without_partitions_has_no_row(self) -> None:
        assert offsets_table([stable(Member("m", "c", "h"))], {}, {}).rows == []

    def test_a_partition_that_two_members_claim_has_two_rows(self) -> None:
        """As during a rebalance; Kafka's tool shows both."""
        members = [Member(f"m-{number}", "c", "h", assignment=(PAY_0,)) for number in (1, 2)]
        assert [row[6] for row in offsets_table([stable(*members)], {}, {}).rows] == ["m-1", "m-2"]

    def test_the_columns_of_kafka_consumer_groups(self) -> None:
        text = plain_text(offsets_table([], {}, {}))
        assert text.split() == [
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
            "CLIENT-ID",
        ]  # fmt: skip


class TestOtherTables:
    def test_members(self) -> None:
        group = stable(
            Member("m-2", "two", "/h", "seat", (ORDERS_1, PAY_0, ORDERS_0)), Member("m-1", "one", "/h", target=())
        )
        plain, verbose = members_table([group]), members_table([group], verbose=True)
        assert plain.rows == [("app", "m-1", None, "/h", "one", 0), ("app", "m-2", "seat", "/h", "two", 3)]
        assert objects(verbose)[1]["assignment"] == [
            {"topic": "orders", "partitions": [0, 1]}, {"topic": "pay", "partitions": [0]},
        ]  # fmt: skip
        assert plain_text(verbose).splitlines()[2].split()[-2:] == ["orders:0,1;pay:0", "-"]

    def test_the_column_of_instance_ids_is_there_for_people_only_when_somebody_has_one(self) -> None:
        without, with_one = (members_table([stable(Member("m", "c", "h", seat))]) for seat in (None, "s"))
        assert "GROUP-INSTANCE-ID" not in plain_text(without)
        assert "GROUP-INSTANCE-ID" in plain_text(with_one)
        assert objects(without)[0]["instance_id"] is None

    def test_state(self) -> None:
        table = state_table([stable(Member("m", "c", "h")), Group("b", GroupType.CLASSIC, State.EMPTY)])
        assert plain_text(table).splitlines() == [
            "GROUP  COORDINATOR (ID)   ASSIGNMENT-STRATEGY  STATE   #MEMBERS",
            "app    kafka-3:9092  (3)  range                Stable         1",
            "b      -                  -                    Empty          0",
        ]
        assert objects(table)[0]["coordinator"] == {"id": 3, "host": "kafka-3", "port": 9092}

    def test_list(self) -> None:
        listings = [
            GroupListing("b", GroupType.CONSUMER, State.STABLE),
            GroupListing("a", GroupType.CLASSIC, State.PREPARING_REBALANCE),
        ]
        assert list_table(listings).rows == [("a", "Classic", "PreparingRebalance"), ("b", "Consumer", "Stable")]

    def test_reset(self) -> None:
        table = reset_table({"b": {PAY_0: 1}, "a": {PAY_0: 3, ORDERS_1: 2}})
        assert table.rows == [("a", "orders", 1, 2), ("a", "pay", 0, 3), ("b", "pay", 0, 1)]
        with_before = reset_table({"a": {PAY_0: 3, ORDERS_1: 2}}, {"a": {PAY_0: Committed(8)}})
        assert with_before.rows == [("a", "orders", 1, None, 2), ("a", "pay", 0, 8, 3)]

    def test_deleted(self) -> None:
        table = deleted_groups_table({"b": None, "a": Refusal("NON_EMPTY_GROUP", "The group is not empty")})
        assert plain_text(table).splitlines()[1:] == ["a      Error: The group is not empty", "b      Successful"]
        assert objects(table)[0]["error_code"] == "NON_EMPTY_GROUP"
        unknown = {"typo": Refusal("UNKNOWN_TOPIC_OR_PART", "Unknown topic or partition")}
        offsets = deleted_offsets_table("app", {PAY_0: None}, unknown)
        assert plain_text(offsets).splitlines() == [
            "TOPIC  PARTITION  STATUS",
            "pay            0  Successful",
            "typo           -  Error: Unknown topic or partition",
        ]
        assert objects(offsets)[0]["group_id"] == "app"


class TestRenderings:
    TABLE = Table(
        (Column("GROUP", "group_id"), Column("LAG", "lag", Kind.LAG), Column("CLIENT-ID", "client_id")),
        [("消费", 12345, "a,b"), ("a\x1b[31m\n", None, None), ("ü", -1, 'say "hi"')],
    )

    def test_text_lines_up_whatever_the_letters(self) -> None:
        assert plain_text(self.TABLE).splitlines() == [
            "GROUP      LAG  CLIENT-ID",
            "消费     12345  a,b",
            "a·[31m·      -  -",
            'ü           -1  say "hi"',
        ]

    def test_json_keeps_numbers_and_says_null(self) -> None:
        assert objects(self.TABLE)[:2] == [
            {"group_id": "消费", "lag": 12345, "client_id": "a,b"},
            {"group_id": "a\x1b[31m\n", "lag": None, "client_id": None},
        ]

    def test_csv_comes_back_as_it_went_in(self) -> None:
        rows = list(csv.reader(io.StringIO(csv_text(self.TABLE, exact=True), newline="")))
        assert rows == [
            ["group_id", "lag", "client_id"],
            ["消费", "12345", "a,b"],
            ["a\x1b[31m\n", "", ""],
            ["ü", "-1", 'say "hi"'],
        ]

    def test_large_numbers_stay_whole(self) -> None:
        table = reset_table({"g": {PAY_0: 9007199254740993}})
        for text in (plain_text(table), json_lines(table), csv_text(table)):
            assert "9007199254740993" in text

    def test_csv_has_no_formula_and_nothing_that_a_terminal_obeys(self) -> None:
        table = Table(
            (Column("GROUP", "group_id"), Column("LAG", "lag", Kind.LAG)),
            [
                ("=HYPERLINK(1)", -1),
                ("+1", 2),
                ("-a", 3),
                ("@x", 4),
                ("\tx", 5),
                ("a\x1b[2J\u009bb", 6),
                ("plain-1", 7),
            ],
        )
        assert csv_text(table).splitlines() == [
            "group_id,lag",
            "'=HYPERLINK(1),-1",
            "'+1,2",
            "'-a,3",
            "'@x,4",
            "'\\u0009x,5",
            "a\\u001B[2J\\u009Bb,6",
            "plain-1,7",
        ]

    @pytest.mark.parametrize("width", [80, 100, 120, 160, 1000])
    def test_a_terminal_gets_lines_that_fit_it(self, width: int) -> None:
        member_id = "rdkafka-4a1c2b7e-8d3f-4e5a-9b6c-7d8e9f0a1b2c"
        rows = [("orders-app", "orders-eu", n, 12_345_678, 12_345_999, 321, member_id, "/10.0.0.17", "rdkafka")
                for n in range(3)]  # fmt: skip
        printed, left_out = fitted(Table(offsets_table([], {}, {}).columns, rows), width)
        lines = ["  ".join(cells) for cells in zip(*(each.padded() for each in printed), strict=True)]
        assert max(map(len, lines)) <= width
        assert "12345678" in lines[1]
        assert "rdkafka" in lines[1]
        assert "orders-app" in lines[1]
        assert (left_out == []) == (width >= 100)
        assert ("CURRENT-OFFSET" in lines[0]) == (width >= 120)

    def test_names_that_begin_alike_are_told_apart_before_other_columns_find_room(self) -> None:
        columns = (Column("GROUP", "group_id"), Column("HOW", "how", spare=1), Column("N", "n", Kind.NUMBER))
        rows = [(f"heartbeat-service-{n}-of-europe", "cooperative-sticky", 12) for n in range(3)]
        printed, left_out = fitted(Table(columns, rows), 42)
        assert left_out == ["HOW"]
        assert len(set(printed[0].padded())) == 4
        longer = [(f"{'a' * 60}-{n}", "cooperative-sticky", 12) for n in range(3)]
        printed, left_out = fitted(Table(columns, longer), 30)
        assert left_out == ["HOW"]
        assert sum(each.width for each in printed) + 2 <= 30

    def test_members_are_shown_by_name_and_kept_apart(self) -> None:
        one, other = (f"app-{letter * 8}-8d3f-4e5a-9b6c-7d8e9f0a1b2c" for letter in "ab")
        columns = (Column("CONSUMER-ID", "consumer_id", Kind.MEMBER), Column("WHO", "who", Kind.MEMBERS))
        assert plain_text(Table(columns, [(one, [f"+{one}", "till-2"])])).splitlines()[1].split() == [
            "app", "+app", "till-2",
        ]  # fmt: skip
        both = plain_text(Table(columns, [(one, []), (other, [f"-{other}"])])).splitlines()
        assert [line.split() for line in both[1:]] == [["app-aaaa…", "-"], ["app-bbbb…", "-app"]]
        returned = plain_text(Table(columns, [(None, [f"+{one}"]), (None, ["app"])])).splitlines()  # an instance id
        assert [line.split()[1] for line in returned[1:]] == ["+app", "app"]
        assert one in plain_text(Table(columns, [(one, [])]), wide=True)
        assert json.loads(json_lines(Table(columns, [(one, [])])))["consumer_id"] == one


@pytest.mark.parametrize(
    ("length_ms", "words"),
    [(0, "0.0 s"), (340, "0.3 s"), (59_940, "59.9 s"), (748_561, "12 min 28 s"), (60_000, "1 min"),
     (11_100_000, "3 h 5 min"), (187_200_000, "2 d 4 h"), (-5_000, "-5.0 s")],
)  # fmt: skip
def test_lengths_of_time_as_people_say_them(length_ms: int, words: str) -> None:
    assert shown_duration(length_ms) == words
