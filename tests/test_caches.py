"""What earlier releases left in the user's cache goes when a new one comes, and nothing that is in use."""

import os
import time
from pathlib import Path

import pytest

from muster.caches import UNUSED_S, cache_folder, mark_used
from muster.pipeline.spark import class_archive

LONG_AGO = time.time() - UNUSED_S - 60


def aged(path: Path) -> Path:
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "muster"


def kernels(cache: Path, name: str) -> Path:
    folder = cache / f"kernels-{name}"
    (folder / "deeper").mkdir(parents=True)
    (folder / "one.nbc").write_bytes(b"code")
    return folder


def test_a_new_folder_clears_away_those_that_were_not_used_for_long(cache: Path) -> None:
    old, recent = aged(kernels(cache, "old")), kernels(cache, "recent")
    other = cache / "classes"
    other.mkdir()
    (other / "spark.jsa").touch()
    aged(other)
    new = cache_folder("kernels-new")
    assert new is not None
    assert list(old.iterdir()) == []  # somebody may just have begun to use it
    assert (recent / "one.nbc").exists()
    assert (other / "spark.jsa").exists()
    aged(old)
    cache_folder("kernels-newer")
    assert not old.exists()


def test_a_folder_that_is_used_stays(cache: Path) -> None:
    folder = aged(kernels(cache, "mine"))
    assert cache_folder(folder.name) == folder
    cache_folder("kernels-new")
    assert (folder / "one.nbc").exists()


def test_a_new_class_archive_clears_away_old_ones(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache_folder("classes")
    assert folder is not None
    old, used, draft, new = (folder / name for name in ("old.jsa", "used.jsa", "killed.1.part", "new.jsa"))
    for path in (old, used, draft):
        path.touch()
        aged(path)
    mark_used(used)

    def java(command: list[str], **_: object) -> None:
        Path(command[-1]).write_bytes(b"classes")

    monkeypatch.setattr(class_archive.subprocess, "run", java)
    class_archive.make(new)
    assert sorted(folder.iterdir()) == [new, used]
