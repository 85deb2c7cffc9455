"""Rows and their three renderings, from answers made up here: no cluster."""

import csv
import io
import json

import pytest

from muster.cli.groups_model import (
    Committed,
    Group,
    GroupListing,
    GroupType,
    Member,
    Node,
    Refusal,
    State,
    TopicPartition,
)
from muster.cli.groups_rows import (
    Column,
    Kind,
    Table,
    deleted_groups_table,
    deleted_offsets_table,
    lag,
    list_table,
    members_table,
    offsets_table,
    reset_table,
    state_table,
)
from muster.cli.groups_view import csv_text, fitting_widths, json_lines, plain_text

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
        assert objects(verbose)[1]["current_assignment"] == {"orders": [0, 1], "pay": [0]}
        assert plain_text(verbose).splitlines()[2].split()[-2:] == ["orders:0,1;pay:0", "-"]

    def test_the_column_of_instance_ids_is_there_for_people_only_when_somebody_has_one(self) -> None:
        without, with_one = (members_table([stable(Member("m", "c", "h", seat))]) for seat in (None, "s"))
        assert "GROUP-INSTANCE-ID" not in plain_text(without)
        assert "GROUP-INSTANCE-ID" in plain_text(with_one)
        assert objects(without)[0]["group_instance_id"] is None

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
        assert objects(offsets)[0]["group"] == "app"


class TestRenderings:
    TABLE = Table(
        (Column("GROUP", "group"), Column("LAG", "lag", Kind.LAG), Column("CLIENT-ID", "client_id")),
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
            {"group": "消费", "lag": 12345, "client_id": "a,b"},
            {"group": "a\x1b[31m\n", "lag": None, "client_id": None},
        ]

    def test_csv_comes_back_as_it_went_in(self) -> None:
        rows = list(csv.reader(io.StringIO(csv_text(self.TABLE), newline="")))
        assert rows == [
            ["group", "lag", "client_id"],
            ["消费", "12345", "a,b"],
            ["a\x1b[31m\n", "", ""],
            ["ü", "-1", 'say "hi"'],
        ]

    def test_large_numbers_stay_whole(self) -> None:
        table = reset_table({"g": {PAY_0: 9007199254740993}})
        for text in (plain_text(table), json_lines(table), csv_text(table)):
            assert "9007199254740993" in text

    def test_on_a_narrow_terminal_long_names_give_way_and_numbers_do_not(self) -> None:
        columns = list(offsets_table([], {}, {}).columns)
        widths = [30, 30, 9, 14, 14, 8, 45, 15, 20]
        fitted = fitting_widths(columns, widths, 150)
        assert sum(fitted) + 2 * 8 == 150
        assert fitted[6] == 12  # consumer ids go first
        assert fitted[2:6] == widths[2:6]
        assert fitting_widths(columns, widths, 1000) == widths
        least = fitting_widths(columns, widths, 20)  # then the lines are too long
        assert least == [24, 24, *widths[2:6], 12, 12, 12]
        short = [8, 8, *widths[2:]]
        assert fitting_widths(columns, short, 20)[:2] == [8, 8]
