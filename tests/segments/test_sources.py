"""From paths to segments: what is found, what is left alone, and what is said when there is nothing."""

import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.errors import BadInput, SourceMissing
from muster.pipeline.sources.offsets_topic import LogDirectories
from muster.segments.archives import DEFAULT_LIMIT, UnpackLimit, parse_limit
from muster.segments.sources import Sources
from tests.segments import CORPORA, batch, write_segment


def names(path: Path) -> list[str]:
    with Sources([path]) as sources:
        return [segment.name for segment in sources.segments]


def test_a_broker_s_log_directory(tmp_path: Path) -> None:
    for partition in (10, 2):
        write_segment(tmp_path / "kafka" / "logs", batch(0), 0, partition)
        write_segment(tmp_path / "kafka" / "logs", batch(7), 7, partition)
    (tmp_path / "kafka" / "logs" / "orders-0").mkdir()
    (tmp_path / "kafka" / "logs" / "orders-0" / f"{0:020}.log").write_bytes(b"data of another topic")
    expected = [f"__consumer_offsets-{partition}/{base:020}.log" for partition in (2, 10) for base in (0, 7)]
    assert names(tmp_path / "kafka" / "logs") == expected
    assert names(tmp_path) == expected
    with Sources([tmp_path]) as sources:
        assert [partition.partition for partition in sources.partitions] == [2, 10]
        assert sources.size_bytes == 4 * len(batch(0))


def test_one_partition_and_one_segment(tmp_path: Path) -> None:
    first = write_segment(tmp_path, batch(0), 0, 3)
    write_segment(tmp_path, batch(1), 1, 3)
    assert len(names(first.parent)) == 2
    with Sources([first]) as sources:
        assert [segment.name for segment in sources.segments] == [f"__consumer_offsets-3/{0:020}.log"]
        assert sources.partitions[0].partition == 3


def test_a_segment_on_its_own_has_no_partition(tmp_path: Path) -> None:
    path = tmp_path / f"{42:020}.log"
    path.write_bytes(batch(42))
    with Sources([path]) as sources:
        assert sources.partitions[0].partition is None
        assert (sources.segments[0].name, sources.segments[0].base_offset) == (path.name, 42)


def test_what_brokers_leave_behind_is_not_read(tmp_path: Path) -> None:
    log = write_segment(tmp_path, batch(0))
    for suffix in (".log.deleted", ".log.cleaned", ".log.swap", ".index", ".timeindex", ".snapshot"):
        log.with_name(log.stem + suffix).write_bytes(batch(0))
    deleted = tmp_path / "__consumer_offsets-1.0f3a-delete"
    deleted.mkdir()
    (deleted / log.name).write_bytes(batch(0))
    assert names(tmp_path) == [f"__consumer_offsets-0/{log.name}"]


@pytest.mark.parametrize("name", ["k26", "k43-all"])  # both have .deleted files in them
def test_an_archive_holds_what_its_directory_holds(name: str, tmp_path: Path) -> None:
    archive = CORPORA / name / f"{name}.tar.zst"
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", tmp_path], check=True)
    assert any(tmp_path.rglob("*.deleted"))
    with Sources([archive]) as packed, Sources([tmp_path]) as unpacked:
        assert [segment.name for segment in packed.segments] == [segment.name for segment in unpacked.segments]
        for inside, outside in zip(packed.segments, unpacked.segments, strict=True):
            assert inside.path.read_bytes() == outside.path.read_bytes()


@pytest.mark.parametrize(("suffix", "mode"), [(".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz")])
def test_other_archives(suffix: str, mode: str, tmp_path: Path) -> None:
    write_segment(tmp_path / "logs", batch(0))
    archive = tmp_path / f"logs{suffix}"
    with tarfile.open(archive, mode) as tar:
        tar.add(tmp_path / "logs", "logs")
    assert names(archive) == [f"__consumer_offsets-0/{0:020}.log"]


def pack(archive: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(archive, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return archive


def test_nothing_in_an_archive_leads_out_of_its_folder(tmp_path: Path) -> None:
    name = f"{0:020}.log"
    members = [
        f"../../{name}",
        f"/etc/__consumer_offsets-0/{name}",
        f"a/../../__consumer_offsets-1/{name}",
        f"../{name}",
    ]
    archive = pack(tmp_path / "evil.tar", {member: batch(0) for member in members})
    with Sources([archive]) as sources:
        assert {segment.name for segment in sources.segments} == {f"__consumer_offsets-{n}/{name}" for n in (0, 1)}
        folder = sources.partitions[0].directory.parent.parent
        assert all(segment.path.resolve().is_relative_to(folder) for segment in sources.segments)
    assert not folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["evil.tar"]


SEGMENT = f"__consumer_offsets-0/{0:020}.log"


def both_unpackers(archive: Path, limit: UnpackLimit = DEFAULT_LIMIT) -> list[Callable[[], object]]:
    """`muster dump` takes segments out of an archive, the pipeline all there is."""
    return [
        lambda: Sources([archive], unpack_limit=limit).__exit__(),
        lambda: LogDirectories([archive], limit).close(),
    ]


@pytest.mark.parametrize(
    ("kind", "link"),
    [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.SYMTYPE, "x"), (tarfile.LNKTYPE, "../../x"), (tarfile.CHRTYPE, ""),
     (tarfile.BLKTYPE, ""), (tarfile.FIFOTYPE, "")],
    ids=["symlink out", "symlink", "hard link", "character device", "block device", "fifo"],
)  # fmt: skip
def test_links_and_devices_are_refused_by_name(kind: bytes, link: str, tmp_path: Path) -> None:
    archive = tmp_path / "odd.tar"
    with tarfile.open(archive, "w") as tar:
        odd = tarfile.TarInfo(SEGMENT)
        odd.type, odd.linkname = kind, link
        tar.addfile(odd)
    for unpacked in both_unpackers(archive):
        with pytest.raises(BadInput, match=rf"odd\.tar is not unpacked: '{SEGMENT}' in it is a (link|device)"):
            unpacked()


def test_a_way_out_of_the_folder_is_refused_by_the_pipeline(tmp_path: Path) -> None:
    archive = pack(tmp_path / "evil.tar", {SEGMENT: batch(0), f"../../{SEGMENT}": batch(0)})
    with pytest.raises(BadInput, match=r"evil\.tar is not unpacked: '\.\./\.\./__consumer.* leads out of the archive"):
        LogDirectories([archive])
    rooted = LogDirectories([pack(tmp_path / "root.tar", {f"/{SEGMENT}": batch(0)})])  # as `tar -P` packs
    assert len(rooted.partitions({})) == 1
    rooted.close()


def test_what_comes_out_of_an_archive_is_bounded(tmp_path: Path) -> None:
    archive = pack(tmp_path / "large.tar", {SEGMENT: batch(0) + bytes(3 << 20)})
    for unpacked in both_unpackers(archive, UnpackLimit(2 << 20)):
        with pytest.raises(BadInput, match=r"more than 2\.0 MB would come out of it.*--unpack-limit 200GB"):
            unpacked()
    many = pack(tmp_path / "many.tar", {f"__consumer_offsets-{n}/{0:020}.log": b"" for n in range(50)})
    for unpacked in both_unpackers(many, UnpackLimit(2 << 20)):  # an empty file counts, too
        with pytest.raises(BadInput, match=r"more than 2\.0 MB"):
            unpacked()
    for unpacked in both_unpackers(many, UnpackLimit(4 << 20)):
        unpacked()


def test_a_small_file_that_becomes_a_large_one_is_noticed_on_the_way(tmp_path: Path) -> None:
    """Also where it is no file that we want: to step over it is work as well."""
    archive = tmp_path / "bomb.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        filler = tarfile.TarInfo("unwanted.bin")
        filler.size = 32 << 20
        tar.addfile(filler, io.BytesIO(bytes(filler.size)))
    for unpacked in both_unpackers(archive, UnpackLimit(1 << 30, ratio=10, ratio_floor_bytes=1 << 20)):
        with pytest.raises(BadInput, match="which so small a file hardly holds"):
            unpacked()


@pytest.mark.parametrize("size", [1 << 33, -512])
def test_a_name_of_gigabytes_is_not_read_into_memory(size: int, tmp_path: Path) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, size
    (tmp_path / "names.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    for unpacked in both_unpackers(tmp_path / "names.tar"):
        with pytest.raises(BadInput, match=f"cannot be unpacked: (a header of {size} bytes|.*header)"):
            unpacked()


@pytest.mark.parametrize(("text", "size"), [("200GB", 200 << 30), ("1 TiB", 1 << 40), ("512m", 512 << 20), ("7", 7)])
def test_limits_as_people_write_them(text: str, size: int) -> None:
    assert parse_limit(text) == UnpackLimit(size, None)


@pytest.mark.parametrize("text", ["", "much", "0", "-1GB", "1.5GB"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_limit(text)


def test_two_brokers_in_one_archive_do_not_overwrite_each_other(tmp_path: Path) -> None:
    name = f"logs/__consumer_offsets-0/{0:020}.log"
    archive = pack(tmp_path / "both.tar", {f"broker-1/{name}": batch(0), f"broker-2/{name}": batch(0, 2)})
    with Sources([archive]) as sources:
        assert [segment.path.read_bytes() for segment in sources.segments] == [batch(0), batch(0, 2)]


def test_segments_in_an_archive_without_their_directory(tmp_path: Path) -> None:
    archive = pack(tmp_path / "loose.tar", {f"{0:020}.log": batch(0), f"{1:020}.log": batch(1)})
    assert names(archive) == [f"segments/{0:020}.log", f"segments/{1:020}.log"]


def test_the_data_topics_of_an_archive_are_left_inside(tmp_path: Path) -> None:
    archive = pack(
        tmp_path / "broker.tar",
        {f"logs/orders-0/{0:020}.log": b"gigabytes", f"logs/__consumer_offsets-0/{0:020}.log": batch(0)},
    )
    with Sources([archive]) as sources:
        folder = sources.partitions[0].directory.parent.parent
        assert [path.name for path in folder.rglob("*.log")] == [f"{0:020}.log"]


def test_the_folder_of_an_archive_is_gone_afterwards(tmp_path: Path) -> None:
    archive = pack(tmp_path / "loose.tar", {f"{0:020}.log": batch(0)})
    with Sources([archive]) as sources:
        folder = sources.partitions[0].directory
        assert folder.exists()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        (
            "00000000000000000000.index",
            b"\0" * 64,
            "is an offset index, not a log. The records are in 00000000000000000000.log",
        ),
        ("00000000000000000000.timeindex", b"\0" * 64, "is a time index"),
        ("00000000000000000000.log.deleted", b"", "has already replaced"),
        ("notes.txt", b"hello", "is not a segment: those are named by twenty digits"),
        ("00000000000000000000.log", b"2026-11-16 05:00:00 INFO starting\n" * 9, "does not look like a Kafka segment"),
        ("00000000000000000000.log", bytes(range(256)) * 4, "does not look like a Kafka segment"),
        ("00000000000000000000.log", b"\x28\xb5\x2f\xfd" + b"\0" * 60, "unpack it first if it is compressed"),
        ("00000000000000000000.log", b"hello", "does not look like a Kafka segment"),
        ("00000000000000099999.log", batch(5), "does not look like a Kafka segment"),  # offsets before its name
        ("logs.tar.gz", b"not gzip at all, but long enough", "cannot be unpacked"),
        ("logs.tar.zst", b"not zstd at all, but long enough", "cannot be unpacked"),
        ("logs.tar", b"not a tar at all, but long enough" * 40, "cannot be unpacked"),
    ],
)
def test_a_file_that_is_no_log(name: str, data: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=sentence):
        Sources([tmp_path / name])


def test_an_archive_that_breaks_off(tmp_path: Path) -> None:
    whole = (CORPORA / "k26" / "k26.tar.zst").read_bytes()
    (tmp_path / "half.tar.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="cannot be unpacked"):
        Sources([tmp_path / "half.tar.zst"])


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 4096, batch(0)[:10], batch(0)[:40]], ids=["empty", "zeros", "torn", "torn-later"]
)
def test_what_a_crash_leaves_is_a_segment_all_the_same(data: bytes, tmp_path: Path) -> None:
    assert len(names(write_segment(tmp_path, data))) == 1


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        Sources([tmp_path / "missing"])
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(b"")
    with pytest.raises(BadInput, match="no segments of __consumer_offsets in"):
        Sources([tmp_path])
    with pytest.raises(BadInput, match=r"no segments of __consumer_offsets in .*empty\.tar"):
        Sources([pack(tmp_path / "empty.tar", {"readme.txt": b"hello"})])


def test_a_directory_that_is_moved_while_we_look_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not taken for a file whose name is no segment's, which nobody would wait for."""
    write_segment(tmp_path / "logs", batch(0), 0)

    def moved(path: Path) -> bool:
        path.rename(tmp_path / "aside")
        return False

    monkeypatch.setattr("muster.segments.sources.is_archive", moved)
    with pytest.raises(SourceMissing, match="logs went away while it was looked at"):
        Sources([tmp_path / "logs"])


def test_a_segment_that_the_cleaner_takes_while_we_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is listed again; a directory that goes whole is missing, and nobody's permission is asked for."""
    for base in (0, 7):
        write_segment(tmp_path / "logs", batch(base), base)
    (partition,) = (tmp_path / "logs").iterdir()

    def taken(what: Callable[[], object]) -> None:
        def access(*_: object) -> bool:
            monkeypatch.undo()
            what()
            return False

        monkeypatch.setattr("os.access", access)

    taken((partition / f"{0:020}.log").unlink)
    assert names(tmp_path) == [f"{partition.name}/{7:020}.log"]
    taken(lambda: partition.rename(tmp_path / "aside"))
    with pytest.raises(SourceMissing, match=f"{partition} went away while it was looked at"):
        Sources([tmp_path / "logs"])
