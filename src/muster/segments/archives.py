"""Archives of log directories, unpacked with care: an archive may come from a stranger.

Only regular files come out. Names never leave the folder: `wanted` says where a member goes, and a place outside is
refused here, whatever Python's own filters do (older ones can be tricked). What comes out is bounded: by its size, by
the number of files, and by how much of it a byte of the archive may become.
"""

import re
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from muster.errors import BadInput

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
LEAST_COUNTED_BYTES = 64 * 1024
"""What a file counts as at least, so that a limit of bytes is one of files too."""
LARGEST_HEADER_BYTES = 1 << 20
_COPIED_BYTES = 1 << 20
_LONG_NAMES = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


class UnpackLimit(NamedTuple):
    """How much may come out of an archive."""

    total_bytes: int = 64 << 30
    ratio: int | None = 1000
    """Bytes that may come out of a byte of the archive; None: any number. Preallocated indexes are zeros and shrink to
    nothing, so there is `ratio_floor_bytes` before it counts."""
    ratio_floor_bytes: int = 4 << 30


DEFAULT_LIMIT = UnpackLimit()
Wanted = Callable[[PurePosixPath], PurePosixPath | None]
"""Where in the folder a member of this name goes; None: it is not needed."""


def parse_limit(text: str) -> UnpackLimit:
    """`200GB`, `1TiB`, a number of bytes. With a limit that was named, the ratio does not count."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(f"'{text}' is not a size. Write 200GB, 1TB or a number of bytes")
    return UnpackLimit(int(match[1]) << (10 * " KMGT".index(match[2].upper() or " ")), None)


def is_archive(path: Path) -> bool:
    return path.name.endswith(ARCHIVE_SUFFIXES) and path.is_file()


def everything(name: PurePosixPath) -> PurePosixPath | None:
    """Every file, where the archive has it; names that begin at the root begin at the folder."""
    return name.relative_to("/") if name.is_absolute() else name


def unpack(archive: Path, folder: Path, wanted: Wanted = everything, limit: UnpackLimit = DEFAULT_LIMIT) -> None:
    """Take files out of an archive into a folder. `BadInput` for one that is broken, too large or up to something."""
    try:
        with (
            _opened(archive) as packed,
            tarfile.open(fileobj=cast(IO[bytes], _Metered(packed, archive, limit)), mode="r|", tarinfo=_Member) as tar,
        ):
            left = limit.total_bytes
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it is read forwards only, and there may be millions
                place = wanted(PurePosixPath(member.name))
                if place is None or member.isdir():
                    continue
                target = _checked(archive, folder, member, place)
                left -= max(member.size, LEAST_COUNTED_BYTES)
                if left < 0:
                    raise _too_large(archive, f"more than {_shown(limit.total_bytes)}")
                _copy(tar, member, target)
    except PermissionError:
        raise
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadInput(f"{archive} cannot be unpacked: {error}. Unpack it yourself and point at the folder.") from None


def _checked(archive: Path, folder: Path, member: tarfile.TarInfo, place: PurePosixPath) -> Path:
    if not member.isreg():
        kind = "a link" if member.issym() or member.islnk() else "a device, or something else that is no file"
        raise _suspicious(archive, member, f"is {kind}")
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise _suspicious(archive, member, "leads out of the archive")
    return folder.joinpath(*place.parts)


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with target.open("wb") as file:
        left = member.size
        while left > 0 and (data := source.read(min(left, _COPIED_BYTES))):
            file.write(data)
            left -= len(data)
    if left:
        raise tarfile.ReadError(f"{member.name} breaks off")


def _opened(archive: Path) -> IO[bytes]:
    import pyarrow as pa

    codec = {".zst": "zstd", ".gz": "gzip", ".tgz": "gzip"}.get(archive.suffix)
    stream: IO[bytes] = pa.input_stream(str(archive), compression=codec)
    return stream


class _Metered:
    """What comes out of the decompressor, counted: a small file that never ends is noticed here."""

    def __init__(self, stream: IO[bytes], archive: Path, limit: UnpackLimit) -> None:
        self._stream, self._archive = stream, archive
        self._read = 0
        self._most = None
        if limit.ratio is not None:
            self._most = max(limit.ratio_floor_bytes, limit.ratio * archive.stat().st_size)

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._read += len(data)
        if self._most is not None and self._read > self._most:
            raise _too_large(self._archive, f"more than {_shown(self._most)}, which so small a file hardly holds,")
        return data


class _Member(tarfile.TarInfo):
    """A member of a size that can be; `tarfile` reads long names into memory, however long they say they are."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _LONG_NAMES and self.size > LARGEST_HEADER_BYTES):
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


def _suspicious(archive: Path, member: tarfile.TarInfo, what: str) -> BadInput:
    return BadInput(
        f"{archive} is not unpacked: {member.name!r} in it {what}. Unpack it yourself, if you trust it, and point at "
        "the folder."
    )


def _too_large(archive: Path, what: str) -> BadInput:
    return BadInput(
        f"{archive} is not unpacked: {what} would come out of it. If that is right, raise the limit "
        "(--unpack-limit 200GB), or unpack it yourself and point at the folder."
    )


def _shown(size_bytes: int) -> str:
    for unit, shift in (("GB", 30), ("MB", 20), ("KB", 10)):
        if size_bytes >= 1 << shift:
            return f"{size_bytes / (1 << shift):,.1f} {unit}"
    return f"{size_bytes} bytes"
