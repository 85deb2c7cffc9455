"""Addresses of directories, on a disk or in an object store, as `pyarrow.fs` file systems.

Options have the names that the `deltalake` package takes, so that one set serves both: `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, in any case and with
or without the prefix. What is not given is looked for where the AWS tools look.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from muster.errors import BadInput

Options = Iterable[tuple[str, str]]

_S3_NAMES = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint_url": "endpoint_override",
    "endpoint": "endpoint_override",
}


def is_local(address: str) -> bool:
    return "://" not in address or address.startswith("file://")


def local_path(address: str) -> Path:
    return Path(address.removeprefix("file://"))


def open_store(address: str, options: Options = ()) -> tuple[Any, str]:  # of pyarrow.fs.FileSystem
    """The file system of an address, and the path in it. `BadInput` for an address that no file system answers to."""
    if is_local(address):
        return fs.LocalFileSystem(), str(local_path(address))
    if address.startswith(("s3://", "s3a://")):
        return fs.S3FileSystem(**s3_arguments(options)), address.split("://", 1)[1].rstrip("/")
    try:
        store, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise BadInput(
            f"{address} cannot be opened: {error}. A path, s3://, gs:// and abfss:// are what can be."
        ) from None
    return store, path


def s3_arguments(options: Options) -> dict[str, Any]:
    """The arguments of `pyarrow.fs.S3FileSystem` for options named as `deltalake` has them; others are not for it."""
    given = {name.lower().removeprefix("aws_"): value for name, value in options}
    arguments: dict[str, Any] = {_S3_NAMES[name]: value for name, value in given.items() if name in _S3_NAMES}
    endpoint = arguments.get("endpoint_override", "")
    if endpoint.startswith("http://") or given.get("allow_http", "").lower() == "true":
        arguments["scheme"] = "http"
    return arguments


def make_directory(store: Any, path: str) -> None:
    """Object stores have none, and an empty object that stands for one would be in the way."""
    if isinstance(store, fs.LocalFileSystem):
        store.create_dir(path, recursive=True)
