"""Fetches of very many partitions: the same as in `fetch.py`, in slices.

What is seen in one slice may be gone in another, so records are looked for again in the slice that reads them.
"""

from muster.server.cluster.cluster import Cluster
from muster.server.records.fetch import (
    FetchAnswer,
    FetchRequest,
    ParkedFetch,
    answer_of,
    looks,
    makes_no_sense,
    nonsense,
    read,
    wait_for,
)
from muster.server.slices import Slices


def handle(request: FetchRequest, cluster: Cluster, now_ms: int) -> Slices[FetchAnswer | ParkedFetch]:
    """The answer, or what to do until there is one."""
    if makes_no_sense(request):
        return nonsense(request)
    parked = yield from wait_for(request, cluster, now_ms)
    for key, one in zip(parked.found, looks(parked, cluster), strict=True):
        if one.counted_bytes:
            parked.note(key, one.counted_bytes)
        yield
    return (yield from complete(parked, cluster)) if parked.is_due or parked.has_enough else parked


def complete(parked: ParkedFetch, cluster: Cluster) -> Slices[FetchAnswer]:
    """The answer, with the records that are there now."""
    fetched = []
    for one in looks(parked, cluster):
        fetched.append(read(one))
        yield
    return answer_of(parked, cluster, fetched)
