"""Addresses of directories, on a disk or in an object store, as `pyarrow.fs` file systems.

What tables can be kept in is opened as they are (`muster.tables.addresses`, with its storage options); what only logs
can be read from, by whatever `pyarrow.fs` makes of the address.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from muster.errors import BadInput
from muster.tables.addresses import OBJECT_STORES, filesystem

Options = Iterable[tuple[str, str]]


def is_local(address: str) -> bool:
    return "://" not in address or address.startswith("file://")


def local_path(address: str) -> Path:
    return Path(address.removeprefix("file://"))


def open_store(address: str, options: Options = ()) -> tuple[Any, str]:  # of pyarrow.fs.FileSystem
    """The file system of an address, and the path in it. `BadInput` for an address that no file system answers to."""
    if is_local(address):
        return fs.LocalFileSystem(), str(local_path(address))
    if address.partition("://")[0].lower() in OBJECT_STORES:
        return filesystem(address, dict(options))
    try:
        store, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise BadInput(
            f"{address} cannot be opened: {error}. A path, s3://, gs:// and abfss:// are what can be."
        ) from None
    return store, path


def make_directory(store: Any, path: str) -> None:
    """Object stores have none, and an empty object that stands for one would be in the way."""
    if isinstance(store, fs.LocalFileSystem):
        store.create_dir(path, recursive=True)
