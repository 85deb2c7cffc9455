"""Where a code was seen last: what comes again, and what is new, in one pass and without sorting."""

import numpy as np
from numba import types

from muster.codec.columns.chunks import Longs
from muster.codec.columns.kernels import LONGS, kernel


def previous_places(codes: Longs) -> Longs:
    """For each place the last one before it that has the same code, or -1. Codes are small numbers, from 0 on."""
    places = np.empty(len(codes), np.int64)
    last = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, np.int64)
    _previous_places(codes, last, places)
    return places


@kernel(types.void(LONGS, LONGS, LONGS))
def _previous_places(codes: Longs, last: Longs, places: Longs) -> None:
    for place in range(len(codes)):
        places[place] = last[codes[place]]
        last[codes[place]] = place
