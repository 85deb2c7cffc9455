"""Folders for what a machine makes once and every process of a user loads: compiled kernels, archives of classes.

Another release, another Java or another CPU makes its own, so what earlier ones made stays behind. A process that makes
something new removes what was not used for `UNUSED_S`. Each use is noted (`mark_used`), and a process that has loaded
or mapped a file keeps it, removed or not. A release that is used again after that time makes its files once more.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

UNUSED_S = 30 * 24 * 3600.0
MARK_EVERY_S = 24 * 3600.0


def cache_folder(name: str, parent: str | None = None) -> Path | None:
    """A folder that this user alone may write to, made where there is none; None: nothing can be kept here.

    Where it is made, those of the same kind (`kernels-*`) that are not used any more are emptied.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
    user = os.getuid() if hasattr(os, "getuid") else None
    for place in [Path(parent)] if parent else [home, Path(tempfile.gettempdir()) / f"muster-{user}"]:
        folder = place / name
        is_new = not folder.exists()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_ours = user is None or place.stat().st_uid == folder.stat().st_uid == user  # code is loaded from it
        except OSError:
            continue
        if is_ours and os.access(folder, os.W_OK):
            if is_new:
                remove_unused(each for each in place.glob(f"{name.partition('-')[0]}-*") if each != folder)
            mark_used(folder)
            return folder
    return None


def mark_used(path: Path) -> None:
    """Say that something is in use, by the time of its file or folder; once a day is enough."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > MARK_EVERY_S:
            os.utime(path)


def remove_unused(paths: Iterable[Path]) -> None:
    """Remove the files, and the contents of the folders, among these that were not used for long.

    A process that has just begun to use a folder finds it empty, and fills it again. The next time round an empty one
    goes itself. What cannot be removed stays.
    """
    for path in paths:
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime <= UNUSED_S:
                continue
            if not path.is_dir() or path.is_symlink():
                path.unlink()
            elif not (found := list(path.iterdir())):
                path.rmdir()
            else:
                for each in found:
                    shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
