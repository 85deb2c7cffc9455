"""A marker in a log: the end of one producer's transaction there."""

from muster.core.transactions.writes import WriteMarkers
from muster.log.partition import DiskLog

NO_EPOCH = -1


def append_marker(log: DiskLog, markers: WriteMarkers, wall_ms: int, *, is_repeated: bool) -> None:
    """Raises `AppendRefused`. One that may be there already (`is_repeated`) is left out where nothing is open.

    This node is the only coordinator that there is, so its epoch is raised where a log knows of a later one: that is of
    an election before `__transaction_state` was made anew.
    """
    producer = log.producers.producers.get(markers.producer_id)
    if is_repeated and (producer is None or producer.transaction_first_offset < 0):
        return
    coordinator_epoch = max(markers.coordinator_epoch, NO_EPOCH if producer is None else producer.coordinator_epoch)
    log.append_marker(
        markers.producer_id, markers.producer_epoch, wall_ms, commit=markers.commit, coordinator_epoch=coordinator_epoch
    )
