"""Log dirs on slow and failing disks: what brokers leave to another thread takes its time, and what must hold then."""

from __future__ import annotations

import asyncio
import errno
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.log.errors import StorageFailure
from controller.sim.cluster import Cluster
from controller.sim.disk import SimulatedDisk
from controller.sim.oracles.dirs import Dirs
from controller.sim.oracles.groups import nobody_waits_who_was_answered
from controller.sim.oracles.tasks import Tasks
from controller.sim.plan import plan_of
from controller.sim.play import play
from controller.sim.programs import Programs
from controller.sim.shape import Shape
from controller.sim.steps import small_print
from controller.sim.steps.log_troubles import fill
from controller.sim.steps.slow_disks import SEGMENTS, new_topic
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import SetData
from controller.world.simulated.world import World, run_world

pytestmark = [pytest.mark.sim, pytest.mark.long]

TP = TopicPartition("t", 0)
HW, POINTS = checkpoints.HIGH_WATERMARK_FILE, checkpoints.RECOVERY_POINT_FILE


# -- work beside the loop ------------------------------------------------------------------------------------------


def beside(scenario: Callable[[World, SimulatedDisk, Programs], Awaitable[None]], folder: Path) -> None:
    async def run(world: World) -> None:
        disk = SimulatedDisk(random.Random(1), world.loop.time)
        programs = Programs(world, folder)
        programs.disks[1] = disk
        await scenario(world, disk, programs)

    run_world(1, run)


def test_what_waits_for_a_disk_takes_its_time_where_that_is_slow(tmp_path: Path) -> None:
    async def scenario(world: World, disk: SimulatedDisk, programs: Programs) -> None:
        done: list[float] = []
        await programs.beside(1, lambda: done.append(world.loop.time()))
        assert done == [0.0] and world.loop.time() == 0.0
        disk.slow_down(2.0)
        await programs.beside(1, lambda: done.append(world.loop.time()))
        assert 0 < done[1] < 2.0 and done[1] < world.loop.time() < 4.0

    beside(scenario, tmp_path)


def test_it_is_done_though_nobody_waits_any_more_and_tells_of_a_failure(tmp_path: Path) -> None:
    async def scenario(world: World, disk: SimulatedDisk, programs: Programs) -> None:
        disk.slow_down(1.0)
        done: list[int] = []
        waiting = asyncio.ensure_future(programs.beside(1, lambda: done.append(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await world.sleep(3.0)
        assert waiting.cancelled() and done == [1]

        def fails() -> None:
            raise StorageFailure(tmp_path, OSError(errno.EIO, "broken"))

        with pytest.raises(StorageFailure):
            await programs.beside(1, fails)

    beside(scenario, tmp_path)


def test_what_is_not_there_cannot_be_synced(tmp_path: Path) -> None:
    disk = SimulatedDisk(random.Random(1), lambda: 0.0)
    with pytest.raises(FileNotFoundError):
        disk.sync(tmp_path / "gone")


# -- oracles -------------------------------------------------------------------------------------------------------


class Fake:
    """A broker with a log of `t-0` in the first of two dirs."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.disk = SimulatedDisk(random.Random(1), lambda: self.now_s)
        self.log = SimpleNamespace(leo=9, recovery_point=5)
        self.dirs = [
            SimpleNamespace(path=folder / name, name=str(folder / name), is_online=True, logs={}, cleaned={})
            for name in ("broker-1", "broker-1-2")
        ]
        self.dirs[0].logs[TP] = self.log
        self.replica = SimpleNamespace(log=self.log, hw=7)
        of_broker = _Dirs(self.dirs)
        table = SimpleNamespace(dirs=of_broker, partitions={TP: self.replica})
        self.preferred: dict[TopicPartition, str] = vars(of_broker)["_preferred"]
        broker = SimpleNamespace(_context=1, replicas=SimpleNamespace(table=table))
        self.lives: dict[int, Any] = {1: broker}
        cluster: Any = SimpleNamespace(
            brokers=self.lives,
            disks={1: self.disk},
            shape=SimpleNamespace(log_dirs=2, hw_checkpoint_ms=1000, housekeeping_ms=1000),
            machine=lambda _: SimpleNamespace(is_stopped=False),
            world=SimpleNamespace(loop=SimpleNamespace(time=lambda: self.now_s)),
        )
        for each in self.dirs:
            each.path.mkdir()
        self.oracle = Dirs(cluster)
        self.says(HW, 7)
        self.says(POINTS, 5)

    def says(self, name: str, offset: int) -> None:
        (self.dirs[0].path / name).write_text(checkpoints.offsets_text({TP: offset}))

    def look_for(self, seconds: float) -> list[str]:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 0.25
            self.oracle.look()
        return self.oracle.broken


class _Dirs(list[Any]):
    """As `LogDirs`."""

    def __init__(self, dirs: list[Any]) -> None:
        super().__init__(dirs)
        self._preferred: dict[TopicPartition, str] = {}

    def get(self, tp: TopicPartition) -> Any:
        return next((each.logs[tp] for each in self if tp in each.logs), None)

    def dir_of(self, log: Any) -> Any:
        return next(each for each in self if log in each.logs.values())


@pytest.mark.parametrize("name", [HW, POINTS])
def test_a_checkpoint_that_a_failed_dir_kept_from_being_written_is_found(tmp_path: Path, name: str) -> None:
    fake = Fake(tmp_path)
    fake.disk.failing[fake.dirs[1].path] = errno.EIO
    assert fake.look_for(4.0) == [] and fake.oracle.looked
    fake.replica.hw, fake.log.recovery_point = 9, 9
    fake.says(POINTS if name == HW else HW, 9)
    assert fake.look_for(1.0) == []
    assert f"{name} of broker-1 says {7 if name == HW else 5} of {TP}" in fake.look_for(1.0)[0]


def test_what_a_log_lost_or_is_new_is_no_fault_of_a_checkpoint(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.disk.failing[fake.dirs[1].path] = errno.EIO
    fake.look_for(3.0)
    fake.replica.hw = fake.log.recovery_point = 2
    fake.says(HW, 2)
    fake.says(POINTS, 2)
    assert fake.look_for(3.0) == []
    fake.dirs[0].logs[TP] = fake.replica.log = SimpleNamespace(leo=9, recovery_point=9)
    assert fake.look_for(1.0) == []


@pytest.mark.parametrize("event", [ev.LOG_TRUNCATED, ev.FOLLOWER_STARTED])
def test_what_was_cut_and_came_back_is_no_fault_of_a_checkpoint(tmp_path: Path, event: str) -> None:
    """World 156: the watermark was 66, sank to 52, was written, and rose again before the next look."""
    fake = Fake(tmp_path)
    fake.disk.failing[fake.dirs[1].path] = errno.EIO
    fake.replica.hw = 9
    fake.says(HW, 9)
    fake.look_for(3.0)
    fake.oracle.event({"event": event, "broker_id": 1, "topic": "t", "partition": 0})
    fake.says(HW, 2)
    assert fake.look_for(0.5) == []
    assert "says 2 of" in fake.look_for(1.5)[0], "it was to be written since"


def test_a_dir_that_is_given_up_while_its_disk_works_is_found(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    event = {"event": ev.LOG_DIR_FAILED, "broker_id": 1, "log_dir": fake.dirs[0].name, "reason": "no such file"}
    fake.disk.failing[fake.dirs[0].path] = errno.EIO
    fake.oracle.event(event)
    assert fake.oracle.broken == []
    fake.disk.failing.clear()
    fake.oracle.event(event)
    assert "no such file" in fake.oracle.broken[0]


def test_a_watermark_of_a_former_log_is_found_on_a_slow_disk(tmp_path: Path) -> None:
    fake, about = Fake(tmp_path), {"broker_id": 1, "topic": "t", "partition": 0}
    fake.says(HW, 40)
    fake.disk.slow_down(1.0)
    assert fake.look_for(0.5) == [], "it may have been cut in a former life"
    fake.oracle.event({"event": ev.LOG_CREATED, **about})
    assert "is 40 on disk, its log ends at 9" in fake.look_for(0.25)[0]
    found = len(fake.oracle.broken)
    fake.oracle.event({"event": ev.LOG_TRUNCATED, **about})
    assert len(fake.look_for(0.5)) == found
    fake.oracle.event({"event": ev.LOG_CREATED, **about})
    fake.lives[1] = SimpleNamespace(**vars(fake.lives[1]))
    assert len(fake.look_for(0.5)) == found, "a start finds less of a log than was there"


def test_a_compaction_of_what_is_not_there_and_a_wish_that_stays_are_found(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.dirs[0].cleaned[TP] = 9
    fake.preferred[TP] = fake.dirs[1].name
    assert fake.look_for(0.25) == []
    fake.dirs[0].cleaned[TP] = 10
    assert "compacted up to 10, its log ends at 9" in fake.look_for(0.25)[0]
    fake.dirs[0].cleaned.clear()
    fake.preferred[TP] = fake.dirs[0].name
    assert "is still wished to" in fake.look_for(0.25)[-1]


def test_a_task_that_ends_by_a_fault_of_the_code_is_found() -> None:
    tasks = Tasks()
    about = {"event": ev.TASK_FAILED, "task": "group-load", "broker_id": 1}
    tasks.event({**about, "reason": "OSError()", "exc_info": OSError()})
    tasks.event({**about, "reason": "it ended", "exc_info": None})
    assert tasks.broken == []
    tasks.event({**about, "reason": "KeyError(1)", "exc_info": KeyError(1)})
    assert tasks.broken == ["broker 1: the task group-load ends with KeyError(1)"]


def test_a_request_that_nobody_parks_any_more_is_found() -> None:
    member = SimpleNamespace(join=1, sync=None)
    entry = SimpleNamespace(group=SimpleNamespace(members={"m": member}))
    coordinator = SimpleNamespace(entries=lambda: [entry], _waiting={1: object()})
    broker = SimpleNamespace(_context=1, context=SimpleNamespace(groups=coordinator))
    cluster: Any = SimpleNamespace(brokers={1: broker})
    nobody: Any = None
    assert list(nobody_waits_who_was_answered(cluster, nobody)) == []
    member.join = 2
    assert "still waits with 1 requests" in next(nobody_waits_who_was_answered(cluster, nobody))


# -- steps ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("roll_while_it_flushes", "'answered']"),
        ("compact_while_it_flushes", "times ['answered']"),
        ("delete_while_it_compacts", "s: compacted"),
        ("made_anew_under_a_checkpoint", "s, met, deleted: answered"),
        ("lead_while_it_loads", "40 groups, answered"),
        ("lead_what_was_compacted", "'compacted up to 4"),
    ],
)
def test_other_things_happen_while_a_disk_is_waited_for(kind: str, says: str) -> None:
    world = {"idempotent_producers": "1", "brokers": "3", "housekeeping_ms": "1500"}
    outcome = play(plan_of({"seed": 1, "world": world, "steps": [{"number": 1, "wait_s": 1.0, "kind": kind}]}))
    assert not outcome.broken
    assert says in outcome.taken[0], outcome.taken


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("delete_without_a_follower", ": answered"),
        ("keep_no_bytes", "answered, 0 bytes are left"),
        ("commit_on_a_broken_disk", ": NOT_COORDINATOR"),
        ("delete_who_left_at_once", "answered, deleted: answered"),
        ("set_for_all_logs", "answered, it is 0.31"),
        ("throttle_in_vain", "['OK', 'OK', 'OK']"),
        ("wish_and_come", ", second dir: answered, answered"),
    ],
)
def test_the_small_print_counts(kind: str, says: str) -> None:
    world = {"idempotent_producers": "1", "brokers": "4", "housekeeping_ms": "1500", "log_dirs": "2"}
    outcome = play(plan_of({"seed": 1, "world": world, "steps": [{"number": 1, "wait_s": 1.0, "kind": kind}]}))
    assert not outcome.broken
    assert says in outcome.taken[0], outcome.taken


# -- two of them at once -------------------------------------------------------------------------------------------

#: Two wishes for one topic.
FORMER, LATTER = {"segment.bytes": "400", "retention.bytes": "0"}, {"segment.bytes": "400"}


def whole(scenario: Callable[[Cluster, Turn, Turn], Awaitable[None]], seed: int, folder: Path) -> None:
    """The scenario with a cluster that has begun, and two turns that draw the same."""

    async def run(world: World) -> None:
        shape = replace(Shape(), brokers=2, controllers=1, housekeeping_ms=1500)
        cluster = Cluster(world, folder, shape=shape)
        with cluster.logging():
            await cluster.start()
            await world.until(cluster.healthy, within_s=60, what="a whole cluster")
            await scenario(cluster, Turn(cluster, random.Random(seed)), Turn(cluster, random.Random(seed)))

    run_world(seed, run)


@pytest.mark.parametrize("number", range(1, 6))
def test_who_is_given_a_topic_has_it_with_its_own_configs(number: int, tmp_path: Path) -> None:
    """World 5414: one made the topic, another wrote its configs in the same moment."""

    async def scenario(cluster: Cluster, one: Turn, other: Turn) -> None:
        wishes = (FORMER, LATTER)
        making = (new_topic(turn, wish) for turn, wish in zip((one, other), wishes, strict=True))
        given = await asyncio.gather(*making, return_exceptions=True)
        assert all(isinstance(each, str | NothingThere) for each in given), given
        assert len(cluster.children("/brokers/topics")) == 1, "both want the same"
        for wish, topic in zip(wishes, given, strict=True):
            there = cluster.znode(f"/config/topics/{topic}")["config"] if isinstance(topic, str) else wish
            assert wish.items() <= there.items()

    whole(scenario, number, tmp_path)


@pytest.mark.parametrize("is_taken_back", [True, False])
def test_bytes_are_kept_once_nobody_says_any_more_that_none_are(
    is_taken_back: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Brokers that keep them are at fault only as long as that is still said in ZooKeeper."""

    async def scenario(cluster: Cluster, turn: Turn, _: Turn) -> None:
        async def fill_and_write(turn: Turn, topic: str, *rest: Any) -> str:
            went = await fill(turn, topic, *rest)
            if is_taken_back:
                content = json.dumps({"version": 1, "config": LATTER}).encode()
                await cluster.write_znode(SetData(f"/config/topics/{topic}", content))
            for broker in cluster.brokers.values():
                assert broker.replicas is not None
                broker.replicas.configs.set_topic_config(topic, LATTER)
            return went

        monkeypatch.setattr(small_print, "fill", fill_and_write)
        if is_taken_back:
            with pytest.raises(NothingThere):
                await small_print.keep_no_bytes(turn)
        else:
            await small_print.keep_no_bytes(turn)
        assert bool(cluster.contradictions) is not is_taken_back

    whole(scenario, 1, tmp_path)


def test_who_throttles_in_vain_takes_it_back(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, turn: Turn, _: Turn) -> None:
        topic = (await small_print.throttle_in_vain(turn)).split()[0]
        assert cluster.znode(f"/config/topics/{topic}")["config"].keys() == SEGMENTS.keys()

    whole(scenario, 1, tmp_path)
