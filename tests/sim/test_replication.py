"""What is looked at of replication and of logs: a sound cluster at rest, one thing broken in it, and the complaint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.log.compaction import OffsetMap, Retention, compacted
from broker_sim.log.config import LogConfig
from broker_sim.log.log import Log
from broker_sim.log.producers import ProducerStates
from broker_sim.log.segment import CLEANED_SUFFIX
from controller.sim.oracles import brokers, disks
from controller.sim.oracles.answers import Answers
from controller.sim.oracles.compacted import Newest, newest_of_each_key_is_left
from controller.sim.oracles.notices import Notices
from controller.sim.oracles.remembered import Remembered
from controller.wire import log_events as ev
from controller.wire.records import Record, build_batch, parse_header
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Create, Multi, SetData, ZkCode, ZkResult
from tests.sim.test_oracles import STATE, TP, Sound, another_byte, at_rest, changed, with_row

pytestmark = pytest.mark.sim


@contextmanager
def on_disk(sound: Sound, name: str, offset: int) -> Iterator[None]:
    """A checkpoint of broker 2 that says something else of the replica."""
    path = sound.follower.log.log_dir / name
    before = path.read_bytes() if path.exists() else None
    path.write_text(checkpoints.offsets_text({TP: offset}))
    yield
    path.unlink() if before is None else path.write_bytes(before)


@contextmanager
def a_move(sound: Sound) -> Iterator[None]:
    """The log of broker 3 as if it were the copy of that of broker 2, with another byte in it."""
    other, moves = sound.replica(3).log, sound.cluster.brokers[2].replicas.moves
    mover = SimpleNamespace(_partitions={TP: sound.follower}, _to_truncate=set())
    with changed(sound.follower, "future_log", other), changed(moves, "_movers", {0: mover}):
        assert not list(disks.moving_logs_agree(sound.cluster, sound.history))
        segment = other.segments[0]
        with another_byte(segment.log_path, segment.find(other.leo - 1)[0] + 15):
            yield


def _a_copy_of_nothing(sound: Sound) -> Any:
    (log_dir,) = sound.cluster.brokers[2].replicas.table.dirs
    return with_row(log_dir.futures, TopicPartition("t", 9), sound.follower.log)


#: (oracle, what is broken, how, a part of the complaint)
BROKEN: list[tuple[Callable[..., Iterator[str]], str, Callable[[Sound], Any], str]] = [
    (
        brokers.leaders_isr_was_written,
        "a leader that takes in whom nobody wrote",
        lambda s: changed(s.leader.led, "isr", (1, 3)),
        "an ISR that nobody wrote",
    ),
    (
        brokers.leaders_isr_was_written,
        "a leader with the version of a former write",
        lambda s: changed(s.leader.led, "partition_epoch", 77),
        "an ISR that nobody wrote",
    ),
    (
        disks.checkpoints_claim_no_more_than_there_is,
        "a recovery point of a log before this one",
        lambda s: on_disk(s, checkpoints.RECOVERY_POINT_FILE, s.follower.log.recovery_point + 1),
        "the recovery point on disk is",
    ),
    (
        disks.checkpoints_claim_no_more_than_there_is,
        "a log that was compacted where it has nothing",
        lambda s: on_disk(s, checkpoints.CLEANER_FILE, s.follower.log.leo + 1),
        "compacted up to",
    ),
    (
        disks.epoch_files_are_written,
        "an epoch that is on no disk",
        lambda s: changed(s.follower.log.epochs, "entries", [*s.follower.log.epochs.entries, (99, 10**6)]),
        "on disk",
    ),
    (disks.moving_logs_have_a_replica, "a log that moves alone", _a_copy_of_nothing, "but has no log of it"),
    (
        disks.moving_logs_agree,
        "a copy that is another",
        a_move,
        "the log that moves differs",
    ),
    (
        disks.logs_start_with_their_leader,
        "records that are deleted on the leader only",
        lambda s: changed(s.leader.log, "log_start_offset", 1),
        "t-0 starts at 0 on broker 2, at 1 on its leader 1",
    ),
    (
        Remembered().producers_equal_a_recount,
        "producers forgotten",
        lambda s: changed(s.follower.log, "producers", ProducerStates()),
        "the log remembers None",
    ),
]


def test_each_oracle_sees_what_it_is_for(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        for oracle, what, broken, complaint in BROKEN:
            before = list(oracle(sound.cluster, sound.history))
            assert not before, (what, before)
            with broken(sound):
                seen = list(oracle(sound.cluster, sound.history))
            assert any(complaint in line for line in seen), (what, seen)
            assert not list(oracle(sound.cluster, sound.history)), (what, "is not undone")

    at_rest(tmp_path, look)


def test_a_cut_takes_all_that_is_kept_of_a_log(tmp_path: Path) -> None:
    event = {"event": ev.LOG_TRUNCATED, "broker_id": 2, "topic": "t", "partition": 0}

    def look(sound: Sound) -> None:
        log, end = sound.follower.log, sound.follower.log.leo
        producer = SimpleNamespace(batches=[SimpleNamespace(last_offset=end)])
        table: list[tuple[Any, str]] = [
            (changed(sound.follower, "_follower_hw", end + 1), "above the end"),
            (changed(log, "recovery_point", end + 1), "recovery point"),
            (changed(log.epochs, "entries", [(1, 0), (2, end)]), "an epoch begins at or above"),
            (changed(log, "producers", [(1, producer)]), "a producer's last batch"),
            (on_disk(sound, checkpoints.RECOVERY_POINT_FILE, end + 1), "on disk, above the end"),
            (changed(log, "leo", end - 1), "batches up to"),
        ]
        for broken, complaint in table:
            cuts = disks.Cuts(sound.cluster)
            cuts.event(event)
            cuts.event(event | {"event": "other"})
            assert (cuts.broken, cuts.seen) == ([], 1)
            with broken:
                cuts.event(event)
            assert any(complaint in line for line in cuts.broken), (complaint, cuts.broken)

    at_rest(tmp_path, look)


def test_what_is_deleted_was_committed_and_what_is_full_is_on_the_disk(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        deleting, log = disks.Deleting(sound.cluster), sound.follower.log
        deleting.look()
        with changed(log, "log_start_offset", 3):
            deleting.look()
            assert deleting.broken == [], "up to the watermark anything may go"
        deleting.look()
        with changed(log, "log_start_offset", 3), changed(sound.follower, "_follower_hw", 2):
            deleting.look()
        assert "deleted t-0 from 0 up to 3, above its watermark 2" not in deleting.broken, "it was above before"
        with changed(sound.follower, "_follower_hw", 2):
            deleting.look()
            with changed(log, "log_start_offset", 3):
                deleting.look()
        assert ["up to 3, above its watermark 2" in line for line in deleting.broken] == [True]
        deleting.broken.clear()
        segment, loop = log.segments[0], sound.cluster.world.loop
        newest = copy(segment)
        newest.base_offset = segment.next_offset
        full = SimpleNamespace(all=(segment, newest), active=newest)
        sound.cluster.disks[2].append(segment.log_path, b"")  # from now on a part of it waits for a sync
        with changed(log, "_segments", full):
            deleting.look()
            assert deleting.broken == [], "it may have become full in this moment"
            with (
                changed(loop, "_virtual_s", 10**6)
                if hasattr(loop, "_virtual_s")
                else changed(loop, "time", _later(loop))
            ):
                deleting.look()
        assert ["is full since" in line for line in deleting.broken] == [True]

    at_rest(tmp_path, look)


def _later(loop: Any) -> Callable[[], float]:
    now_s = loop.time()
    return lambda: float(now_s + 1)


def test_each_isr_that_is_written_is_told_of(tmp_path: Path) -> None:
    notice = Create("/isr_change_notification/isr_change_", b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')

    def look(sound: Sound) -> None:
        cluster = sound.cluster
        sessions = cluster.world.zookeeper.sessions
        number = next(number for number, machine in sorted(sessions.items()) if machine == "broker-1")
        session: Any = SimpleNamespace(machine="broker-1", session_id=number)
        notices, done = Notices(cluster), ZkResult(ZkCode.OK)
        notices.operation(session, SetData(STATE, b"{}"), ZkResult(ZkCode.BAD_VERSION))
        assert list(notices.problems(cluster, sound.history)) == []
        notices.operation(session, SetData(STATE, b"{}"), done)
        (problem,) = notices.problems(cluster, sound.history)
        assert "broker-1 wrote the ISR of ('t', 0)" in problem
        with changed(cluster, "brokers", {}):
            assert list(notices.problems(cluster, sound.history)) == [], "the dead owe nothing"
        notices.operation(session, notice, done)
        assert (list(notices.problems(cluster, sound.history)), notices.paid) == ([], 1)
        write, over, late = SetData(STATE, b"{}", 4), SetData(STATE, b"{}", 5), ZkResult(ZkCode.BAD_VERSION)
        controller: Any = SimpleNamespace(machine="controller-9", session_id=-1)
        for steps, is_owed in (
            ([(session, write, done), (session, write, late)], True),
            ([(session, write, done), (controller, Multi((over,)), done)], True),
            ([(session, write, done), (session, over, done), (session, write, late)], True),
            ([(session, write, done), (controller, Multi((over,)), late), (session, write, late)], True),
            ([(session, write, done), (controller, Multi((over,)), done), (session, over, late)], True),
            ([(session, write, done), (controller, Multi((over,)), done), (session, write, late)], False),
        ):
            for step in steps:
                notices.operation(*step)
            assert bool(list(notices.problems(cluster, sound.history))) is is_owed, steps
            notices.operation(session, notice, done)

    at_rest(tmp_path, look)


class Clock:
    """A cluster in which time passes, and the watermark of `t-0` on broker 1 reached 10 at 5 s."""

    def __init__(self) -> None:
        self.now_s = 0.0
        network = SimpleNamespace(is_disturbed=False)
        world = SimpleNamespace(network=network, suspensions=0, loop=SimpleNamespace(time=lambda: self.now_s))
        self.cluster: Any = SimpleNamespace(world=world, paused=set())
        terms: Any = SimpleNamespace(reached_s=lambda broker, tp, end: 5.0 if end <= 10 else None)
        self.history: Any = SimpleNamespace(lost=set())
        self.answers = Answers(self.cluster, self.history, terms)

    def answered(self, at_s: float, *, end: int = 10, sent_s: float = 4.0) -> list[str]:
        self.now_s = at_s
        self.answers.acknowledged(1, ("t", 0), end, sent_s)
        return self.answers.broken


def test_an_answer_that_comes_late_is_found() -> None:
    assert Clock().answered(5.5) == []
    assert Clock().answered(8.0, end=11) == [], "nobody knows since when"
    assert Clock().answered(8.0, sent_s=7.5) == [], "it was asked again"
    assert "an answer comes late: broker 1 has the watermark of t-0 at 10 since 5.00 s" in Clock().answered(8.0)[0]
    slow = Clock()
    slow.now_s, slow.cluster.paused = 6.0, {1}
    slow.answers.look()
    slow.cluster.paused = set()
    assert slow.answered(8.0) == [], "its machine stood still"


def test_what_compaction_must_leave(tmp_path: Path) -> None:
    tp = TopicPartition("keyed", 0)
    log = Log(tp, tmp_path / "keyed-0", LogConfig(cleanup_policy="compact"))
    log.create()
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", None)):
        log.append_as_leader(build_batch([Record(0, 1, key, value)]), leader_epoch=0, now_ms=1)

    def look(sound: Sound) -> None:
        tables = sound.cluster.brokers[1].replicas.table.partitions
        with with_row(tables, tp, SimpleNamespace(log=log)), changed(sound.cluster, "state", lambda *_: {"isr": [1]}):
            cases: list[tuple[Newest, int]] = [
                ({b"a": (2, None), b"b": (1, b"2")}, 0),
                ({b"a": (0, b"1")}, 0),  # a newer one of the key is there
                ({b"a": (3, b"4")}, 1),
                ({b"b": (1, b"3"), b"c": (0, None)}, 2),
            ]
            for acked, lost in cases:
                assert len(list(newest_of_each_key_is_left(tp, acked, sound.cluster, sound.history))) == lost, acked

    at_rest(tmp_path / "cluster", look)


def overtaken(folder: Path, tp: TopicPartition) -> Log:
    """Producer 7 wrote at 0 and 3, producer 8 at 1, 2 and 4; what key a had before 4 is compacted away below 3."""
    sent = [
        build_batch([Record(0, 1, key, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        for producer_id, sequence, key in ((7, 0, b"a"), (8, 0, b"c"), (8, 1, b"a"), (7, 1, b"a"), (8, 2, b"a"))
    ]
    log = Log(tp, folder, LogConfig(cleanup_policy="compact", segment_bytes=3 * len(sent[0])))
    log.create()
    for each in sent:
        log.append_as_leader(each, leader_epoch=0, now_ms=1)
    newest = OffsetMap(9)
    for batch in log.batches():
        newest.put_batch(batch, parse_header(batch), 0)
    retention = Retention(newest=newest, now_ms=1, delete_retention_ms=1, last_offsets=log.producers.last_offsets())
    first, cleaned = log.segments[0], log.new_cleaned_segment(0, CLEANED_SUFFIX)
    for batch in list(log.batches())[:3]:
        if (left := compacted(batch, parse_header(batch), retention)) is not None:
            cleaned.append(left, parse_header(left))
    cleaned.seal()
    log.swap_in(cleaned, [first])
    return log


def test_what_a_cut_leaves_of_producers(tmp_path: Path) -> None:
    tp = TopicPartition("keyed", 0)
    log = overtaken(tmp_path / "keyed-0", tp)
    row = {"broker_id": 1, "topic": "keyed", "partition": 0}
    made, cut = row | {"event": ev.LOG_CREATED}, row | {"event": ev.LOG_TRUNCATED}

    def look(sound: Sound) -> None:
        def wrong(*events: dict[str, Any], has_power: bool = True) -> list[str]:
            remembered = Remembered()
            with with_row(tables, tp, SimpleNamespace(log=log)):
                if not has_power:
                    remembered.power_lost(sound.cluster, 1)
                for event in events:
                    remembered.event(event)
                return list(remembered.producers_equal_a_recount(sound.cluster, sound.history))

        tables = sound.cluster.brokers[1].replicas.table.partitions
        assert wrong() == [], "the last batch of each is there"
        log.truncate(3)
        eight, seven = wrong()
        assert "producer 8 wrote" in eight and "no batch is left of producer 7" in seven
        assert wrong(cut | {"offset": 3}) == wrong(has_power=False) == [], "the snapshot at 3 tells of them"
        assert len(wrong(cut | {"offset": 3, "broker_id": 2})) == 2, "another's log was cut"
        assert wrong(cut | {"offset": 3}, cut | {"offset": 2}) == [eight], "it wrote at 2 after the last cut"
        assert len(wrong(cut | {"offset": 3}, made)) == 2, "another log of that name was cut"
        with changed(log, "producers", ProducerStates()):
            assert "producer 8 wrote" in wrong(cut | {"offset": 3})[0], "forgotten, whatever was cut"
        with changed(log, "config", LogConfig()):
            assert wrong(cut | {"offset": 3}) == [eight], "nothing compacts it"

    at_rest(tmp_path / "cluster", look)
