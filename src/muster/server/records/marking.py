"""A marker in a log: the end of one producer's transaction there."""

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.writes import WriteMarkers
from muster.log.partition import DiskLog
from muster.log.producers import Producer
from muster.log.validation import AppendRefused

FIRST_VERSION_THAT_BUMPS = 2


def append_marker(log: DiskLog, markers: WriteMarkers, wall_ms: int, *, is_repeated: bool) -> None:
    """Raises `AppendRefused`. One that may be there already (`is_repeated`) is left out where nothing is open.

    This node is the only coordinator that there is, so its epoch is raised where a log knows of a later one: that is of
    an election before `__transaction_state` was made anew. A marker from outside has the epoch that it says.
    """
    _check(markers)
    producer = log.producers.producers.get(markers.producer_id)
    if is_repeated and (producer is None or producer.transaction_first_offset < 0):
        return
    coordinator_epoch = markers.coordinator_epoch
    if producer is not None and markers.transactional_id:
        coordinator_epoch = max(coordinator_epoch, producer.coordinator_epoch)
    elif producer is not None:
        _check_bump(markers, producer)
    log.append_marker(
        markers.producer_id, markers.producer_epoch, wall_ms, commit=markers.commit, coordinator_epoch=coordinator_epoch
    )


def _check(markers: WriteMarkers) -> None:
    if min(markers.producer_id, markers.producer_epoch, markers.transaction_version) < 0:
        raise AppendRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"a marker of producer {markers.producer_id}, epoch "
                            f"{markers.producer_epoch}, version {markers.transaction_version}")  # fmt: skip


def _check_bump(markers: WriteMarkers, producer: Producer) -> None:
    """From version 2 on the end of a transaction has a later epoch than its records."""
    if markers.transaction_version >= FIRST_VERSION_THAT_BUMPS and markers.producer_epoch <= producer.epoch:
        raise AppendRefused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker of producer {producer.producer_id} with epoch {markers.producer_epoch}; it has {producer.epoch}",
        )
