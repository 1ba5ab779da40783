"""How long an excuse lasts: a topic that may be deleted is held to everything until it is, and an unclean election ends
what was promised of records, not what replicas owe each other."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.sim.oracles import brokers, disks, logs
from controller.wire.protocol import ApiKey
from controller.wire.trace import STOP_DELETE, STOP_DELETE_TOPIC, STOP_KEEP, TraceEvent
from controller.world.simulated.world import World, run_world

from .cluster import Cluster
from .test_faults import TOPIC, leave_a_log_on, start_whole, write_batch
from .test_oracles import TP, Sound, another_byte, at_rest, changed, with_row
from .test_replication import Clock
from .test_traced import Scene

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("is_left", [False, True])
def test_a_topic_is_held_to_everything_unless_something_of_a_former_one_is_left(is_left: bool, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        with cluster.logging():
            await start_whole(cluster, [[1, 2, 3]])
            assert cluster.deletable == set(), "nobody has asked for its deletion"
            await write_batch(cluster, 3)
            if is_left:
                await leave_a_log_on(cluster, 3)
            else:
                await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [TOPIC], "timeout": 5_000})
                await cluster.until(lambda: cluster.partitions() == [], within_s=60, what="a deletion")
            assert cluster.deletable == {TOPIC}
            await cluster.create_topic(TOPIC, [[1, 2, 3]])
            assert cluster.deletable == ({TOPIC} if is_left else set())

    run_world(1, scenario)


@pytest.mark.parametrize(
    ("value", "is_forgotten"), [(STOP_DELETE, True), (STOP_DELETE_TOPIC, True), (STOP_KEEP, False)]
)
def test_a_watermark_goes_with_its_log(value: str, is_forgotten: bool) -> None:
    scene = Scene()
    scene.traced.looked_at(1, scene.broker, TP, 10)
    scene.row(TraceEvent.STOP, 5, value=value)
    scene.leads(hw=3)
    assert (scene.traced.broken == []) is is_forgotten, scene.traced.broken


def test_after_an_unclean_election_replicas_agree_all_the_same(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        cluster, history = sound.cluster, sound.history
        ahead = changed(sound.leader.led, "high_watermark", sound.follower.log.leo + 1)
        other = another_byte(sound.follower.log.segments[0].log_path, 15)
        oracles: list[tuple[Any, Any]] = [
            (ahead, brokers.isr_members_hold_what_is_committed),
            (other, partial(logs.logs_agree_below_watermarks, tail=None)),
        ]
        history.unclean.add(TP)
        for broken, oracle in oracles:
            with broken:
                assert list(oracle(cluster, history)), oracle
                history.records_may_be_lost([TP])
                assert not list(oracle(cluster, history)), oracle
                history.lost.clear()

    at_rest(tmp_path, look)


def test_after_an_unclean_election_a_watermark_counts_all_the_same() -> None:
    scene, clock = Scene(), Clock()
    scene.traced.looked_at(1, scene.broker, TP, 10)
    scene.history.unclean = clock.history.unclean = {TP}
    scene.leads(hw=3)
    assert "a watermark is forgotten" in scene.traced.broken[0]
    scene.traced.acknowledged(1, TP, 11, 0.0)
    assert "acknowledged t-0 up to 11" in scene.traced.broken[1]
    assert "an answer comes late" in clock.answered(8.0)[0]


def test_who_loses_records_in_an_epoch_is_held_to_none() -> None:
    scene, clock = Scene(), Clock()
    scene.history.lost = clock.history.lost = {TP}
    scene.traced.looked_at(1, scene.broker, TP, 10)
    scene.leads(hw=3)
    scene.traced.acknowledged(1, TP, 11, 0.0)
    assert scene.traced.broken == clock.answered(8.0) == []


@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_dir_that_fails_excuses_what_lies_in_it_alone(tmp_path: Path, is_its_own: bool) -> None:
    def look(sound: Sound) -> None:
        log_dir = sound.follower.log.log_dir if is_its_own else tmp_path / "another"
        ahead = changed(sound.leader.led, "high_watermark", sound.follower.log.leo + 1)
        with with_row(sound.cluster.disks[2].failing, log_dir, errno.EIO), ahead:
            seen = list(brokers.isr_members_hold_what_is_committed(sound.cluster, sound.history))
            served = [log_dir.path for broker, log_dir in disks.log_dirs(sound.cluster) if broker == 2]
        assert any("ISR member 2 ends" in line for line in seen) is not is_its_own
        assert served == ([] if is_its_own else [sound.follower.log.log_dir])

    at_rest(tmp_path, look)


def test_who_leads_since_an_unclean_election_promises_again(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        promises, epochs = partial(sound.play.ledger.leads_anew, TP), sound.history.unclean_epochs
        assert not promises(1), "there was none"
        epochs[TP] = sound.leader.led.epoch
        assert [promises(broker) for broker in (1, 2, 9)] == [True, False, False]
        epochs[TP] += 1
        assert not promises(1), "it is deposed, and has not heard of it"

    at_rest(tmp_path, look)
