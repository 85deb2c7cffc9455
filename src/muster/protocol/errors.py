"""`WireError` and its kinds: bytes of a peer for which its connection is closed.

Kafka answers none of these: it closes the connection, and so does muster's server. The text is for the log. A request
that is well formed and refused is no error here; it gets a response with an `ErrorCode` in it.
"""

from muster.errors import MusterError


class WireError(MusterError):
    """The peer broke the protocol: the connection is to be closed."""


class BadHeader(WireError):
    """The header of a request or response cannot be read."""


class NotServed(WireError):
    """An API, or a version of one, that is not in the table or has no handler."""


class BadBody(WireError):
    """The bytes of a body are not what its version says, or a body does not fit the version to be written."""
