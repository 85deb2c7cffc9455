"""Folders for what a machine makes once and every process of a user loads: compiled kernels, archives of classes."""

import os
import tempfile
from pathlib import Path


def cache_folder(name: str, parent: str | None = None) -> Path | None:
    """A folder that this user alone may write to, made where there is none; None: nothing can be kept here."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
    user = os.getuid() if hasattr(os, "getuid") else None
    for place in [Path(parent)] if parent else [home, Path(tempfile.gettempdir()) / f"muster-{user}"]:
        folder = place / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_ours = user is None or place.stat().st_uid == folder.stat().st_uid == user  # code is loaded from it
        except OSError:
            continue
        if is_ours and os.access(folder, os.W_OK):
            return folder
    return None
