"""How a command ended, for scripts. `docs/cli.md` has the same list."""

from enum import IntEnum


class Status(IntEnum):
    OK = 0
    BUG = 1
    USAGE = 2
    BAD_INPUT = 3
    DAMAGED = 4
    NOTHING_MATCHED = 5
    UNREACHABLE = 6
    REFUSED = 7
    WARNING = 10
    ERROR = 11
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Status.OK: "Done. Also when the reader of a pipe has had enough, as `head` has.",
    Status.BUG: "A mistake in muster; the sentence says where, `--debug` or `MUSTER_DEBUG=1` how it came to that.",
    Status.USAGE: "Options and values that do not exist or do not go together.",
    Status.BAD_INPUT: "What was pointed at cannot be used: a path that is missing, not a segment, not permitted, on a "
    "full disk; a port that is taken; a setting that cannot be.",
    Status.DAMAGED: "Done, but parts of the log could not be read; or not started, since durable records are missing. "
    "Each is named on stderr.",
    Status.NOTHING_MATCHED: "The log was read, and no record passed the filters; or no group, or not every one that "
    "was named, is there, or has that state.",
    Status.UNREACHABLE: "No answer from the cluster, or from a part of it; also TLS where none is spoken, and the "
    "reverse.",
    Status.REFUSED: "The cluster refused some or all of it: members in the way, no rights, a wrong login; each is "
    "named on stderr.",
    Status.WARNING: "Answered, and something is to be watched (`muster status`, `why`, `findings`).",
    Status.ERROR: "Answered, and something is wrong with a group (`muster status`, `why`, `findings`).",
    Status.INTERRUPTED: "Stopped by Ctrl-C; a file named by `--out` is then left as it was.",
}
