"""Incremental fetch sessions (KIP-227): which partitions a client is fetching, and which of the answers it must see.

Source: spec clients.md §4.1, Kafka 3.9 `FetchSession.scala`. Pure but for the injected generator of ids.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker_sim.replica_types import FetchPartition, FetchResult
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """The top of a Fetch answer and the partitions that go into it, in order."""

    error: ErrorCode
    session_id: int
    partitions: Mapping[TopicPartition, FetchResult]


@dataclass(slots=True)
class FetchContext:
    """One Fetch request seen through its session.

    When `error` is not NONE, answer with it, session id 0 and no topics. Otherwise read `partitions`, in order, and
    pass all the results to `answer`.
    """

    error: ErrorCode
    partitions: Mapping[TopicPartition, FetchPartition]

    def answer(self, results: Mapping[TopicPartition, FetchResult]) -> FetchAnswer:
        """What to send: everything for a full fetch; what changed for an incremental one."""
        raise NotImplementedError


class FetchSessionCache:
    """The sessions of one broker: at most `slots`; an idle one gives way after `eviction_ms`."""

    def __init__(self, rng: random.Random, *, slots: int = 1_000, eviction_ms: int = 120_000) -> None:
        self._rng, self._slots, self._eviction_ms = rng, slots, eviction_ms

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
        raise NotImplementedError
