"""Incremental fetch sessions (KIP-227): which partitions a client is fetching, and which of the answers it must see.

Source: spec clients.md §4.1, Kafka 3.9 `FetchSession.scala`. Pure but for the injected generator of ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_sim.replicas.types import FetchPartition, FetchResult
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

NO_SESSION: Final = 0
#: Epoch of a request without a session, and of one that opens a session.
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_LAST_EPOCH: Final = 0x7FFFFFFF


class FetchAnswer(NamedTuple):
    """The top of a Fetch answer and the partitions that go into it, in order."""

    error: ErrorCode
    session_id: int
    partitions: Mapping[TopicPartition, FetchResult]


@dataclass(slots=True, kw_only=True)
class FetchContext:
    """One Fetch request seen through its session.

    When `error` is not NONE, answer with it, session id 0 and no topics. Otherwise read `partitions`, in order, and
    pass all the results to `answer`.
    """

    error: ErrorCode
    partitions: Mapping[TopicPartition, FetchPartition]
    _finish: Callable[[Mapping[TopicPartition, FetchResult]], FetchAnswer]

    def answer(self, results: Mapping[TopicPartition, FetchResult]) -> FetchAnswer:
        """What to send: everything for a full fetch; what changed for an incremental one. Call it once."""
        return self._finish(results)


@dataclass(slots=True, kw_only=True)
class _Session:
    session_id: int
    is_from_follower: bool
    created_ms: int
    last_used_ms: int
    epoch: int = 1
    #: never changed: another one takes its place, since a request that waits reads those of its time
    partitions: Mapping[TopicPartition, FetchPartition] = field(default_factory=dict)
    #: partition -> (high watermark, log start offset) as last sent; nothing after an error or when the client is in
    #: another term, so that the next is sent. (Kafka does not tell a new term again: a follower that passed an answer
    #: over, since its term began meanwhile, keeps its log start until the next record.)
    sent: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    @property
    def worth(self) -> tuple[bool, int]:
        """A follower's is worth more than any client's, and of these one of more partitions."""
        return self.is_from_follower, len(self.partitions)

    def update(self, partitions: Mapping[TopicPartition, FetchPartition], forgotten: Sequence[TopicPartition]) -> None:
        if not partitions and not forgotten:
            return
        for topic_partition, asked in partitions.items():
            before = self.partitions.get(topic_partition)
            if before is not None and before.current_leader_epoch != asked.current_leader_epoch:
                self.sent.pop(topic_partition, None)  # answers of the term before may have been passed over
        changed = {**self.partitions, **partitions}
        for topic_partition in forgotten:
            changed.pop(topic_partition, None)
            self.sent.pop(topic_partition, None)
        self.partitions = changed

    def remember(self, topic_partition: TopicPartition, result: FetchResult) -> bool:
        """Whether an incremental answer must carry this result; it is then taken as sent."""
        error, high_watermark, _, log_start_offset, records, preferred_read_replica = result
        now, is_error = (high_watermark, log_start_offset), error is not ErrorCode.NONE
        is_news = self.sent.get(topic_partition) != now or preferred_read_replica >= 0
        if not (is_news or is_error or records):
            return False
        if topic_partition in self.partitions:
            if is_error:
                self.sent.pop(topic_partition, None)
            else:
                self.sent[topic_partition] = now
        return True

    def move_to_end(self, answered: Iterable[TopicPartition]) -> None:
        """Partitions that returned records are read last in the next round."""
        moved = [topic_partition for topic_partition in answered if topic_partition in self.partitions]
        if moved:
            order = dict(self.partitions)
            for topic_partition in moved:
                order[topic_partition] = order.pop(topic_partition)
            self.partitions = order

    def answer(self, results: Mapping[TopicPartition, FetchResult]) -> FetchAnswer:
        """What an incremental fetch is told: what changed since it was last sent."""
        changed = {tp: result for tp, result in results.items() if self.remember(tp, result)}
        if changed:
            self.move_to_end(tp for tp, result in changed.items() if result.records)
        return FetchAnswer(ErrorCode.NONE, self.session_id, changed)


class FetchSessionCache:
    """The sessions of one broker: at most `slots`.

    When they are taken, one idle for `eviction_ms` gives way to a new one. Else the least of those that may go: first
    clients', then of few partitions, if the new one is worth more; clients' to followers', and to all what is old.
    Source: Kafka 3.9 `FetchSessionCache.tryEvict`, `touch`.
    """

    def __init__(self, rng: random.Random, *, slots: int = 1_000, eviction_ms: int = 120_000) -> None:
        self._rng, self._slots, self._eviction_ms = rng, slots, eviction_ms
        #: least recently used first.
        self._sessions: dict[int, _Session] = {}
        #: sessions that gave way
        self.evictions = 0

    @property
    def partitions(self) -> int:
        """Of all sessions together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        *,
        session_id: int,
        session_epoch: int,
        partitions: Mapping[TopicPartition, FetchPartition],
        forgotten: Sequence[TopicPartition],
        is_from_follower: bool,
        now_ms: int,
    ) -> FetchContext:
        """The context of a Fetch v7+ request (v4 to v6: pass id 0, epoch -1)."""
        if session_epoch == FINAL_EPOCH:
            self._sessions.pop(session_id, None)
            return FetchContext(error=ErrorCode.NONE, partitions=partitions, _finish=_sessionless)
        if session_epoch == INITIAL_EPOCH:
            self._sessions.pop(session_id, None)
            return self._new(partitions, is_from_follower=is_from_follower, now_ms=now_ms)
        return self._continue(session_id, session_epoch, partitions, forgotten, now_ms)

    def _new(
        self, partitions: Mapping[TopicPartition, FetchPartition], *, is_from_follower: bool, now_ms: int
    ) -> FetchContext:
        def finish(results: Mapping[TopicPartition, FetchResult]) -> FetchAnswer:
            session = self._create(partitions, is_from_follower=is_from_follower, now_ms=now_ms)
            if session is None:
                return _sessionless(results)
            for topic_partition, result in results.items():
                session.remember(topic_partition, result)
            return FetchAnswer(error=ErrorCode.NONE, session_id=session.session_id, partitions=results)

        return FetchContext(error=ErrorCode.NONE, partitions=partitions, _finish=finish)

    def _create(
        self, partitions: Mapping[TopicPartition, FetchPartition], *, is_from_follower: bool, now_ms: int
    ) -> _Session | None:
        if not partitions or (
            len(self._sessions) >= self._slots and not self._evict((is_from_follower, len(partitions)), now_ms)
        ):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, _LAST_EPOCH)
        session = _Session(
            session_id=session_id, is_from_follower=is_from_follower, created_ms=now_ms, last_used_ms=now_ms
        )
        session.update(partitions, ())
        self._sessions[session_id] = session
        return session

    def _evict(self, worth: tuple[bool, int], now_ms: int) -> bool:
        """Makes room for a session worth that much (see `_Session.worth`). False when all are to stay."""
        gone = next((s for s in self._sessions.values() if now_ms - s.last_used_ms > self._eviction_ms), None)
        if gone is None:
            may_go = [session for session in self._sessions.values() if self._may_go(session, worth)]
            gone = min(may_go, key=lambda session: (session.worth, session.session_id), default=None)
        if gone is None:
            return False
        del self._sessions[gone.session_id]
        self.evictions += 1
        return True

    def _may_go(self, session: _Session, worth: tuple[bool, int]) -> bool:
        was_old = session.last_used_ms - session.created_ms > self._eviction_ms
        is_for_follower, _ = worth
        return session.worth < worth and (was_old or (is_for_follower and not session.is_from_follower))

    def _continue(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Mapping[TopicPartition, FetchPartition],
        forgotten: Sequence[TopicPartition],
        now_ms: int,
    ) -> FetchContext:
        session = self._sessions.get(session_id)
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session_epoch != session.epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.update(partitions, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(error=ErrorCode.NONE, partitions={}, _finish=_sessionless)
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchContext(error=ErrorCode.NONE, partitions=session.partitions, _finish=session.answer)


def _sessionless(results: Mapping[TopicPartition, FetchResult]) -> FetchAnswer:
    return FetchAnswer(error=ErrorCode.NONE, session_id=NO_SESSION, partitions=results)


def _refused(error: ErrorCode) -> FetchContext:
    return FetchContext(
        error=error,
        partitions={},
        _finish=lambda results: FetchAnswer(error=error, session_id=NO_SESSION, partitions={}),
    )
