"""What compaction must leave: of each key the newest record, a tombstone for `delete.retention.ms`.

That the last batch of each producer id stays, be it empty, is in `remembered`.
Source: Kafka 3.9 `LogCleaner`, KIP-534; spec broker.md §10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker_sim.log.log import Log
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.brokers import replicas
from controller.wire.records import records_of
from controller.wire.types import TopicPartition

#: Key -> (offset, value) of its newest record; None is a tombstone.
Newest = Mapping[bytes, tuple[int, bytes | None]]


def newest_of_each_key_is_left(tp: TopicPartition, acked: Newest, cluster: Cluster, history: History) -> Iterator[str]:
    """Of each key the newest record that was acknowledged is in the log of each ISR member, or a newer one of it."""
    for broker_id, hosted, replica in replicas(cluster):
        if hosted != tp or replica.log is None or tp in history.unclean:
            continue
        if broker_id not in (cluster.state(*tp) or {"isr": ()})["isr"]:
            continue
        found = newest_of_keys(replica.log)
        for key, (offset, value) in sorted(acked.items()):
            here = found.get(key, (-1, None))
            if here[0] < offset or (here[0] == offset and here[1] != value):
                yield f"broker {broker_id} {tp}: {key!r} was acknowledged as {offset, value}, its newest is {here}"


def newest_of_keys(log: Log) -> Newest:
    """Of each key its newest record in a log."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for batch in log.batches():
        for record in records_of(batch):
            found[record.key or b""] = record.offset, record.value
    return found
