"""Settings that say where their value is, so that a secret need not be where the settings go.

    sasl.password=${env:KAFKA_PASSWORD}                  a variable of the environment
    sasl.password=${file:/run/secrets/kafka}             the text of a file, without the newline at its end
    sasl.password=${file:/etc/kafka.properties:reader}   a line NAME=VALUE of a file

Kafka's config providers are written the same way. A value is looked up where it is used and not before: what goes to a
task of Spark's, into a log or a list of processes is the reference.
"""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from muster.errors import BadInput

LARGEST_FILE_BYTES = 1 << 20
_SECRET = re.compile(
    r"password|passphrase|secret|token|jaas|key\.pem$|keystore\.key$|(?:^|[_.])(?:account|access|sas|storage|private)[_.]?key$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\$\{(env|file):([^}:]+)(?::([^}]+))?\}")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return _SECRET.search(name) is not None


def literal_secrets(settings: Mapping[str, str]) -> list[str]:
    """The names of secrets that are there as they are."""
    return [name for name, value in settings.items() if is_secret(name) and value and not _REFERENCE.search(value)]


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with their references looked up, here and now. `BadInput` says which could not be."""
    return {name: _REFERENCE.sub(lambda found: _value(name, found), value) for name, value in settings.items()}  # noqa: B023


def _value(name: str, reference: re.Match[str]) -> str:
    kind, place, key = reference.groups()
    if kind == "env":
        if place not in os.environ:
            raise _missing(name, reference, f"there is no variable {place}")
        return os.environ[place]
    try:
        with Path(place).open("rb") as file:
            text = file.read(LARGEST_FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _missing(name, reference, getattr(error, "strerror", None) or "it is not text") from None
    if key is None:
        return text.removesuffix("\n").removesuffix("\r")
    for line in text.splitlines():
        left, equals, right = line.partition("=")
        if equals and left.strip() == key:
            return right.strip()
    raise _missing(name, reference, f"no line {key}=")


def _missing(name: str, reference: re.Match[str], why: str) -> BadInput:
    return BadInput(
        f"{name}={reference[0]} cannot be looked up on {socket.gethostname()}: {why}. It has to be there on this "
        "machine, and on every worker of Spark's."
    )
