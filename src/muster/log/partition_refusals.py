"""What a log does not do, as values with Kafka's name for the reason."""

from muster.codec.error_codes import ErrorCode
from muster.errors import MusterError


class AppendRefused(MusterError):
    """The log did not take a batch, and not a byte of it was written; `error` is what Kafka would call the reason."""

    def __init__(self, error: ErrorCode, reason: str = "") -> None:
        super().__init__(f"append refused: {error.name}" + (f": {reason}" if reason else ""))
        self.error = error
        self.reason = reason


class ReadRefused(MusterError):
    """The log has nothing at that offset, and never will or no longer has; `error` is Kafka's name for it."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(f"read refused: {error.name}: {reason}")
        self.error = error
        self.reason = reason
