"""`lag_history`, `rates` and `group_hours` once more, in plain Python: row by row, looking at everything each time."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import floor
from typing import Any, NamedTuple

Row = dict[str, Any]
Key = tuple[str, str, int]
DAY_MS, HOUR_MS, WEEK_MS = 86_400_000, 3_600_000, 7 * 86_400_000


class Move(NamedTuple):
    """A commit, or a deletion (`offset` None)."""

    place: tuple[int, bool]
    at_ms: int
    offset: int | None


class Look(NamedTuple):
    at_ms: int
    end: int


class End(NamedTuple):
    at_ms: int
    offset: int | None
    by: str | None
    seen: Look | None
    """The observation that it goes on from."""


def at_of(row: Row) -> int:
    for name in ("timestamp_ms", "commit_timestamp_ms", "previous_commit_timestamp_ms"):
        if row[name] is not None:
            return int(row[name])
    return 0


def counts(row: Row) -> bool:
    return row["kind"] != "commit" or row["txn_outcome"] in (None, "committed")


def moves_of(commits: Iterable[Row]) -> dict[Key, list[Move]]:
    found: dict[Key, list[Move]] = {}
    for row in filter(counts, commits):
        move = Move((row["log_offset"], row["kind"] == "commit"), at_of(row), row["committed_offset"])
        found.setdefault((row["group_id"], row["topic"], row["partition"]), []).append(move)
    return {key: sorted(moves) for key, moves in found.items()}


def looks_of(log_ends: Iterable[Row]) -> dict[tuple[str, int], list[Look]]:
    found: dict[tuple[str, int], dict[int, int]] = {}
    for row in log_ends:
        if row["log_end_offset"] is not None and row["observed_at_ms"] is not None:
            ends = found.setdefault((row["topic"], row["partition"]), {})
            ends[row["observed_at_ms"]] = max(row["log_end_offset"], ends.get(row["observed_at_ms"], 0))
    return {place: [Look(*each) for each in sorted(ends.items())] for place, ends in found.items()}


def floored(time_ms: int, length_ms: int) -> int:
    return time_ms - time_ms % length_ms


def in_force(moves: Sequence[Move], before_ms: int) -> Move | None:
    return max((move for move in moves if move.at_ms < before_ms), default=None)


def end_of(looks: Sequence[Look], start_ms: int, length_ms: int) -> End:
    over_ms = start_ms + length_ms
    left = max((look for look in looks if look.at_ms < over_ms), default=None)
    right = min((look for look in looks if look.at_ms >= over_ms), default=None)
    is_near = left is not None and left.at_ms >= over_ms - DAY_MS
    if is_near and left and right and right.at_ms < over_ms + DAY_MS and right.end >= left.end:
        offset = left.end + floor((right.end - left.end) * (over_ms - left.at_ms) / (right.at_ms - left.at_ms))
        return End(over_ms, offset, "interpolated" if right.end > left.end else "observed", left)
    if left is not None and left.at_ms >= start_ms:
        return End(left.at_ms, left.end, "observed", left)
    return End(over_ms, None, None, left)


def passed_at(looks: Sequence[Look], end: End, committed: int) -> int | None:
    """From the row's moment back in time, to the observation that was not beyond the commit."""
    assert end.seen is not None
    earlier = [look for look in looks if look.at_ms <= end.seen.at_ms]
    later = next((look for look in looks if look.at_ms > end.seen.at_ms), None)
    for look in reversed(earlier):
        if later is not None and look.end > later.end and look is not end.seen:
            return None  # the end fell
        if look.end <= committed:
            if later is None or later.end <= committed or look.at_ms < end.at_ms - DAY_MS:
                return None
            share = (later.end - committed) * (later.at_ms - look.at_ms) / (later.end - look.end)
            return later.at_ms - round_half_up(share)
        later = look
    return None


def round_half_up(number: float) -> int:
    return floor(number + 0.5)


def changed_looks(looks: Sequence[Look], length_ms: int) -> list[int]:
    """Intervals in which another end was observed than in the one before that has an observation."""
    last: dict[int, Look] = {floored(look.at_ms, length_ms): look for look in looks}
    found = sorted(last)[:1]
    for (_, before), (start, look) in pairwise(sorted(last.items())):
        if before.end != look.end or before.at_ms < start - DAY_MS:
            found.append(start)
    return found


def lag_history(commits: Iterable[Row], log_ends: Iterable[Row], length_ms: int) -> list[Row]:
    rows = []
    all_looks = looks_of(log_ends)
    for (group, topic, partition), moves in moves_of(commits).items():
        looks = all_looks.get((topic, partition), [])
        own: dict[int, list[Move]] = {}
        for move in moves:
            own.setdefault(floored(move.at_ms, length_ms), []).append(move)
        for start in sorted({*own, *(each for each in changed_looks(looks, length_ms) if each > min(own))}):
            now, before = in_force(moves, start + length_ms), in_force(moves, start)
            assert now is not None
            if now.offset is None and start not in own:
                continue
            end = end_of(looks, start, length_ms)
            outdated = (
                end.offset is not None and now.offset is not None and now.at_ms > end.at_ms and now.offset >= end.offset
            )
            is_known = end.offset is not None and now.offset is not None and not outdated
            lag = max(end.offset - now.offset, 0) if is_known else None  # type: ignore[operator]
            passed = passed_at(looks, end, now.offset) if lag else None  # type: ignore[arg-type]
            is_blocked = before is not None and start in own and before.place > max(own[start]).place
            shown = before if before is not None and (before.offset is not None or is_blocked) else None
            rows.append(
                {
                    "group_id": group, "topic": topic, "partition": partition, "interval_start_ms": start,
                    "interval_ms": length_ms, "at_ms": end.at_ms, "committed_offset": now.offset,
                    "log_end_offset": end.offset, "log_end_by": end.by, "lag": lag,
                    "lag_unknown": "deleted" if now.offset is None
                    else "end not observed" if end.offset is None
                    else "committed after the end was observed" if outdated else None,
                    "lag_ms": 0 if lag == 0 else None if passed is None else max(end.at_ms - passed, 0),
                    "behind_since_ms": passed,
                    "commits": sum(move.offset is not None for move in own.get(start, [])),
                    "last_commit_ms": None if now.offset is None else now.at_ms, "log_offset": now.place[0],
                    "committed_before": shown.offset if shown else None,
                    "log_offset_before": shown.place[0] if shown else None,
                    "commit_before_ms": shown.at_ms if shown and shown.offset is not None else None,
                }
            )  # fmt: skip
    return rows


def rates(commits: Iterable[Row], log_ends: Iterable[Row], length_ms: int) -> list[Row]:
    rows = []
    all_looks = looks_of(log_ends)
    for (group, topic, partition), moves in moves_of(commits).items():
        looks = all_looks.get((topic, partition), [])
        for start in sorted({floored(move.at_ms, length_ms) for move in moves}):
            own = [move for move in moves if floored(move.at_ms, length_ms) == start]
            if all(move.offset is None for move in own):
                continue
            before = in_force(moves, start)
            pairs = [
                (one.offset, two.offset, max(two.at_ms - one.at_ms, 0))
                for one, two in pairwise([*([before] if before else []), *own])
                if one.offset is not None and two.offset is not None
            ]
            produced = produced_in_ms = None
            first, last = end_of(looks, start - length_ms, length_ms), end_of(looks, start, length_ms)
            if first.offset is not None and last.offset is not None and first.at_ms == start:
                assert first.seen is not None
                assert last.seen is not None
                between = [look for look in looks if first.seen.at_ms <= look.at_ms <= last.seen.at_ms]
                if all(one.end <= two.end for one, two in pairwise(between)) and last.offset >= first.offset:
                    produced, produced_in_ms = last.offset - first.offset, last.at_ms - first.at_ms
            rows.append(
                {
                    "group_id": group, "topic": topic, "partition": partition, "interval_start_ms": start,
                    "interval_ms": length_ms, "commits": sum(move.offset is not None for move in own),
                    "consumed": sum(max(two - one, 0) for one, two, _ in pairs) if pairs else None,
                    "rewinds": sum(two < one for one, two, _ in pairs) if pairs else None,
                    "rewound": sum(max(one - two, 0) for one, two, _ in pairs) if pairs else None,
                    "mean_distance_ms": sum(ms for *_, ms in pairs) // len(pairs) if pairs else None,
                    "longest_distance_ms": max((ms for *_, ms in pairs), default=None),
                    "produced": produced, "produced_in_ms": produced_in_ms,
                }
            )  # fmt: skip
    return rows


CAUSES = {
    "by_joining": ("first members", "member joined"),
    "by_leaving": ("member left", "group emptied"),
    "by_both": ("members joined and left",),
    "by_change": ("protocol changed", "subscription changed", "matched topics changed", "topology changed",
                  "partitions changed"),
}  # fmt: skip


def group_hours(commits: Iterable[Row], rebalances: Iterable[Row]) -> list[Row]:
    times: dict[str, list[int]] = {}
    for row in commits:
        if row["kind"] == "commit" and counts(row):
            times.setdefault(row["group_id"], []).append(at_of(row))
    told: dict[str, list[Row]] = {}
    for row in rebalances:
        told.setdefault(row["group_id"], []).append(row)
    rows = []
    for group in {*times, *told}:
        rows += _hours_of(group, sorted(times.get(group, ())), told.get(group, []))
    return rows


def _hours_of(group: str, times: Sequence[int], told: Sequence[Row]) -> Iterable[Row]:
    placed = sorted((row for row in told if row["at_ms"] is not None), key=lambda row: int(row["log_offset"]))
    hours = sorted({floored(time, HOUR_MS) for time in times} | {floored(row["at_ms"], HOUR_MS) for row in placed})
    members: int | None = None
    last_commit: int | None = None
    last_hour: int | None = None
    for hour in hours:
        if last_hour is not None and hour - last_hour > WEEK_MS:
            members = last_commit = None
        last_hour = hour
        own = [time for time in times if floored(time, HOUR_MS) == hour]
        rows = [row for row in placed if floored(row["at_ms"], HOUR_MS) == hour]
        counts_of = [row["members"] for row in rows]
        seen = ([] if members is None else [members]) + counts_of
        gaps = [two - one for one, two in pairwise(([] if last_commit is None else [last_commit]) + sorted(set(own)))]
        real = [row for row in rows if is_rebalance(row)]
        ended = [
            row["commit_gap_ms"]
            for row in told
            if row["commit_gap_ms"] is not None
            and floored(row["first_commit_after_ms"], HOUR_MS) == hour
            and row["cause"] not in ("first members", "group emptied", "group deleted")
        ]
        members = counts_of[-1] if counts_of else members
        last_commit = own[-1] if own else last_commit
        yield {
            "group_id": group, "hour_ms": hour, "members": members, "members_min": min(seen, default=None),
            "members_max": max(seen, default=None), "rebalances": len(real),
            **{name: sum(row["cause"] in causes for row in real) for name, causes in CAUSES.items()},
            "static_returns": sum(
                row["cause"] in ("static member returned", "static member replaced") for row in rows
            ),
            "members_joined": total(rows, "joined"), "members_left": total(rows, "left"), "commits": len(own),
            "longest_silence_ms": max(gaps, default=None),
            "interrupted_ms": sum(ended) if ended else None if real else 0, "last_commit_ms": last_commit,
        }  # fmt: skip


def is_rebalance(row: Mapping[str, Any]) -> bool:
    is_same = row["generation"] is not None and row["generation"] == row["previous_generation"]
    return not is_same and row["cause"] != "group deleted"


def total(rows: Sequence[Row], name: str) -> int | None:
    known = [len(row[name]) for row in rows if row[name] is not None]
    return sum(known) if known or not rows else None
