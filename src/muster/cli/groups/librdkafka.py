"""Deleting committed offsets with librdkafka itself: confluent-kafka has no call for it, the library inside it has.

The library is the one that confluent-kafka has loaded already, found through its extension module. Only functions and
structures of its public header are used; they have not changed since 1.6.
"""

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache

from muster.cli.groups.model import Refusal, TopicPartition
from muster.errors import BadInput

PRODUCER = 0  # what librdkafka's own tools create when they administer
CONFIG_OK = 0
ERROR_TEXT_BYTES = 512
LOOK_MS = 100


class _Partition(ctypes.Structure):
    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class _Partitions(ctypes.Structure):
    _fields_ = (("cnt", c_int), ("size", c_int), ("elems", POINTER(_Partition)))


FUNCTIONS = {
    "rd_kafka_conf_new": (c_void_p,),
    "rd_kafka_conf_set": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    "rd_kafka_conf_destroy": (None, c_void_p),
    "rd_kafka_new": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "rd_kafka_destroy": (None, c_void_p),
    "rd_kafka_queue_new": (c_void_p, c_void_p),
    "rd_kafka_queue_destroy": (None, c_void_p),
    "rd_kafka_queue_poll": (c_void_p, c_void_p, c_int),
    "rd_kafka_topic_partition_list_new": (POINTER(_Partitions), c_int),
    "rd_kafka_topic_partition_list_add": (c_void_p, POINTER(_Partitions), c_char_p, c_int32),
    "rd_kafka_topic_partition_list_destroy": (None, POINTER(_Partitions)),
    "rd_kafka_DeleteConsumerGroupOffsets_new": (c_void_p, c_char_p, POINTER(_Partitions)),
    "rd_kafka_DeleteConsumerGroupOffsets_destroy": (None, c_void_p),
    "rd_kafka_DeleteConsumerGroupOffsets": (None, c_void_p, POINTER(c_void_p), c_size_t, c_void_p, c_void_p),
    "rd_kafka_event_DeleteConsumerGroupOffsets_result": (c_void_p, c_void_p),
    "rd_kafka_DeleteConsumerGroupOffsets_result_groups": (POINTER(c_void_p), c_void_p, POINTER(c_size_t)),
    "rd_kafka_group_result_error": (c_void_p, c_void_p),
    "rd_kafka_group_result_partitions": (POINTER(_Partitions), c_void_p),
    "rd_kafka_event_error": (c_int, c_void_p),
    "rd_kafka_event_error_string": (c_char_p, c_void_p),
    "rd_kafka_event_destroy": (None, c_void_p),
    "rd_kafka_error_code": (c_int, c_void_p),
    "rd_kafka_error_string": (c_char_p, c_void_p),
    "rd_kafka_err2name": (c_char_p, c_int),
    "rd_kafka_err2str": (c_char_p, c_int),
}  # what each returns, then what it takes


@cache
def _library() -> ctypes.CDLL:
    from confluent_kafka import cimpl

    try:
        library = ctypes.CDLL(cimpl.__file__)  # a name is looked up in what the module was linked with, too
        for name, (returned, *taken) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = returned, taken
    except (OSError, AttributeError):
        raise BadInput(
            "this build of confluent-kafka does not let its librdkafka be used, and has no call of its own to delete "
            "offsets. Install the wheel from PyPI, or delete the whole group with `muster groups delete`."
        ) from None
    return library


def delete_offsets(
    settings: Mapping[str, str], group_id: str, partitions: Iterable[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, Refusal | None] | Refusal:
    """Forget what a group committed for these partitions. A Refusal is about all of them.

    Blocks for as long as `timeout_ms`, and not much longer.
    """
    library = _library()
    with ExitStack() as stack:
        client = _client(dict(settings) | {"socket.timeout.ms": str(timeout_ms)}, stack)
        queue = library.rd_kafka_queue_new(client)
        stack.callback(library.rd_kafka_queue_destroy, queue)
        request = c_void_p(_request(group_id, partitions, stack))
        library.rd_kafka_DeleteConsumerGroupOffsets(client, byref(request), 1, None, queue)
        event = None
        for _ in range(0, timeout_ms + 1000, LOOK_MS):  # in short steps, for Ctrl-C is not heard within one
            event = event or library.rd_kafka_queue_poll(queue, LOOK_MS)
        if not event:
            return Refusal("_TIMED_OUT", "Timed out")
        stack.callback(library.rd_kafka_event_destroy, event)
        return _outcomes(event)


def _client(settings: Mapping[str, str], stack: ExitStack) -> int:
    library = _library()
    why = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
    config = library.rd_kafka_conf_new()
    for name, value in settings.items():
        if library.rd_kafka_conf_set(config, name.encode(), value.encode(), why, len(why)) != CONFIG_OK:
            library.rd_kafka_conf_destroy(config)
            raise BadInput(f"{why.value.decode(errors='replace')}.")
    client: int | None = library.rd_kafka_new(PRODUCER, config, why, len(why))
    if not client:
        library.rd_kafka_conf_destroy(config)  # it becomes the client's only when there is one
        raise BadInput(f"{why.value.decode(errors='replace')}.")
    stack.callback(library.rd_kafka_destroy, client)
    return client


def _request(group_id: str, partitions: Iterable[TopicPartition], stack: ExitStack) -> int:
    library = _library()
    wanted = library.rd_kafka_topic_partition_list_new(8)
    stack.callback(library.rd_kafka_topic_partition_list_destroy, wanted)
    for topic, partition in partitions:
        library.rd_kafka_topic_partition_list_add(wanted, topic.encode(), partition)
    request: int = library.rd_kafka_DeleteConsumerGroupOffsets_new(group_id.encode(), wanted)
    stack.callback(library.rd_kafka_DeleteConsumerGroupOffsets_destroy, request)
    return request


def _outcomes(event: int) -> dict[TopicPartition, Refusal | None] | Refusal:
    library = _library()
    code = library.rd_kafka_event_error(event)
    if code:
        return Refusal(_name(code), _text(library.rd_kafka_event_error_string(event)))
    result = library.rd_kafka_event_DeleteConsumerGroupOffsets_result(event)
    count = c_size_t()
    groups = library.rd_kafka_DeleteConsumerGroupOffsets_result_groups(result, byref(count))
    error = library.rd_kafka_group_result_error(groups[0])
    if error:
        return Refusal(_name(library.rd_kafka_error_code(error)), _text(library.rd_kafka_error_string(error)))
    return dict(_partition_outcomes(library.rd_kafka_group_result_partitions(groups[0]).contents))


def _partition_outcomes(answered: _Partitions) -> Iterator[tuple[TopicPartition, Refusal | None]]:
    for place in range(answered.cnt):
        one = answered.elems[place]
        refusal = Refusal(_name(one.err), _text(_library().rd_kafka_err2str(one.err))) if one.err else None
        yield TopicPartition(one.topic.decode(errors="replace"), one.partition), refusal


def _name(code: int) -> str:
    return _text(_library().rd_kafka_err2name(code))


def _text(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace").removeprefix("Broker: ").removeprefix("Local: ")
