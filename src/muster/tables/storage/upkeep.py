"""What keeps tables small and quick to open: checkpoints of Delta's log, and the removal of what no run names any more.

A run that takes files out of a table writes their names into its manifest, and with them the entries of Delta's log
that a new checkpoint has made needless. Runs before it name them, and readers may have opened one of those: so they are
removed by a later run, once enough runs and some time lie between. It removes them before it is published, and its own
manifest has what is left to remove; if it is killed in between, the next one removes them once more. So a run looks at
what was dropped and at no table's past.

Files that no manifest ever named (of a task that was run twice, of a run that was killed) are found by a look through
the directories, a *sweep*: once a day, and after a run that did not get to its end. What readers may need is what the
newest version of each table has, and what is still to be removed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from muster.tables.storage.addresses import is_local
from muster.tables.storage.delta import DELTA_LOG, checkpoint_name, entry_name
from muster.tables.storage.manifest import Dropped, Upkeep

STAGING = "_staging"
"""Of earlier releases: runs that were killed left it."""
CHECKPOINT_EVERY = 5
"""Versions: opening a table reads a checkpoint and about so many entries behind it."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LEFTOVERS_MS = 3 * DAY_MS
"""On an object store no lock tells whether a run is under way: what no manifest names is left alone for so long."""
LONGEST_RUN_MS = 2 * DAY_MS
"""And a run that has lasted longer is not published there: its first files could be taken for leftovers."""
ENTRY = re.compile(r"(\d{20})\.(?:json|crc|checkpoint(?:\.\d{10}\.\d{10})?\.parquet)")


class Keep(NamedTuple):
    """How much of the past is kept for those who read it."""

    runs: int = 10
    grace_ms: int = 10 * 60 * 1000
    """A reader that has opened a run finds its files for so long at least, however many runs come after it."""
    history_ms: int | None = None
    """How much history is kept at least, back from the newest record (`retention`); None keeps all."""


KEEP = Keep()


class Vacuumed(NamedTuple):
    """What was removed."""

    files: int
    size_bytes: int


class Place(NamedTuple):
    """Where tables are."""

    address: str
    storage_options: Mapping[str, str]
    filesystem: fs.FileSystem
    root: str


def is_checkpoint_due(table: str, version: int, newest: int) -> bool:
    """Whether a table needs another checkpoint; the first of each comes at a time of its own, and so do all others."""
    return version - newest >= CHECKPOINT_EVERY + (crc32(table.encode()) % CHECKPOINT_EVERY if not newest else 0)


def is_over(dropped: Dropped, oldest_run: int, before_ms: int | None) -> bool:
    """Whether none of the kept runs, the oldest of which is given, names what was dropped; nor a reader may."""
    return dropped.run_number <= oldest_run and (before_ms is None or dropped.at_ms <= before_ms)


def paths(dropped: Dropped) -> list[str]:
    """Everything to be removed for it, below the address of the tables."""
    found = [f"{table}/{name}" for table, names in dropped.files.items() for name in names]
    for table, (first, checkpoint) in dropped.entries.items():
        log = f"{table}/{DELTA_LOG}"
        found += [f"{log}/{entry_name(version)}" for version in range(first, checkpoint)]
        found.append(f"{log}/{checkpoint_name(first)}")
    return found


def remove(place: Place, names: Iterable[str]) -> None:
    """Remove files; those that are gone already are none of our business. All are tried before an error is raised."""
    failed: OSError | None = None
    delete = _deleter(place)
    for name in names:
        try:
            delete(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _deleter(place: Place) -> Callable[[str], None]:
    if is_local(place.address):
        return lambda name: place.filesystem.delete_file(f"{place.root}/{name}")
    handler = DeltaStorageHandler(place.address, dict(place.storage_options))  # pyarrow asks thrice and makes folders
    return lambda name: handler.delete_file(name)


def sweep(
    place: Place,
    named: Mapping[str, set[str]],
    upkeep: Upkeep,
    oldest_run: int,
    before_ms: int | None,
    dropped_before_ms: int | None = None,
) -> Vacuumed:
    """Remove what neither `named` files (by table) nor what was dropped by runs after the oldest kept one has.

    Nothing is removed that is younger than a moment (None: of any age), or was dropped after another.
    """
    kept = [each for each in upkeep.dropped if not is_over(each, oldest_run, dropped_before_ms)]
    removed: list[fs.FileInfo] = []
    for table in _directories(place, place.root):
        if table == STAGING:
            removed += _listed(place, STAGING, before_ms)
        elif table in named:
            needed = named[table].union(*(each.files.get(table, ()) for each in kept))
            starts = [each.entries[table][0] for each in kept if table in each.entries]
            first_needed = min([*starts, upkeep.checkpoints.get(table, 0)])
            directory = f"{place.root}/{table}"
            for info in _listed(place, table, before_ms):
                name = info.path[len(directory) + 1 :]
                entry = ENTRY.fullmatch(name.removeprefix(f"{DELTA_LOG}/")) if name.startswith(DELTA_LOG) else None
                is_file = name.endswith(".parquet") and "/" not in name
                if (is_file and name not in needed) or (entry and int(entry[1]) < first_needed):
                    removed.append(info)
    remove(place, [info.path[len(place.root) + 1 :] for info in removed])
    return Vacuumed(len(removed), sum(info.size for info in removed))


def _listed(place: Place, folder: str, before_ms: int | None) -> list[fs.FileInfo]:
    selector = fs.FileSelector(f"{place.root}/{folder}", allow_not_found=True, recursive=True)
    return [
        info
        for info in place.filesystem.get_file_info(selector)
        if info.type == fs.FileType.File and (before_ms is None or (info.mtime_ns or 0) <= before_ms * 1_000_000)
    ]


def _directories(place: Place, root: str) -> list[str]:
    found = place.filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)
