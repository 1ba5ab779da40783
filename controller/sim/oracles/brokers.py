"""What must hold in the brokers, looked at between two steps of the virtual clock.

Source: Kafka's replication protocol (KIP-101, KIP-279); spec broker.md §10, §12, §14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from broker_sim.broker import Broker
from broker_sim.log.log import Log
from broker_sim.replicas.partition import Partition
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.wire import records
from controller.wire.types import TopicPartition


@dataclass(slots=True)
class _Moment:
    """What oracles have looked up in a moment in which nothing changes."""

    replicas: list[tuple[int, TopicPartition, Partition]] | None = None
    headers: dict[tuple[Log, int, int], list[records.BatchHeader]] = field(default_factory=dict)


_moment: _Moment | None = None


@contextmanager
def one_moment() -> Iterator[None]:
    """What several oracles ask for inside, of one cluster in which nothing changes meanwhile, is looked up once."""
    global _moment
    outer, _moment = _moment, _moment or _Moment()
    try:
        yield
    finally:
        _moment = outer


def replicas(cluster: Cluster) -> Iterable[tuple[int, TopicPartition, Partition]]:
    """(broker, partition, replica) of all running brokers that have loaded their logs, where the disk works."""
    if _moment is None:
        return _replicas(cluster)
    if _moment.replicas is None:
        _moment.replicas = list(_replicas(cluster))
    return _moment.replicas


def _replicas(cluster: Cluster) -> Iterator[tuple[int, TopicPartition, Partition]]:
    for broker_id, broker in sorted(cluster.brokers.items()):
        if broker.replicas is not None and broker._context is not None:
            for tp, replica in sorted(broker.replicas.table.partitions.items()):
                if works(cluster, broker_id, replica.log):
                    yield broker_id, tp, replica


def headers_between(log: Log, start: int, bound: int) -> list[records.BatchHeader]:
    """Of the batches in a log between two offsets, as the files have them."""
    key = log, start, bound
    if _moment is not None and (before := _moment.headers.get(key)) is not None:
        return before
    found: list[records.BatchHeader] = []
    offset = start
    while offset < bound and (data := log.read(offset, max_bytes=1 << 20, bound=bound, min_one=True)):
        found += (header for _, header in records.batches(data))
        offset = found[-1].next_offset
    if _moment is not None:
        _moment.headers[key] = found
    return found


def works(cluster: Cluster, broker_id: int, log: Log | None) -> bool:
    """Whether a log's dir does; where there is no log, whether all dirs of its broker do."""
    failing = disk.failing if (disk := cluster.disks.get(broker_id)) is not None else {}
    return not failing or (log is not None and log.log_dir not in failing)


def leader_is_zookeepers(cluster: Cluster, history: History) -> Iterator[str]:
    """No broker knows a leader epoch that ZooKeeper never had, nor leads in an epoch that has another leader: a request
    goes out only after the write that it announces. Source: controller.md §5.3, §7.5."""
    for broker_id, tp, replica in replicas(cluster):
        rows = history.states[tp]
        if not rows or tp.topic in cluster.deletable:
            continue
        newest = rows[-1]
        is_early = replica.leader_epoch > newest.leader_epoch
        is_now = replica.leader_epoch == newest.leader_epoch
        is_anothers = is_now and replica.led is not None and newest.leader != broker_id
        if is_early or is_anothers:
            what = "an epoch of the future" if is_early else "it leads in another's epoch"
            name = f"broker {broker_id} has {tp} leader {replica.leader} epoch {replica.leader_epoch}"
            yield f"{what}: {name}; newest {newest}"


def offsets_are_in_order(cluster: Cluster, _: History) -> Iterator[str]:
    """log start <= high watermark <= log end, recovery point <= log end; a leader's idea of its end is its log's.

    A log start above the high watermark may stand for a moment after a truncation in full, on followers only.
    Source: broker.md §10.2, §12.5.
    """
    for broker_id, tp, replica in replicas(cluster):
        log = replica.log
        if log is None:
            continue
        start, hw, end = log.log_start_offset, replica.hw, log.leo
        for wrong in _out_of_order(replica, log, start, hw, end):
            yield f"{wrong}: broker {broker_id} {tp}: start {start}, hw {hw}, end {end}"


def _out_of_order(replica: Partition, log: Log, start: int, hw: int, end: int) -> Iterator[str]:
    if not start <= end or hw > end or hw < 0:
        yield "offsets out of order"
    if log.recovery_point > end:
        yield f"recovery point {log.recovery_point} above the end"
    if replica.led is not None:
        if start > hw:
            yield "a leader's log starts above its watermark"
        if replica.led.log_end_offset != end:
            yield f"the leader takes {replica.led.log_end_offset} for its end"


def leaders_know_their_epoch(cluster: Cluster, _: History) -> Iterator[str]:
    """A leader's epoch is the last in its log's cache, from the moment on in which it leads. Source: broker.md §14."""
    for broker_id, tp, replica in replicas(cluster):
        led, log = replica.led, replica.log
        if led is not None and log is not None and log.epochs.latest != led.epoch:
            yield f"broker {broker_id} leads {tp} in epoch {led.epoch}, its log knows {log.epochs.latest}"


def leaders_isr_was_written(cluster: Cluster, history: History) -> Iterator[str]:
    """What a leader takes for its ISR was written under the version that it takes for its own, by itself or by the
    controller: an answer to a write of a former term, or of another's, changes nothing.

    Source: Kafka 3.9 `Partition.handleAlterPartitionUpdate`; broker.md §9.1, §12.4.
    """
    for broker_id, tp, replica in replicas(cluster):
        led = replica.led
        if led is not None:
            key = led.partition_epoch, broker_id, led.epoch, tuple(map(int, led.isr))
            if not history.announced(tp.topic, tp.partition, key):
                yield f"broker {broker_id} leads {tp} with an ISR that nobody wrote: {key}"


def isr_members_hold_what_is_committed(cluster: Cluster, history: History) -> Iterator[str]:
    """Each member of the ISR in ZooKeeper that follows in the leader's epoch ends at or above its high watermark.

    Also in the moment in which an expansion is written that the leader does not know to be written yet. Excused is who
    is in the ISR, and none of the leader's replicas any more, because a move removes it: as in Kafka
    (`Partition.maybeIncrementLeaderHW`) the leader does not count it, until it has all again.
    Source: broker.md §12.4; the definition of "committed".
    """
    followers: dict[tuple[int, TopicPartition], Partition] = {(b, tp): r for b, tp, r in replicas(cluster)}
    for broker_id, tp, leader in replicas(cluster):
        rows = history.states[tp]
        if leader.led is None or not rows or tp in history.lost or tp.topic in cluster.deletable:
            continue
        not_counted = set(leader.led.isr) - {broker_id, *leader.led.followers}
        history.not_counted |= {(tp, member) for member in not_counted}
        newest = rows[-1]
        if newest.leader != broker_id or newest.leader_epoch != leader.led.epoch:
            continue  # deposed, without knowing it yet
        for member in newest.isr:
            follower = followers.get((member, tp))
            if follower is None or follower.log is None or follower.leader_epoch != leader.led.epoch:
                continue
            if member == broker_id or follower.log.leo >= leader.hw:
                history.not_counted.discard((tp, member))
            elif (tp, member) not in history.not_counted:
                yield f"{tp}: ISR member {member} ends at {follower.log.leo}, leader {broker_id} has hw {leader.hw}"


def metadata_is_zookeepers(cluster: Cluster, history: History) -> Iterator[str]:
    """Each broker's metadata cache is what ZooKeeper says: brokers, partitions, leaders, ISRs, epochs, replicas.

    A topic that is deleted while a broker is not registered, or has not answered before the office changes, stays in
    its cache in Kafka, too: UpdateMetadata adds. Nobody is told of a partition that has had no leader yet, since none
    of its replicas lives. Source: controller.md §5.2, §7.5; broker.md §8.
    """
    there = cluster.registered()
    partitions = {tp for tp in cluster.partitions() if cluster.state(*tp) or there & set(cluster.assignment(*tp))}
    for broker_id, broker in sorted(cluster.brokers.items()):
        has_been_away = len(history.broker_epochs[broker_id]) > 1
        yield from _metadata_of(cluster, history, broker_id, broker, partitions, may_know_more=has_been_away)


def _was_not_told(cluster: Cluster, history: History, broker_id: int, tp: TopicPartition) -> bool:
    """Whether the term ended in which this broker was to hear that this partition is deleted, before it did."""
    return cluster.untold.get((broker_id, *tp), history.controller_epoch) < history.controller_epoch


def _metadata_of(
    cluster: Cluster,
    history: History,
    broker_id: int,
    broker: Broker,
    partitions: set[tuple[str, int]],
    *,
    may_know_more: bool,
) -> Iterator[str]:
    metadata = broker.context.metadata
    alive = set(metadata.alive_brokers()) - set(cluster.controller_ids)
    if alive != cluster.registered():
        yield f"broker {broker_id} takes {sorted(alive)} for alive, registered are {sorted(cluster.registered())}"
    common = {tp for tp in metadata if tp in partitions or not _was_not_told(cluster, history, broker_id, tp)}
    if may_know_more:
        common &= partitions
    if common != partitions:
        yield f"broker {broker_id} knows {sorted(common - partitions)} too many, {sorted(partitions - common)} too few"
    for tp in sorted(common & partitions):
        entry, state = metadata.partition(TopicPartition(*tp)), cluster.state(*tp)
        if entry is None or state is None:
            continue
        mine = (-1 if entry.state.leader is None else entry.state.leader, entry.state.leader_epoch, entry.state.isr)
        written = (state["leader"], state["leader_epoch"], tuple(state["isr"]))
        if mine != written:
            yield f"broker {broker_id} takes {tp} for {mine}, ZooKeeper says {written}"
        if list(entry.replicas) != cluster.assignment(*tp):
            yield f"broker {broker_id} takes {list(entry.replicas)} for the replicas of {tp}"
        if entry.offline_replicas:
            yield f"broker {broker_id} takes {entry.offline_replicas} of {tp} for offline"


def replicas_are_the_assigned_ones(cluster: Cluster, history: History) -> Iterator[str]:
    """Each assigned replica is there, whole, and brokers host nothing else.

    A replica that was removed while its broker, or the controller, was away stays where it is in Kafka, too, until its
    broker restarts or its topic comes back: so the latter is asked only where no session ended in this world.
    Source: controller.md §8.5, §10.6; broker.md §7.
    """
    is_calm = len(history.epoch_winners) == 1 and all(len(epochs) == 1 for epochs in history.broker_epochs.values())
    assignments = {tp: cluster.assignment(*tp) for tp in cluster.partitions()}
    hosted = {(b, (tp.topic, tp.partition)): r for b, tp, r in replicas(cluster)}
    for (broker_id, tp), replica in sorted(hosted.items()):
        if broker_id not in assignments.get(tp, ()):
            if is_calm:
                yield f"broker {broker_id} hosts {tp}, whose replicas are {assignments.get(tp)}"
        elif replica.log is None:
            yield f"broker {broker_id} has no log of {tp}"
    for tp, ids in sorted(assignments.items()):
        for broker_id in ids:
            if broker_id in cluster.brokers and (broker_id, tp) not in hosted:
                yield f"broker {broker_id} does not host {tp}"
