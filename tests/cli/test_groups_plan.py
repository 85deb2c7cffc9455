"""Where offsets go when they are reset, and how people write it down. test_groups_real.py asks Kafka's tool."""

import pytest

from muster.cli.groups.model import Refusal, TopicPartition
from muster.cli.groups.plan import (
    CannotReset,
    FromFile,
    Known,
    Need,
    ResetSpec,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    export_text,
    needs,
    parse_duration,
    parse_plan,
    parse_topics,
    plan_reset,
    time_before,
)
from muster.errors import BadInput

A, B, C = (TopicPartition("t", number) for number in range(3))
KNOWN = Known(
    log_start={A: 10, B: 0, C: 5},
    log_end={A: 100, B: 8, C: 50},
    committed={A: 40, C: 49},
    at_time={A: 77, B: -1, C: 5},
)
SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("spec", "partitions", "offsets", "notes"),
    [
        (ToEarliest(), [A, B, C], {A: 10, B: 0, C: 5}, 0),
        (ToLatest(), [A, B, C], {A: 100, B: 8, C: 50}, 0),
        (ToCurrent(), [A, B, C], {A: 40, B: 8, C: 49}, 0),  # the end of what was never committed
        (ToOffset(20), [A, B, C], {A: 20, B: 8, C: 20}, 1),
        (ToOffset(-5), [A, C], {A: 10, C: 5}, 2),
        (ToOffset(100), [A], {A: 100}, 0),  # the end itself is within the log
        (ToOffset(10), [A], {A: 10}, 0),
        (ShiftBy(5), [A, C], {A: 45, C: 50}, 1),
        (ShiftBy(-35), [A, C], {A: 10, C: 14}, 1),
        (ToTime(0), [A, B, C], {A: 77, B: 8, C: 5}, 1),
        (FromFile({"g": {A: 11, C: 9999}}), [], {A: 11, C: 50}, 1),
        (FromFile({None: {A: 11}}), [], {A: 11}, 0),
        (FromFile({"other": {A: 11}}), [], {}, 0),
        (ToLatest(), [A, A], {A: 100}, 0),
    ],
)
def test_plans(
    spec: ResetSpec, partitions: list[TopicPartition], offsets: dict[TopicPartition, int], notes: int
) -> None:
    plan = plan_reset(spec, "g", partitions, KNOWN)
    assert plan.offsets == offsets
    assert len(plan.notes) == notes


def test_notes_say_what_was_taken_instead() -> None:
    assert plan_reset(ToOffset(200), "g", [A], KNOWN).notes == ["200 is beyond the end of t-0: taking its end, 100."]
    assert plan_reset(ToOffset(1), "g", [A], KNOWN).notes == ["1 is before the start of t-0: taking its start, 10."]
    assert plan_reset(ToTime(0), "g", [B], KNOWN).notes == [
        "t-1 has no record of that time or later: taking its end, 8."
    ]


def test_nothing_is_shifted_from_nowhere() -> None:
    with pytest.raises(CannotReset, match=r"group 'g' has no committed offset of t-1 to shift\. Name partitions that"):
        plan_reset(ShiftBy(1), "g", [A, B], KNOWN)


@pytest.mark.parametrize("spec", [ToEarliest(), ToLatest(), ToCurrent(), ToOffset(1), ShiftBy(1), ToTime(1)])
def test_a_partition_that_cannot_be_found_stops_the_plan(spec: ResetSpec) -> None:
    nine = TopicPartition("t", 9)
    refused = {nine: Refusal("_UNKNOWN_PARTITION", "Unknown partition")}
    known = Known(KNOWN.log_end, KNOWN.log_start, {A: 1, nine: 1}, KNOWN.at_time, refused)
    with pytest.raises(CannotReset, match=r"cannot find t-9 \(Unknown partition\)"):
        plan_reset(spec, "g", [A, nine], known)


@pytest.mark.parametrize("spec", [ToEarliest(), ToTime(1)])
def test_a_partition_half_of_which_is_known_stops_it_too(spec: ResetSpec) -> None:
    """It may go away between two questions."""
    with pytest.raises(CannotReset, match="cannot find t-0"):
        plan_reset(spec, "g", [A], Known(log_end={A: 1}))


def test_what_must_be_asked() -> None:
    assert needs(ToLatest()) == set()
    assert needs(ToTime(1)) == {Need.TIME}
    assert needs(ToCurrent()) == {Need.COMMITTED}
    assert needs(ShiftBy(1)) == {Need.COMMITTED, Need.LOG_START}
    assert needs(FromFile({})) == needs(ToOffset(1)) == needs(ToEarliest()) == {Need.LOG_START}


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("PT2H", 7200),
            ("P1D", 86400),
            ("P1DT12H", 129600),
            ("PT15M", 900),
            ("PT20.345S", 20.345),
            ("PT-6H3M", -6 * 3600 + 180),
            ("-PT6H3M", -(6 * 3600 + 180)),
            ("-PT-6H+3M", 6 * 3600 - 180),
            ("PT-0.5S", -0.5),
            ("pt1h1m1s", 3661),
            ("PT0S", 0),
            ("PT1,5S", 1.5),
        ],
    )
    def test_as_java_reads_them(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == round(seconds * SECOND_NS)

    @pytest.mark.parametrize(
        "text", ["", "P", "PT", "2h", "P1DT", "PT1", "1H", "P1H", "PT1.2H", "P1M", "PT1H ago", "PT1S1M"]
    )
    def test_what_is_no_duration(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"is not a duration\. Write PT2H"):
            parse_duration(text)

    def test_a_moment_is_counted_back_in_whole_milliseconds(self) -> None:
        assert time_before(10_000, 3 * SECOND_NS) == 7_000
        assert time_before(10_000, 1) == 9_999  # Java rounds a moment down, too


class TestTopics:
    def test_whole_topics_and_partitions(self) -> None:
        assert parse_topics(["orders", "pay:0,3", "orders:7"]) == (
            ["orders"],
            [TopicPartition("pay", 0), TopicPartition("pay", 3), TopicPartition("orders", 7)],
        )

    @pytest.mark.parametrize(
        "text", ["", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2", "a b", "a:99999999999", "a\0", "ü"]
    )
    def test_what_is_no_topic(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"is not a topic\. Write orders, or orders:0,3"):
            parse_topics([text])


class TestFiles:
    def test_with_and_without_groups(self) -> None:
        assert parse_plan("t,0,5\nt,1,6\n", "f").offsets == {None: {A: 5, B: 6}}
        assert parse_plan('g,t,0,5\n\n"h,h",t,0,7\r\ng,t,0,6\n', "f").offsets == {"g": {A: 6}, "h,h": {A: 7}}

    def test_a_line_with_names_may_stand_on_top(self) -> None:
        assert parse_plan("group,topic,partition,new_offset\ng,t,0,5\n", "f").offsets == {"g": {A: 5}}
        assert parse_plan("topic,partition,offset\nt,0,5\n", "f").offsets == {None: {A: 5}}

    @pytest.mark.parametrize(
        "line",
        ["t,0", "t,x,5", "t,0,five", "t,0,5,6,7", "t,-1,5", "t,0,-5", "t;0;5", "t,0,1e3", "t t,0,1", "g\0,t,0,1"],
    )
    def test_a_line_that_is_none_is_named(self, line: str) -> None:
        with pytest.raises(BadInput, match=r"plan\.csv, line 2: not a line of `topic,partition,offset`"):
            parse_plan(f"t,0,5\n{line}\n", "plan.csv")

    def test_a_mixture_and_an_empty_file(self) -> None:
        with pytest.raises(BadInput, match="some lines name a group and some do not"):
            parse_plan("t,0,5\ng,t,0,5\n", "f")
        with pytest.raises(BadInput, match="there is no offset in it"):
            parse_plan("\n", "f")

    @pytest.mark.parametrize("with_group", [True, False])
    def test_what_is_exported_can_be_read_again(self, with_group: bool) -> None:
        offsets = {'a "group", or two': {A: 5, C: 9007199254740993}}
        text = export_text(offsets, with_group)
        assert parse_plan(text, "f").of('a "group", or two') == offsets['a "group", or two']
        assert (text.count(",") == 2 * 2) is not with_group
