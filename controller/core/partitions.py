"""The partition state machine: new partitions get their first leader, others are elected one.

One call is one batch: check what is legal, read, decide, write under fence, settle, and tell the brokers. Partitions
that lost a race are read and decided again, at once and without limit. A failed election never writes "no leader": that
is the replica machine's (spec controller.md §16 (6)).

Source: Kafka 3.9 `ZkPartitionStateMachine`; spec controller.md §5.4, §5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.core import texts
from controller.core.effects import Enqueue, Log, Steps, log_transitions, read_any, write
from controller.core.events import TopicUncleanLeaderElectionEnable
from controller.core.leader_choice import (
    ControlledShutdownElection,
    Election,
    OfflineElection,
    PreferredElection,
    ReassignElection,
    Strategy,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)
from controller.core.request_batch import RequestBatch, send
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import (
    Failure,
    FailureKind,
    Outcome,
    begun,
    decided,
    log_elected,
    read_states,
    trace_election,
    write_states,
)
from controller.core.transitions import PartitionState, Transition, legal_partition
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Create, GetData, ZkCode, ZkWriteOp
from controller.wire.znodes import (
    ConfigEntityZNode,
    TopicPartitionStateZNode,
    TopicPartitionsZNode,
    TopicPartitionZNode,
    ZnodeError,
)

Outcomes = dict[TopicPartition, Outcome]
UNCLEAN_ELECTION = "unclean.leader.election.enable"


def change_partitions(
    state: ClusterState,
    partitions: Iterable[TopicPartition],
    target: PartitionState,
    strategy: Strategy | None = None,
) -> Steps[Outcomes]:
    """Moves partitions to `target` and tells the brokers. Going online from ONLINE or OFFLINE needs a strategy.

    The answer covers elections only: neither partitions that got their first leader nor those whose move is illegal.
    """
    valid: list[TopicPartition] = []
    for tp in sorted(dict.fromkeys(partitions)):  # mostly in order already, which a set would not keep
        current = state.partition_state(tp)
        if legal_partition(current, target):
            valid.append(tp)
        else:
            yield _refused(tp, current, target)
    if target is not PartitionState.ONLINE:
        yield from log_transitions([state.put_partition_states(valid, target)])
        return {}
    batch = RequestBatch()
    fresh = [tp for tp in valid if state.partition_state(tp) is PartitionState.NEW]
    existing = [tp for tp in valid if state.partition_state(tp) is not PartitionState.NEW]
    outcomes: Outcomes = {}
    done: list[Transition[PartitionState]] = []
    if fresh:
        done += yield from _initialize(state, batch, fresh)
    if existing:
        assert strategy is not None, "an election needs a strategy"
        outcomes = yield from _elect(state, batch, existing, strategy)
        elected = [tp for tp in existing if not isinstance(outcomes[tp], Failure)]
        done.append(state.put_partition_states(elected, PartitionState.ONLINE))
    yield from log_transitions(done)
    yield from send(state, batch)
    if fresh:
        yield from _replace_dead_leaders(state, fresh)
    return outcomes


def _replace_dead_leaders(state: ClusterState, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Of partitions whose state was there already: it may name a leader that is gone meanwhile."""
    dead = [
        tp
        for tp in partitions
        if state.partition_state(tp) is PartitionState.ONLINE
        and ((was := state.leadership(tp)) is None or was.leader is None or not state.is_online(was.leader, tp))
    ]
    if dead:
        yield from change_partitions(state, dead, PartitionState.OFFLINE)
        yield from change_partitions(state, dead, PartitionState.ONLINE, OfflineElection())


def leaderless_go_offline(state: ClusterState, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Those of these that count as online, and whose leader was taken from them with an ISR member."""
    without = {tp for tp in partitions if (led := state.leadership(tp)) is not None and led.leader is None}
    online = {tp for tp in without if state.partition_state(tp) is PartitionState.ONLINE}
    yield from change_partitions(state, online, PartitionState.OFFLINE)


def trigger_online(state: ClusterState, topic: str | None = None) -> Steps[Outcomes]:
    """Tries to bring every new and offline partition (of one topic, or all) online, those queued for deletion not."""
    waiting = [
        tp
        for tp in state.partitions_in(PartitionState.OFFLINE, PartitionState.NEW)
        if not state.is_queued_for_deletion(tp.topic) and topic in (None, tp.topic)
    ]
    return (yield from change_partitions(state, waiting, PartitionState.ONLINE, OfflineElection()))


def _try_again(topics: Iterable[str]) -> Steps[None]:
    """Partitions of these topics have no leader because ZooKeeper refuses, or what it holds cannot be read: that is
    looked at again, since nothing else tells when it is over."""
    for topic in sorted(topics):
        yield Enqueue(TopicUncleanLeaderElectionEnable(topic), RETRY_MS)


def _refused(tp: TopicPartition, current: PartitionState, target: PartitionState) -> Log:
    return Log(
        ev.TRANSITION_REFUSED,
        {"topic": tp.topic, "partition": tp.partition, "from": current.kafka_name, "to": target.kafka_name},
        "error",
    )


def _failed(tp: TopicPartition, reason: str) -> Log:
    return Log(ev.PARTITION_ELECTION_FAILED, {"topic": tp.topic, "partition": tp.partition, "reason": reason}, "error")


# --- the first leader


def _initialize(
    state: ClusterState, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[list[Transition[PartitionState]]]:
    """All live replicas are in the first ISR, the first of them leads. Without one the partition stays new."""
    first_states: dict[TopicPartition, LeaderAndIsr] = {}
    firsts: dict[tuple[BrokerId, ...], LeaderAndIsr] = {}  # one object for many partitions
    for tp in partitions:
        live = tuple([r for r in state.assignment(tp).replicas if state.is_online(r, tp)])
        if live:
            first_states[tp] = firsts.get(live) or firsts.setdefault(
                live, LeaderAndIsr(leader=live[0], isr=live, controller_epoch=state.epoch)
            )
        else:
            yield _failed(tp, "none of its replicas is alive")
    if not first_states:
        return []
    ops = _creations(first_states)
    results = yield from write(ops, state.epoch_zk_version)
    created = dict(zip(first_states, results[-len(first_states) :], strict=True))
    existing = yield from _existing(state, [tp for tp, r in created.items() if r.code is ZkCode.NODE_EXISTS])
    online: dict[TopicPartition, LeaderAndIsr] = {}
    yield from _try_again({tp.topic for tp, r in created.items() if not r.ok and tp not in existing})
    for tp, result in created.items():
        new = first_states[tp] if result.ok else existing.get(tp)
        if new is None:
            yield _failed(tp, f"its state znode cannot be created: {result.code.name}")
            continue
        state.lead(tp, new)
        recipients = state.assignment(tp).replicas if tp in existing else new.isr
        batch.add_leader_and_isr(recipients, tp, is_new=tp not in existing)  # there may be logs, in dirs that failed
        online[tp] = new
        if state.settings.trace:
            yield from trace_election(state, tp, new)
    done = state.put_partition_states(online, PartitionState.ONLINE)
    yield from log_elected(online)
    return [done]


def _existing(state: ClusterState, partitions: Sequence[TopicPartition]) -> Steps[dict[TopicPartition, LeaderAndIsr]]:
    """The states of partitions that were to be new, but have a state znode: the write was done and its answer was lost
    with the connection, or their topic znode could not be read before. They are taken over as they are; a leader that
    is gone is replaced right afterwards."""
    if not partitions:
        return {}
    found = yield from read_states(state, partitions)
    return {tp: outcome for tp, outcome in found.items() if not isinstance(outcome, Failure)}


def _creations(firsts: Mapping[TopicPartition, LeaderAndIsr]) -> tuple[ZkWriteOp, ...]:
    """Parents first, level by level; that a parent exists already is no harm. The states come last."""
    topics = dict.fromkeys(tp.topic for tp in firsts)
    parents = [Create(TopicPartitionsZNode.path(topic)) for topic in topics]
    partitions = [Create(TopicPartitionZNode.path(tp)) for tp in firsts]
    contents = {id(new): TopicPartitionStateZNode.encode(new) for new in {id(n): n for n in firsts.values()}.values()}
    states = [Create(TopicPartitionStateZNode.path(tp), contents[id(new)]) for tp, new in firsts.items()]
    return (*parents, *partitions, *states)


# --- elections


@dataclass(frozen=True, slots=True)
class _Decision:
    found: LeaderAndIsr
    election: Election
    recipients: tuple[BrokerId, ...]


def _elect(
    state: ClusterState, batch: RequestBatch, partitions: Sequence[TopicPartition], strategy: Strategy
) -> Steps[Outcomes]:
    outcomes: Outcomes = {}
    remaining = list(partitions)
    believe = True
    while remaining:
        done, remaining = yield from _elect_once(state, batch, remaining, strategy, believe=believe)
        outcomes.update(done)
        believe = False
    unread: set[str] = set()
    for tp in partitions:
        if isinstance(outcome := outcomes[tp], Failure):
            yield _failed(tp, outcome.reason)
            if not outcome.judged:
                unread.add(tp.topic)
    if isinstance(strategy, OfflineElection):
        yield from _try_again(unread)
    return outcomes


def _elect_once(
    state: ClusterState,
    batch: RequestBatch,
    partitions: Sequence[TopicPartition],
    strategy: Strategy,
    *,
    believe: bool,
) -> Steps[tuple[Outcomes, list[TopicPartition]]]:
    """One round of read, decide, write: (outcomes, partitions that lost a race).

    With `believe`, what is believed is read only where it names nobody who may lead: the conditional write says
    whether it still held, and if not, the next round reads.
    """
    decisions = _from_belief(state, partitions, strategy) if believe else {}
    outcomes: Outcomes = {}
    read: dict[TopicPartition, LeaderAndIsr] = {}
    unsure = [tp for tp in partitions if tp not in decisions]
    if unsure:
        for tp, outcome in (yield from read_states(state, unsure)).items():
            if isinstance(outcome, Failure):
                outcomes[tp] = outcome
            else:
                read[tp] = outcome
    if read:
        more, failures = yield from _decide(state, read, strategy)
        decisions |= more
        outcomes.update(failures)
    if not decisions:
        return outcomes, []
    new_states = {
        tp: decided(state, d.found, leader=d.election.leader, isr=d.election.isr)
        for tp in partitions
        if (d := decisions.get(tp)) is not None
    }
    written, retry = yield from write_states(state, new_states)
    outcomes.update(written)
    elected = {tp: outcome for tp, outcome in written.items() if isinstance(outcome, LeaderAndIsr)}
    for tp in elected:
        batch.add_leader_and_isr(decisions[tp].recipients, tp, is_new=False)
    yield from log_elected(elected, frozenset(tp for tp in elected if decisions[tp].election.unclean))
    return outcomes, retry


def _from_belief(
    state: ClusterState, partitions: Sequence[TopicPartition], strategy: Strategy
) -> dict[TopicPartition, _Decision]:
    """The decisions that what is believed allows without losing a record."""
    decisions: dict[TopicPartition, _Decision] = {}
    for tp in partitions:
        believed = state.leadership(tp)
        decision = None if believed is None else _apply(state, tp, believed, strategy, unclean_allowed=False)
        if decision is not None:
            decisions[tp] = decision
    return decisions


def _decide(
    state: ClusterState, found: Mapping[TopicPartition, LeaderAndIsr], strategy: Strategy
) -> Steps[tuple[dict[TopicPartition, _Decision], Outcomes]]:
    allowed, failures = yield from _unclean_allowed(state, found, strategy)
    decisions: dict[TopicPartition, _Decision] = {}
    for tp in found:
        if tp in failures:
            continue
        decision = _apply(state, tp, found[tp], strategy, unclean_allowed=tp in allowed)
        if decision is None:
            failures[tp] = Failure(texts.no_leader(tp, strategy))
            continue
        decisions[tp] = decision
    state.unclean_elected(sum(decision.election.unclean for decision in decisions.values()))
    return decisions, failures


def _apply(
    state: ClusterState, tp: TopicPartition, found: LeaderAndIsr, strategy: Strategy, *, unclean_allowed: bool
) -> _Decision | None:
    assignment = state.assignment(tp)
    replicas = assignment.replicas
    candidates = begun(state, tp, assignment)  # who is added and is not begun hears when it is
    online = tuple(r for r in candidates if state.is_online(r, tp))
    match strategy:
        case OfflineElection():
            # Brokers that are shutting down are not told (spec controller.md §16 (16)), but stay out of the ISR too.
            recipients = online
            election = elect_offline(replicas, found.isr, online, unclean_allowed=unclean_allowed)
        case ReassignElection():
            recipients = assignment.target_replicas
            election = elect_for_reassignment(recipients, found.isr, online)
        case PreferredElection():
            recipients = candidates
            election = elect_preferred(replicas, found.isr, online)
        case ControlledShutdownElection():
            recipients = tuple(r for r in candidates if state.is_registered_with_good_dir(r, tp))
            election = elect_for_shutdown(replicas, found.isr, recipients, state.shutting_down)
    return None if election is None else _Decision(found, election, recipients)


def _unclean_allowed(
    state: ClusterState, found: Mapping[TopicPartition, LeaderAndIsr], strategy: Strategy
) -> Steps[tuple[set[TopicPartition], Outcomes]]:
    """The partitions that may be led by a replica outside the ISR; only those without an online ISR member matter."""
    if not isinstance(strategy, OfflineElection) or strategy.in_sync_only:
        return set(), {}
    helpless = [tp for tp, znode in found.items() if not any(state.is_online(r, tp) for r in znode.isr)]
    if strategy.allow_unclean or not helpless:
        return set(helpless), {}
    topics = sorted({tp.topic for tp in helpless})
    results = yield from read_any([GetData(ConfigEntityZNode.topic(topic)) for topic in topics])
    configs = dict(zip(topics, results, strict=True))
    allowed: set[TopicPartition] = set()
    failures: Outcomes = {}
    for tp in helpless:
        result = configs[tp.topic]
        if not result.ok and result.code is not ZkCode.NO_NODE:
            failures[tp] = Failure(
                f"the configs of {tp.topic} cannot be read: {result.code.name}", FailureKind.ZOOKEEPER
            )
            continue
        try:
            if _allows_unclean(state, result.data):
                allowed.add(tp)
        except ZnodeError as error:  # Kafka takes it for empty: where the cluster allows it, records would be lost
            failures[tp] = Failure(f"the configs of {tp.topic}: {error}", FailureKind.ZOOKEEPER)
    return allowed, failures


def _allows_unclean(state: ClusterState, config: bytes | None) -> bool:
    """Raises: ZnodeError."""
    override = ConfigEntityZNode.parse(config).get(UNCLEAN_ELECTION)
    return state.settings.unclean_leader_election_enable if override is None else override.strip().lower() == "true"
