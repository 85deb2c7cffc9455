"""Python looks for reference cycles among all objects there are; with a million groups that takes seconds each time.

Groups and offsets are not cyclic and live long. So whatever has survived a full search is set aside and not searched
again: the next search is among what came since. What is set aside is still freed like any object when nobody refers to
it; only cycles in it would stay. The one large cycle there is, a coordinator that lets go of its partition, asks for
everything to be searched once more.

This is about a whole process, so only `muster serve` does it, and not a broker inside somebody else's program.
"""

import gc
from typing import Any, Literal

OLDEST = 2


def set_aside_survivors() -> None:
    """From now on, after every full search."""
    if _full_search_ended not in gc.callbacks:
        gc.callbacks.append(_full_search_ended)


def search_everything_once() -> None:
    """The next full search is one of all objects; it comes when it would have come anyway."""
    if _full_search_ended in gc.callbacks:
        gc.unfreeze()


def _full_search_ended(phase: Literal["start", "stop"], info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()
