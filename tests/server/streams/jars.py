"""Kafka Streams with all it needs, beside a release of Kafka in the cache."""

from dataclasses import replace
from pathlib import Path

import pytest

from muster.java import find_java
from tests.kit import maven
from tests.kit.java.compiled import compiled
from tests.kit.kafka import LOGGER, OTHER_LOGGERS, Kafka, cache_root, require_kafka
from tests.server.clients.programs import missing

FOLDER = Path(__file__).parent


def require_streams() -> Kafka:
    """Kafka's clients and Streams, of the release that the tests use, or the end of this test."""
    kafka, home = require_kafka(), find_java()
    assert home is not None
    folder = cache_root().parent / "streams" / kafka.version
    wanted = [("org.apache.kafka", "kafka-streams", kafka.version), LOGGER]
    try:
        maven.bring(folder, f"Kafka Streams {kafka.version}", wanted, home, OTHER_LOGGERS)
    except maven.JarsUnavailable as problem:
        missing(str(problem))
        raise pytest.skip.Exception from problem
    return replace(kafka, libs=folder / "libs")


def word_count(streams: Kafka, *arguments: str) -> list[str]:
    """The command that counts words: bootstrap servers, guarantee, folder of its state."""
    classes = compiled(streams, "WordCount", FOLDER)
    return streams.command("WordCount", *arguments, classes=(classes,), flags=("-Xmx256m", *QUIET))


QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
