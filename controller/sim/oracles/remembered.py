"""What logs remember of idempotent producers is what their batches say, but for what was cut off a compacted log.

Source: Kafka 3.9 `ProducerStateManager.truncateAndReload`, `LogCleaner.cleanInto`; spec clients.md §3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from broker_sim.log.log import Log
from broker_sim.log.producers import ProducerStates
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.brokers import replicas
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition

#: The end of a log that nobody could look at before its broker lost its power.
ANY_END: Final = float("inf")


class Remembered:
    """Hang `event` on the log, call `power_lost` before a broker loses what it did not sync."""

    def __init__(self) -> None:
        #: (broker, partition) -> where its log was last cut: what it holds below this may have been followed by more
        self._cut_at: dict[tuple[int, TopicPartition], float] = {}

    def event(self, event: Mapping[str, Any]) -> None:
        """What a program logged."""
        if event.get("event") in (ev.LOG_TRUNCATED, ev.LOG_CREATED):
            key = event["broker_id"], TopicPartition(event["topic"], event["partition"])
            self._cut_at.pop(key, None)
            if event["event"] == ev.LOG_TRUNCATED:
                self._cut_at[key] = event["offset"]

    def power_lost(self, cluster: Cluster, number: int) -> None:
        """Each of its logs may be cut anywhere, up to its end."""
        for tp in cluster.partitions():
            if number in cluster.assignment(*tp):
                self._cut_at[number, TopicPartition(*tp)] = ANY_END
        for broker_id, tp, replica in replicas(cluster):
            if broker_id == number and replica.log is not None:
                self._cut_at[number, tp] = replica.log.leo

    def producers_equal_a_recount(self, cluster: Cluster, _: History) -> Iterator[str]:
        """Each producer's last batch is in the log, and the log remembers just that; compaction keeps it, be it empty.

        Excused is what a compacted log remembers from below the place where it was last cut. While a later batch of
        that producer was there, compaction might remove the earlier one; then the later one was cut off, and the
        snapshot at the cut still tells of the earlier one. Kafka comes to the same: it takes the snapshot as it is.
        """
        for broker_id, tp, replica in replicas(cluster):
            log = replica.log
            if log is None:
                continue
            cut_at = self._cut_at.get((broker_id, tp), 0) if log.config.is_compacted else 0
            for wrong in not_as_counted(log, cut_at):
                yield f"broker {broker_id} {tp}: {wrong}"


def not_as_counted(log: Log, cut_at: float) -> Iterator[str]:
    """Where a log and its batches differ; what it remembers from below `cut_at` may be later than what it holds."""
    counted = ProducerStates()
    for segment in log.segments:
        for _, header in segment.headers():
            counted.appended(header)
    there, remembered = dict(counted), dict(log.producers)
    for producer_id, state in there.items():
        last, mine = state.batches[-1], remembered.get(producer_id)
        newest = mine.batches[-1] if mine is not None and mine.batches else None
        if newest is not None and last.last_offset < newest.last_offset < cut_at:
            continue
        if mine is None or mine.epoch != state.epoch or newest != last:
            yield f"producer {producer_id} wrote {last} last, the log remembers {newest}"
    if log.config.is_compacted and not log.config.deletes:
        for producer_id in sorted(remembered.keys() - there.keys()):
            batches = remembered[producer_id].batches
            if not batches or batches[-1].last_offset >= cut_at:
                yield f"no batch is left of producer {producer_id}, which the log remembers"
