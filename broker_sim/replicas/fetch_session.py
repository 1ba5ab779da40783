"""Incremental fetch sessions (KIP-227): which partitions a client is fetching, and which of the answers it must see.

Source: spec clients.md §4.1, Kafka 3.9 `FetchSession.scala`. Pure but for the injected generator of ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_sim.replicas.types import FetchPartition, FetchResult
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

NO_SESSION: Final = 0
#: Epoch of a request without a session, and of one that opens a session.
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_LAST_EPOCH: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
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
    last_used_ms: int
    epoch: int = 1
    partitions: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
    #: partition -> (high watermark, log start offset) as last sent; nothing after an error, so that the next is sent.
    sent: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def update(self, partitions: Mapping[TopicPartition, FetchPartition], forgotten: Sequence[TopicPartition]) -> None:
        self.partitions.update(partitions)
        for topic_partition in forgotten:
            self.partitions.pop(topic_partition, None)
            self.sent.pop(topic_partition, None)

    def remember(self, topic_partition: TopicPartition, result: FetchResult) -> bool:
        """Whether an incremental answer must carry this result; it is then taken as sent."""
        now = (result.high_watermark, result.log_start_offset)
        is_error = result.error is not ErrorCode.NONE
        must = is_error or bool(result.records) or self.sent.get(topic_partition) != now
        must = must or result.preferred_read_replica >= 0
        if topic_partition in self.partitions:
            if is_error:
                self.sent.pop(topic_partition, None)
            else:
                self.sent[topic_partition] = now
        return must

    def move_to_end(self, topic_partition: TopicPartition) -> None:
        """Partitions that returned records are read last in the next round."""
        if topic_partition in self.partitions:
            self.partitions[topic_partition] = self.partitions.pop(topic_partition)


class FetchSessionCache:
    """The sessions of one broker: at most `slots`. One idle for `eviction_ms` gives way, and clients to followers."""

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
        if not partitions or (len(self._sessions) >= self._slots and not self._evict(is_from_follower, now_ms)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, _LAST_EPOCH)
        session = _Session(session_id=session_id, is_from_follower=is_from_follower, last_used_ms=now_ms)
        session.update(partitions, ())
        self._sessions[session_id] = session
        return session

    def _evict(self, is_from_follower: bool, now_ms: int) -> bool:
        for session in self._sessions.values():
            is_idle = now_ms - session.last_used_ms > self._eviction_ms
            if is_idle or (is_from_follower and not session.is_from_follower):
                del self._sessions[session.session_id]
                self.evictions += 1
                return True
        return False

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

        def finish(results: Mapping[TopicPartition, FetchResult]) -> FetchAnswer:
            changed = {tp: result for tp, result in results.items() if session.remember(tp, result)}
            for topic_partition, result in changed.items():
                if result.records:
                    session.move_to_end(topic_partition)
            return FetchAnswer(error=ErrorCode.NONE, session_id=session_id, partitions=changed)

        return FetchContext(error=ErrorCode.NONE, partitions=dict(session.partitions), _finish=finish)


def _sessionless(results: Mapping[TopicPartition, FetchResult]) -> FetchAnswer:
    return FetchAnswer(error=ErrorCode.NONE, session_id=NO_SESSION, partitions=results)


def _refused(error: ErrorCode) -> FetchContext:
    return FetchContext(
        error=error,
        partitions={},
        _finish=lambda results: FetchAnswer(error=error, session_id=NO_SESSION, partitions={}),
    )
