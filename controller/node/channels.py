"""One ordered sender per broker: control requests out, what brokers answer back in as events.

A channel has at most one request under way and repeats it until it is answered or the broker is removed; later requests
wait behind it. A broker that stalls, lies or closes delays only itself. Nothing here decides or reads the state.

Source: spec controller.md §7.3, §7.6, §7.7; Kafka 3.9 `RequestSendThread`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from controller.core.events import (
    Event,
    LeaderAndIsrResponseReceived,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from controller.node.batch_lines import log_sent
from controller.node.merging import merged
from controller.wire import log_events as ev
from controller.wire import protocol
from controller.wire.control import (
    LEADER_AND_ISR_VERSION,
    STOP_REPLICA_VERSION,
    UPDATE_METADATA_VERSION,
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from controller.wire.control_bytes import Body, Encoder
from controller.wire.errors import ErrorCode
from controller.wire.times import Times
from controller.wire.types import Broker, BrokerId, TopicPartition
from controller.world.client import BrokerConnection
from controller.world.ports import Network
from controller.world.supervisor import Supervisor

#: Pause before a failed request is sent again (spec §7.6).
RETRY_PAUSE_S: Final = 0.1
#: Waiting requests of one broker above which they are merged. A stalled broker then holds one LeaderAndIsr and one
#: UpdateMetadata between two StopReplicas, so its backlog grows with the cluster and not with time.
MERGE_ABOVE: Final = 1_000
#: Queue times of one broker that are kept for quantiles.
QUEUE_TIMES_KEPT: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """`controller.socket.timeout.ms`, `request.timeout.ms`, and the listener of brokers to connect to."""

    listener: str = "PLAINTEXT"
    connect_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000


@dataclass(slots=True)
class ChannelGauges:
    """What one channel has done so far: for metrics."""

    #: How long requests waited before they were first sent (`RequestRateAndQueueTimeMs`).
    queue: Times
    requests: int = 0
    failures: int = 0
    queue_size: int = 0


class Channels:
    """The channels of one controller. `emit` takes the events; `deletion_started` tells at the time of an answer
    whether a topic's deletion has started (only then do deleted replicas matter)."""

    def __init__(
        self,
        *,
        controller_id: BrokerId,
        network: Network,
        settings: ChannelSettings,
        emit: Callable[[Event], None],
        deletion_started: Callable[[str], bool],
        log: FilteringBoundLogger,
        supervisor: Supervisor | None = None,
        at_once: Callable[[ControlRequest], bool] | None = None,
        shorten: Callable[[ControlRequest], ControlRequest] = lambda request: request,
    ) -> None:
        """`at_once`: whether the broker, which has nothing else to answer, takes the request here and now without
        error, so that no bytes need travel; `shorten`: the request without what its broker would not look at. Both are
        for brokers of the same process."""
        self._at_once, self._shorten = at_once, shorten
        self._client_id = str(controller_id)
        self._network = network
        self._settings = settings
        self._emit = emit
        self._deletion_started = deletion_started
        self._log = log
        self._supervisor = supervisor or Supervisor(log)
        self._channels: dict[BrokerId, _Channel] = {}
        #: A channel opened from now on merges what waits above so many requests.
        self.merge_above = MERGE_ABOVE
        #: Told of each request when it has been answered.
        self.on_answered: list[Callable[[ControlRequest], object]] = []

    def add(self, brokers: Iterable[Broker]) -> None:
        """Opens channels; a broker that has one keeps it, and is reached at its new address if that changed."""
        for broker in brokers:
            if (channel := self._channels.get(broker.broker_id)) is not None:
                channel.move(broker)
            else:
                self._channels[broker.broker_id] = _Channel(
                    broker,
                    self._client_id,
                    self._network,
                    self._settings,
                    self._answered,
                    self._log.bind(broker=broker.broker_id),
                    self._supervisor,
                    merge_above=self.merge_above,
                )

    def remove(self, broker_ids: Iterable[BrokerId]) -> None:
        """Closes channels; what they had queued is lost."""
        for broker_id in broker_ids:
            if (channel := self._channels.pop(broker_id, None)) is None:
                continue
            try:
                channel.close()
            except Exception as error:  # whatever it is: the other channels must be closed, too
                self._log.error(ev.REQUEST_FAILED, broker=broker_id, reason=f"its channel does not close: {error!r}")

    def send(self, requests: Iterable[ControlRequest]) -> int:
        """Queues each request for its broker, in order; returns how many. Those without a channel are dropped."""
        queued, encoder = 0, Encoder()
        for request in requests:
            channel = self._channels.get(request.to)
            if channel is None:
                self._log.warning(
                    ev.REQUEST_REFUSED, broker=request.to, request=_name(request), reason="the broker has no channel"
                )
                continue
            short = self._shorten(request)
            if self._at_once is not None and channel.is_idle and self._at_once(short):
                channel.count()
            else:
                channel.put(short, encoder)
            queued += 1
        return queued

    def close(self) -> None:
        """Closes all channels."""
        self.remove(list(self._channels))

    def pending(self, broker_ids: Iterable[BrokerId]) -> Callable[[], bool]:
        """Whether something that is queued now for one of these is still unanswered: ask again and again."""
        marks = [(c, c.queued) for c in map(self._channels.get, broker_ids) if c is not None]
        return lambda: any(channel.done < queued and channel in self._channels.values() for channel, queued in marks)

    def gauges(self) -> dict[BrokerId, ChannelGauges]:
        """Of each broker with a channel."""
        return {broker_id: channel.gauges() for broker_id, channel in sorted(self._channels.items())}

    def _answered(self, request: ControlRequest, body: Any) -> None:
        for observer in self.on_answered:
            observer(request)
        if (event := event_of_answer(request, body, self._deletion_started)) is not None:
            self._emit(event)


class _Channel:
    """One broker's queue and the task that empties it."""

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        network: Network,
        settings: ChannelSettings,
        answered: Callable[[ControlRequest, Any], None],
        log: FilteringBoundLogger,
        supervisor: Supervisor,
        *,
        merge_above: int,
    ) -> None:
        self._broker = broker
        self._client_id = client_id
        self._network = network
        self._settings = settings
        self._answered = answered
        self._log = log
        #: Since when a request waits; what it says; and up to which of `queued` all are done once it is answered.
        self._queue: deque[tuple[float, ControlRequest, Encoder, int]] = deque()
        self._merge_above = self._merge_at = merge_above
        self._wake = asyncio.Event()
        self._connection: BrokerConnection | None = None
        #: the limit of what connects now, which a move of the broker ends
        self._connecting: asyncio.Timeout | None = None
        self._gauges = ChannelGauges(queue=Times(QUEUE_TIMES_KEPT))
        #: Requests queued since the channel was opened, and how many of the first of them are answered, or merged into
        #: one that is.
        self.queued = 0
        self.done = 0
        self._under_way: tuple[ControlRequest, Encoder, int] | None = None
        self._task = supervisor.keep(f"Controller-{client_id}-to-broker-{broker.broker_id}-send-thread", self._run)

    def put(self, request: ControlRequest, encoder: Encoder) -> None:
        """Queues a request behind all others; `encoder` is shared by the requests of its batch."""
        self.queued += 1
        self._queue.append((asyncio.get_running_loop().time(), request, encoder, self.queued))
        if len(self._queue) > self._merge_at:
            self._merge()
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether the broker is connected, and has answered all that was sent."""
        is_connected = self._connection is not None and self._connection.is_open
        return is_connected and self._under_way is None and not self._queue

    def count(self) -> None:
        """One more request was answered, without this channel."""
        self.queued += 1
        self.done += 1
        self._gauges.requests += 1

    def move(self, broker: Broker) -> None:
        """From now on the broker is reached where this registration says; what waits for it goes there."""
        if broker.endpoints != self._broker.endpoints:
            self._disconnect()
            if self._connecting is not None:
                self._connecting.reschedule(asyncio.get_running_loop().time())
        self._broker = broker

    def close(self) -> None:
        """Stops at once. Idempotent."""
        self._task.cancel()
        self._disconnect()
        self._queue.clear()

    def gauges(self) -> ChannelGauges:
        """With the queue's size as it is now."""
        kept = self._gauges
        return ChannelGauges(kept.queue, kept.requests, kept.failures, len(self._queue))

    def _merge(self) -> None:
        """Merges what waits; the request under way is not in the queue. What any of it said may be in the last one, so
        none counts as done before that is answered."""
        before = len(self._queue)
        queued_s = self._queue[0][0]
        *left, last = merged(request for _, request, _, _ in self._queue)
        self._queue = deque((queued_s, request, Encoder(), 0) for request in left)
        self._queue.append((queued_s, last, Encoder(), self.queued))
        self._merge_at = max(self._merge_above, 2 * len(self._queue))
        self._log.warning(ev.REQUEST_QUEUE_MERGED, requests=before, left=len(self._queue), limit=self._merge_above)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._under_way is None and not self._queue:
                self._wake.clear()
                await self._wake.wait()
            if self._under_way is None:
                queued_s, request, encoder, done = self._queue.popleft()
                self._under_way = request, encoder, done
                self._gauges.queue.add((loop.time() - queued_s) * 1000)
            request, encoder, done = self._under_way
            try:
                await self._deliver(request, encoder)
            except Exception:  # the supervisor's; what was under way is sent again, on another connection
                self._disconnect()
                raise
            self._under_way = None
            self.done = max(self.done, done)
            self._gauges.requests += 1

    async def _deliver(self, request: ControlRequest, encoder: Encoder) -> None:
        """Sends one request until it is answered; one that cannot be put into bytes is dropped."""
        try:
            body = encoder.encode(request)
        except (struct.error, ValueError, OverflowError) as error:
            self._log.error(ev.REQUEST_REFUSED, request=_name(request), reason=f"it cannot be encoded: {error}")
            return
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._attempt(request, body)
            except (OSError, TimeoutError, protocol.ProtocolError) as error:
                self._disconnect()
                self._gauges.failures += 1
                if attempt & (attempt - 1) == 0:  # the 1st, 2nd, 4th, ...: a dead broker must not flood the log
                    self._log.warning(
                        ev.REQUEST_FAILED, request=_name(request), attempt=attempt, reason=str(error) or "timed out"
                    )
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            log_sent(self._log, request, answer)
            self._answered(request, answer)
            return

    async def _attempt(self, request: ControlRequest, body: Body) -> Any:
        """One try. Raises: OSError, TimeoutError, ProtocolError."""
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = self._connection = await self._connect()
        api_key, version = _APIS[type(request)]
        return await connection.call(api_key, version, body, timeout_s=self._settings.request_timeout_ms / 1000)

    async def _connect(self) -> BrokerConnection:
        """Raises: OSError, TimeoutError; one of them, too, when the broker moves meanwhile."""
        endpoints, endpoint = self._broker.endpoints, self._broker.endpoint(self._settings.listener)
        if endpoint is None:
            raise OSError(f"broker {self._broker.broker_id} has no listener {self._settings.listener}")
        try:
            async with asyncio.timeout(None) as self._connecting:
                connection = await BrokerConnection.open(
                    self._network,
                    endpoint.host,
                    endpoint.port,
                    client_id=self._client_id,
                    timeout_s=self._settings.connect_timeout_ms / 1000,
                )
        finally:
            self._connecting = None
        if endpoints != self._broker.endpoints:
            connection.close()
            raise OSError(f"broker {self._broker.broker_id} has moved")
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


_APIS: Final[dict[type[ControlRequest], tuple[int, int]]] = {
    LeaderAndIsrRequest: (protocol.ApiKey.LEADER_AND_ISR, LEADER_AND_ISR_VERSION),
    UpdateMetadataRequest: (protocol.ApiKey.UPDATE_METADATA, UPDATE_METADATA_VERSION),
    StopReplicaRequest: (protocol.ApiKey.STOP_REPLICA, STOP_REPLICA_VERSION),
}


def event_of_answer(request: ControlRequest, body: Any, deletion_started: Callable[[str], bool]) -> Event | None:
    """The event an answer stands for; None for a StopReplica answer about nothing that is being deleted.

    Partitions that were not asked about are left out: a broker answers for nobody else.
    """
    error = ErrorCode.of(int(body.error_code))
    match request:
        case UpdateMetadataRequest():
            return UpdateMetadataResponseReceived(broker_id=request.to, request_error=error)
        case LeaderAndIsrRequest():
            asked = {entry.topic_partition for entry in request.partition_states} if body.partition_errors else set()
            errors = _partition_errors(body, asked)
            return LeaderAndIsrResponseReceived(request.to, error, errors, request.broker_epoch)
        case StopReplicaRequest():
            asked = {
                entry.topic_partition
                for entry in request.partition_states
                if entry.delete_partition and deletion_started(entry.topic_partition.topic)
            }
            errors = _partition_errors(body, asked)
            if not errors:
                return None
            return TopicDeletionStopReplicaResponseReceived(
                broker_id=request.to, request_error=error, partition_errors=errors
            )


def _partition_errors(body: Any, asked: set[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    errors = {}
    for answer in body.partition_errors or ():
        tp = TopicPartition(answer.topic_name, int(answer.partition_index))
        if tp in asked:
            errors[tp] = ErrorCode.of(int(answer.error_code))
    return errors


def _name(request: ControlRequest) -> str:
    return type(request).__name__.removesuffix("Request")
