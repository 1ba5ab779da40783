"""What must hold in the coordinators of groups.

Source: Kafka 3.9 `GroupMetadataManager`; spec clients.md §7.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_sim.groups.log import LoadedPartition
from broker_sim.log.log import Log
from broker_sim.replicas.partition import Partition
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.brokers import replicas
from controller.wire import records
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

#: group, partition, offset, and when it was committed, which tells a commit from the same offset committed again
_Offset = tuple[str, TopicPartition, int, int]


def offsets_count_once_they_are_committed(cluster: Cluster, history: History) -> Iterator[str]:
    """No offset that a coordinator tells is in its log above the high watermark alone, where its own term has put it.

    Asked of groups that have commits under way: for all others it would have shown then.
    """
    for broker_id, tp, replica in replicas(cluster):
        if tp.topic != GROUP_METADATA_TOPIC or replica.led is None or tp in history.lost:
            continue
        registry = cluster.brokers[broker_id].context.groups.registry
        offered = {
            (entry.group.group_id, partition, committed.offset, committed.commit_timestamp)
            for entry in registry.entries()
            if entry.commits_under_way and registry.partition_of(entry.group.group_id) == tp.partition
            for partition, committed in entry.offsets.items()
        }
        committed_here, waiting = _in_the_log(replica) if offered else (set(), set())
        for group, partition, offset, _ in sorted(offered & waiting - committed_here):
            yield f"broker {broker_id} tells {offset} for {partition} of group {group}, which is not committed in {tp}"


def nobody_waits_who_was_answered(cluster: Cluster, _: History) -> Iterator[str]:
    """At rest a coordinator waits with those requests alone that are parked in one of its groups. Source: §7.3."""
    for broker_id, broker in sorted(cluster.brokers.items()):
        if broker._context is None:
            continue
        groups = broker.context.groups
        members = [member for entry in groups.entries() for member in entry.group.members.values()]
        parked = {ticket for member in members for ticket in (member.join, member.sync)}
        if forgotten := groups._waiting.keys() - parked:
            yield f"broker {broker_id} still waits with {len(forgotten)} requests of groups that were answered"


def _in_the_log(replica: Partition) -> tuple[set[_Offset], set[_Offset]]:
    """The offsets that the log holds: those that are committed or older than this term, which may be the second one
    of an epoch, and the others.
    """
    committed: set[_Offset] = set()
    waiting: set[_Offset] = set()
    log, led = replica.log, replica.led
    if log is None or led is None:
        return committed, waiting
    loaded = LoadedPartition()
    for end, batch in batches_of(log):
        counts = end <= max(replica.hw, led.epoch_start)
        loaded.take(batch, Silent())
        found = {
            (g, tp, c.offset, c.commit_timestamp) for g, offsets in loaded.offsets.items() for tp, c in offsets.items()
        }
        (committed if counts else waiting).update(found)
        loaded.offsets.clear()
    return committed, waiting


def batches_of(log: Log) -> Iterator[tuple[int, bytes]]:
    """(the offset after it, its bytes) of each batch."""
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes=1 << 20, bound=log.leo, min_one=True):
        for at, header in records.batches(data):
            offset = header.next_offset
            yield offset, data[at : at + header.size]


class Silent:
    """A log for what is read a second time."""

    def warning(self, *_: object, **__: object) -> None:
        """Says nothing."""
