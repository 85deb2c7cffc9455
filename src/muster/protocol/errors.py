"""What a peer can do wrong.

Kafka answers none of these: it closes the connection, and so does whoever catches a `WireError`. The text is for the
log. Requests that are well formed and refused are no errors here; they get an answer with an `ErrorCode` in it.
"""

from muster.errors import MusterError


class WireError(MusterError):
    """The peer broke the protocol: the connection is to be closed."""


class BadHeader(WireError):
    """The request cannot even be told apart from others."""


class NotServed(WireError):
    """An API, or a version of one, that we do not answer."""


class BadBody(WireError):
    """The request is known, and its bytes are not what its version says; or an answer does not fit its version."""
