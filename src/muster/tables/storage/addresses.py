"""Where tables are kept: a directory, or a place in an object store that can put a file only if it is not there yet.

Two libraries open the same address. `deltalake` commits, with *storage options* by the names of Rust's object_store
(`AWS_REGION`, `AZURE_STORAGE_ACCOUNT_NAME`, case does not matter); `pyarrow` reads and writes Parquet files, with
arguments of its own. `filesystem` translates. What both find in the environment need not be given at all.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from muster.errors import BadInput
from muster.references import resolved

OBJECT_STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""Schemes whose stores refuse to overwrite a file when told so, which is all that an atomic commit needs."""

UNSAFE = {
    "allow_unsafe_rename": "true",
    "aws_s3_allow_unsafe_rename": "true",
    "conditional_put": "disabled",
    "aws_conditional_put": "disabled",
}
"""Options that make a commit overwrite another's, and the values that do."""

UNSAFE_IN_PATHS = re.compile(r"[\x00-\x1f\x7f\\\[\]|^\ud800-\udfff]|%[0-9A-Fa-f]{2}")
"""What deltalake cannot have in a path: it decodes `%20`, cuts at a backslash, and fails for the others, some of them
only when rows are deleted. Surrogates stand for bytes that are no UTF-8."""


def checked(address: str | Path, storage_options: Mapping[str, str] | None = None) -> str:
    """The address in one spelling, without a slash at the end; refused when it cannot be committed to atomically."""
    scheme = _scheme(str(address))
    text = str(address) if str(address).endswith("://") else str(address).rstrip("/") or "/"
    if scheme == "file":
        return _directory(unquote(text[len("file://") :]))
    if not scheme:
        return _directory(text)
    if scheme not in OBJECT_STORES:
        raise BadInput(
            f"tables cannot be kept at {text}: nothing there makes a commit whole or void. "
            "Name a local or mounted directory, or an address of s3://, gs:// or az://."
        )
    if not urlsplit(text).netloc:
        raise BadInput(f"{text} names no bucket. Write {scheme}://bucket/path.")
    for name, value in (storage_options or {}).items():
        if UNSAFE.get(name.lower()) == value.lower():
            raise BadInput(
                f"the storage option {name}={value} lets two commits overwrite each other. Leave it out: "
                "S3 and most of its look-alikes can put a file only if it is absent."
            )
    return text


def is_local(address: str) -> bool:
    """Whether an address that was checked is a directory of this machine."""
    return not _scheme(address)


def filesystem(address: str, storage_options: Mapping[str, str] | None = None) -> tuple[fs.FileSystem, str]:
    """What opens files under an address, and the address as a path in it."""
    address = checked(address, storage_options)
    if is_local(address):
        return fs.LocalFileSystem(), address
    place = urlsplit(address)
    kind = OBJECT_STORES[place.scheme.lower()]
    options = {name.lower(): value for name, value in resolved(storage_options or {}).items()}
    if kind == "s3":
        return fs.S3FileSystem(**_s3_arguments(options)), f"{place.netloc}{place.path}"
    if kind == "gs":
        return fs.GcsFileSystem(**_gcs_arguments(options)), f"{place.netloc}{place.path}"
    container, _, host = place.netloc.partition("@")
    return fs.AzureFileSystem(**_azure_arguments(options, host)), f"{container}{place.path}"


def _scheme(text: str) -> str:
    scheme, colon, _ = text.partition("://")
    return scheme.lower() if colon else ""


def _directory(text: str) -> str:
    path = Path(text).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path} is a file. Tables are kept in a directory of their own: name one.")
    found = UNSAFE_IN_PATHS.search(str(path))
    if found:
        raise BadInput(
            f"tables cannot be kept in {str(path)!r}: Delta's library fails for {found[0]!r} in a path. "
            "Name a directory without brackets, | ^ \\, control characters, percent-encoded characters (%20) and bytes "
            "that are no UTF-8; anything else may be in its name."
        )
    return str(path)


def _first(options: Mapping[str, str], *names: str) -> str | None:
    """The first of some options that is set, with or without its vendor's prefix, else of the environment."""
    for name in names:
        if name in options:
            return options[name]
    return next((os.environ[name.upper()] for name in names if name.upper() in os.environ), None)


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _s3_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    endpoint = _first(options, "aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint", "aws_endpoint_url_s3")
    return _given(
        access_key=_first(options, "aws_access_key_id", "access_key_id"),
        secret_key=_first(options, "aws_secret_access_key", "secret_access_key"),
        session_token=_first(options, "aws_session_token", "aws_token", "session_token", "token"),
        region=_first(options, "aws_region", "region", "aws_default_region", "default_region"),
        endpoint_override=endpoint,
        scheme="http" if endpoint is not None and endpoint.startswith("http://") else None,
        anonymous=True if _first(options, "aws_skip_signature", "skip_signature") == "true" else None,
        allow_delayed_open=True,  # a small file is one request then, not three
    )


def _gcs_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    if any("service_account" in name or "credentials" in name for name in options):
        raise BadInput(
            "credentials of Google's store are taken from the environment only. "
            "Set GOOGLE_APPLICATION_CREDENTIALS to the path of the key file."
        )
    return _given(anonymous=True if options.get("google_skip_signature") == "true" else None)


def _azure_arguments(options: Mapping[str, str], host: str) -> dict[str, Any]:
    account = host.partition(".")[0] or _first(options, "azure_storage_account_name", "account_name")
    if not account:
        raise BadInput(
            "the address does not say which storage account it is in. "
            "Give the storage option AZURE_STORAGE_ACCOUNT_NAME, or write abfss://container@account.dfs.core.windows.net/."
        )
    return _given(
        account_name=account,
        account_key=_first(options, "azure_storage_account_key", "azure_storage_access_key", "account_key"),
        sas_token=_first(options, "azure_storage_sas_token", "azure_storage_sas_key", "sas_token", "sas_key"),
    )
