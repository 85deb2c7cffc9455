"""How long to wait between two tries of something that has failed."""


class GrowingPause:
    """Pauses in seconds, each twice as long as the one before it, up to the longest."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._next_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        pause_s = min(self._next_s, self._longest_s)
        self._next_s = 2 * pause_s
        return pause_s
