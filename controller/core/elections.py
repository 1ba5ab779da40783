"""Elections that are asked for: by an operator's request, by znode, or by the balance timer.

Source: Kafka 3.9 `processReplicaLeaderElection`, `onReplicaElection`, `checkAndTriggerAutoLeaderRebalance`; spec
controller.md §9.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from controller.core import texts
from controller.core.effects import (
    ElectionAnswer,
    Enqueue,
    Log,
    PartitionOutcome,
    Reply,
    Steps,
    write,
)
from controller.core.events import (
    AutoPreferredReplicaLeaderElection,
    ElectionTrigger,
    ElectionType,
    ReplicaLeaderElection,
)
from controller.core.leader_choice import OfflineElection, PreferredElection, elect_preferred
from controller.core.partitions import Outcomes, change_partitions, trigger_online
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import Failure, FailureKind
from controller.core.transitions import PartitionState
from controller.core.wish_znodes import is_there, read_wish
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Delete, ZkCode
from controller.wire.znodes import PreferredReplicaElectionZNode, parse_partitions

#: What the next round of the election by znode is: it arms the watch again.
_LOOK_AGAIN = ReplicaLeaderElection(None, ElectionType.PREFERRED, ElectionTrigger.ZK)
_UNAVAILABLE = {
    ElectionType.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionType.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


def elect(
    state: ClusterState, partitions: Iterable[TopicPartition], election_type: ElectionType, trigger: ElectionTrigger
) -> Steps[Outcomes]:
    """Runs the election; one by znode ends with the znode gone and an event that watches for the next. Source: §9.1."""
    if election_type is ElectionType.PREFERRED:
        strategy: PreferredElection | OfflineElection = PreferredElection()
    else:
        strategy = OfflineElection(allow_unclean=trigger is ElectionTrigger.ADMIN_CLIENT)
    outcomes = yield from change_partitions(state, partitions, PartitionState.ONLINE, strategy)
    if trigger is ElectionTrigger.ZK:
        path = PreferredReplicaElectionZNode.path
        (result,) = yield from write((Delete(path),), state.epoch_zk_version)
        gone = result.code in (ZkCode.OK, ZkCode.NO_NODE)
        if not gone:
            yield Log(ev.ZK_WRITES_REFUSED, {"path": path, "reason": result.code.name}, "error")
        yield Enqueue(_LOOK_AGAIN, 0 if gone else RETRY_MS)  # one that stays must not keep the controller busy
    return outcomes


def by_request(state: ClusterState, event: ReplicaLeaderElection) -> Steps[None]:
    """An election of named partitions, or of those that the znode names. Source: §9.2."""
    partitions, is_by_znode = event.partitions, event.trigger is ElectionTrigger.ZK
    if is_by_znode and not (yield from is_there(PreferredReplicaElectionZNode.path, _LOOK_AGAIN)):
        return
    if partitions is None:
        partitions = yield from _read_znode()
        if partitions is None:
            return
    results: dict[TopicPartition, PartitionOutcome] = {}
    electable: list[TopicPartition] = []
    for tp in sorted(partitions):
        refusal = _refusal(state, tp, event.election_type)
        if refusal is None:
            electable.append(tp)
        else:
            results[tp] = refusal
            yield _refused(tp, refusal)
    outcomes = yield from elect(state, electable, event.election_type, event.trigger)
    for tp in electable:
        match outcomes.get(tp):
            case None:  # an illegal transition; logged there
                results[tp] = PartitionOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, f"{tp} is in no state for an election.")
            case Failure() as failure:
                results[tp] = PartitionOutcome(_code(failure, event.election_type), failure.reason)
            case elected:
                results[tp] = PartitionOutcome(leader=elected.leader)
    if event.reply_to is not None:
        yield Reply(event.reply_to, ElectionAnswer(results))


def _refused(tp: TopicPartition, outcome: PartitionOutcome) -> Log:
    """That an election is not needed is nothing to worry about."""
    level = "debug" if outcome.error is ErrorCode.ELECTION_NOT_NEEDED else "warning"
    fields = {"topic": tp.topic, "partition": tp.partition, "error": outcome.error.name, "reason": outcome.message}
    return Log(ev.PARTITION_ELECTION_REFUSED, fields, level)


def _code(failure: Failure, election_type: ElectionType) -> ErrorCode:
    is_state_change = failure.kind is FailureKind.STATE_CHANGE_FAILED
    return _UNAVAILABLE[election_type] if is_state_change else ErrorCode.UNKNOWN_SERVER_ERROR


def _refusal(state: ClusterState, tp: TopicPartition, election_type: ElectionType) -> PartitionOutcome | None:
    """Why no election is held, or None."""
    replicas = state.assignment(tp).replicas
    if not replicas:
        return PartitionOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, texts.NO_SUCH_PARTITION)
    if state.is_queued_for_deletion(tp.topic):
        return PartitionOutcome(ErrorCode.INVALID_TOPIC_EXCEPTION, texts.TOPIC_IN_DELETION)
    leadership = state.leadership(tp)
    if leadership is None:
        return PartitionOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, "The partition never had a leader.")
    leader = leadership.leader
    if election_type is ElectionType.PREFERRED:
        needed = leader != replicas[0]
    else:
        needed = leader is None or not state.is_live(leader)
    return None if needed else PartitionOutcome(ErrorCode.ELECTION_NOT_NEEDED, texts.ELECTION_NOT_NEEDED)


def _read_znode() -> Steps[frozenset[TopicPartition] | None]:
    """The partitions that it names; None when it cannot be read: then it is looked at again after a while."""
    path, none = PreferredReplicaElectionZNode.path, frozenset[TopicPartition]()
    return (yield from read_wish(path, parse_partitions, none, _LOOK_AGAIN))


def pending(state: ClusterState) -> Steps[list[TopicPartition] | None]:
    """At failover: what the znode asks for, less what is not known, done already or to be deleted; None when it cannot
    be read. Source: §9.2."""
    asked = yield from _read_znode()
    if asked is None:
        return None
    queued: list[TopicPartition] = []
    for tp in sorted(asked):
        refusal = _refusal(state, tp, ElectionType.PREFERRED)
        if refusal is None:
            queued.append(tp)
        else:
            yield _refused(tp, refusal)
    return queued


def default_of_unclean_changed(state: ClusterState, enabled: bool) -> Steps[None]:
    """The cluster's default of unclean elections has another value; switched on, it wakes leaderless partitions."""
    state.default_of_unclean_elections_changed(enabled)
    if enabled and state.serving:
        yield from trigger_online(state)


def balance(state: ClusterState) -> Steps[None]:
    """Gives leadership back to first replicas, broker by broker, where more than the permitted share is elsewhere.

    The next check is scheduled whatever happens. Source: §9.3.
    """
    yield Enqueue(AutoPreferredReplicaLeaderElection(), state.settings.leader_imbalance_check_interval_seconds * 1000)
    preferred: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for tp in state.all_partitions():
        replicas = state.assignment(tp).replicas
        if replicas and not state.is_queued_for_deletion(tp.topic):
            preferred[replicas[0]].append(tp)
    for broker_id, partitions in sorted(preferred.items()):
        away = [tp for tp in partitions if _is_led_by_another(state, tp, broker_id)]
        if len(away) / len(partitions) > state.settings.leader_imbalance_per_broker_percentage / 100:
            candidates = [tp for tp in away if tp.topic in state.topics and _can_lead(state, tp)]
            yield from _balance(state, broker_id, candidates)


def _balance(state: ClusterState, broker_id: BrokerId, partitions: Collection[TopicPartition]) -> Steps[None]:
    if partitions:
        yield Log(ev.LEADERS_BALANCED, {"broker": broker_id, "partitions": len(partitions)})
        yield from elect(state, partitions, ElectionType.PREFERRED, ElectionTrigger.AUTO)


def _is_led_by_another(state: ClusterState, tp: TopicPartition, broker_id: BrokerId) -> bool:
    leadership = state.leadership(tp)
    return leadership is not None and leadership.leader != broker_id


def _can_lead(state: ClusterState, tp: TopicPartition) -> bool:
    """Whether the first replica is online and in the ISR as believed; else every round would fail (KAFKA-9866)."""
    leadership, replicas = state.leadership(tp), state.assignment(tp).replicas
    if leadership is None:
        return False
    online = [r for r in replicas if state.is_online(r, tp)]
    return elect_preferred(replicas, leadership.isr, online) is not None
