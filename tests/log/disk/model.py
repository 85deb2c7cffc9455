"""What a disk remembers: bytes and names, those that are durable, and those that are only in the page cache.

Every file has what a reader sees and what has reached the disk; between the two lies a list of writes and truncations
since its last sync. Directories likewise: names as they are, names that are durable, and the changes in between. A
power cut keeps the durable part and, of what was pending, whatever a `Survivors` rule says: POSIX promises nothing
about it, so a kept write may follow a lost one, a write may be torn at any byte or leave zeros, and of two names either
may be there. Only a rename is whole or not at all.
"""

import hashlib
import random
from dataclasses import dataclass, field

Write = tuple[int, bytes]


@dataclass(slots=True, frozen=True)
class Extended:
    """What a lost write may leave: a file long enough for it, with zeros where there was nothing before."""

    size: int


Change = Write | int | Extended
Pending = list[Change]
"""Writes as (position, bytes) and truncations as a size, in order."""


@dataclass(slots=True)
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: Pending = field(default_factory=list)

    def sync(self) -> None:
        self.durable = applied(self.durable, self.pending)
        self.pending = []


@dataclass(slots=True)
class Directory:
    names: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)
    pending: list["NameChange"] = field(default_factory=list)

    def change(self, change: "NameChange") -> None:
        apply_name(self.names, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            apply_name(self.durable, change)
        self.pending = []


Node = Inode | Directory


@dataclass(slots=True, frozen=True)
class NameChange:
    """`gone` is the name that vanishes, `name` the one that appears, either may be empty; both are one rename."""

    gone: str
    name: str
    node: Node | None


def apply_name(names: dict[str, Node], change: NameChange) -> None:
    if change.gone and (change.node is None or names.get(change.gone) is change.node):
        names.pop(change.gone, None)
    if change.name:
        assert change.node is not None
        names[change.name] = change.node


def applied(data: bytes, pending: Pending) -> bytes:
    result = bytearray(data)
    for change in pending:
        apply_write(result, change)
    return bytes(result)


def apply_write(data: bytearray, change: Change) -> None:
    if isinstance(change, Extended):
        data.extend(bytes(max(0, change.size - len(data))))
        return
    if isinstance(change, int):
        del data[change:]
        data.extend(bytes(change - len(data)))
        return
    position, written = change
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(written)] = written


class Survivors:
    """What of the pending changes survives a power cut; this one keeps everything."""

    def name(self, change: NameChange) -> bool:
        return True

    def write(self, change: Change) -> list[Change]:
        """What is left of a change: nothing, a part, or all of it."""
        return [change]

    def __repr__(self) -> str:
        return type(self).__name__.lower()


class Nothing(Survivors):
    def name(self, change: NameChange) -> bool:
        return False

    def write(self, change: Change) -> list[Change]:
        return []


class NamesOnly(Nothing):
    def name(self, change: NameChange) -> bool:
        return True


class DataOnly(Survivors):
    def name(self, change: NameChange) -> bool:
        return False


class Sizes(Survivors):
    """Names and sizes are there, the data is zeros: what a journal of metadata alone leaves."""

    def write(self, change: Change) -> list[Change]:
        return [Extended(change[0] + len(change[1]))] if isinstance(change, tuple) else [change]


class Chance(Survivors):
    """Every change for itself: kept, lost, torn at some byte, zeros, or with a hole."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)

    def name(self, change: NameChange) -> bool:
        return self._random.random() < 0.5

    def write(self, change: Change) -> list[Change]:
        roll = self._random.random()
        if roll < 0.35:
            return [change]
        if roll < 0.55 or not isinstance(change, tuple):
            return []
        position, data = change
        if roll < 0.8:
            return [(position, data[: self._random.randrange(len(data) + 1)])]
        whole = Extended(position + len(data))
        if roll < 0.9:
            return [whole]
        start = self._random.randrange(len(data) + 1)
        end = start + self._random.randrange(len(data) - start + 1)
        return [(position, data[:start]), whole, (position + end, data[end:])]

    def __repr__(self) -> str:
        return f"chance {self._seed}"


ALL, NOTHING, NAMES_ONLY, DATA_ONLY, SIZES = Survivors(), Nothing(), NamesOnly(), DataOnly(), Sizes()
PLAIN = (ALL, NOTHING, NAMES_ONLY, DATA_ONLY, SIZES)


@dataclass(slots=True, frozen=True)
class Image:
    """A disk at one moment: per directory its durable names and pending changes, per file its durable bytes and writes.

    Nodes are numbered, so that a name that changed hands still leads to the same file.
    """

    nodes: list[tuple[bytes, Pending] | tuple[dict[str, int], list[tuple[str, str, int]]]]

    @classmethod
    def of(cls, root: Directory) -> "Image":
        numbers: dict[int, int] = {}
        nodes: list[tuple[bytes, Pending] | tuple[dict[str, int], list[tuple[str, str, int]]]] = []

        def number(node: Node) -> int:
            if id(node) in numbers:
                return numbers[id(node)]
            mine = numbers[id(node)] = len(nodes)
            nodes.append((b"", []))
            if isinstance(node, Inode):
                nodes[mine] = (node.durable, list(node.pending))
            else:
                nodes[mine] = (
                    {name: number(child) for name, child in node.durable.items()},
                    [(one.gone, one.name, -1 if one.node is None else number(one.node)) for one in node.pending],
                )
            return mine

        number(root)
        return cls(nodes)

    def root(self, survivors: Survivors) -> Directory:
        """The disk as the next process finds it."""
        made: dict[int, Node] = {}

        def build(number: int) -> Node:
            if number in made:
                return made[number]
            first, changes = self.nodes[number]
            if isinstance(first, bytes):
                kept = [part for change in changes for part in survivors.write(change)]  # type: ignore[arg-type]
                data = applied(first, kept)
                return made.setdefault(number, Inode(bytearray(data), data))
            directory = Directory()
            made[number] = directory
            directory.durable = {name: build(child) for name, child in first.items()}
            directory.names = dict(directory.durable)
            for gone, name, child in changes:  # type: ignore[misc]
                change = NameChange(gone, name, None if child < 0 else build(child))
                if survivors.name(change):
                    apply_name(directory.names, change)
            directory.durable = dict(directory.names)
            return directory

        root = build(0)
        assert isinstance(root, Directory)
        return root


def fingerprint(directory: Directory) -> bytes:
    """The same for two disks with the same names and bytes on them."""
    digest = hashlib.blake2b(digest_size=16)

    def feed(node: Node) -> None:
        if isinstance(node, Inode):
            digest.update(b"f%d:" % len(node.data) + node.data)
            return
        digest.update(b"d%d:" % len(node.names))
        for name in sorted(node.names):
            digest.update(name.encode() + b"\0")
            feed(node.names[name])

    feed(directory)
    return digest.digest()
