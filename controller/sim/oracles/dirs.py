"""What must hold of log dirs: none fails but by its disk, none keeps another from its checkpoints, and what a
checkpoint that took its time says of a log is said of that one.

Source: Kafka 3.9 `LogManager`, `ReplicaManager.checkpointHighWatermarks`; spec broker.md §10.1, §10.2, §11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_sim.broker import Broker
from broker_sim.log import checkpoints
from broker_sim.log.log import Log
from broker_sim.log.log_dir import LogDir
from controller.sim.cluster import Cluster
from controller.sim.disk import SimulatedDisk
from controller.sim.oracles.disks import offsets_of
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition

#: How much later than its interval says a checkpoint may be on the disk.
LATE_S: Final = 0.3
#: Checkpoints with longer intervals are not waited for.
INTERVAL_MOST_S: Final = 6.0


class _Moment(NamedTuple):
    """What the checkpoints of a broker's dirs would have said."""

    at_s: float
    life: Broker
    offsets: dict[tuple[str, str, TopicPartition], tuple[Log, int]]


#: After these a log, and its high watermark, may end lower than before.
_BEGINS_ANEW: Final = frozenset({ev.LOG_CREATED, ev.LOG_TRUNCATED, ev.FOLLOWER_STARTED, ev.LEADER_STARTED})


class Dirs:
    """Hang `event` on the log, and let it `look` now and then. `broken` collects."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: broker -> moments of the last seconds in which it ran without a break
        self._moments: dict[int, deque[_Moment]] = {}
        #: the life in which a log was made that has not been cut since, by broker and partition
        self._made: dict[tuple[int, TopicPartition], Broker | None] = {}
        self.broken: list[str] = []
        self.looked = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """A dir is given up for an error of its disk alone. Source: §11."""
        name = event.get("event")
        if name in _BEGINS_ANEW:
            number, tp = event["broker_id"], TopicPartition(event["topic"], event["partition"])
            for moment in self._moments.get(number, ()):
                for key in [key for key in moment.offsets if key[-1] == tp]:
                    del moment.offsets[key]
        if name in (ev.LOG_CREATED, ev.LOG_TRUNCATED):
            self._made[number, tp] = self._cluster.brokers.get(number) if name == ev.LOG_CREATED else None
        if name != ev.LOG_DIR_FAILED:
            return
        disk = self._cluster.disks.get(event["broker_id"])
        if disk is not None and Path(event["log_dir"]) not in disk.failing:
            self.broken.append(f"broker {event['broker_id']} gives up {event['log_dir']}: {event['reason']}")

    def look(self) -> None:
        """Once more."""
        for number, broker in self._cluster.brokers.items():
            disk = self._cluster.disks.get(number)
            if disk is None or broker.replicas is None or broker._context is None:
                continue
            dirs = [each for each in broker.replicas.table.dirs if each.is_online]
            self.broken += _compacted_beyond(number, dirs)
            if disk.has_been_slow:
                made = {tp for (of, tp), life in self._made.items() if of == number and life is broker}
                self.broken += _of_others(number, dirs, made)
            if (shape := self._cluster.shape) is not None and shape.log_dirs > 1:
                self._not_too_old(number, broker, disk, dirs)
                self.broken += _wishes(number, broker)

    def _not_too_old(self, number: int, broker: Broker, disk: SimulatedDisk, dirs: list[LogDir]) -> None:
        """A dir that fails keeps no other from its checkpoints: they are never older than their interval."""
        moments = self._moments.setdefault(number, deque())
        if self._cluster.machine(number).is_stopped or disk.has_been_slow or (moments and moments[-1].life != broker):
            moments.clear()
            return
        now_s = self._cluster.world.loop.time()
        now = dict(_offsets(broker, dirs))
        moments.append(_Moment(now_s, broker, now))
        while moments[0].at_s < now_s - INTERVAL_MOST_S - 1.0:
            moments.popleft()
        for log_dir in dirs if disk.failing else ():
            for name, interval_s in _intervals(self._cluster):
                before = [moment for moment in moments if moment.at_s < now_s - interval_s - LATE_S]
                if before and interval_s < INTERVAL_MOST_S:
                    self.looked += 1
                    self.broken += _older(number, log_dir, name, before[-1].offsets, now)


def _intervals(cluster: Cluster) -> Iterator[tuple[str, float]]:
    """(file, seconds from one writing to the next)."""
    shape = cluster.shape
    if shape is not None:
        yield checkpoints.HIGH_WATERMARK_FILE, shape.hw_checkpoint_ms / 1000
        yield checkpoints.RECOVERY_POINT_FILE, shape.housekeeping_ms / 1000


def _offsets(broker: Broker, dirs: list[LogDir]) -> Iterator[tuple[tuple[str, str, TopicPartition], tuple[Log, int]]]:
    assert broker.replicas is not None
    replicas = broker.replicas.table.partitions
    for log_dir in dirs:
        for tp, log in log_dir.logs.items():
            yield (log_dir.name, checkpoints.RECOVERY_POINT_FILE, tp), (log, log.recovery_point)
            if tp in replicas and replicas[tp].log is log:
                yield (log_dir.name, checkpoints.HIGH_WATERMARK_FILE, tp), (log, replicas[tp].hw)


def _older(
    number: int,
    log_dir: LogDir,
    name: str,
    before: Mapping[tuple[str, str, TopicPartition], tuple[Log, int]],
    now: Mapping[tuple[str, str, TopicPartition], tuple[Log, int]],
) -> Iterator[str]:
    on_disk = offsets_of(log_dir.path / name)
    for (where, what, tp), (log, offset) in before.items():
        log_now, offset_now = now.get((where, what, tp), (None, 0))
        if (where, what) == (log_dir.name, name) and log_now is log and on_disk.get(tp, 0) < min(offset, offset_now):
            yield (
                f"broker {number}: {name} of {log_dir.path.name} says {on_disk.get(tp, 0)} of {tp}, which was {offset} "
                "before the last time that it was to be written"
            )


def _compacted_beyond(number: int, dirs: list[LogDir]) -> Iterator[str]:
    """Nothing that is yet to be written counts as compacted. Source: `LogCleanerManager.maybeTruncateCheckpoint`."""
    for log_dir in dirs:
        for tp, offset in log_dir.cleaned.items():
            if (log := log_dir.logs.get(tp)) is not None and offset > log.leo:
                yield f"broker {number} takes {tp} for compacted up to {offset}, its log ends at {log.leo}"


def _of_others(number: int, dirs: list[LogDir], made: set[TopicPartition]) -> Iterator[str]:
    """A log that was made in this life, and not cut, has no watermark above its end, on disk neither: that is of one
    before it. Source: `LogManager.asyncDelete`; §10.2."""
    for log_dir in dirs:
        on_disk = offsets_of(log_dir.path / checkpoints.HIGH_WATERMARK_FILE)
        for tp, log in log_dir.logs.items():
            if tp in made and on_disk.get(tp, 0) > log.leo:
                yield f"broker {number}: the watermark of {tp} is {on_disk[tp]} on disk, its log ends at {log.leo}"


def _wishes(number: int, broker: Broker) -> Iterator[str]:
    """A wish where a log is to lie is for the next log alone. Source: `LogManager.maybeUpdatePreferredLogDir`."""
    assert broker.replicas is not None
    dirs = broker.replicas.table.dirs
    for tp, wished in dirs._preferred.items():
        log = dirs.get(tp)
        if log is not None and dirs.dir_of(log).name == wished:
            yield f"broker {number}: {tp} lies in {Path(wished).name}, as was wished, and is still wished to"
