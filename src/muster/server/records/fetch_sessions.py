"""Fetch sessions (KIP-227): a consumer names its partitions once, and then only what has changed.

A session remembers the partitions of a consumer, where it reads each, and what it was last told of each. A request of
the session names partitions that are new or read from another offset, and those to forget; its answer has only the
partitions that have records, an error, or another high watermark or log start than before. Every request carries the
epoch of the session, one more than the last, so a lost answer is noticed and the client begins a new session.

A partition that gave records goes behind all others, so that each has its turn when the answer is full.

There is room for a number of sessions, and for a number of partitions in all of them together. Where it is full, a
session that was not used for two minutes makes room for the next one, or one that is smaller and as old; if there is
none, the client hears session id 0 and goes on without.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from muster.codec.error_codes import ErrorCode
from muster.server.cluster.cluster import NO_OFFSET, UNKNOWN_EPOCH_END
from muster.server.records.fetch import FIRST_WITH_IDS, FetchAnswer, FetchRequest, PartitionAsked, PartitionFetched

NO_SESSION = 0
FIRST_EPOCH, WITHOUT_SESSION_EPOCH = 0, -1
LARGEST = 2**31 - 1
IDLE_MS = 120_000
"""Kafka's, and not to be set there either."""

Key = tuple[str, bytes, int]


@dataclass(slots=True)
class Remembered:
    """A partition of a session: what is asked of it, and what was last told."""

    asked: PartitionAsked
    high_watermark: int = NO_OFFSET
    start_offset: int = NO_OFFSET

    def has_news(self, fetched: PartitionFetched) -> bool:
        """Whether the client must hear this; remembers what it is told."""
        is_failed = fetched.error is not ErrorCode.NONE or fetched.diverging is not UNKNOWN_EPOCH_END
        has_news = (
            is_failed
            or len(fetched.records) > 0
            or fetched.high_watermark != self.high_watermark
            or fetched.start_offset != self.start_offset
        )
        self.high_watermark = NO_OFFSET if is_failed else fetched.high_watermark
        self.start_offset = fetched.start_offset
        return has_news


@dataclass(slots=True)
class Session:
    session_id: int
    by_ids: bool
    created_ms: int
    used_ms: int
    partitions: dict[Key, Remembered] = field(default_factory=dict)
    epoch: int = 1
    """Of the next request."""

    def update(self, asked: Iterable[PartitionAsked], forgotten: Iterable[Key]) -> None:
        for one in asked:
            known = self.partitions.get(one.key)
            if known is None:
                self.partitions[one.key] = Remembered(one)
            else:
                known.asked = one
        for key in forgotten:
            self.partitions.pop(key, None)

    def news(self, fetched: Iterable[PartitionFetched]) -> tuple[PartitionFetched, ...]:
        """What the client must hear of an answer about all partitions."""
        told = []
        for one in fetched:
            known = self.partitions.get(one.key)
            if known is None:
                continue
            if known.has_news(one):
                told.append(one)
                if len(one.records):
                    self.partitions[one.key] = self.partitions.pop(one.key)
        return tuple(told)


class Visit:
    """One request of a client, with or without a session: what it asks for in all, and its answer as it is sent."""

    __slots__ = ("_open", "_session", "partitions")

    def __init__(
        self,
        partitions: tuple[PartitionAsked, ...],
        session: Session | None = None,
        open_session: Callable[[tuple[PartitionFetched, ...]], int] | None = None,
    ) -> None:
        self.partitions = partitions
        self._session = session
        self._open = open_session

    def answer(self, answer: FetchAnswer) -> FetchAnswer:
        """The answer as this client gets it. Called once."""
        if self._session is not None:
            return answer._replace(
                partitions=self._session.news(answer.partitions), session_id=self._session.session_id
            )
        if self._open is not None:
            return answer._replace(session_id=self._open(answer.partitions))
        return answer


class FetchSessions:
    def __init__(
        self, most: int, most_partitions: int, now_ms: Callable[[], int], rng: random.Random | None = None
    ) -> None:
        self._most = most
        self._most_partitions = most_partitions
        self._partitions = 0
        """Of all sessions."""
        self._now_ms = now_ms
        self._random = rng or random.Random()
        self._sessions: dict[int, Session] = {}
        """The one that was not used for longest comes first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def topics(self, session_id: int) -> set[tuple[str, bytes]]:
        """What a session reads: names or ids, whichever it came with."""
        session = self._sessions.get(session_id)
        return set() if session is None else {(topic, topic_id) for topic, topic_id, _ in session.partitions}

    def forget_all(self) -> None:
        """Clients name everything anew with their next request."""
        self._sessions.clear()
        self._partitions = 0

    def visit(self, request: FetchRequest) -> Visit | ErrorCode:
        """What a request asks for, together with its session; or why it cannot go on with that."""
        by_ids = request.version >= FIRST_WITH_IDS
        if request.session_epoch in (FIRST_EPOCH, WITHOUT_SESSION_EPOCH):
            self._end(request.session_id)
            asked = tuple({one.key: one for one in request.partitions}.values())
            if request.session_epoch == WITHOUT_SESSION_EPOCH:
                return Visit(asked)
            return Visit(asked, open_session=lambda fetched: self._opened(asked, fetched, by_ids))
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_ids != by_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._end(session.session_id)
        session.update(request.partitions, request.forgotten)
        if not session.partitions:
            return Visit(tuple({one.key: one for one in request.partitions}.values()))
        if self._partitions + len(session.partitions) > self._most_partitions:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # the client names everything anew, and goes on without
        self._begin(session)
        session.used_ms = self._now_ms()
        session.epoch = session.epoch + 1 if session.epoch < LARGEST else 1
        return Visit(tuple([known.asked for known in session.partitions.values()]), session)

    def _opened(self, asked: Iterable[PartitionAsked], fetched: Iterable[PartitionFetched], by_ids: bool) -> int:
        """A session for partitions that were answered for the first time; `NO_SESSION` if there is no room."""
        now_ms = self._now_ms()
        partitions = {one.key: Remembered(one) for one in asked}
        while len(self._sessions) >= self._most or self._partitions + len(partitions) > self._most_partitions:
            if not self._made_room(len(partitions), now_ms):
                return NO_SESSION
        session = Session(self._fresh_id(), by_ids, now_ms, now_ms, partitions)
        session.news(fetched)
        self._begin(session)
        return session.session_id

    def _begin(self, session: Session) -> None:
        self._sessions[session.session_id] = session
        self._partitions += len(session.partitions)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)

    def _made_room(self, size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False  # there is room for none at all
        oldest = next(iter(self._sessions.values()))
        smaller = min(self._sessions.values(), key=lambda one: len(one.partitions))
        if now_ms - oldest.used_ms > IDLE_MS:
            self._end(oldest.session_id)
            return True
        if len(smaller.partitions) < size and now_ms - smaller.created_ms > IDLE_MS:
            self._end(smaller.session_id)
            return True
        return False

    def _fresh_id(self) -> int:
        while True:
            session_id = self._random.randrange(1, LARGEST)
            if session_id not in self._sessions:
                return session_id
