"""`meta.properties`: whose directory this is.

Version 1 (KRaft) names a cluster, a node and the directory itself; version 0 (ZooKeeper) a cluster and a broker. It is
a Java properties file, kept as it is: a directory goes on under the ids it was born with.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from muster.errors import ConfigError
from muster.log.topics import new_topic_id
from muster.segments.files import Files, read_file, replace_file

META_PROPERTIES = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Ids of a data directory; a broker before KRaft may have left some out."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    version: int = 1


def new_cluster_id() -> str:
    return new_topic_id()


def decode_meta(text: str, path: Path) -> MetaProperties:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = re.sub(r"\s*[=:]\s*|\s+", "=", stripped, count=1).partition("=")
            fields[key] = re.sub(r"\\(.)", r"\1", value)
    version = fields.get("version", "0")
    if version not in ("0", "1"):
        raise ConfigError(
            f"{path} is of version {version[:20]!r}; 0 and 1 are known. A newer Kafka may have written it."
        )
    node = fields.get("node.id" if version == "1" else "broker.id")
    try:
        node_id = None if node is None else int(node)
    except ValueError:
        raise ConfigError(
            f"{path} names node {node!r}, which is no number. Restore the file, or move it away."
        ) from None
    cluster_id = fields.get("cluster.id")
    if version == "1" and (node_id is None or not cluster_id):
        missing = "cluster.id" if not cluster_id else "node.id"
        raise ConfigError(f"{path} has no {missing}. Restore the file, or move it away to have a new one written.")
    return MetaProperties(cluster_id, node_id, fields.get("directory.id"), int(version))


def encode_meta(meta: MetaProperties) -> bytes:
    lines = [f"version={meta.version}"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    if meta.node_id is not None:
        lines.append(f"{'node.id' if meta.version == 1 else 'broker.id'}={meta.node_id}")
    if meta.directory_id is not None:
        lines.append(f"directory.id={meta.directory_id}")
    return ("\n".join(lines) + "\n").encode()


def settle_meta(files: Files, directory: Path, cluster_id: str | None, node_id: int) -> MetaProperties:
    """Read a directory's ids, or give it new ones. `ConfigError` where it belongs to another cluster or node."""
    path = directory / META_PROPERTIES
    if not files.exists(path):
        meta = MetaProperties(cluster_id or new_cluster_id(), node_id, new_topic_id())
        replace_file(files, path, encode_meta(meta), "meta")
        return meta
    meta = decode_meta(read_file(files, path, 65536).decode("utf-8", "replace"), path)
    if cluster_id is not None and meta.cluster_id is not None and meta.cluster_id != cluster_id:
        raise ConfigError(
            f"{directory} belongs to cluster {meta.cluster_id}, and cluster {cluster_id} was asked for. Point at "
            "another directory, or leave the cluster id out to go on as the one that is there."
        )
    return meta
