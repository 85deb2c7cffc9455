"""Pages read with prometheus-client's parser, and a page of a made-up cluster that has everything on it."""

from prometheus_client.parser import text_string_to_metric_families

from muster.exporter.health import Health
from muster.exporter.log_ends import LogEnds
from muster.exporter.page import Page
from muster.exporter.view import GroupRow, Owner, PartitionRow, TablesRun, View
from muster.verdicts import Verdict

Labels = frozenset[tuple[str, str]]


def read(page: bytes) -> dict[str, dict[Labels, float]]:
    """Values by metric and labels; a line that is there twice fails."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in values, (sample.name, sample.labels)
            values[labels] = sample.value
    return found


def value(page: bytes, name: str, **labels: str) -> float | None:
    """Of the one line with such labels, among others."""
    found = [number for seen, number in read(page).get(name, {}).items() if labels.items() <= set(seen)]
    assert len(found) <= 1, (name, labels, found)
    return found[0] if found else None


def group(name: str, *rows: PartitionRow, **fields: object) -> GroupRow:
    row = GroupRow(name, "classic", "Stable", 1, "consumer", "range", 2, 40, {"member joined": 3}, 1_700_000_000_000)
    row.partitions = list(rows)
    for key, one in fields.items():
        setattr(row, key, one)
    return row


def a_view() -> View:
    ends = LogEnds()
    ends.look({("orders", 0): (0, 100), ("orders", 1): (50, 90)}, 1_700_000_000_000)
    owner = Owner("client-1", "/10.0.0.1", "client")
    return View(
        "lab",
        [
            group(
                "shop",
                PartitionRow("orders", 0, 90, 10, 2.5, owner, Verdict.WARN, Verdict.WARN),
                PartitionRow("orders", 1, 20, 70, 60.0, owner, Verdict.LOSING, Verdict.OK),
            ),
            group("beyond", PartitionRow("orders", 0, 103, -3, 0.0, Owner(), Verdict.OK, Verdict.OK)),
            group(
                "unknown",
                PartitionRow("gone", 0, 90, None, None, Owner(), None, None),
                state=None, coordinator=None, type=None, last_commit_ms=None, rebalances={},
            ),
        ],
        ends,
        TablesRun(
            1_700_000_000_000,
            {("error", "stuck-partition"): 2, ("info", "damage"): 0},
            {"shop": 1_700_000_600_000},
        ),
    )  # fmt: skip


def a_page() -> bytes:
    """All that can be on it."""
    page = Page("1.2.3", clock=lambda: 105.0)
    health = Health(
        is_up=True,
        read_at={"commits": 100.0, "log_ends": 101.0, "group_states": None},
        round_s=0.5,
        offsets_partitions={"followed": 4},
        left_out={"groups": 1},
        methods={"interpolated": 2},
        tables_at=45.0,
        tables_at_ms=1_700_000_000_000,
    )
    page.show(health, a_view())
    return page.text()
