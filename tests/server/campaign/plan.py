"""What happens in a campaign, drawn from its seed: the same seed, the same plan."""

import errno
import random
from collections.abc import Collection
from typing import Any, NamedTuple

from tests.server.campaign.abuse import ABUSES
from tests.server.campaign.failing_files import CHANGES, Order

OFFSETS_LOG = r"__consumer_offsets-\d+/\d+\.log$"
RECORDS = r"sales-\d+/"
PARTITION_LIMIT = 300
"""`muster.max.partitions` beside those of the offsets topic: each is a directory to open at every start."""


KINDS = ("disk", "move", "abuse", "topics")


class Step(NamedTuple):
    """One thing that happens in a round, `at_s` seconds after its beginning."""

    at_s: float
    kind: str
    details: dict[str, Any]

    def __str__(self) -> str:
        details = ", ".join(f"{name} {value}" for name, value in self.details.items())
        return f"{self.at_s:.2f} s {self.kind} ({details})"


class World(NamedTuple):
    """What does not change over the rounds that share a data directory."""

    partitions: int
    settings: dict[str, str]
    in_columns: bool


class Round(NamedTuple):
    steps: list[Step]
    ends: str
    """`kill` or `stop`."""
    ends_in_trouble: bool
    """Whether the disk is still failing then."""
    starts: str
    """How the next server starts: `well`, `killed` (and then again), `disk` (on one that fails, and then again)."""


def world(seed: int) -> World:
    rng = random.Random(f"world {seed}")
    partitions = rng.choice([1, 4, 4, 8, 50])
    settings = {
        "offsets.topic.num.partitions": str(partitions),
        "offsets.topic.segment.bytes": str(rng.choice([4_096, 16_384, 65_536])),
        "offsets.topic.compression.codec": str(rng.choice([0, 0, 0, 1, 2, 3, 4])),
        "offsets.retention.check.interval.ms": str(rng.choice([100, 500])),
        "log.cleaner.backoff.ms": str(rng.choice([10, 50, 300])),
        "log.cleaner.min.cleanable.ratio": str(rng.choice([0.01, 0.2])),
        "log.cleaner.delete.retention.ms": str(rng.choice([0, 1_000, 86_400_000])),
        "muster.flush": rng.choice(["always", "always", "always", "interval"]),
        "muster.max.partitions": str(partitions + PARTITION_LIMIT),
        "queued.max.request.bytes": str(32 << 20),
        "socket.request.max.bytes": str(32 << 20),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "10",
    }
    return World(partitions, settings, rng.random() < 0.3)


def round_of(seed: int, number: int, partitions: int, kinds: Collection[str] = KINDS) -> Round:
    """At least one fault of the disk or move of a partition, some abuse, something about topics.

    Of fewer `kinds` than there are, what happens is the same without the others.
    """
    rng = random.Random(f"round {number} of {seed}")
    draw = [_disk, _disk, _disk, _move, _abuse, _abuse, _abuse, _topics]
    drawn = [rng.choice([_disk, _move])] + [rng.choice(draw) for _ in range(rng.randint(1, 4))]
    rng.shuffle(drawn)
    all_steps = [step(rng, partitions) for step in drawn]
    steps = sorted((step for step in all_steps if step.kind in kinds), key=lambda step: step.at_s)
    ends = rng.choice(["kill", "kill", "stop"])
    in_trouble, starts = rng.random() < 0.2, rng.choice(["well"] * 6 + ["killed", "disk"])
    return Round(steps, ends, in_trouble, starts if starts != "disk" or "disk" in kinds else "well")


def rng_of(seed: int, number: int, step: int) -> random.Random:
    """For what a step decides by itself."""
    return random.Random(f"step {step} of round {number} of {seed}")


def disk_fault(rng: random.Random, partitions: int) -> tuple[str, Order]:
    """A name for it, and the order."""
    one = rf"__consumer_offsets-{rng.randrange(partitions)}/"
    place = rng.choice([one, OFFSETS_LOG, RECORDS, RECORDS, r".", r"checkpoint|topics|\.snapshot|\.index"])
    name = rng.choice(["ENOSPC", "ENOSPC", "EIO sync", "EIO write", "EIO read", "EIO change", "EMFILE", "slow"])
    match name:
        case "ENOSPC":
            return name, Order(CHANGES, place, errno.ENOSPC, room_bytes=rng.choice([0, 100, 5_000]))
        case "EIO sync":
            return name, Order(("sync",), place, errno.EIO, times=rng.choice([1, 3, 1 << 30]))
        case "EIO write":
            return name, Order(("write",), place, errno.EIO, times=rng.choice([1, 3, 1 << 30]))
        case "EIO read":
            return name, Order(("read",), place, errno.EIO, times=rng.choice([1, 3, 1 << 30]))
        case "EIO change":
            operation = rng.choice(["rename", "unlink", "truncate", "create", "mkdir", "entries"])
            return name, Order((operation,), place, errno.EIO, times=rng.choice([1, 3, 1 << 30]))
        case "EMFILE":
            return name, Order(("open",), place, errno.EMFILE, times=rng.choice([1, 3, 1 << 30]))
        case _:
            return name, Order(("sync", "read"), place, 0, slow_s=rng.choice([0.02, 0.2]), times=10)


def _disk(rng: random.Random, partitions: int) -> Step:
    name, order = disk_fault(rng, partitions)
    return Step(_time(rng), "disk", {"fault": name, "order": order, "for_s": round(rng.uniform(0.05, 0.6), 2)})


def _move(rng: random.Random, partitions: int) -> Step:
    count = rng.randint(1, min(partitions, 6))
    pause_s, times = rng.choice([(0.0, rng.randint(1, 8)), (round(rng.uniform(0.0, 0.3), 2), 1)])
    moved = rng.sample(range(partitions), count)
    return Step(_time(rng), "move", {"partitions": moved, "away_s": pause_s, "times": times})


def _abuse(rng: random.Random, partitions: int) -> Step:
    return Step(_time(rng), "abuse", {"by": rng.choice(sorted(ABUSES))})


def _topics(rng: random.Random, partitions: int) -> Step:
    return Step(_time(rng), "topics", {"made": rng.randint(1, 4), "deleted": rng.randint(0, 4)})


def _time(rng: random.Random) -> float:
    return round(rng.uniform(0.0, 0.4), 2)
