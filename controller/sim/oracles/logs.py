"""What must hold of the logs of brokers, looked at between two steps of the virtual clock.

Source: Kafka's replication protocol (KIP-101, KIP-279); spec broker.md §10, §14.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Final

from broker_sim.log.log import Log
from broker_sim.replicas.partition import Partition
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.brokers import headers_between, replicas
from controller.wire import records
from controller.wire.types import TopicPartition

#: How many offsets below the high watermark are compared while the cluster runs; all are at the end.
TAIL: Final = 30


def logs_agree_below_watermarks(cluster: Cluster, history: History, *, tail: int | None = TAIL) -> Iterator[str]:
    """Two replicas hold the same batches below both their high watermarks, and their epochs agree.

    Source: KIP-101; broker.md §14.
    """
    by_partition: dict[TopicPartition, list[tuple[int, Partition]]] = {}
    for broker_id, tp, replica in replicas(cluster):
        state = history.states[tp][-1] if history.states[tp] else None
        in_isr = state is not None and broker_id in state.isr and replica.leader_epoch == state.leader_epoch
        if replica.log is not None and in_isr and tp not in history.lost and tp.topic not in cluster.deletable:
            by_partition.setdefault(tp, []).append((broker_id, replica))
    for tp, members in by_partition.items():
        if len(members) < 2:
            continue
        bound = min(replica.hw for _, replica in members)
        start = max(replica.log.log_start_offset for _, replica in members if replica.log is not None)
        if tail is not None:
            start = max(start, bound - tail)
        contents = {broker_id: batches_between(replica.log, start, bound) for broker_id, replica in members}
        first_id, first = next(iter(contents.items()))
        for broker_id, content in contents.items():
            if any(replica.log is not None and replica.log.config.is_compacted for _, replica in members):
                content, first = _kept_by_both(content, first)
            if content != first:
                at = min(set(first.items()) ^ set(content.items()))[0]
                yield f"{tp}: brokers {first_id} and {broker_id} differ at offset {at}, below their watermarks {bound}"


_Batches = dict[int, tuple[int, int, int]]


def _kept_by_both(one: _Batches, other: _Batches) -> tuple[_Batches, _Batches]:
    """Each broker compacts by itself: what both have left of a batch begins at one offset, in one epoch."""
    common = one.keys() & other.keys()
    return {at: (0, one[at][1], 0) for at in common}, {at: (0, other[at][1], 0) for at in common}


def batches_between(log: Log | None, start: int, bound: int) -> _Batches:
    """base offset -> (last offset, leader epoch, checksum) of the batches in a log between two offsets."""
    found = headers_between(log, start, bound) if log is not None else []
    return {each.base_offset: (each.last_offset, each.partition_leader_epoch, each.crc) for each in found}


def _begins_again(log: Log) -> bool:
    """Whether a batch has a lower epoch than one before it: two topics wrote them."""
    epochs = [epoch for _, (_, epoch, _) in sorted(batches_between(log, log.log_start_offset, log.leo).items())]
    return any(later < former for former, later in pairwise(epochs))


def epochs_equal_the_log(cluster: Cluster, history: History, *, tail: int | None = TAIL) -> Iterator[str]:
    """The epoch that the cache gives for an offset is the one in the batch that holds it.

    A log that a former topic of this name has left behind goes on under the new one, as in Kafka: the new epochs are no
    higher, and with them the older ones leave the cache; a start finds those of the batches, and the new ones no more.
    A new one without a batch is cut off where the next leader's begins: then no epoch is known, up to that leader's.
    Source: broker.md §14; Kafka 3.9 `LeaderEpochFileCache.maybeTruncateNonMonotonicEntries`, `LogSegment.recover`.
    """
    del history
    for broker_id, tp, replica in replicas(cluster):
        log = replica.log
        if log is None:
            continue
        start = log.log_start_offset if tail is None else max(log.log_start_offset, log.leo - tail)
        lowest = log.epochs.entries[0][0] if log.epochs.entries else replica.leader_epoch
        for base, (last, epoch, _) in batches_between(log, start, log.leo).items():
            kept = log.epochs.epoch_for(max(base, log.log_start_offset))
            is_of_a_former = kept < 0 and (epoch >= lowest or cluster.was_before_its_topic(broker_id, tp))
            if kept != epoch and not (tp.topic in cluster.deletable and (is_of_a_former or _begins_again(log))):
                yield (
                    f"broker {broker_id} {tp}: offsets {base} to {last} have epoch {epoch}, the cache says {kept}: "
                    f"{log.epochs.entries}"
                )
                break
        pairs = log.epochs.entries
        if pairs and pairs[-1][1] > log.leo:
            yield f"broker {broker_id} {tp}: an epoch begins above the end {log.leo}: {pairs}"
        if any(one[0] >= other[0] or one[1] >= other[1] for one, other in pairwise(pairs)):
            yield f"broker {broker_id} {tp}: epochs do not rise: {pairs}"


def logs_are_whole(cluster: Cluster, history: History, *, tail: int | None = TAIL) -> Iterator[str]:
    """Each batch follows the one before it, and (where all of a log is read) is as its checksum says.

    Compaction leaves gaps. So does a cut within a batch, the end being where the cut is (`LocalLog.truncateTo`): a
    leader says where its epoch ends, which is within a batch of nobody's unless it lost records and, with no controller
    in office, went on in the same epoch, or a log of a former topic of this name goes on under the new one; whoever
    follows it has the gap, too. Source: broker.md §10.2, §10.5.
    """
    for broker_id, tp, replica in replicas(cluster):
        log = replica.log
        if log is None:
            continue
        offset = log.log_start_offset if tail is None else max(log.log_start_offset, log.leo - tail)
        name, last, epochs = f"broker {broker_id} {tp}", None, history.epochs_of_losers[tp]
        may_lack = partial(_may_lack, cluster, history, tp, log)
        for header, damage in _checked(log, offset) if tail is None else _unchecked(log, offset):
            is_a_gap = last is not None and header.base_offset != last and header.partition_leader_epoch not in epochs
            if is_a_gap and not may_lack():
                yield f"{name}: offsets {last} to {header.base_offset} are missing"
            if damage:
                yield f"{name}: offset {header.base_offset}: {damage}"
            offset = last = header.next_offset
        if offset != log.leo and not may_lack():
            yield f"{name}: nothing can be read from {offset} on, the log ends at {log.leo}"


def _may_lack(cluster: Cluster, history: History, tp: TopicPartition, log: Log) -> bool:
    """Whether a log is compacted, or some replica's is one that a former topic of its name has left behind."""
    if log.config.is_compacted or tp in history.mixed:
        return True
    if any(cluster.was_before_its_topic(number, tp) for number in cluster.brokers):
        history.mixed.add(tp)
    return tp in history.mixed


def _unchecked(log: Log, offset: int) -> Iterator[tuple[records.BatchHeader, str]]:
    yield from ((header, "") for header in headers_between(log, offset, log.leo))


def _checked(log: Log, offset: int) -> Iterator[tuple[records.BatchHeader, str]]:
    """Each batch of a log from an offset on, with what its checksum says against it."""
    while data := log.read(offset, max_bytes=1 << 20, bound=log.leo, min_one=True):
        for at, header in records.batches(data):
            try:
                records.check_crc(data, header, at)
            except records.CorruptBatch as error:
                yield header, str(error)
            else:
                yield header, ""
            offset = header.next_offset


def recovery_points_are_synced(cluster: Cluster, _: History) -> Iterator[str]:
    """Below its recovery point nothing of a log waits for a sync: a loss of power takes nothing from there.

    Source: broker.md §10.2.
    """
    waiting = {broker_id: disk.unsynced_from() for broker_id, disk in cluster.disks.items()}
    for broker_id, tp, replica in replicas(cluster):
        log, disk = replica.log, cluster.disks.get(broker_id)
        if log is None or disk is None or not waiting[broker_id]:
            continue
        first = waiting[broker_id].get(str(log.folder))
        if first is None or first >= log.recovery_point:
            continue
        for segment in log.segments:
            if segment.base_offset >= log.recovery_point:
                break
            synced = disk.synced_bytes(segment.log_path)
            if synced is None:
                continue
            found = segment.find(log.recovery_point)
            needed = segment.size if found is None else found[0]
            if synced < needed:
                yield (
                    f"broker {broker_id} {tp}: recovery point {log.recovery_point} is at byte {needed} of "
                    f"{segment.log_path.name}, {synced} bytes are synced"
                )
