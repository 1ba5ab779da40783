"""When periodic work is done, to the millisecond: ticks, notices, checkpoints, retention, removals."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.isr import IsrChange, IsrChangeKind, LedPartition
from broker_sim.log import checkpoints
from broker_sim.log.errors import StorageFailure
from broker_sim.replicas.housekeeping import Housekeeping
from broker_sim.replicas.isr_updates import IsrUpdates
from broker_sim.replicas.types import IsrWriteOutcome, IsrWriteResult
from controller.wire.records import Record, build_batch
from controller.wire.types import TopicPartition
from controller.world.simulated.loop import run
from tests.worlds.chores import table, written

TP = TopicPartition("t", 0)


def renamed(folder: Path) -> int:
    return len(list(folder.glob("*-delete")))


# -- timers of the disk -----------------------------------------------------------------------------------------------

#: the setting, what runs, and when it runs first; the interval is 7,001 ms
TIMERS = [
    ("log_retention_check_interval_ms", "delete_old_segments", 3_003),
    ("log_flush_scheduler_interval_ms", "flush_due", 3_003),
    ("log_flush_offset_checkpoint_interval_ms", "checkpoint_recovery_points", 3_003),
    ("log_flush_start_offset_checkpoint_interval_ms", "checkpoint_log_starts", 3_003),
    ("replica_high_watermark_checkpoint_interval_ms", "checkpoint_watermarks", 7_001),
]


@pytest.mark.parametrize(("setting", "name", "first"), TIMERS)
def test_timers(tmp_path: Path, setting: str, name: str, first: int) -> None:
    async def main() -> None:
        never = {other: (1 << 53) + 1 for other, _, _ in TIMERS}
        broker = table(tmp_path, **{**never, setting: 7_001, "log_initial_task_delay_ms": 3_003})
        housekeeping, times = Housekeeping(broker), list[int]()
        setattr(housekeeping, name, lambda: times.append(broker.now_ms()))
        housekeeping.start()
        for _ in range(2):
            housekeeping.start_watermarks()
        await asyncio.sleep(25)
        assert times == list(range(first, 25_000, 7_001))
        await housekeeping.stop()
        await asyncio.sleep(25)
        assert times[-1] < 25_000 and broker.supervisor.running == []

    run(main())


@pytest.mark.parametrize(("interval_ms", "runs"), [((1 << 53) - 1, True), (1 << 53, False)])
def test_an_interval_that_is_too_long_for_a_timer_is_never(tmp_path: Path, interval_ms: int, runs: bool) -> None:
    async def main() -> None:
        broker = table(tmp_path, log_flush_scheduler_interval_ms=interval_ms, log_initial_task_delay_ms=5)
        housekeeping, times = Housekeeping(broker), list[int]()
        housekeeping.flush_due = lambda: times.append(broker.now_ms())
        housekeeping.start()
        await asyncio.sleep(1)
        assert times == ([5] if runs else [])
        await housekeeping.stop()

    run(main())


def test_what_was_renamed_away_goes_after_its_time_and_not_before(tmp_path: Path) -> None:
    async def main() -> None:
        broker = table(tmp_path)
        housekeeping = Housekeeping(broker)
        first = written(broker, TP, 3, file_delete_delay_ms=40_000).log
        second = written(broker, TopicPartition("t", 1), 3, file_delete_delay_ms=90_000).log
        housekeeping.delete_later(first)
        housekeeping.delete_later(second)
        for at, left in ((39.99, 2), (40.01, 1), (89.99, 1)):
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            assert renamed(tmp_path) == left
        await housekeeping.stop()
        await asyncio.sleep(1)
        assert renamed(tmp_path) == 1, "the next start removes it"
        assert [keys["partition"] for event, keys in broker.events if event == "log.deleted"] == [0, 1]

    run(main())


def test_a_disk_that_fails_when_something_is_to_be_removed_has_failed(tmp_path: Path) -> None:
    async def main() -> None:
        broker = table(tmp_path)
        housekeeping = Housekeeping(broker)
        log = written(broker, TP, 9, segment_bytes=300, file_delete_delay_ms=1_000).log
        other = written(broker, TopicPartition("t", 1), 3, file_delete_delay_ms=2_000).log

        def broken(operation: str, path: Path) -> None:
            if operation.startswith("remove"):
                raise OSError(5, "Input/output error")

        log.truncate(4)  # renames segments away
        housekeeping.delete_later(other)
        broker.dirs.files.before = broken
        broker.events.clear()
        await asyncio.sleep(3)
        assert {type(failure) for failure in broker.events} == {StorageFailure} and len(broker.events) > 1
        await housekeeping.stop()

    run(main())


@pytest.mark.parametrize(("policy", "enabled", "goes"), [("delete", False, True), ("compact,delete", False, False),
                                                         ("compact,delete", True, True)])  # fmt: skip
def test_old_segments_of_a_log_and_of_its_copy_go_each_below_its_own_watermark(
    tmp_path: Path, policy: str, enabled: bool, goes: bool
) -> None:
    async def main() -> None:
        broker = table(tmp_path, log_cleaner_enable=enabled)
        housekeeping = Housekeeping(broker)
        config = {"segment_bytes": 300, "retention_ms": 1, "cleanup_policy": policy}
        partition = written(broker, TP, 12, **config)
        copy = partition.future_log = written(broker, TopicPartition("t", 1), 12, **config).log
        broker.partitions = {TP: partition}
        second, third = (copy.segments[number].base_offset for number in (1, 2))
        partition.hw, partition.future_hw = second, third
        await asyncio.sleep(60)
        housekeeping.delete_old_segments()
        starts = (partition.log.log_start_offset, copy.log_start_offset)
        assert starts == ((second, third) if goes else (0, 0))
        await housekeeping.stop()

    run(main())


def test_a_copy_is_flushed_when_it_is_due_as_its_log_is(tmp_path: Path) -> None:
    async def main() -> None:
        broker = table(tmp_path)
        housekeeping = Housekeeping(broker)
        logs = [written(broker, TopicPartition("t", number), 2, flush_ms=700).log for number in range(2)]
        (log_dir,) = broker.dirs
        log_dir.futures[TP] = log_dir.logs.pop(TP)
        for second, point in ((0.699, 0), (0.7, 2)):
            await asyncio.sleep(second - asyncio.get_running_loop().time())
            housekeeping.flush_due()
            assert [log.recovery_point for log in logs] == [point, point]
        await housekeeping.stop()

    run(main())


@pytest.mark.parametrize("number", [0, 1], ids=["the same log", "another log"])
def test_a_segment_that_gets_full_while_others_reach_the_disk_does_so_next(tmp_path: Path, number: int) -> None:
    async def main() -> None:
        broker = table(tmp_path)

        async def slowly(work: Callable[[], None]) -> None:
            await asyncio.sleep(1)
            work()

        broker.off_loop = slowly
        housekeeping = Housekeeping(broker)
        logs = [written(broker, TopicPartition("t", n), 12 * (n == 0), segment_bytes=300).log for n in range(2)]
        await asyncio.sleep(0.5)  # the disk is busy with the first one
        for _ in range(12):
            data = build_batch([Record(0, 1, b"k", b"x" * 10)])
            logs[number].append_as_leader(data, leader_epoch=0, now_ms=1)
        await asyncio.sleep(5)
        assert [log.recovery_point for log in logs] == [log.segments[-1].base_offset for log in logs]
        assert logs[number].recovery_point > 0
        await housekeeping.stop()

    run(main())


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_flushes_are_due_and_producers_are_forgotten_to_the_millisecond(tmp_path: Path, policy: str) -> None:
    """Also of a log of which nothing is deleted, since nobody compacts it."""

    async def main() -> None:
        broker = table(tmp_path, producer_id_expiration_ms=500, log_cleaner_enable=False)
        housekeeping = Housekeeping(broker)
        partition = written(broker, TP, 2, flush_ms=700, cleanup_policy=policy)
        log = partition.log
        producers = {7: 501, 8: 500}
        for producer, at in producers.items():
            data = build_batch([Record(0, at, b"k", b"v")], producer_id=producer, producer_epoch=0, base_sequence=0)
            log.append_as_leader(data, leader_epoch=0, now_ms=1)
        for second, points, known in ((0.699, 0, {7, 8}), (0.7, 4, {7, 8}), (1.0, 4, {7}), (1.001, 4, set())):
            await asyncio.sleep(second - asyncio.get_running_loop().time())
            housekeeping.flush_due()
            housekeeping.delete_old_segments()
            assert (log.recovery_point, {producer for producer, _ in log.producers}) == (points, known)
        assert log.flushed_ms == 700
        partition.log = None
        housekeeping.delete_old_segments()
        await housekeeping.checkpoint_watermarks()
        assert (housekeeping.watermarks(), housekeeping.future_watermarks()) == ({}, {})
        partition.log, partition.future_log, partition.future_hw = log, log, 1
        assert (housekeeping.watermarks(), housekeeping.future_watermarks()) == ({TP: 2}, {TP: 1})
        await housekeeping.checkpoint_watermarks()
        assert checkpoints.read_offsets(tmp_path / checkpoints.HIGH_WATERMARK_FILE) == {TP: 2}

    run(main())


# -- the ISR ----------------------------------------------------------------------------------------------------------


class Writer:
    """ZooKeeper takes each write, or refuses it. Notices, one after another, go as `notices` says, then at once."""

    def __init__(self) -> None:
        self.outcome, self.takes_s = IsrWriteOutcome.WRITTEN, 0.0
        #: of each of the next notices: how many milliseconds it takes, whether it is refused
        self.notices: Iterator[tuple[int, bool]] = iter(())
        self.told: list[tuple[int, list[TopicPartition]]] = []
        self.broker: Any = None

    async def write_isr(self, *asked: Any) -> IsrWriteResult:
        await asyncio.sleep(self.takes_s)
        return IsrWriteResult(outcome=self.outcome, partition_epoch=7)

    async def propagate(self, partitions: Any) -> bool:
        self.told.append((self.broker.now_ms(), list(partitions)))
        takes_ms, is_refused = next(self.notices, (0, False))
        await asyncio.sleep(takes_ms / 1000)
        return not is_refused


def isr_updates(folder: Path, **settings: Any) -> tuple[Any, Writer, IsrUpdates]:
    broker, writer = table(folder, **settings), Writer()
    writer.broker, broker.led = broker, lambda: broker.partitions.values()
    return broker, writer, IsrUpdates(broker, writer)


@pytest.mark.parametrize(("lag_ms", "period_ms"), [(30_000, 15_000), (2_001, 1_000), (3, 1), (1, 1)])
def test_ticks_keep_their_times(tmp_path: Path, lag_ms: int, period_ms: int) -> None:
    async def main() -> None:
        broker, _, updates = isr_updates(tmp_path, replica_lag_time_max_ms=lag_ms)
        times: list[float] = []
        broker.led = lambda: times.append(asyncio.get_running_loop().time()) or []
        updates.start()
        await asyncio.sleep(4.5 * period_ms / 1000)
        assert times == pytest.approx([n * period_ms / 1000 for n in range(5)])
        await updates.stop()
        assert broker.supervisor.running == []

    run(main())


def test_a_tick_judges_those_of_whom_nothing_is_being_written(tmp_path: Path) -> None:
    async def main() -> None:
        broker, writer, updates = isr_updates(tmp_path)
        rows: list[tuple[str, int]] = []
        broker.trace.row = lambda ev, ts, *columns, **more: rows.append((ev.value, ts))
        pending, idle, follower = (partition_of(number) for number in range(3))
        pending.led.pending, follower.led = change(), None
        broker.partitions = {0: pending, 1: follower}
        await asyncio.sleep(40)
        updates.tick()
        assert rows == [], "nobody is judged"
        for partition in (pending, idle):
            partition.led.append(3, 1)
        broker.partitions = {0: pending, 1: follower, 2: idle}
        updates.tick()
        assert rows == [("tick", 40_000)] and idle.led.pending.isr == (1,)
        writer.takes_s = 5.0
        await asyncio.sleep(6)
        assert idle.led.pending is None and pending.led.pending == change()
        assert rows == [("tick", 40_000), ("isr_shrink", 40_000)]
        await updates.stop()

    run(main())


def change(kind: IsrChangeKind = IsrChangeKind.SHRINK) -> IsrChange:
    return IsrChange(kind=kind, isr_old=(1, 2), isr=(1,), replicas=(2,), last_caught_up_time_ms=(0,))


def partition_of(number: int) -> Any:
    led = LedPartition(leader=1)
    led.lead(now_ms=0, epoch=3, log_end_offset=0, isr=(1, 2), replicas=(1, 2), partition_epoch=4)
    waiters = SimpleNamespace(woken=0)
    waiters.wake = lambda: setattr(waiters, "woken", waiters.woken + 1)
    return SimpleNamespace(
        topic_partition=TopicPartition("t", number), controller_epoch=5, led=led, higher_watermark=waiters
    )  # fmt: skip


#: milliseconds at which changes are written -> when they are told of, how many at a time. Looks are every 2,500 ms.
NOTICES = [
    ([70_000], [(72_500, 1)]),
    ([70_001], [(72_500, 1)]),
    ([72_501], [(75_000, 1)]),
    ([1_000], [(7_500, 1)]),
    ([2_499], [(7_500, 1)]),
    ([2_500], [(10_000, 1)]),
    ([2_501], [(10_000, 1)]),
    ([5_000, 9_999], [(15_000, 2)]),
    ([5_000, 10_000], [(17_500, 2)]),
    (list(range(1_000, 62_000, 2_000)), [(62_500, 31)]),
    ([70_000, *range(71_000, 134_000, 2_000)], [(72_500, 2), (135_000, 31)]),
]


@pytest.mark.parametrize("started_ms", [0, 1_000_000])
@pytest.mark.parametrize(("times", "expected"), NOTICES)
def test_notices_keep_their_times(
    tmp_path: Path, times: list[int], expected: list[tuple[int, int]], started_ms: int
) -> None:
    """By the clock of a broker that has just started, whenever it did: no notice was due before."""

    async def main() -> None:
        broker, writer, updates = isr_updates(tmp_path)
        await asyncio.sleep(started_ms / 1000)
        updates.start()
        for number, at in enumerate(times):
            await asyncio.sleep((started_ms + at) / 1000 - asyncio.get_running_loop().time())
            updates.write(partition_of(number), change(), decided_ms=broker.now_ms())
        await asyncio.sleep(30)
        assert [(at - started_ms, len(partitions)) for at, partitions in writer.told] == expected
        partitions = [partition for _, told in writer.told for partition in told]
        assert partitions == [TopicPartition("t", number) for number in range(len(times))]
        await updates.stop()

    run(main())


def notices_of(
    changes: Sequence[tuple[int, int]], notices: Iterator[tuple[int, bool]], until_ms: int
) -> list[tuple[int, list[int]]]:
    """A second version of the rule, look by look: when which partitions are told of. A look takes as long as its
    notice; the next is at the next even time after it. All that has changed since the last notice that was taken began
    is told of, be it that the same partition was in that one."""
    told, now, last, told_until = list[tuple[int, list[int]]](), 0, 0, 0
    while now < until_ms:
        owed = {partition for at, partition in changes if told_until <= at < now}
        quiet_since = max((at for at, _ in changes if at < now), default=0)
        taken_ms = 0
        if owed and (quiet_since + 5_000 < now or last + 60_000 < now):
            told.append((now, sorted(owed)))
            taken_ms, is_refused = next(notices, (0, False))
            if not is_refused:
                last = told_until = now
        now = 2_500 * (math.floor((now + taken_ms) / 2_500) + 1)
    return told


#: ms at which the ISR of a partition is written; of each notice: ms until its answer, whether it is refused
#: -> when notices begin, and of whom they tell
SLOW_OR_REFUSED = {
    "what changes while a notice is on its way is told by the next": (
        [(70_000, 0), (74_000, 1)], [(4_000, False)], [(72_500, [0]), (80_000, [1])],
    ),
    "so is a partition that the notice names, and that changes once more": (
        [(70_000, 0), (70_001, 1), (74_000, 0)], [(4_000, False)], [(72_500, [0, 1]), (80_000, [0])],
    ),
    "a notice that is refused is written again at the next look": (
        [(1_000, 0)], [(0, True), (10, True)], [(7_500, [0]), (10_000, [0]), (12_500, [0])],
    ),
    "with what has changed meanwhile, and a minute after the last one that was taken": (
        [(70_000, 0), (73_000, 1)], [(1_000, True)], [(72_500, [0]), (75_000, [0, 1])],
    ),
    "one that waits for ZooKeeper holds up all others": (
        [(70_000, 0), (80_000, 1), (90_000, 2)], [(30_000, False)], [(72_500, [0]), (105_000, [1, 2])],
    ),
}  # fmt: skip


def written_notices(
    folder: Path, changes: Sequence[tuple[int, int]], notices: Sequence[tuple[int, bool]], until_ms: int
) -> list[tuple[int, list[int]]]:
    """The same, of the real one."""

    async def main() -> list[tuple[int, list[int]]]:
        broker, writer, updates = isr_updates(folder)
        writer.notices = iter(notices)
        updates.start()
        for at, number in changes:
            await asyncio.sleep(at / 1000 - asyncio.get_running_loop().time())
            updates.write(partition_of(number), change(), decided_ms=broker.now_ms())
        await asyncio.sleep(until_ms / 1000 - asyncio.get_running_loop().time())
        await updates.stop()
        return [(at, [tp.partition for tp in partitions]) for at, partitions in writer.told]

    return run(main())


@pytest.mark.parametrize("name", SLOW_OR_REFUSED)
def test_no_change_is_lost_by_a_notice_that_is_slow_or_refused(tmp_path: Path, name: str) -> None:
    """Source: Kafka 3.9 `ZkAlterPartitionManager.maybePropagateIsrChanges`, which clears its set after the write."""
    changes, notices, expected = SLOW_OR_REFUSED[name]
    assert written_notices(tmp_path, changes, notices, 200_000) == expected
    assert notices_of(changes, iter(notices), 200_000) == expected, (
        "the second version, which drawn changes are held to"
    )


@pytest.mark.parametrize("seed", range(40))
def test_each_change_is_told_of_however_notices_go(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    gap_ms = chance.choice((300, 2_000, 9_000))
    times = sorted({chance.randrange(1, 60 * gap_ms) | 1 for _ in range(60)})  # odd: never when something else happens
    changes = [(at, chance.randrange(3)) for at in times]
    notices = [(2 * chance.randrange(chance.choice((1, 100, 6_000))), chance.random() < 0.3) for _ in range(50)]
    until_ms = times[-1] + 200_000
    told = written_notices(tmp_path, changes, notices, until_ms)
    assert told == notices_of(changes, iter(notices), until_ms)


@pytest.mark.parametrize("outcome", IsrWriteOutcome)
def test_writes_are_counted_by_what_became_of_them(tmp_path: Path, outcome: IsrWriteOutcome) -> None:
    async def main() -> None:
        _, writer, updates = isr_updates(tmp_path)
        writer.outcome = outcome
        assert (updates.written, updates.refused) == (dict.fromkeys(IsrChangeKind, 0), 0)
        for kind in (IsrChangeKind.SHRINK, IsrChangeKind.SHRINK, IsrChangeKind.EXPAND):
            updates.write(partition_of(0), change(kind), decided_ms=1)
        await asyncio.sleep(1)
        is_written = outcome is IsrWriteOutcome.WRITTEN
        assert updates.written == {IsrChangeKind.SHRINK: 2 * is_written, IsrChangeKind.EXPAND: 1 * is_written}
        assert updates.refused == 3 * (not is_written)

    run(main())


@pytest.mark.parametrize("length", [0, 3])
@pytest.mark.parametrize("is_current", [True, False])
def test_who_waits_is_woken_where_a_write_moves_the_watermark(tmp_path: Path, length: int, is_current: bool) -> None:
    async def main() -> None:
        _, writer, updates = isr_updates(tmp_path)
        partition, writer.takes_s = partition_of(0), 1.0
        led = partition.led
        led.append(length, 1)
        await asyncio.sleep(31)
        led.pending = change()
        updates.write(partition, led.pending, decided_ms=1)
        await asyncio.sleep(0.5)
        if not is_current:
            led.epoch += 1
        await asyncio.sleep(1)
        assert partition.higher_watermark.woken == (is_current and length > 0)
        assert (led.isr, led.partition_epoch) == (((1,), 7) if is_current else ((1, 2), 4))

    run(main())
