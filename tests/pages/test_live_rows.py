"""What a round brought, as rows of pages."""

from dataclasses import replace
from typing import Any

import pytest

from muster.exporter.health import Health
from muster.exporter.log_ends import LogEnds
from muster.exporter.view import Owner, PartitionRow, View
from muster.pages.live import ASK_EVERY_S, _round_of
from muster.pages.live_rows import LiveRows, is_whole
from tests.exporter.pages import a_view, group

NOW_MS = 1_700_000_000_000


def rows(listed: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(listed["columns"], row, strict=True)) for row in listed["rows"]]


def test_groups_partitions_and_logs() -> None:
    live = LiveRows(a_view(), NOW_MS)
    lags = {each["group_id"]: (each["lag"], each["lag_ms"], each["partitions_without_lag"])
            for each in rows(live.of_page("overview", {})["groups"])}  # fmt: skip
    assert lags == {"shop": (80, 60_000, 0), "beyond": (0, 0, 0), "unknown": (None, None, 1)}
    beyond = live.of_page("group", {"id": "beyond"})
    assert [each["lag"] for each in rows(beyond["partitions"])] == [-3], "as kafka-consumer-groups has it"
    (unknown,) = rows(live.of_page("group", {"id": "unknown"})["partitions"])
    assert (unknown["committed_offset"], unknown["log_end_offset"], unknown["client_id"]) == (90, None, None)
    assert live.of_page("group", {"id": "nosuch"})["group"] is None
    topic = live.of_page("topic", {"name": "orders"})
    assert [each["group_id"] for each in rows(topic["groups"])] == ["shop", "beyond"]
    assert [each["log_end_offset"] for each in rows(topic["partitions"])] == [100, 90]
    assert live.of_page("findings", {}) == {}


def test_an_end_that_was_not_told_this_time_is_unknown() -> None:
    view = a_view()
    view.ends.look({("orders", 0): (0, 120)}, NOW_MS + 10_000)
    live = LiveRows(view, NOW_MS + 9_000)
    shop = live.of_page("group", {"id": "shop"})
    assert [each["lag"] for each in rows(shop["partitions"])] == [10, None]
    assert (shop["group"]["lag"], shop["group"]["partitions_without_lag"]) == (10, 1)
    assert [each["partition"] for each in rows(live.of_page("topic", {"name": "orders"})["partitions"])] == [0]


def test_names_are_those_of_the_tables() -> None:
    row = PartitionRow("or\udcffders", 0, 1, None, None, Owner(), None, None)
    live = LiveRows(View("lab", [group("sh\udcffop", row)], LogEnds()), 0)
    told = live.of_page("group", {"id": "sh\ufffdop"})
    assert told["group"]["group_id"] == "sh\ufffdop"
    assert [each["topic"] for each in rows(told["partitions"])] == ["or\ufffdders"]


@pytest.mark.parametrize(
    ("states", "left_out", "expected"),
    [({"followed": 4}, {}, True), ({"followed": 3, "loading": 1}, {}, False), ({"followed": 4}, {"groups": 1}, False)],
)
def test_what_is_not_there_is_gone_only_if_all_was_read(
    states: dict[str, int], left_out: dict[str, int], expected: bool
) -> None:
    assert is_whole(states, left_out) == expected


@pytest.mark.parametrize(
    ("read_at", "is_cut_short", "shown"),
    [
        ({"shop": 100.0, "beyond": 100.0, "unknown": 100.0}, False, {"shop", "beyond", "unknown"}),
        ({"shop": 100.0, "beyond": 100.0 - ASK_EVERY_S, "unknown": 1.0}, False, {"shop", "beyond"}),
        ({"shop": 1.0, "beyond": 1.0, "unknown": 1.0}, False, None),  # none of its partitions could be read
        ({"shop": 100.0, "beyond": 100.0, "unknown": 100.0}, True, None),
    ],
)
def test_a_broker_that_is_away_takes_its_groups_with_it_and_no_others(
    read_at: dict[str, float], is_cut_short: bool, shown: set[str] | None
) -> None:
    health = Health(False, is_cut_short, trouble="broker 2 is away.", offsets_partitions={"failing": 1})
    found = _round_of(health, replace(a_view(), read_at=read_at), 100.0, NOW_MS)
    if shown is None:
        assert found is None
        return
    assert found is not None
    assert found.rows is not None
    assert {each["group_id"] for each in rows(found.rows.of_page("overview", {})["groups"])} == shown
    assert (found.trouble, found.is_whole) == ("broker 2 is away.", False)
    assert found.oldest_at == min(at for at in read_at.values() if at > 1.0)
