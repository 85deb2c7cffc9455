"""Small mistakes that somebody might make in `muster.core`, each of which a test has to notice.

A mutant is a place in a file (a fragment that occurs there exactly once), what stands there instead, and what a client
or an operator would see of it. They are chosen by hand: one for each rule that is easy to get nearly right.
"""

from pathlib import Path
from typing import NamedTuple

CORE = Path("src/muster/core")


class Mutant(NamedTuple):
    file: str
    """In src/muster/core."""
    fragment: str
    replacement: str
    why: str

    @property
    def path(self) -> Path:
        return CORE / self.file

    def applied_to(self, source: str) -> str:
        """The mutated source; the fragment must be there, once."""
        count = source.count(self.fragment)
        if count != 1:
            raise ValueError(f"{self.file}: {self.fragment!r} occurs {count} times")
        return source.replace(self.fragment, self.replacement)
