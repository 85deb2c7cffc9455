"""The topics of a data directory: their names, ids, partition counts and settings, in one file.

Kafka has them in its metadata log, which muster does not keep. `muster-topics.json` is replaced whole at every change,
and a change is durable before it is answered. A topic that is being deleted is marked as such first, and so are
partitions that are being made: their directories come and go one by one, and a crash in between must not leave a topic
with half of them.

A change that fails has not happened, and will not: what a client was told must hold after a crash. That is certain as
long as the new file does not have its name. If the directory cannot be synced behind the rename, it is not known which
of the two files a power cut leaves, and a killed process leaves the new one. Then the file is written as it was before,
again and again; until that succeeds nothing else is changed, and no request for a change is answered.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.errors import LogDamaged, MusterError
from muster.segments.checkpoints import TOPIC_ID
from muster.segments.files import Files, read_file, replace_file, write_beside

REGISTRY = "muster-topics.json"
VERSION = 1
LONGEST_NAME = 249
LARGEST_FILE_BYTES = 64 * 1024 * 1024
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicRefused(MusterError):
    """Nothing was changed; `error` is Kafka's name for the reason."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error


class ChangeUnsettled(MusterError):
    """Whether topics were changed is not known, so no client may be told that they were, or that they were not."""


@dataclass(frozen=True, slots=True)
class Topic:
    """`topic_id` as Kafka spells it: 22 characters of URL-safe base64."""

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    planned: int = 0
    """As many partitions as it is about to have, while they are made; 0 otherwise. A new topic has none until then."""

    @property
    def is_whole(self) -> bool:
        """Whether it is there for clients; what is half made, or half deleted, is not."""
        return self.partitions > 0 and not self.deleting


def check_name(name: str) -> None:
    if not _LEGAL_NAME.fullmatch(name) or len(name) > LONGEST_NAME or name in (".", ".."):
        raise TopicRefused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name[:LONGEST_NAME]!r} is no name for a topic: up to {LONGEST_NAME} of a-z A-Z 0-9 . _ - make one",
        )


def encode_topics(topics: Iterable[Topic]) -> bytes:
    listed = [
        {
            "name": topic.name,
            "id": topic.topic_id,
            "partitions": topic.partitions,
            "configs": dict(sorted(topic.configs.items())),
            **({"deleting": True} if topic.deleting else {}),
            **({"planned": topic.planned} if topic.planned else {}),
        }
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]
    return (json.dumps({"version": VERSION, "topics": listed}, indent=1) + "\n").encode()


def decode_topics(data: bytes) -> dict[str, Topic]:
    """Raises `ValueError` for anything that this release cannot have written."""
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"version {VERSION} is what this release reads")
    topics = [_decode_topic(one) for one in document["topics"]]
    return {topic.name: topic for topic in topics}


def _decode_topic(fields: Any) -> Topic:
    name, topic_id, partitions, configs = fields["name"], fields["id"], fields["partitions"], fields["configs"]
    if not (isinstance(name, str) and isinstance(topic_id, str) and TOPIC_ID.fullmatch(topic_id)):
        raise ValueError(f"{name!r} with id {topic_id!r}")
    planned = fields.get("planned", 0)
    is_number = isinstance(partitions, int) and isinstance(planned, int)
    if not is_number or partitions < (0 if planned else 1) or not isinstance(configs, dict):
        raise ValueError(f"{name!r} with {partitions!r} partitions and configs {configs!r}")
    return Topic(name, topic_id, partitions, configs, bool(fields.get("deleting")), planned)


class TopicRegistry:
    """Topics by name. Every change is in the file, durably, when the method returns. `OSError`: it is not, and never
    will be. `ChangeUnsettled`: that cannot be said, and `try_again` did not want to wait until it can.

    One thread at a time changes it; others may look at it meanwhile, and see all of a change or nothing.
    """

    def __init__(self, files: Files, path: Path, topics: dict[str, Topic], *, was_there: bool = False) -> None:
        self._files = files
        self._path = path
        self._topics = topics
        self.is_in_doubt = False
        """Whether the file may be another than what is said here. Nothing else is changed before it is not."""
        self.try_again: Callable[[int, OSError], bool] = lambda failures, error: False
        """Called, when the file is in doubt, behind every failure to write it; it may pause. False: give up."""
        self.was_there = was_there
        """Whether there was a file to read: a directory that a broker has left has none."""

    @classmethod
    def read(cls, files: Files, path: Path) -> "TopicRegistry":
        if not files.exists(path):
            return cls(files, path, {})
        try:
            topics = decode_topics(read_file(files, path, LARGEST_FILE_BYTES))
        except (ValueError, KeyError, TypeError) as error:
            raise LogDamaged(
                f"{path.name} cannot be read: {error}. The partitions are not affected: move the file away, and topics "
                "are taken from their directories again, without their settings."
            ) from error
        return cls(files, path, topics, was_there=True)

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def with_plan(self, topic: Topic) -> Topic:
        """A topic with what is planned for it: what lies about of a growth that failed and was not taken back."""
        known = self.get(topic.name)
        return topic if known is None or known.topic_id != topic.topic_id else replace(topic, planned=known.planned)

    def topics(self) -> list[Topic]:
        """Those that are there, by name."""
        return [topic for topic in self._sorted() if topic.is_whole]

    def unfinished(self) -> list[Topic]:
        """Those whose creation, growth or deletion has begun and not ended."""
        return [topic for topic in self._sorted() if topic.deleting or topic.planned]

    def _sorted(self) -> list[Topic]:
        return sorted(self._topics.values(), key=lambda topic: topic.name)

    def put(self, *topics: Topic) -> None:
        self.change(topics)

    def remove(self, *names: str) -> None:
        self.change((), names)

    def change(self, put: Iterable[Topic], remove: Iterable[str] = ()) -> None:
        """Several changes with one write of the file."""
        if self.is_in_doubt:
            self._settle()
        gone = set(remove)
        topics = {name: topic for name, topic in self._topics.items() if name not in gone}
        topics |= {topic.name: topic for topic in put}
        if topics == self._topics and self._files.exists(self._path):
            return
        beside = write_beside(self._files, self._path, encode_topics(topics.values()), "registry")
        self._files.rename(beside, self._path)
        try:
            self._files.sync_directory(self._path.parent, "registry.directory")
        except OSError:
            self.is_in_doubt = True
            self._settle()
            raise
        self._topics = topics

    def _settle(self) -> None:
        """Write what is said here. All of it: a sync that failed is not tried again, it would say that all is well."""
        failures = 0
        while self.is_in_doubt:
            try:
                replace_file(self._files, self._path, encode_topics(self._topics.values()), "registry")
                self.is_in_doubt = False
            except OSError as error:
                failures += 1
                if not self.try_again(failures, error):
                    raise ChangeUnsettled(
                        f"{self._path} cannot be written ({error}), and may hold a change of topics that was not "
                        "finished. When the directory is opened next it is carried out, or is not. Look after the "
                        "disk, and then at the topics."
                    ) from error
