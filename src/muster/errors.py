"""The exceptions of muster, grouped by who can help: the bytes, the disk, the input, the cluster, or muster itself.

The codec only knows that bytes are `Truncated` or `Malformed`; the code that fetched them (from a socket, a file) turns
that into the family that names the place.
"""


class MusterError(Exception):
    """Any error that muster raises on purpose; its text is a sentence for people."""


class CodecError(MusterError):
    """Bytes that are not what their format says."""


class Truncated(CodecError):
    """The bytes end before the format does."""


class Malformed(CodecError):
    """The bytes are all there, and they cannot mean anything."""


class TooLarge(Malformed):
    """A few bytes that would unpack to more than a limit allows."""


class UnsupportedVersion(Malformed):
    """A known kind of record in a version this release cannot read: a newer (or broken) broker wrote it."""


class LogDamaged(MusterError):
    """The disk gave back something else than a broker wrote."""


class DataLost(LogDamaged):
    """A log ends before what was durable once, or is not there at all; the text says which records are missing."""


class BadInput(MusterError):
    """What the user pointed us at cannot be read; the text says why and what to try next."""


class SourceMissing(BadInput):
    """There is no log where one was looked for: a wrong path, or a disk that is not mounted now."""


class NotThereYet(BadInput):
    """It cannot be read or written now, and may be later, without a change of the command or its settings."""


class StoreAway(BadInput):
    """An object store with tables did not do what was asked of it: it is away, or there is nothing at its address."""


class StoreRefused(BadInput):
    """An object store does not let us do what was asked of it."""


class ConfigError(MusterError):
    """The operator asked for something that cannot be; the text names the setting."""


class NotInTime(MusterError):
    """A test waited for something that did not come; the text says what there was instead."""


class Unexpected(MusterError):
    """A mistake in muster, told by a task of Spark's as text; the sentence names the place."""


class SparkGone(MusterError):
    """Java, which Spark runs in, has ended in the middle of it. Only a new process has another one."""


class ClusterError(BadInput):
    """A live cluster did not give what was asked of it; the text names the broker, and what to try next."""


class ClusterUnreachable(ClusterError):
    """No answer, or none in time: wrong address, a network in between, a broker that went away."""


class ClusterRefused(ClusterError):
    """The cluster answered, and does not let us in, or not at this topic."""


def described(error: BaseException) -> str:
    """An error for people: its text, and for one that is not raised on purpose also what kind it is."""
    return str(error) if isinstance(error, MusterError | OSError) else f"{type(error).__name__}: {error}"
