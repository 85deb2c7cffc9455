"""Replicas that a client chose itself: with one node, only `[that node]` can be right."""

from collections.abc import Sequence


def assignment_problem(node_ids: Sequence[int], node_id: int) -> str | None:
    """What is wrong with the replicas of one partition, in Kafka's words."""
    if not node_ids:
        return "The manual partition assignment includes an empty replica list."
    ordered = sorted(node_ids)
    for before, one in zip([None, *ordered], ordered, strict=False):
        if one == before:
            return f"The manual partition assignment includes the broker {one} more than once."
        if one != node_id:
            return f"The manual partition assignment includes broker {one}, but no such broker is registered."
    return None
