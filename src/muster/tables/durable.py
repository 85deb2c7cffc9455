"""Waiting for the disk. What a manifest names must be there after a power cut, or readers would be sent to nothing."""

import os
from pathlib import Path


def sync(path: str | Path) -> None:
    """Wait until a file is on the disk; of a directory, until the names in it are."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
