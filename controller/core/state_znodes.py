"""Leadership in ZooKeeper: reading and writing the state znodes of partitions, and what follows from each answer.

Shared by the two state machines and by reassignment. Every write is conditional on the partition epoch that was read
and fenced by the controller epoch; a lost race is a result, not an error, and is decided anew.

Source: Kafka 3.9 `KafkaZkClient.getTopicPartitionStatesRaw`, `updateLeaderAndIsr`; spec controller.md §2.4, §5.3, §5.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Final

from controller.core.effects import Log, Steps, Trace, read_any, refused_znode, write
from controller.core.state import ClusterState
from controller.wire import log_events as ev
from controller.wire.trace import TraceEvent
from controller.wire.types import NO_LEADER, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import GetData, SetData, ZkCode, ZkResult
from controller.wire.znodes import TopicPartitionStateZNode


class FailureKind(Enum):
    """Why a partition did not change."""

    STATE_CHANGE_FAILED = "state_change_failed"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class Failure:
    """A partition did not change. `missing`: it has no readable state znode. `refused`: it has one, but what that says
    is not believed."""

    reason: str
    kind: FailureKind = FailureKind.STATE_CHANGE_FAILED
    missing: bool = False
    refused: bool = False

    @property
    def never_led(self) -> bool:
        """Whether there is no state znode at all."""
        return self.missing and not self.refused

    @property
    def judged(self) -> bool:
        """Whether the state was read, and it is what that says that allows no change."""
        return self.kind is FailureKind.STATE_CHANGE_FAILED and not self.missing and not self.refused


Outcome = LeaderAndIsr | Failure
#: What is believed of a partition, and of others too.
Pair = tuple[LeaderAndIsr, ReplicaAssignment]


def read_states(state: ClusterState, partitions: Sequence[TopicPartition]) -> Steps[dict[TopicPartition, Outcome]]:
    """What ZooKeeper says of these partitions, or why they must not be changed. Re-arms the watches of moving ones."""
    path, watched = TopicPartitionStateZNode.path, state.watched_states
    results = yield from read_any([GetData(path(tp), bool(watched) and tp in watched) for tp in partitions])
    assignment_of = state.assignment
    outcomes: dict[TopicPartition, Outcome] = {}
    #: Many partitions have the same leadership and assignment, as the same objects: what is sound of one is of all.
    sound: dict[tuple[int, int], tuple[Outcome, ReplicaAssignment]] = {}
    for tp, result in zip(partitions, results, strict=True):
        stat = result.stat
        found = None if stat is None else TopicPartitionStateZNode.decode(result.data, stat.version)
        assignment = assignment_of(tp)
        pair = (id(found), id(assignment))
        if found is not None and pair in sound and state.leadership(tp) is None:
            outcomes[tp] = found
            continue
        outcomes[tp] = outcome = _judge(state, tp, result, found)
        if outcome is found:
            sound[pair] = outcome, assignment  # which keeps both alive, and their ids theirs
    return outcomes


def believe_all(
    state: ClusterState, topics: Iterable[str], at_once: int
) -> Steps[tuple[list[TopicPartition], list[Pair]]]:
    """At failover: believes what ZooKeeper says of all partitions of these topics, of which nothing is believed yet,
    reading `at_once`. Returns those that have a state which cannot be read, and each leadership and assignment that
    some partition has together.

    As `read_states`, in columns: the work of Python is for each such pair, not for each partition (bench: failover,
    warm)."""
    sound: dict[tuple[int, int], Pair] = {}
    unread: list[TopicPartition] = []
    decode = TopicPartitionStateZNode.decode
    for pieces in _pieces(state, topics, at_once):
        paths = (path for topic, numbers in pieces for path in TopicPartitionStateZNode.paths(topic, numbers))
        results = iter((yield from read_any([GetData(path) for path in paths])))
        for topic, numbers in pieces:
            answers = list(islice(results, len(numbers)))
            found = [None if (stat := r.stat) is None else decode(r.data, stat.version) for r in answers]
            assigned = state.topic_assignment(topic)
            assignments = [assigned[p] for p in numbers]
            believed: dict[int, LeaderAndIsr] = {}
            if all(map(sound.__contains__, zip(map(id, found), map(id, assignments), strict=True))):
                believed.update(zip(numbers, filter(None, found), strict=True))
            else:
                for p, answer, was, assignment in zip(numbers, answers, found, assignments, strict=True):
                    outcome = _judge(state, TopicPartition(topic, p), answer, was)
                    if isinstance(outcome, LeaderAndIsr):
                        believed[p] = outcome
                        sound[id(outcome), id(assignment)] = (outcome, assignment)  # who is kept keeps its identity
                    elif not outcome.never_led:
                        unread.append(TopicPartition(topic, p))
                        yield refused_znode(TopicPartitionStateZNode.path(unread[-1]), outcome.reason)
            state.lead_topic(topic, believed)
    return unread, list(sound.values())


def _pieces(state: ClusterState, topics: Iterable[str], size: int) -> Iterator[list[tuple[str, list[int]]]]:
    """The partitions of these topics, so many at a time."""
    piece: list[tuple[str, list[int]]] = []
    room = size
    for topic in topics:
        numbers = list(state.topic_assignment(topic))
        while numbers:
            some, numbers = numbers[:room], numbers[room:]
            piece.append((topic, some))
            room -= len(some)
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece


def _judge(state: ClusterState, tp: TopicPartition, result: ZkResult, found: LeaderAndIsr | None) -> Outcome:
    if result.ok and result.stat is not None:
        flaw = "does not parse" if found is None else _flaw(state, tp, found)
        if found is None or flaw is not None:
            return Failure(f"the state znode of {tp} {flaw}", missing=True, refused=True)
        if found.controller_epoch > state.epoch:
            reason = f"controller epoch {found.controller_epoch} wrote {tp}; this controller has {state.epoch}"
            return Failure(reason, refused=True)
        return found
    if result.code is ZkCode.NO_NODE:
        return Failure(f"{tp} has no state znode", missing=True)
    reason = f"the state znode of {tp} cannot be read: {result.code.name}"
    return Failure(reason, FailureKind.ZOOKEEPER)


def _flaw(state: ClusterState, tp: TopicPartition, found: LeaderAndIsr) -> str | None:
    """Why this cannot be what a broker or a controller wrote, or None."""
    if found.flaw is not None:
        return f"cannot be: {found.flaw}"
    believed = state.leadership(tp)
    if believed is not None and found.leader_epoch < believed.leader_epoch:
        return f"has the leader epoch {found.leader_epoch}, which was {believed.leader_epoch} before"
    replicas, leader = state.assignment(tp).replicas, found.leader
    if leader in replicas or not replicas or leader in state.live_brokers or not set(replicas).isdisjoint(found.isr):
        return None
    return f"has nobody in its ISR {list(found.isr)} who is one of its replicas {list(replicas)}"


def write_states(
    state: ClusterState, new_states: Mapping[TopicPartition, LeaderAndIsr]
) -> Steps[tuple[dict[TopicPartition, Outcome], list[TopicPartition]]]:
    """Writes each state where its partition epoch still holds: (outcomes, partitions that lost a race).

    `new_states` holds the new content with the partition epoch that was read. What was written is believed at once.
    What ZooKeeper refuses to have written is read and believed: brokers are told of the partition all the same, and its
    leader may have changed the ISR (docs/deviations.md).
    """
    ops = tuple(
        SetData(TopicPartitionStateZNode.path(tp), TopicPartitionStateZNode.encode(new), new.partition_epoch)
        for tp, new in new_states.items()
    )
    results = yield from write(ops, state.epoch_zk_version)
    states: dict[tuple[LeaderAndIsr, int], LeaderAndIsr] = {}
    outcomes: dict[TopicPartition, Outcome] = {}
    retry: list[TopicPartition] = []
    refused: list[TopicPartition] = []
    for (tp, new), result in zip(new_states.items(), results, strict=True):
        if result.stat is not None:
            version = result.stat.version
            written = states.get((new, version)) or states.setdefault(
                (new, version), replace(new, partition_epoch=version)
            )
            state.lead(tp, written)
            outcomes[tp] = written
            if state.settings.trace:
                yield from trace_election(state, tp, written)
        elif result.code is ZkCode.BAD_VERSION:
            retry.append(tp)
            yield Log(ev.ZK_WRITE_CONFLICTED, {"topic": tp.topic, "partition": tp.partition}, "debug")
        else:
            reason, missing = f"the state znode of {tp} refuses: {result.code.name}", result.code is ZkCode.NO_NODE
            outcomes[tp] = Failure(reason, FailureKind.ZOOKEEPER, missing=missing)
            refused.append(tp)
    read = (yield from read_states(state, refused)) if refused else {}
    state.lead_all({tp: found for tp, found in read.items() if isinstance(found, LeaderAndIsr)})
    return outcomes, retry


def decided(
    state: ClusterState, found: LeaderAndIsr, *, leader: BrokerId | None, isr: tuple[BrokerId, ...]
) -> LeaderAndIsr:
    """What to write over `found`: every decision of a controller raises the leader epoch by one."""
    return LeaderAndIsr(
        leader=leader,
        isr=isr,
        leader_epoch=found.leader_epoch + 1,
        partition_epoch=found.partition_epoch,
        controller_epoch=state.epoch,
    )


def bump_leader_epochs(
    state: ClusterState, partitions: Mapping[TopicPartition, Collection[BrokerId]]
) -> Steps[dict[TopicPartition, Outcome]]:
    """Raises the leader epochs of partitions, each with its replicas, and changes nothing else, but for strangers in an
    ISR: a leader that had not heard of its new replicas took them back (docs/deviations.md). One that leads stays until
    another does. Starts from what is believed."""
    outcomes: dict[TopicPartition, Outcome] = {}
    found, unknown = believed_states(state, list(partitions))
    remaining = list(partitions)
    while remaining:
        for tp, read in (yield from read_states(state, unknown)).items() if unknown else ():
            if isinstance(read, Failure):
                outcomes[tp] = read
            else:
                found[tp] = read
        bumped = {
            tp: decided(state, was, leader=was.leader, isr=_without_strangers(was, partitions[tp]))
            for tp in remaining
            if (was := found.get(tp)) is not None
        }
        if not bumped:
            break
        written, remaining = yield from write_states(state, bumped)
        outcomes.update(written)
        found, unknown = {}, remaining
    return {tp: outcomes[tp] for tp in partitions}


def _without_strangers(was: LeaderAndIsr, replicas: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(r for r in was.isr if r in replicas or r == was.leader) or was.isr


def believed_states(
    state: ClusterState, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
    """(what is believed, the partitions of which nothing is). No read: a conditional write says whether it still holds,
    since a state znode with the same version has the same content."""
    found: dict[TopicPartition, LeaderAndIsr] = {}
    unknown: list[TopicPartition] = []
    for tp in partitions:
        believed = state.leadership(tp)
        if believed is None:
            unknown.append(tp)
        else:
            found[tp] = believed
    return found, unknown


#: Partitions decided in one go above which one line speaks of all: a broker that dies must not write 10,000 lines.
LOGGED_SINGLY: Final = 100


def log_elected(
    elected: Mapping[TopicPartition, LeaderAndIsr], unclean: frozenset[TopicPartition] = frozenset()
) -> Steps[None]:
    """The lines of new leaders. Each unclean election has its own."""
    many = len(elected) > LOGGED_SINGLY
    for tp, new in elected.items():
        if many and tp not in unclean:
            continue
        yield Log(
            ev.PARTITION_LEADER_ELECTED,
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "leader": new.leader,
                "leader_epoch": new.leader_epoch,
                "isr": list(new.isr),
                "partition_epoch": new.partition_epoch,
                "unclean": tp in unclean,
            },
        )
    if many:
        by_leader = Counter(new.leader for new in elected.values())
        leaders = {str(leader): by_leader[leader] for leader in sorted(by_leader, key=str)}
        yield Log(ev.PARTITION_LEADERS_ELECTED, {"partitions": len(elected), "leaders": leaders})


def log_reduced(broker_id: BrokerId, reduced: Mapping[TopicPartition, LeaderAndIsr]) -> Steps[None]:
    """The lines of ISRs that a broker has left."""
    if len(reduced) > LOGGED_SINGLY:
        yield Log(ev.PARTITION_ISRS_REDUCED, {"replica": broker_id, "partitions": len(reduced)})
        return
    for tp, new in reduced.items():
        fields = {"topic": tp.topic, "partition": tp.partition, "replica": broker_id, "leader": new.leader}
        yield Log(ev.PARTITION_ISR_REDUCED, {**fields, "isr": list(new.isr), "leader_epoch": new.leader_epoch})


def trace_election(state: ClusterState, tp: TopicPartition, written: LeaderAndIsr) -> Steps[None]:
    """The trace row of a decision about leadership."""
    if state.settings.trace:
        yield Trace(
            TraceEvent.ELECT.value,
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "epoch": written.leader_epoch,
                "replica": NO_LEADER if written.leader is None else written.leader,
                "isr": list(written.isr),
            },
        )


def trace_deletions(state: ClusterState, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """The trace rows of partitions whose topic is being deleted: whatever follows belongs to no life of theirs."""
    if state.settings.trace:
        for tp in partitions:
            yield Trace(TraceEvent.DELETE.value, {"topic": tp.topic, "partition": tp.partition})


def trace_assignments(state: ClusterState, assigned: Iterable[tuple[TopicPartition, ReplicaAssignment]]) -> Steps[None]:
    """The trace rows of assignments that were learnt or changed."""
    if not state.settings.trace:
        return
    for tp, assignment in assigned:
        yield Trace(
            TraceEvent.ASSIGN.value,
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(assignment.replicas),
                "adding": list(assignment.adding_replicas),
                "removing": list(assignment.removing_replicas),
            },
        )


def begun(state: ClusterState, tp: TopicPartition, assignment: ReplicaAssignment) -> tuple[BrokerId, ...]:
    """The replicas but for those that are added and not begun. Of those the ISR says nothing: who was dropped by a move
    before may be in it, and its log is being deleted."""
    adding = assignment.adding_replicas
    if not adding:
        return assignment.replicas
    return tuple(r for r in assignment.replicas if r not in adding or state.is_begun(tp, r))
