import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.partitioning import java_string_hash, partition_for
from tests.codec.strategies import TEXT, bounded

# groupId, String.hashCode, its partition of 50 and of 2: computed by Java.
HASHES = [
    ("", 0, 0, 0),
    ("a", 97, 47, 1),
    ("test", 3556498, 48, 0),
    ("group", 98629247, 47, 1),
    ("my-group", -1906497762, 12, 0),
    ("groupId", 293428218, 18, 0),
    ("otherGroup", -204443313, 13, 1),
    ("console-consumer-12345", 158455506, 6, 0),
    ("connect-cluster", 1440343063, 13, 1),
    ("polygenelubricants", -2147483648, 0, 0),
    ("消费者组", 871131088, 38, 0),
    ("g😀", 1871882, 32, 0),
]


@pytest.mark.parametrize(("group_id", "hashed", "of_fifty", "of_two"), HASHES)
def test_java_hashes_and_their_partitions(group_id: str, hashed: int, of_fifty: int, of_two: int) -> None:
    assert java_string_hash(group_id) == hashed
    assert partition_for(group_id, 50) == of_fifty
    assert partition_for(group_id, 2) == of_two


def test_a01_partitions_of_fifty() -> None:
    groups = ("test", "my-group", "groupId", "otherGroup")
    assert [partition_for(group, 50) for group in groups] == [48, 12, 18, 13]


def test_a02_two_groups_on_two_partitions() -> None:
    assert (partition_for("groupId", 2), partition_for("otherGroup", 2)) == (0, 1)


def test_a03_the_smallest_hash_lands_on_partition_zero() -> None:
    assert {partition_for("polygenelubricants", count) for count in range(1, 200)} == {0}


def test_a04_a_supplementary_character_counts_as_two() -> None:
    assert partition_for("g😀", 50) == 32


def test_bytes_that_are_not_utf8_hash_as_java_reads_them() -> None:
    assert java_string_hash(b"caf\xe9".decode("utf-8", "surrogateescape")) == java_string_hash("caf\ufffd")


@bounded
@given(TEXT, st.integers(1, 1000))
def test_every_group_has_a_partition(group_id: str, partitions: int) -> None:
    assert 0 <= partition_for(group_id, partitions) < partitions
    assert -(2**31) <= java_string_hash(group_id) < 2**31
