"""One replica by itself: every row that it traces, whom it wakes, what it refuses, what becomes of its watermark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_sim.config import ReplicaSettings
from broker_sim.log.config import LogConfig
from broker_sim.log.log import Log
from broker_sim.replicas.fetch_progress import FetchProgress
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.types import FetchPartition
from controller.wire.control import LeaderAndIsrEntry
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import build_values, place
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

TP, ME = TopicPartition("t", 0), BrokerId(1)
BATCH = build_values([(None, b"v")] * 2, timestamp=1)
NONE, OFFLINE, NOT_LEADER, FENCED, AHEAD = (
    ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)  # fmt: skip


class Rows:
    """A trace that keeps what it is given."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def row(self, ev: TraceEvent, ts: int, tp: TopicPartition, **columns: Any) -> None:
        self.all.append({"ev": ev.value, "ts": ts, **columns})
        assert tp == TP

    def append_row(self, ts: int, tp: TopicPartition, **columns: Any) -> None:
        self.row(TraceEvent.APPEND, ts, tp, **columns)

    def fetch_row(self, ts: int, tp: TopicPartition, **columns: Any) -> None:
        self.row(TraceEvent.FETCH, ts, tp, **columns)

    def take(self) -> list[dict[str, Any]]:
        found, self.all = self.all, []
        return found


class World:
    """A partition with a log, and what it traced."""

    def __init__(self, folder: Path, *, hw: int = 0, length: int = 0, min_isr: int = 1) -> None:
        trace: Any = Rows()
        self.rows: Rows = trace
        settings = ReplicaSettings(log_dirs=(str(folder),), min_insync_replicas=min_isr, replica_lag_time_max_ms=100)
        self.partition = Partition(TP, ME, settings, trace)
        self.log = Log(TP, folder / "t-0", LogConfig())
        self.log.create()
        for base in range(0, length, 2):
            self.log.append_as_follower(place(BATCH, base_offset=base, partition_leader_epoch=0), now_ms=1)
        self.partition.attach_log(self.log, hw)

    def become(
        self,
        leader: int | None,
        epoch: int,
        isr: Any = (1, 2),
        *,
        replicas: Any = (1, 2, 3),
        adding: Any = (),
        now_ms: int = 1_050,
    ) -> None:
        entry = LeaderAndIsrEntry(
            topic_partition=TP,
            state=LeaderAndIsr(
                leader=leader, isr=isr, leader_epoch=epoch, partition_epoch=epoch + 5, controller_epoch=9
            ),
            assignment=ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=(2,)),
        )
        if leader == ME:
            self.partition.make_leader(entry, now_ms=now_ms, alive={1, 2, 3})
        else:
            self.partition.make_follower(entry, now_ms=now_ms)

    def append(self, *, acks_all: bool = False, now_ms: int = 1_060) -> Any:
        return self.partition.append(BATCH, now_ms=now_ms, needs_min_isr=acks_all, is_client=True)

    def fetch(self, replica: int, offset: int, *, returned: int = 0, error: ErrorCode = NONE, start: int = 0) -> Any:
        position = FetchPartition(offset, 100, 4, start)
        return self.partition.record_fetch(
            BrokerId(replica), position, returned_bytes=returned, throttled=False, error=error, now_ms=1_070
        )  # fmt: skip

    @property
    def wakes(self) -> tuple[int, int, int]:
        """How often those were woken who wait for records, for the high watermark, for the starts of logs."""
        waiters = self.partition.longer_log, self.partition.higher_watermark, self.partition.log_starts_changed
        return tuple(each.wakes for each in waiters)  # type: ignore[return-value]


def test_a_replica_that_nobody_has_told_anything(tmp_path: Path) -> None:
    partition = World(tmp_path, hw=3, length=4, min_isr=2).partition
    assert (partition.hw, partition.led, partition.leader, partition.is_offline) == (3, None, None, False)
    epochs = partition.leader_epoch, partition.partition_epoch, partition.controller_epoch
    assert (epochs, partition.min_insync_replicas) == ((-1, 0, -1), 2)
    assert (partition.future_log, partition.future_hw, partition.future_cut) == (None, 0, None)
    assert [len(w) + w.wakes for w in (partition.longer_log, partition.higher_watermark)] == [0, 0]


#: who fetches from where, and how that went -> whether it is one of those that are told together
QUIET = [
    (2, 4, NONE, True),
    (2, 3, NONE, False),
    (2, 4, ErrorCode.FENCED_LEADER_EPOCH, False),
    (3, 4, NONE, False),
    (3, 3, NONE, False),
]


@pytest.mark.parametrize(("replica", "offset", "error", "changes_nothing"), QUIET)
def test_only_a_member_at_the_end_changes_nothing_by_a_fetch(
    tmp_path: Path, replica: int, offset: int, error: ErrorCode, changes_nothing: bool
) -> None:
    """Broker 3 is not in sync: it may join."""
    world = World(tmp_path, hw=4, length=4)
    world.become(1, 4)
    world.rows.take()
    for _ in range(2):
        world.fetch(replica, offset, error=error)
    assert [row["changes_nothing"] for row in world.rows.take()] == [changes_nothing] * 2


def test_the_rows_of_a_term(tmp_path: Path) -> None:
    world = World(tmp_path, hw=2, length=4)
    world.log.raise_log_start(1)
    world.become(1, 4, adding=(3,))
    assert world.log.epochs.entries[-1] == (4, 4) and world.wakes == (1, 1, 1)
    assert world.rows.take() == [
        {
            "ev": "leader", "ts": 1_050, "epoch": 4, "offset": 4, "leo": 4, "hw": 2, "log_start": 1, "isr": [1, 2],
            "replicas": [1, 2, 3], "adding": [3], "removing": [2], "zk_version": 9,
        }
    ]  # fmt: skip
    told = world.append()
    assert (told.base_offset, world.partition.hw, world.wakes) == (4, 2, (2, 1, 1))
    append = {"ev": "append", "ts": 1_060, "epoch": 4, "size_bytes": len(BATCH)}
    assert world.rows.take() == [append | {"offset": 4, "leo": 6, "hw": 2, "moves_hw": False}]
    fetch = {
        "ev": "fetch", "ts": 1_070, "replica": 2, "leo": 6, "epoch": 4, "log_start": 1, "req_epoch": 4, "err": 0,
        "throttled": False,
    }  # fmt: skip
    world.fetch(2, 4, returned=70)
    assert world.rows.take() == [fetch | {"offset": 4, "changes_nothing": False, "hw": 4, "bytes": 70}]
    assert world.wakes == (2, 2, 2), "the watermark rose, and where the follower's log starts is known"
    for _ in range(2):
        world.fetch(2, 6)
        row = fetch | {"offset": 6, "changes_nothing": True, "hw": 6, "bytes": 0}
        assert (world.rows.take(), world.wakes) == ([row], (2, 3, 2))
    world.fetch(2, 6, start=1)
    assert world.wakes == (2, 3, 3) and world.rows.take()
    world.fetch(2, 9, error=ErrorCode.OFFSET_OUT_OF_RANGE, start=5)
    row = fetch | {"offset": 9, "changes_nothing": False, "hw": 6, "bytes": 0, "err": 1}
    assert (world.rows.take(), world.wakes) == ([row], (2, 3, 3)), "who is refused changes nothing"
    world.become(None, 5, now_ms=1_090)
    assert world.rows.take() == [{"ev": "follower", "ts": 1_090, "epoch": 5, "replica": -1, "offset": 6, "hw": 6}]
    assert (world.partition.hw, world.partition.controller_epoch, world.partition.partition_epoch) == (6, 9, 10)
    assert world.fetch(2, 6) is None and world.rows.take() == []


@pytest.mark.parametrize("between", ["nothing", "it followed", "it had no leader"])
def test_what_a_leader_has_heard_of_its_followers_is_of_one_term_on_end(tmp_path: Path, between: str) -> None:
    """Who leads again after another did must hear anew how far its followers are, and where their logs begin; one that
    sits on goes on from there, but for those that have no replica any more."""
    world = World(tmp_path, length=4)
    partition = world.partition
    world.become(1, 4, (1, 2, 3))
    for follower in (2, 3):
        world.fetch(follower, 4, start=follower)
    partition.answered_late(BrokerId(2), 7)
    assert (partition.hw, partition.low_watermark()) == (4, 0)
    world.log.raise_log_start(4)
    assert partition.low_watermark() == 2
    if between != "nothing":
        world.become(2 if between == "it followed" else None, 5)
        assert partition.led is None and partition.hw == 4
    world.become(1, 6, (1, 3), replicas=(1, 3), adding=(3,))
    led, sits_on = partition.leading(), between == "nothing"
    assert (list(led.followers), led.followers[BrokerId(3)].log_end_offset) == ([3], 4 if sits_on else -1)
    assert (partition.hw, partition.low_watermark()) == (4, 3 if sits_on else -1)
    world.become(1, 7, (1, 2, 3))
    assert partition.low_watermark() == -1, "nothing has been heard of 2, which has a replica again"
    world.fetch(2, 4)
    assert world.rows.take()[-1]["bytes"] == (7 if sits_on else 0)


@pytest.mark.parametrize("leader", [1, 2, None])
def test_a_replica_is_as_it_was_last_told(tmp_path: Path, leader: int | None) -> None:
    world = World(tmp_path)
    partition = world.partition
    for epoch, adding in ((3, (3,)), (4, ())):
        world.become(leader, epoch, adding=adding)
        assert (partition.leader, partition.leader_epoch, partition.controller_epoch) == (leader, epoch, 9)
        assert (partition.partition_epoch, partition.assignment.adding_replicas) == (epoch + 5, adding)
        led = partition.led
        if leader == ME:
            assert led is not None and (led.epoch, led.partition_epoch, led.isr) == (epoch, epoch + 5, (1, 2))
            assert (led.replicas, led.adding, led.removing) == ((1, 2, 3), adding, (2,))
            assert (led.alive, led.lag_time_max_ms, led.replication_factor) == ({1, 2, 3}, 100, 3 - len(adding))
        else:
            assert led is None


@pytest.mark.parametrize("isr", [(1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("now_ms", [50, 1_050], ids=["others have just caught up", "they have not for long"])
def test_an_append_tells_whether_it_moves_the_watermark(tmp_path: Path, isr: Any, now_ms: int) -> None:
    """Or may: the leader is alone, but who has just caught up is waited for (Kafka 3.6 and later)."""
    world = World(tmp_path)
    world.become(1, 0, isr, now_ms=now_ms)
    world.append(now_ms=now_ms)
    alone = len(isr) == 1
    rises = alone and now_ms > 100
    assert world.rows.take()[-1]["moves_hw"] is alone and world.partition.hw == (2 if rises else 0)
    assert world.wakes == (2, 1 + rises, 1)


@pytest.mark.parametrize("led_before", [False, True])
@pytest.mark.parametrize(("min_isr", "hw"), [(1, 4), (2, 2)])
def test_a_leader_alone_commits_what_it_has_where_it_is_enough(
    tmp_path: Path, min_isr: int, hw: int, led_before: bool
) -> None:
    """By the `min.insync.replicas` of now, from its first moment on."""
    world = World(tmp_path, hw=2, length=4, min_isr=3 - min_isr if led_before else min_isr)
    if led_before:
        world.become(1, 4, (1, 2))
        world.partition.min_insync_replicas = min_isr
    world.become(1, 5, (1,))
    assert world.partition.hw == hw and world.rows.take()[-1]["hw"] == hw


@pytest.mark.parametrize("isr", [(1, 2), (1,)], ids=["a member's", "that of who joins by it"])
def test_a_fetch_that_raises_the_watermark_wakes_who_waits_for_it(tmp_path: Path, isr: Any) -> None:
    world = World(tmp_path)
    world.become(1, 0, isr, now_ms=50)
    world.append(now_ms=50)
    assert (world.partition.hw, world.wakes) == (0, (2, 1, 1)), "who has just caught up is waited for"
    change = world.fetch(2, 2)
    assert (change is not None, world.partition.hw, world.wakes) == (len(isr) == 1, 2, (2, 2, 2))


def test_bytes_that_came_late_are_told_with_the_next_fetch(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.become(1, 0)
    for late, returned, total in (((), 5, 5), ((1,), 5, 6), ((10, 3), 5, 18), ((0, -4), 0, 0)):
        for size in late:
            world.partition.answered_late(BrokerId(2), size)
        world.fetch(2, 0, returned=returned)
        assert world.rows.take()[-1]["bytes"] == total
    world.partition.answered_late(BrokerId(3), 7)
    world.fetch(2, 0)
    assert world.rows.take()[-1]["bytes"] == 0, "of another follower"


def code_of(work: Any) -> ErrorCode:
    try:
        work()
    except KafkaError as error:
        return ErrorCode(error.code)
    return NONE


def test_what_is_refused_and_in_which_order(tmp_path: Path) -> None:
    world = World(tmp_path, min_isr=2)
    partition = world.partition
    for leader in (2, 1):
        world.become(leader, 4 + (leader == 1), (1,))
        epoch, leads = partition.leader_epoch, leader == 1
        for asked, error in ((-1, NONE), (epoch, NONE), (epoch - 1, FENCED), (0, FENCED), (epoch + 1, AHEAD)):
            expected = error if error or leads else NOT_LEADER
            assert code_of(lambda asked=asked: partition.local_log(asked)) is expected
            assert code_of(lambda asked=asked: partition.local_log(asked, needs_leader=False)) is error
        assert code_of(partition.local_log) is code_of(partition.leading) is (NONE if leads else NOT_LEADER)
        assert code_of(world.append) is (NONE if leads else NOT_LEADER)
    assert code_of(lambda: world.append(acks_all=True)) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.go_offline()
    assert partition.is_offline and partition.log is None and partition.led is None
    assert code_of(lambda: partition.local_log(99)) is code_of(world.append) is OFFLINE
    assert world.wakes[0] == 4


def test_a_follower_follows_the_watermark_as_far_as_its_log_goes(tmp_path: Path) -> None:
    world = World(tmp_path, hw=1, length=6)
    partition = world.partition
    for leader_hw, hw in ((4, 4), (9, 6), (2, 2), (6, 6)):
        before = world.wakes
        partition.follow_watermark(leader_hw)
        assert (partition.hw, world.wakes) == (hw, (before[0], before[1] + 1, before[2]))
    world.log.raise_log_start(2)
    partition.follow_watermark(1)
    assert partition.hw == 2, "what is below the log's start is nowhere"
    partition.follow_watermark(9)
    assert partition.truncate(9) == 0 and partition.hw == 6
    assert partition.truncate(4) == len(BATCH) and partition.hw == 4
    partition.follow_watermark(2)
    assert partition.truncate(3) == len(BATCH) and partition.hw == 2
    partition.truncate_fully(8)
    assert (partition.hw, world.log.leo, world.log.log_start_offset) == (8, 8, 8)


def test_a_log_that_moves_is_cut_where_the_other_was(tmp_path: Path) -> None:
    world = World(tmp_path, length=8)
    partition, future = world.partition, Log(TP, tmp_path / "future", LogConfig())
    partition.truncate(7)
    assert partition.future_cut is None
    partition.attach_future(future, 3)
    assert (partition.future_log, partition.future_hw, partition.future_cut) == (future, 3, None)
    for offset, cut in ((6, 6), (7, 6), (4, 4), (5, 4)):
        partition.truncate(offset)
        assert partition.future_cut == cut
    partition.truncate_fully(3)
    assert partition.future_cut == 3
    partition.attach_future(future, 0)
    assert partition.future_cut is None


# -- how far a follower is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hw", "length", "lag", "is_settled"),
    [(0, 0, None, True), (0, 0, 5, True), (2, 2, 0, True), (2, 2, None, False), (2, 2, 1, False), (0, 2, 0, False)],
)
def test_when_only_records_can_be_news(tmp_path: Path, hw: int, length: int, lag: int | None, is_settled: bool) -> None:
    partition = World(tmp_path, hw=hw, length=length).partition
    progress = FetchProgress(partition=partition, epoch=4, offset=2, lag=lag)
    assert (progress.is_truncating, progress.is_failed, progress.not_before) == (True, False, 0.0)
    assert progress.is_settled is is_settled
    first = progress.ask(max_bytes=9, log_start_offset=1)
    assert first == FetchPartition(2, 9, 4, 1) and progress.ask(max_bytes=9, log_start_offset=1) is first
    progress.offset = 3
    assert progress.ask(max_bytes=9, log_start_offset=1) == FetchPartition(3, 9, 4, 1) == progress.asked
    partition.go_offline()
    assert not progress.is_settled
