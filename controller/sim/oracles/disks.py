"""What must hold of logs on their disks: checkpoints, sealed segments, cuts, and logs that move to another dir.

Source: Kafka 3.9 `UnifiedLog`, `LogManager`, `ReplicaAlterLogDirsThread`; spec broker.md §10, §11.2, §14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker_sim.log import checkpoints
from broker_sim.log.leader_epochs import EpochFile
from broker_sim.log.log import Log
from broker_sim.log.log_dir import LogDir
from broker_sim.replicas.partition import Partition
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.brokers import replicas, works
from controller.sim.oracles.logs import TAIL, batches_between
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition


def offsets_of(path: Path) -> dict[TopicPartition, int]:
    """A checkpoint that cannot be read says nothing, to a start as well."""
    with suppress(checkpoints.CheckpointError):
        return checkpoints.read_offsets(path)
    return {}


def log_dirs(cluster: Cluster) -> Iterator[tuple[int, LogDir]]:
    """(broker, dir) of the dirs that serve, whose disks work, of brokers that have loaded their logs."""
    for broker_id, broker in sorted(cluster.brokers.items()):
        if broker.replicas is not None and broker._context is not None:
            failing = disk.failing if (disk := cluster.disks.get(broker_id)) is not None else {}
            online = (each for each in broker.replicas.table.dirs if each.is_online and each.path not in failing)
            yield from ((broker_id, each) for each in online)


def checkpoints_claim_no_more_than_there_is(cluster: Cluster, _: History) -> Iterator[str]:
    """What a start would believe is true: no checkpoint on disk is above what the log is now, and none speaks of a log
    before it. A kill may come at any time. A log that was emptied to begin below its start keeps the old start on disk
    until the next checkpoint, as in Kafka. Source: §10.1; `LogManager.truncateTo`, `LogManager.asyncDelete`.
    """
    for broker_id, log_dir in log_dirs(cluster):
        points = offsets_of(log_dir.path / checkpoints.RECOVERY_POINT_FILE)
        cleaned = offsets_of(log_dir.path / checkpoints.CLEANER_FILE)
        for log in log_dir.all_logs():
            tp, name = log.topic_partition, f"broker {broker_id} {log.folder.name}"
            if points.get(tp, 0) > log.recovery_point:
                yield f"{name}: the recovery point on disk is {points[tp]}, that of the log {log.recovery_point}"
            if tp in log_dir.logs and cleaned.get(tp, 0) > log.leo:
                yield f"{name}: compacted up to {cleaned[tp]}, the log ends at {log.leo}"


def epoch_files_are_written(cluster: Cluster, _: History) -> Iterator[str]:
    """The file of leader epochs says what the cache says, once the log has a batch. Source: §14."""
    for broker_id, log_dir in log_dirs(cluster):
        for log in log_dir.all_logs():
            if log.segments[-1].is_made and log.leo > 0:
                on_disk = EpochFile(log.folder / "leader-epoch-checkpoint").read()
                if on_disk.entries != log.epochs.entries:
                    name = f"broker {broker_id} {log.folder.name}"
                    yield f"{name}: epochs {log.epochs.entries}, on disk {on_disk.entries}"


def moving_logs_have_a_replica(cluster: Cluster, _: History) -> Iterator[str]:
    """A log that is to replace another goes with its replica, unless its dir had failed by then. Source:
    `ReplicaManager.stopPartitions`; §11.2."""
    for broker_id, log_dir in log_dirs(cluster):
        hosting = cluster.brokers[broker_id].replicas
        assert hosting is not None
        for tp in log_dir.futures if not cluster.has_had_a_failed_dir(broker_id) else ():
            if hosting.table.dirs.get(tp) is None:
                yield f"broker {broker_id} moves {tp} to {log_dir.name}, but has no log of it"


def moving_logs_agree(cluster: Cluster, _: History) -> Iterator[str]:
    """What was copied of a log is what the log has there, but for what is still to be cut. Source: §11.2, §15."""
    for broker_id, tp, replica in replicas(cluster):
        log, future = replica.log, replica.future_log
        if log is None or future is None or not works(cluster, broker_id, future):
            continue
        if _is_to_be_cut(cluster, broker_id, tp):
            continue
        end = min(log.leo, future.leo, future.leo if replica.future_cut is None else replica.future_cut)
        start = max(log.log_start_offset, future.log_start_offset, end - TAIL)
        mine, copied = batches_between(log, start, end), batches_between(future, start, end)
        if mine != copied and not log.config.is_compacted:
            at = min(set(mine.items()) ^ set(copied.items()))[0]
            yield f"broker {broker_id} {tp}: the log that moves differs at offset {at}, below {end}"


def _is_to_be_cut(cluster: Cluster, broker_id: int, tp: TopicPartition) -> bool:
    """Whether the copying has yet to begin again: the two may differ until then."""
    hosting = cluster.brokers[broker_id].replicas
    movers = hosting.moves._movers.values() if hosting is not None else ()
    return not any(tp in mover._partitions and tp not in mover._to_truncate for mover in movers)


def logs_start_with_their_leader(cluster: Cluster, _: History) -> Iterator[str]:
    """What a leader deleted from the start is gone from its followers, too. Source: KIP-107; §13."""
    by_partition: dict[TopicPartition, dict[int, Partition]] = {}
    for broker_id, tp, replica in replicas(cluster):
        by_partition.setdefault(tp, {})[broker_id] = replica
    for tp, members in by_partition.items():
        for leader_id, leader in members.items():
            if leader.led is None or leader.log is None:
                continue
            for broker_id in leader.led.isr:
                log = members[broker_id].log if broker_id in members else None
                if log is not None and log.log_start_offset < leader.log.log_start_offset <= log.leo:
                    yield (
                        f"{tp} starts at {log.log_start_offset} on broker {broker_id}, at "
                        f"{leader.log.log_start_offset} on its leader {leader_id}"
                    )


class Cuts:
    """Judges a log in the moment in which it was cut. `broken` collects. Hang `event` on the log."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.broken: list[str] = []
        self.seen = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """After a cut everything that is kept of a log is within it, on disk, too; and no checkpoint speaks of a log
        that has just been made: it was of another of that name. §10.1, §10.2, §13.1, §14."""
        if event.get("event") == ev.LOG_CREATED:
            self._created(event)
        if event.get("event") != ev.LOG_TRUNCATED:
            return
        broker_id, tp = event["broker_id"], TopicPartition(event["topic"], event["partition"])
        broker = self._cluster.brokers.get(broker_id)
        hosting = broker.replicas if broker is not None else None
        replica = hosting.table.partitions.get(tp) if hosting is not None else None
        if (
            hosting is None
            or replica is None
            or replica.log is None
            or not works(self._cluster, broker_id, replica.log)
        ):
            return
        self.seen += 1
        log_dir = hosting.table.dirs.dir_of(replica.log)
        self.broken += [f"after a cut, broker {broker_id} {tp}: {wrong}" for wrong in beyond_the_end(replica, log_dir)]

    def _created(self, event: Mapping[str, Any]) -> None:
        broker_id, tp = event["broker_id"], TopicPartition(event["topic"], event["partition"])
        broker = self._cluster.brokers.get(broker_id)
        log = broker.replicas.table.dirs.get(tp) if broker is not None and broker.replicas is not None else None
        if log is None or not works(self._cluster, broker_id, log):
            return
        self.seen += 1
        for name in CHECKPOINTS:
            if offset := offsets_of(log.log_dir / name).get(tp):
                self.broken.append(f"broker {broker_id} made {tp} anew, {name} says {offset}")


#: What a start believes of a log.
CHECKPOINTS = (
    *(checkpoints.RECOVERY_POINT_FILE, checkpoints.LOG_START_FILE),
    *(checkpoints.CLEANER_FILE, checkpoints.HIGH_WATERMARK_FILE),
)


def beyond_the_end(replica: Partition, log_dir: LogDir) -> Iterator[str]:
    """What is kept of a replica's log and speaks of offsets that the log does not have."""
    log = replica.log
    assert log is not None
    tp, end = log.topic_partition, log.leo
    if log.segments[-1].next_offset > end:
        yield f"batches up to {log.segments[-1].next_offset}, the log ends at {end}"
    if replica.hw > end:
        yield f"watermark {replica.hw} above the end {end}"
    if log.recovery_point > end:
        yield f"recovery point {log.recovery_point} above the end {end}"
    if log.epochs.entries and log.epochs.entries[-1][1] >= max(end, 1):
        yield f"an epoch begins at or above the end {end}: {log.epochs.entries}"
    on_disk = offsets_of(log_dir.path / checkpoints.RECOVERY_POINT_FILE).get(tp, 0)
    if on_disk > end:
        yield f"recovery point {on_disk} on disk, above the end {end}"
    if any(state.batches and state.batches[-1].last_offset >= end for _, state in log.producers):
        yield f"a producer's last batch is at or above the end {end}"


class Deleting:
    """Looks at logs now and then: what is sealed is on the disk, what is deleted was committed. `broken` collects."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: (log, the segment that was written to, log start, watermark, leader epoch) by (broker, partition), before
        self._before: dict[tuple[int, TopicPartition], tuple[Log, set[object], int, int, int]] = {}
        #: segments that were full when they were looked at, and not on the disk
        self._waiting: dict[object, float] = {}
        self.broken: list[str] = []

    def look(self) -> None:
        """Once more."""
        seen: dict[tuple[int, TopicPartition], tuple[Log, set[object], int, int, int]] = {}
        waiting: dict[object, float] = {}
        unsynced = {broker_id: disk.unsynced_from() for broker_id, disk in self._cluster.disks.items()}
        for broker_id, tp, replica in replicas(self._cluster):
            log = replica.log
            if log is None or broker_id in self._cluster.paused:
                continue
            before = self._before.get((broker_id, tp))
            is_same = before is not None and before[0] is log
            active = before[1] if before is not None and is_same else set()
            if before is not None and is_same:
                self._deleted(broker_id, tp, replica, log, before)
            newest, epoch = log.segments[-1], replica.leader_epoch
            firsts = unsynced.get(broker_id)
            if firsts and firsts.get(str(log.folder), newest.base_offset) < newest.base_offset:
                self._sealed(broker_id, log, active, waiting)
            if newest not in active:
                active = {newest, *active.intersection(log.segments)}
            seen[broker_id, tp] = log, active, log.log_start_offset, replica.hw, epoch
        self._before, self._waiting = seen, waiting

    def _deleted(
        self,
        broker_id: int,
        tp: TopicPartition,
        replica: Partition,
        log: Log,
        before: tuple[Log, set[object], int, int, int],
    ) -> None:
        """The start of a log rises to its high watermark at most. Source: `UnifiedLog.deleteOldSegments`; §10.4."""
        _, _, start, hw, epoch = before
        if start < log.log_start_offset > max(hw, replica.hw) and epoch == replica.leader_epoch:
            self.broken.append(
                f"broker {broker_id} deleted {tp} from {start} up to {log.log_start_offset}, above its watermark "
                f"{replica.hw}, before {hw}"
            )

    def _sealed(self, broker_id: int, log: Log, active: set[object], waiting: dict[object, float]) -> None:
        """A segment that is full reaches the disk at once, so that no loss of power leaves a gap.

        Only what was seen being written to: what a kill left unsynced waits for the checkpoint, as in Kafka. A disk
        that was made slow takes the time that it takes.
        Source: `UnifiedLog.roll`; §10.1.
        """
        disk, now_s = self._cluster.disks.get(broker_id), self._cluster.world.loop.time()
        machine = self._cluster.machine(broker_id)
        for segment in log.segments[:-1]:
            if disk is None or segment not in active or disk.synced_bytes(segment.log_path) is None:
                continue
            waiting[segment] = self._waiting.get(segment, now_s)
            if waiting[segment] < now_s and not machine.is_stopped and not disk.has_been_slow:
                self.broken.append(
                    f"broker {broker_id}: segment {segment.log_path.name} of {log.folder.name} is full since "
                    f"{waiting[segment]:.2f} s and not on the disk"
                )
