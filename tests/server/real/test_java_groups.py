"""kafka-consumer-groups, the Java Admin client and Java consumers say the same of a real broker and of muster."""

from pathlib import Path

import pytest

from tests.server.real.java_groups import Pair, clear_groups, differing, make_groups, run_both

pytestmark = pytest.mark.kafka

READS = """\
--list
--list --state
--list --state Stable,Empty
--list --type
--list --type classic --state Empty
--list --type consumer
--describe --group idle
--describe --group live --offsets --verbose
--describe --group live --members
--describe --group live --members --verbose
--describe --group live --state
--describe --group live --state --verbose
--describe --group static --members --verbose
--describe --group left
--describe --group left --members
--describe --group left --state
--describe --group never
--describe --group idle --group live --state
--describe --all-groups
--describe --all-groups --members --verbose
--describe --all-groups --state
"""
SPECS = (
    "--to-earliest", "--to-latest", "--to-offset 3", "--to-offset -1", "--shift-by -2", "--shift-by 5",
    "--by-duration P1D", "--to-datetime 2020-01-01T00:00:00.000", "--to-current",
)  # fmt: skip
DELETES = """\
--delete-offsets --group idle --topic orders:0
--delete-offsets --group idle --topic orders:7
--delete-offsets --group idle --topic never
--delete-offsets --group live --topic orders
--delete-offsets --group never --topic orders
--delete --group idle
--delete --group live
--delete --group never
--delete --group left --group live --group never
--delete --all-groups
--list --state
"""


@pytest.fixture
def pair(brokers: Pair) -> Pair:
    """Both with the same four groups, and nothing else."""
    for name in brokers.bootstraps:
        clear_groups(brokers.both.side(name))
    brokers.both.same(make_groups)
    return brokers


def resets(folder: Path, specs: tuple[str, ...]) -> str:
    """Every way to reset, tried and done."""
    plan = folder / "plan.csv"
    plan.write_text("orders,0,0\npayments,1,0\n")
    lines = []
    for spec in specs:
        lines += [
            f"--reset-offsets --group idle --topic orders {spec} --dry-run",
            f"--reset-offsets --group idle --all-topics {spec} --export --dry-run",
            f"--reset-offsets --group idle --topic orders:0,2 --topic payments {spec} --execute",
            "--describe --group idle",
        ]
    return "\n".join(
        [
            *lines,
            f"--reset-offsets --group idle --from-file {plan} --dry-run",
            f"--reset-offsets --group idle --from-file {plan} --execute",
            f"--reset-offsets --group fresh --topic orders {specs[0]} --execute",
            f"--reset-offsets --group live --topic orders {specs[0]} --execute",
            f"--reset-offsets --group idle --topic never {specs[0]} --execute",
            f"--reset-offsets --group idle --topic orders:9 {specs[0]} --execute",
            f"--reset-offsets --all-groups --all-topics {specs[0]} --dry-run",
            "--describe --all-groups",
            "",
        ]
    )


def check(pair: Pair, mode: str, *arguments: str, words: str = "") -> dict[str, list[str]]:
    said = run_both(pair, mode, *arguments, words=words)
    found = differing(said)
    assert not found, "\n".join([f"{len(found)} of {len(said['Kafka'])} differ", *found[:10]])
    return said["Kafka"]


def test_kafka_consumer_groups(pair: Pair, tmp_path: Path) -> None:
    said = check(pair, "tools", words=READS + resets(tmp_path, SPECS[:2]) + DELETES)
    assert any("first" in line for line in said["== --describe --group live --members --verbose"])
    assert len(said) > 45
    shown = [line for lines in said.values() for line in lines]
    assert any("Deletion of requested consumer groups" in line for line in shown)


@pytest.mark.long
def test_kafka_consumer_groups_with_every_spec(pair: Pair, tmp_path: Path) -> None:
    check(pair, "tools", words=resets(tmp_path, SPECS))


def test_the_admin_client(pair: Pair) -> None:
    said = check(pair, "admin")
    assert len(said) > 30
    assert said["== delete what is empty now"] == ["idle=deleted", "live=deleted", "static=deleted"]


def test_consumers_come_and_go(pair: Pair) -> None:
    said = check(pair, "consumers", "CooperativeStickyAssignor", "static")
    assert (
        "three: [1, 2, 2] of [orders-0, orders-1, orders-2, payments-0, payments-1]"
        in said["== java-CooperativeStickyAssignor"]
    )
    assert "the same: true, generation went up by 0, revoked of the other: 0" in said["== static"]
    assert "of twins one: FencedInstanceIdException" in said["== static"]


@pytest.mark.long
def test_consumers_of_every_kind(pair: Pair) -> None:
    said = check(pair, "consumers", "RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "upgrade")
    assert any(line.startswith("a stranger: InconsistentGroupProtocolException") for line in said["== upgrade"])
