"""Made-up values for property tests: what Kafka's fields can hold, the awkward included."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

bounded = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For every property test of the codec: a bounded run, and no clock that could fail it on a busy machine."""

# A short alphabet: st.text() over all of Unicode first spends seconds on a table of it.
_CHARACTERS = 'ab.-/\\"\x00\x1f\t\n\x7féß\u2028\ufffd消\uffff😀\U0010ffff'

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
BLOB = st.binary(max_size=20)
UUIDS = st.binary(min_size=16, max_size=16)
TEXT = st.one_of(
    st.text(_CHARACTERS, max_size=12),
    BLOB.map(lambda data: data.decode("utf-8", "surrogateescape")),  # names that are not UTF-8
)
