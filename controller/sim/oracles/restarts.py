"""What a broker begins with is what lay on its disk: a plain reading of the files before it loads them.

Whatever a kill, a loss of power or a disk left: what is intact is there and nothing else; epochs and producers are
those of the batches; who has its log in a dir that failed makes no other.
Source: Kafka 3.9 `LogLoader`, `LogManager.loadLogs`, `LogManager.getOrCreateLog`; spec broker.md §4.2, §6.4, §10.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from broker_sim.log import checkpoints
from broker_sim.log.log import Log
from broker_sim.log.log_dir import folder_name, parse_folder_name, parse_future_name
from broker_sim.log.producers import ProducerStates
from controller.sim.cluster import Cluster
from controller.sim.oracles.disks import CHECKPOINTS, offsets_of
from controller.wire import log_events as ev
from controller.wire.records import HEADER_BYTES, BatchHeader, CorruptBatch, check_crc, parse_header
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

_Batch = tuple[int, int, int, int]
TOPICS: Final = "/brokers/topics/"


@dataclass(slots=True)
class Found:
    """What a start must find of one log: its batches, where it starts and ends, and how much was surely synced."""

    headers: list[BatchHeader] = field(default_factory=list)
    start: int = 0
    end: int = 0
    recovery_point: int = 0


class Restarts:
    """Call `reads` before a broker loads its logs; hang `row` on its traces, `event` on the log, `operation` on
    `on_operation`. `broken` collects."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.broken: list[str] = []
        #: broker -> path of a log's folder -> what it holds
        self._found: dict[int, dict[Path, Found]] = {}
        #: (broker, partition) -> czxid of its topic when its log was made; while it has been a replica since
        self._made: dict[tuple[int, TopicPartition], int] = {}
        #: logs that were compared, and batches in them
        self.logs, self.batches = 0, 0

    # -- what is loaded --------------------------------------------------------------------------------------------

    def reads(self, number: int) -> None:
        """A broker is about to load its logs."""
        dirs = [path for path in self._dirs(number) if not self._fails(number, path)]
        self._found[number] = {folder: found for path in dirs for folder, found in logs_on_disk(path)}

    def row(
        self, broker: BrokerId, event: TraceEvent, _ts: int, tp: TopicPartition | None, _columns: Mapping[str, Any]
    ) -> None:
        """One row of one broker: the first of a life comes when it has loaded its logs, and serves nobody yet."""
        if event is TraceEvent.START and tp is None and broker in self._found:
            expected, running = self._found.pop(broker), self._cluster.brokers.get(broker)
            if running is not None and running.replicas is not None:
                online = [each for each in running.replicas.table.dirs if each.is_online]
                logs = {log.folder: log for each in online for log in each.all_logs()}
                paths = {each.path for each in online}
                there = {folder: found for folder, found in expected.items() if folder.parent in paths}
                self.broken += [f"broker {broker} starts: {wrong}" for wrong in self._compared(there, logs)]

    def _compared(self, expected: Mapping[Path, Found], logs: Mapping[Path, Log]) -> Iterator[str]:
        for folder in sorted(expected.keys() ^ logs.keys()):
            if folder in expected:
                yield f"{folder.name} is on its disk, and not loaded"
        for folder in sorted(expected.keys() & logs.keys()):
            found, log = expected[folder], logs[folder]
            self.logs, self.batches = self.logs + 1, self.batches + len(found.headers)
            yield from (f"{folder.name} {wrong}" for wrong in differences(found, log))

    def _dirs(self, number: int) -> list[Path]:
        return [path for path in self._cluster.log_dirs(number) if path.is_dir()]

    def _fails(self, number: int, path: Path) -> bool:
        disk = self._cluster.disks.get(number)
        return disk is not None and path in disk.failing

    # -- what is made ----------------------------------------------------------------------------------------------

    def event(self, event: Mapping[str, Any]) -> None:
        """A log that is made anew while another of that replica lies in a dir that failed: the records there would be
        forgotten. Whoever is being added by a move is new, each time that the controller goes on with the move.
        Source: `KafkaController.onPartitionReassignment`; §6.4."""
        if event.get("event") != ev.LOG_CREATED:
            return
        broker, tp = event["broker_id"], TopicPartition(event["topic"], event["partition"])
        topic = self._cluster.world.zookeeper.tree.get(f"{TOPICS}{tp.topic}")
        if topic is None:
            return
        dirs = self._dirs(broker)
        failed = [path for path in dirs if self._fails(broker, path) and (path / folder_name(tp)).is_dir()]
        is_old = self._made.get((broker, tp)) == topic.czxid and broker not in self._added(tp)
        if failed and is_old:
            self.broken.append(f"broker {broker} makes a log of {tp}, it has one in {failed[0].name}, which has failed")
        self._made[broker, tp] = topic.czxid

    def operation(self, _session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation: who is no replica any more may be made one anew."""
        for part in op.ops if isinstance(op, Multi) else (op,):
            if result.ok and isinstance(part, SetData) and part.path.startswith(TOPICS) and part.path.count("/") == 3:
                topic = part.path.removeprefix(TOPICS)
                self._made = {
                    (broker, tp): czxid
                    for (broker, tp), czxid in self._made.items()
                    if tp.topic != topic or self._is_replica(broker, tp)
                }

    def _added(self, tp: TopicPartition) -> list[int]:
        return (self._cluster.content_of(tp.topic)["adding_replicas"] or {}).get(str(tp.partition)) or []

    def _is_replica(self, broker: int, tp: TopicPartition) -> bool:
        replicas = (self._cluster.content_of(tp.topic)["partitions"] or {}).get(str(tp.partition), ())
        return broker in replicas


def logs_on_disk(log_dir: Path) -> Iterator[tuple[Path, Found]]:
    """The folder of each log in a dir, and what a start must find there."""
    is_clean = (log_dir / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
    points, starts = (offsets_of(log_dir / name) for name in CHECKPOINTS[:2])
    for folder in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        tp = parse_folder_name(folder.name) or parse_future_name(folder.name)
        if tp is not None:
            point = None if is_clean else points.get(tp, 0)
            yield folder, read_plainly(folder, start=starts.get(tp, 0), checked_from=point)


def read_plainly(folder: Path, *, start: int, checked_from: int | None) -> Found:
    """A log ends before the first batch that is not intact. What lies below `checked_from` (None: anywhere) was synced,
    and is not checked. `start`: what the checkpoint says."""
    found, paths = Found(), _segments(folder)
    bases, is_over = sorted(paths), False
    for nth, base in enumerate(bases):
        following = bases[nth + 1] if nth + 1 < len(bases) else None
        if is_over or (base < found.end and base != bases[0]):
            continue
        is_synced = checked_from is None or (following is not None and following <= checked_from)
        headers, is_whole = _intact(paths[base].read_bytes(), is_checked=not is_synced)
        found.headers += headers
        found.end, is_over = headers[-1].next_offset if headers else base, not is_whole
    if found.end < start or not bases:
        return Found(start=start, end=start, recovery_point=start)
    found.start = min(max(start, bases[0]), found.end)
    found.recovery_point = found.end if checked_from is None else min(checked_from, found.end)
    return found


def _segments(folder: Path) -> dict[int, Path]:
    """Base offset -> the file of its batches. A compaction that had begun to replace segments is completed; one that
    had not is undone. Source: `LogLoader.removeTempFilesAndCollectSwapFiles`."""
    files = {path.name: path for path in folder.iterdir() if path.name[:20].isdigit()}
    plain = {int(name[:20]): path for name, path in files.items() if name[20:] == ".log"}
    swaps = {int(name[:20]): path for name, path in files.items() if name[20:] == ".log.swap"}
    unfinished = min((int(name[:20]) for name in files if name.endswith(".cleaned")), default=None)
    for base, path in swaps.items():
        if unfinished is None or base < unfinished:
            headers, _ = _intact(path.read_bytes(), is_checked=True)
            end = headers[-1].next_offset if headers else base
            plain = {at: other for at, other in plain.items() if at != base and not base <= at < end}
            plain[base] = path
    return plain


def _intact(data: bytes, *, is_checked: bool) -> tuple[list[BatchHeader], bool]:
    """The batches before the first that is not intact, and whether that is all."""
    headers: list[BatchHeader] = []
    at = 0
    while len(data) - at >= HEADER_BYTES:
        try:
            header = parse_header(data, at)
            if len(data) - at < header.size:
                break
            if is_checked:
                check_crc(data, header, at)
        except CorruptBatch:
            break
        headers.append(header)
        at += header.size
    return headers, at == len(data)


def differences(found: Found, log: Log) -> Iterator[str]:
    """Between what lay on the disk and the log that was made of it."""
    loaded = [_key(header) for segment in log.segments for _, header in segment.headers()]
    expected = [_key(header) for header in found.headers]
    if loaded != expected:
        yield f"ends with {loaded[-3:]}, {len(loaded)} batches, on disk are {expected[-3:]}, {len(expected)} batches"
        return
    if (log.log_start_offset, log.leo) != (found.start, found.end):
        yield f"goes from {log.log_start_offset} to {log.leo}, on disk from {found.start} to {found.end}"
    if log.recovery_point > found.recovery_point:
        yield f"takes what is below {log.recovery_point} for synced, which is so below {found.recovery_point}"
    yield from _epochs_differ(found, log)
    yield from _producers_differ(found, log)


def _key(header: BatchHeader) -> _Batch:
    return header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc


def _epochs_differ(found: Found, log: Log) -> Iterator[str]:
    """Where epochs rise. Where a topic was deleted while a broker was away, that one leads a later topic of the name
    with the log of the former, and begins with epoch 0 again: no cache of epochs can hold both, nor Kafka's
    (`LeaderEpochFileCache.assign`)."""
    epochs = [header.partition_leader_epoch for header in found.headers]
    if any(later < former for former, later in pairwise(epochs)):
        return
    for header in found.headers:
        kept = {log.epochs.epoch_for(max(offset, found.start)) for offset in (header.base_offset, header.last_offset)}
        if header.next_offset > found.start and kept != {header.partition_leader_epoch}:
            yield f"takes {header.base_offset} for one of epoch {sorted(kept)}, not {header.partition_leader_epoch}"
            return
    if log.epochs.entries and log.epochs.entries[-1][1] > found.end:
        yield f"knows an epoch above its end {found.end}: {log.epochs.entries}"


def _producers_differ(found: Found, log: Log) -> Iterator[str]:
    """Where nothing of a producer was compacted away, its last batch is the one that counts."""
    counted = ProducerStates()
    for header in found.headers:
        counted.appended(header)
    remembered = dict(log.producers)
    for producer_id, state in counted if not log.config.is_compacted else ():
        last, mine = state.batches[-1], remembered.get(producer_id)
        newest = mine.batches[-1] if mine is not None and mine.batches else None
        if last.base_offset >= found.start and (mine is None or mine.epoch != state.epoch or newest != last):
            yield f"remembers {newest} of producer {producer_id}, which wrote {last} last"
