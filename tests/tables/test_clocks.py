"""Times as people write and read them, in zones other than that of the tests."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from muster.tables.clocks import parse_time, shown, zone_name

NOW = datetime(2026, 11, 17, 8, 33, 4, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.fixture
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_berlin")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("08:05", "2026-11-17T08:05+01:00"),
        ("8:05", "2026-11-17T08:05+01:00"),
        ("9:33:04", "2026-11-17T09:33:04+01:00"),  # now
        ("9:33:05", "2026-11-16T09:33:05+01:00"),  # not yet today
        ("23:05", "2026-11-16T23:05+01:00"),
        ("14:05Z", "2026-11-16T14:05Z"),
        ("08:05+02:00", "2026-11-17T08:05+02:00"),
        ("today 7:00", "2026-11-17T07:00+01:00"),
        ("Yesterday 14:05", "2026-11-16T14:05+01:00"),
        ("yesterday", "2026-11-16T00:00+01:00"),
        ("tuesday 9:30", "2026-11-10T09:30+01:00"),  # today is one
        ("Last Monday", "2026-11-16T00:00+01:00"),
        ("wednesday", "2026-11-11T00:00+01:00"),
        ("last  sunday 14:05Z", "2026-11-15T14:05Z"),
        ("2026-07-01 12:00", "2026-07-01T12:00+02:00"),
        ("2026-11-17T08:00", "2026-11-17T08:00+01:00"),
        ("2026-11-17", "2026-11-17T00:00+01:00"),
        ("2026-07-01 12:00:00 CEST", "2026-07-01T12:00+02:00"),
        ("2026-07-01 12:00:00 CET", "2026-07-01T12:00+01:00"),
        ("2026-11-16 17:26:40 UTC", "2026-11-16T17:26:40Z"),
    ],
)
def test_a_time_without_a_zone_is_local(text: str, expected: str) -> None:
    assert parse_time(text, NOW_MS) == ms(expected)


@pytest.mark.usefixtures("_berlin")
def test_a_zone_can_be_given_for_times_that_have_none() -> None:
    assert parse_time("2026-07-01T12:00", NOW_MS, UTC) == ms("2026-07-01T12:00Z")
    assert parse_time("2026-07-01T12:00+02:00", NOW_MS, UTC) == ms("2026-07-01T12:00+02:00")
    assert parse_time("8:20", NOW_MS, UTC) == ms("2026-11-17T08:20Z")
    assert parse_time("8:40", NOW_MS, UTC) == ms("2026-11-16T08:40Z")


@pytest.mark.usefixtures("_berlin")
@pytest.mark.parametrize("text", ["2026-07-01T12:00:00Z", "2026-11-17T12:00:00Z", "2026-10-25T00:30:00Z"])
def test_what_is_shown_can_be_written_again(text: str) -> None:
    assert parse_time(shown(ms(text)), NOW_MS) == ms(text)


@pytest.mark.usefixtures("_berlin")
def test_times_are_shown_with_their_zone() -> None:
    assert shown(ms("2026-07-01T12:00:00Z")) == "2026-07-01 14:00:00 CEST"
    assert shown(ms("2026-12-01T12:00:00Z")) == "2026-12-01 13:00:00 CET"
    assert shown(2**62) == f"{2**62} ms"
    assert zone_name() == "CET/CEST"
