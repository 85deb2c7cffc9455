"""Jars that tests need, brought by Maven into a folder: a release of Kafka, Delta for Spark."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.java import JavaHome

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>muster.kit</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<scope>runtime</scope></dependency>"
)
Artifact = tuple[str, str, str]
"""Group, name and version."""


class JarsUnavailable(Exception):
    """There is no Maven, or it does not find the jars; the text says what to install."""


def bring(folder: Path, what: str, wanted: Sequence[Artifact], home: JavaHome, excluded: str = "") -> None:
    """Put these jars and all they need into `folder`/libs, unless the folder is there; whole or not at all."""
    if folder.is_dir():
        return
    mvn = shutil.which("mvn")
    if mvn is None:
        raise JarsUnavailable(
            f"{what} is not in the cache and there is no Maven to bring it: install Maven (the command `mvn`)."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock(folder.with_name(f"{folder.name}.lock")):
        if folder.is_dir():  # another process brought it while this one waited
            return
        unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            _copy_jars(mvn, what, wanted, unfinished, home, excluded)
            unfinished.chmod(0o755)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _copy_jars(mvn: str, what: str, wanted: Sequence[Artifact], folder: Path, home: JavaHome, excluded: str) -> None:
    pom = folder / "pom.xml"
    pom.write_text(POM.format(dependencies="\n".join(DEPENDENCY.format(*one) for one in wanted)))
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}/libs"]
    options += [f"-DexcludeArtifactIds={excluded}"] if excluded else []
    done = subprocess.run(
        [mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *options],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"JAVA_HOME": str(home.path)},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr.strip())
        raise JarsUnavailable(f"Maven could not bring {what}; is its repository in reach? It said: {reason}")


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
