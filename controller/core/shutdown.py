"""Controlled shutdown: a broker that wants to leave hands over its leaderships first.

Source: Kafka 3.9 `KafkaController.doControlledShutdown`; spec controller.md §11.5, §13.
"""

from __future__ import annotations

from controller.core.effects import Log, Reply, ShutdownAnswer, Steps
from controller.core.events import ControlledShutdown
from controller.core.leader_choice import ControlledShutdownElection
from controller.core.partitions import change_partitions
from controller.core.replicas import change_replicas_on
from controller.core.request_batch import RequestBatch, send, stop_epoch
from controller.core.state import ClusterState
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import NO_BROKER_EPOCH, BrokerId, TopicPartition


def shut_down(state: ClusterState, event: ControlledShutdown) -> Steps[None]:
    """Answers once all requests are queued; the shell holds the answer until the new leaders have answered theirs
    (X6)."""
    error = _refusal(state, event)
    if error is not ErrorCode.NONE:
        yield Log(ev.REQUEST_REFUSED, {"request": "ControlledShutdown", "broker": event.broker_id, "error": error.name})
        yield Reply(event.reply_to, ShutdownAnswer(error))
        return
    remaining, successors = yield from _hand_over(state, event.broker_id)
    yield Log(ev.SHUTDOWN_GRANTED, {"broker": event.broker_id, "remaining": [str(tp) for tp in remaining]})
    yield Reply(event.reply_to, ShutdownAnswer(ErrorCode.NONE, remaining, successors))


def _refusal(state: ClusterState, event: ControlledShutdown) -> ErrorCode:
    broker = state.live_brokers.get(event.broker_id)
    if event.broker_epoch != NO_BROKER_EPOCH:
        if broker is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if event.broker_epoch < broker.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.BROKER_NOT_AVAILABLE if broker is None else ErrorCode.NONE


def _hand_over(
    state: ClusterState, broker_id: BrokerId
) -> Steps[tuple[tuple[TopicPartition, ...], frozenset[BrokerId]]]:
    """The partitions that it still leads, and the leaders of the others."""
    state.broker_shuts_down(broker_id)
    led: list[TopicPartition] = []
    followed: list[TopicPartition] = []
    for tp in state.partitions_on(broker_id):
        leadership = state.leadership(tp)
        if leadership is not None and _is_replicated(state, tp) and state.is_begun(tp, broker_id):
            (led if leadership.leader == broker_id else followed).append(tp)
    yield from change_partitions(state, led, PartitionState.ONLINE, ControlledShutdownElection())
    batch = RequestBatch()
    for tp in followed:
        batch.add_stop_replica(broker_id, tp, stop_epoch(state, tp), delete=False)
    yield from send(state, batch)
    yield from change_replicas_on(state, {broker_id: followed}, ReplicaState.OFFLINE)
    remaining = tuple(tp for tp in state.partitions_led_by(broker_id) if _is_replicated(state, tp))
    leaders = {znode.leader for tp in led if (znode := state.leadership(tp)) is not None}
    return remaining, frozenset(leader for leader in leaders if leader not in (None, broker_id))


def _is_replicated(state: ClusterState, tp: TopicPartition) -> bool:
    """Whether it has other replicas to go to, and is not to be deleted."""
    return len(state.assignment(tp).replicas) > 1 and not state.is_queued_for_deletion(tp.topic)
