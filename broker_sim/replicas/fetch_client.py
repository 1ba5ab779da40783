"""The follower's side of the wire: Fetch v11 in a session, OffsetForLeaderEpoch v3, ListOffsets v5, to one leader.

Source: spec broker.md §13, clients.md §4.1; Kafka 3.9 `RemoteLeaderEndPoint`, `FetchSessionHandler`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker_sim.config import ReplicaSettings
from broker_sim.replicas.fetch_session import INITIAL_EPOCH, NO_SESSION
from broker_sim.replicas.types import EpochEnd, FetchPartition, FetchResult, MetadataView
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition
from controller.world.client import SerialConnection
from controller.world.ports import Network

_FETCH_VERSION: Final = 11
_EPOCH_VERSION: Final = 3
_LIST_VERSION: Final = 5
_LAST_EPOCH: Final = 0x7FFFFFFF
_SESSION_ERRORS: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


class LeaderUnreachable(ConnectionError):
    """The metadata names no live broker of that id."""


class FetchRefused(ConnectionError):
    """The leader answered the whole fetch with an error."""


class FetchClient:
    """A connection to one leader, opened when needed and again after `close`. Every call may raise OSError."""

    def __init__(
        self,
        broker_id: BrokerId,
        leader: BrokerId,
        client_id: str,
        *,
        network: Network,
        metadata: MetadataView,
        settings: ReplicaSettings,
    ) -> None:
        self._broker_id, self._leader, self._client_id = broker_id, leader, client_id
        self._network, self._metadata, self._settings = network, metadata, settings
        self._connection: SerialConnection | None = None
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._in_session: Mapping[TopicPartition, FetchPartition] = {}

    def close(self) -> None:
        """Drops connection and session. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._reset_session(NO_SESSION)

    @property
    def _timeout_s(self) -> float:
        return self._settings.replica_socket_timeout_ms / 1000

    async def _open(self) -> SerialConnection:
        if self._connection is None or not self._connection.is_open:
            self.close()
            endpoint = self._metadata.endpoint(self._leader)
            if endpoint is None:
                raise LeaderUnreachable(f"broker {self._leader} is not alive")
            self._connection = await SerialConnection.open(
                self._network, endpoint.host, endpoint.port, client_id=self._client_id, timeout_s=self._timeout_s
            )
        return self._connection

    async def _call(self, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        connection = await self._open()
        return await connection.call(api_key, version, body, timeout_s=self._timeout_s)

    # -- fetch ---------------------------------------------------------------------------------------------------

    async def exchange(
        self, partitions: Mapping[TopicPartition, FetchPartition], *, max_wait_ms: int
    ) -> dict[TopicPartition, FetchResult]:
        """One fetch of all of `partitions`; the answer may leave out what has not changed, and may wait so long.

        A refused session is given up and nothing is answered; the next fetch is a full one. Raises FetchRefused for any
        other error of the whole answer.
        """
        connection = await self._open()
        body = self._fetch_body(partitions, max_wait_ms)
        answer = await connection.call(ApiKey.FETCH, _FETCH_VERSION, body, timeout_s=self._timeout_s)
        if answer.error_code:
            error = ErrorCode.of(answer.error_code)
            self._reset_session(NO_SESSION if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._session_id)
            if error not in _SESSION_ERRORS:
                raise FetchRefused(f"fetch was answered with {error.name}")
            return {}
        self._in_session = partitions
        self._continue_session(answer.session_id)
        return {
            TopicPartition(topic.topic, int(p.partition_index)): _fetch_result(p)
            for topic in answer.responses
            for p in topic.partitions
        }

    def _fetch_body(self, partitions: Mapping[TopicPartition, FetchPartition], max_wait_ms: int) -> dict[str, Any]:
        """What is new since the session's last fetch, or all of it where there is no session."""
        settings, before = self._settings, {} if self._session_epoch == INITIAL_EPOCH else self._in_session
        body: dict[str, Any] = {
            "replica_id": self._broker_id,
            "max_wait": max_wait_ms,
            "min_bytes": settings.replica_fetch_min_bytes,
            "max_bytes": settings.replica_fetch_response_max_bytes,
            "session_id": self._session_id,
            "session_epoch": self._session_epoch,
        }
        if partitions != before:
            changed = {tp: p for tp, p in partitions.items() if before.get(tp) != p}
            forgotten = [tp for tp in before if tp not in partitions]
            body["topics"] = _by_topic(changed, _fetch_partition)
            body["forgotten_topics_data"] = [
                {"topic": topic, "partitions": [tp.partition for tp in group]} for topic, group in _groups(forgotten)
            ]
        return body

    def _continue_session(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            self._reset_session(NO_SESSION)
        else:
            self._session_id = session_id
            self._session_epoch = 1 if self._session_epoch == _LAST_EPOCH else self._session_epoch + 1

    def _reset_session(self, session_id: int) -> None:
        self._session_id, self._session_epoch = session_id, INITIAL_EPOCH
        self._in_session = {}

    # -- epochs and offsets ------------------------------------------------------------------------------------------

    async def epoch_ends(self, partitions: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, EpochEnd]:
        """Where the leader's epochs end; `partitions` gives (current leader epoch, epoch asked for)."""
        topics = _by_topic(
            partitions,
            lambda tp, pair: {"partition": tp.partition, "current_leader_epoch": pair[0], "leader_epoch": pair[1]},
        )
        body = {"replica_id": self._broker_id, "topics": topics}
        answer = await self._call(ApiKey.OFFSET_FOR_LEADER_EPOCH, _EPOCH_VERSION, body)
        return {
            TopicPartition(topic.topic, int(p.partition)): EpochEnd(
                error=ErrorCode.of(int(p.error_code)), leader_epoch=int(p.leader_epoch), end_offset=int(p.end_offset)
            )
            for topic in answer.topics
            for p in topic.partitions
        }

    async def list_offset(
        self, topic_partition: TopicPartition, *, current_leader_epoch: int, timestamp: int
    ) -> tuple[ErrorCode, int]:
        """(error, offset) of a ListOffsets at the leader."""
        partition = {
            "partition_index": topic_partition.partition,
            "current_leader_epoch": current_leader_epoch,
            "timestamp": timestamp,
        }
        topics = [{"name": topic_partition.topic, "partitions": [partition]}]
        body = {"replica_id": self._broker_id, "topics": topics}
        answer = await self._call(ApiKey.LIST_OFFSETS, _LIST_VERSION, body)
        for topic in answer.topics:
            for p in topic.partitions:
                return ErrorCode.of(int(p.error_code)), int(p.offset)
        return ErrorCode.UNKNOWN_SERVER_ERROR, -1


def _groups(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Partitions by topic; topics in the order of their first partition."""
    found: dict[str, list[TopicPartition]] = {}
    for topic_partition in partitions:
        found.setdefault(topic_partition.topic, []).append(topic_partition)
    return list(found.items())


def _by_topic(partitions: Mapping[TopicPartition, Any], encode: Any) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partitions": [encode(tp, partitions[tp]) for tp in group]}
        for topic, group in _groups(partitions)
    ]


def _fetch_partition(topic_partition: TopicPartition, partitions: FetchPartition) -> dict[str, int]:
    return {
        "partition": topic_partition.partition,
        "current_leader_epoch": partitions.current_leader_epoch,
        "fetch_offset": partitions.fetch_offset,
        "log_start_offset": partitions.log_start_offset,
        "partition_max_bytes": partitions.max_bytes,
    }


def _fetch_result(partition: Any) -> FetchResult:
    return FetchResult(
        error=ErrorCode.of(int(partition.error_code)),
        high_watermark=int(partition.high_watermark),
        last_stable_offset=int(partition.last_stable_offset),
        log_start_offset=int(partition.log_start_offset),
        records=bytes(partition.records or b""),
    )
