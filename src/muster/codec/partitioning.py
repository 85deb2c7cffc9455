"""Which partition of __consumer_offsets a group lives in.

The answer is Java's: `Utils.abs(groupId.hashCode()) % partitions`. `hashCode` runs over UTF-16 code units, so a
character outside the basic plane counts as two; and `Utils.abs` turns the one int without a positive twin into 0.
"""

from functools import lru_cache

from muster.codec.primitives import java_text

_SIGN = 0x8000_0000
LONGEST_REMEMBERED_ID = 255
"""Characters of a group id. What is cached by group ids is not cached for longer ones, or caches would fill memory."""


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: a signed 32-bit number.

    Bytes of a name that were not UTF-8 count as the U+FFFD that Java reads in their place.
    """
    units = memoryview(java_text(text).encode("utf-16-le", "surrogatepass")).cast("B")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return (value ^ _SIGN) - _SIGN


@lru_cache(maxsize=65_536)
def partition_for(group_id: str, partitions: int) -> int:
    """The partition of a topic with that many partitions that holds everything about the group."""
    hashed = java_string_hash(group_id)
    return 0 if hashed == -_SIGN else abs(hashed) % partitions


def hash_map_buckets(entries: int) -> int:
    """How many buckets a `java.util.HashMap` has that was filled one by one."""
    buckets = 16
    while entries > buckets * 3 // 4:
        buckets *= 2
    return buckets


def hash_map_bucket(text: str, buckets: int) -> int:
    """Where a string sits in a `java.util.HashMap`; Kafka decides a tie between protocols by that."""
    hashed = java_string_hash(text) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & (buckets - 1)
