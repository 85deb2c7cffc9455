"""The newest offset of each key, in bounded memory.

Keys are not kept, only sixteen bytes of digest of each: two keys with the same digest would be taken for one, which is
not to be expected before the sun goes out. A log may have more keys than fit; then the round of compaction ends where
the map was full, and the next one goes on from there.
"""

from hashlib import blake2b

from muster.errors import ConfigError

DIGEST_BYTES = 16
BYTES_PER_ENTRY = 176
"""Digest, offset and their share of the dictionary, at the moment when it has just grown."""
NOT_FOUND = -1


class OffsetMap:
    """A dictionary from keys to offsets that takes no new key once it holds as many as its memory allows."""

    def __init__(self, memory_bytes: int, *, merges_offset_keys: bool = False) -> None:
        self.capacity = memory_bytes // BYTES_PER_ENTRY
        if self.capacity < 1:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size is {memory_bytes}: not enough for a single key, so compaction would "
                f"never get anywhere; it takes {BYTES_PER_ENTRY} bytes a key"
            )
        self._merges_offset_keys = merges_offset_keys
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Take an offset that is newer than all before it; False for a new key that there is no room for."""
        digest = self._digest(key)
        if len(self._offsets) >= self.capacity and digest not in self._offsets:
            return False
        self._offsets[digest] = offset
        return True

    def get(self, key: bytes) -> int:
        return self._offsets.get(self._digest(key), NOT_FOUND)

    def _digest(self, key: bytes) -> bytes:
        if self._merges_offset_keys:
            key = offset_key_identity(key)
        return blake2b(key, digest_size=DIGEST_BYTES).digest()


def offset_key_identity(key: bytes) -> bytes:
    """The same bytes for both types of key that an offset commit may have (see `codec/offsets_topic.py`)."""
    return b"\0\1" + key[2:] if key[:2] == b"\0\0" else key
