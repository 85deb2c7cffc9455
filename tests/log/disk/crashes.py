"""The power cut at every point of a scenario.

`cut_everywhere` runs a scenario once, with an image of the disk after each of its operations, and then asks a check of
every image under every rule of survival. Since a crash runs no clean-up code, an image between two operations is all
that a crash between them can leave; and a crash inside an operation is a rule of survival of the image behind it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.log.disk.faults import FaultyFiles
from tests.log.disk.model import PLAIN, Chance, Image, Survivors, fingerprint


@dataclass(slots=True)
class Journal:
    """What a scenario says of itself while it runs; a check gets what had been said when the power went."""

    facts: list[object] = field(default_factory=list)
    silent: bool = False
    """Set while a story prepares what other stories have told already: no power is cut then."""

    def note(self, fact: object) -> None:
        self.facts.append(fact)


@dataclass(slots=True, frozen=True)
class Cut:
    """The power went after this many operations."""

    number: int
    operation: str
    image: Image
    facts: list[object]

    def disks(self, chances: int) -> Iterator[tuple[Survivors, FaultyFiles]]:
        """What may be left, one disk after the other; those that come out the same only once."""
        seen: set[bytes] = set()
        for survivors in (*PLAIN, *(Chance(1000 * self.number + seed) for seed in range(chances))):
            disk = FaultyFiles(self.image.root(survivors))
            content = fingerprint(disk.root)
            if content not in seen:
                seen.add(content)
                yield survivors, disk


Scenario = Callable[[FaultyFiles, Journal], None]
Check = Callable[[FaultyFiles, list[object]], None]


def cuts(scenario: Scenario, files: FaultyFiles | None = None, without: frozenset[str] = frozenset()) -> list[Cut]:
    """Run a scenario and cut the power (on paper) before its first operation and after each one."""
    files = files or FaultyFiles(without=without)
    files.without = without
    journal = Journal()
    found = [Cut(0, "nothing yet", files.image(), [])]

    def watch(operation: str) -> None:
        if journal.silent:
            return
        found.append(Cut(len(found), operation, files.image(), list(journal.facts)))

    files.watch = watch
    try:
        scenario(files, journal)
    finally:
        files.watch = lambda operation: None
    found.append(Cut(len(found), "the end", files.image(), list(journal.facts)))
    return found


class LossFound(AssertionError):
    """A power cut lost something; the text says which."""


def cut_everywhere(scenario: Scenario, check: Check, *, chances: int = 4, without: frozenset[str] = frozenset()) -> int:
    """Cut the power after every operation of a scenario and look at all that may be left; returns how many disks."""
    looked_at = 0
    seen: set[tuple[bytes, int]] = set()
    for cut in reversed(cuts(scenario, without=without)):
        for survivors, disk in cut.disks(chances):
            known = fingerprint(disk.root), len(cut.facts)
            if known in seen:
                continue
            seen.add(known)
            looked_at += 1
            try:
                check(disk, cut.facts)
            except Exception as error:
                raise LossFound(
                    f"after operation {cut.number} ({cut.operation}), with survivors {survivors!r}: {error!r}"
                ) from error
    return looked_at
