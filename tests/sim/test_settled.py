"""What must have come to its end at rest: a sound cluster, one thing broken in it, and the complaint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.oracles import settled
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import SetData, ZkCode, ZkResult
from tests.sim.test_oracles import STATE, TP, Sound, at_rest, changed, with_row, without, znode

pytestmark = pytest.mark.sim


@contextmanager
def both(*broken: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for each in broken:
            stack.enter_context(each)
        yield


@contextmanager
def there(path: Path, *, is_folder: bool) -> Iterator[None]:
    path.mkdir() if is_folder else path.touch()
    yield
    path.rmdir() if is_folder else path.unlink()


@contextmanager
def a_waiter(sound: Sound) -> Iterator[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    sound.leader.higher_watermark.add(future)
    yield
    sound.leader.higher_watermark.discard(future)


def fetchers(sound: Sound) -> Any:
    """Of broker 2, which follows 1."""
    return sound.cluster.brokers[2].replicas.fetchers.fetchers


def of_the_partition(sound: Sound) -> Any:
    """What its fetcher knows of the partition."""
    return next(vars(fetcher)["_states"] for (leader, _), fetcher in fetchers(sound).items() if leader == 1)


def registry(sound: Sound) -> Any:
    """The groups of broker 2."""
    return sound.cluster.brokers[2].context.groups.registry


def moved(sound: Sound) -> Any:
    """What broker 1 knows of where broker 3 is."""
    metadata = sound.cluster.brokers[1].context.metadata
    return with_row(metadata.brokers, 3, replace(metadata.brokers[3], rack="elsewhere"))


#: (oracle, what is broken, how, a part of the complaint)
BROKEN: list[tuple[Callable[..., Iterator[str]], str, Callable[[Sound], Any], str]] = [
    (
        settled.partitions_are_led_as_written,
        "a follower that has not heard of an epoch",
        lambda s: changed(s.follower, "leader_epoch", -1),
        "broker 2 t-0: leader and epoch are (1, -1), ZooKeeper says (1, 0)",
    ),
    (
        settled.partitions_are_led_as_written,
        "a follower of somebody else",
        lambda s: changed(s.follower, "leader", 3),
        "broker 2 t-0: leader and epoch are (3, 0)",
    ),
    (
        settled.partitions_are_led_as_written,
        "a leader that does not lead",
        lambda s: changed(s.leader, "led", None),
        "broker 1 t-0: does not lead",
    ),
    (
        settled.partitions_are_led_as_written,
        "two that lead",
        lambda s: changed(s.follower, "led", s.leader.led),
        "broker 2 t-0: leads, the leader is 1",
    ),
    (
        settled.partitions_are_led_as_written,
        "a leader that knows another version",
        lambda s: changed(s.leader.led, "partition_epoch", 99),
        "of version 99",
    ),
    (
        settled.partitions_are_led_as_written,
        "a leader that knows another ISR",
        lambda s: znode(s, STATE, b'"isr":[1,2,3]', b'"isr":[1,2]'),
        "leads with (1, 2, 3)",
    ),
    (
        settled.watermarks_reach_the_end,
        "a watermark that stands still",
        lambda s: changed(s.leader.led, "high_watermark", 0),
        "whose watermark stays at 0",
    ),
    (
        settled.watermarks_reach_the_end,
        "a follower that has not heard of the watermark",
        lambda s: changed(s.follower, "_follower_hw", 0),
        "on 2, in sync, they are",
    ),
    (
        settled.fetchers_follow_the_leaders,
        "a replica that nobody fetches",
        lambda s: without(of_the_partition(s), TP),
        "broker 2 follows 1 in t-0, and asks []",
    ),
    (
        settled.fetchers_follow_the_leaders,
        "a partition that two fetchers fetch",
        lambda s: with_row(fetchers(s), (3, 9), SimpleNamespace(_states={TP: None})),
        "broker 2 follows 1 in t-0, and asks [1, 3]",
    ),
    (
        settled.fetchers_follow_the_leaders,
        "a partition that is fetched by who has no replica",
        lambda s: with_row(of_the_partition(s), TopicPartition("gone", 0), None),
        "broker 2 follows None in gone-0, and asks [1]",
    ),
    (
        settled.nothing_is_left_to_be_removed,
        "a log that was deleted",
        lambda s: there(s.follower.log.folder.parent / f"gone-0.{'0' * 32}-delete", is_folder=True),
        "which was deleted",
    ),
    (
        settled.nothing_is_left_to_be_removed,
        "a segment that was deleted",
        lambda s: there(s.follower.log.folder / f"{0:020}.log.deleted", is_folder=False),
        "broker 2 has ['00000000000000000000.log.deleted'] in t-0",
    ),
    (
        settled.what_was_begun_is_over,
        "a move between dirs that does not end",
        lambda s: changed(s.follower, "future_log", s.replica(3).log),
        "broker 2 still moves t-0 to broker-3",
    ),
    (
        settled.what_was_begun_is_over,
        "a request that nobody answers",
        a_waiter,
        "1 requests wait for a higher watermark",
    ),
    (
        settled.what_was_begun_is_over,
        "a deletion of records that waits",
        lambda s: changed(s.leader, "log_starts_changed", [None]),
        "1 requests wait for records to be deleted",
    ),
    (
        settled.brokers_know_the_cluster,
        "a controller of before",
        lambda s: changed(s.cluster.brokers[1].context.metadata, "_controller_id", 99),
        "broker 1 takes 99 for the controller",
    ),
    (settled.brokers_know_the_cluster, "a broker that has moved", moved, "for broker 3, which is"),
    (
        settled.coordinators_are_who_leads,
        "groups of a partition that somebody else leads",
        lambda s: changed(registry(s), "_owned", {77}),
        "coordinates [",
    ),
    (
        settled.coordinators_are_who_leads,
        "groups that are being loaded for ever",
        lambda s: with_row(registry(s).loading, 77, None),
        "loads [77]",
    ),
    (
        settled.brokers_know_the_cluster,
        "a state that was written again",
        lambda s: changed(s.tree.get(STATE), "version", 99),
        "it is 99",
    ),
    (
        settled.brokers_know_the_cluster,
        "a broker that is not known",
        lambda s: without(s.cluster.brokers[1].context.metadata.brokers, 3),
        "broker 1 takes None for broker 3",
    ),
]


def test_no_oracle_is_left_out() -> None:
    assert {oracle for oracle, *_ in BROKEN} == {*settled.SETTLED}


def test_each_oracle_sees_what_it_is_for(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        for oracle, what, broken, complaint in BROKEN:
            assert not (before := list(oracle(sound.cluster, sound.history))), (what, before)
            with broken(sound):
                seen = list(oracle(sound.cluster, sound.history))
            assert any(complaint in line for line in seen), (what, seen)
            assert not list(oracle(sound.cluster, sound.history)), (what, "is not undone")

    at_rest(tmp_path, look)


def test_who_has_too_few_in_sync_commits_nothing(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        led = sound.leader.led
        with both(changed(led, "high_watermark", 0), changed(led, "min_insync_replicas", 2), changed(led, "isr", (1,))):
            assert not list(settled.watermarks_reach_the_end(sound.cluster, sound.history))

    at_rest(tmp_path, look)


def test_a_move_between_dirs_that_is_held_back_may_go_on(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        quota = sound.cluster.brokers[2].replicas.table.alter_log_dirs_quota
        with both(changed(sound.follower, "future_log", sound.replica(3).log), changed(quota, "bound", 1)):
            assert not list(settled.what_was_begun_is_over(sound.cluster, sound.history))

    at_rest(tmp_path, look)


def test_who_was_taken_away_is_gone_where_somebody_could_tell(tmp_path: Path) -> None:
    path = f"/brokers/topics/{TP.topic}"

    def look(sound: Sound) -> None:
        left, tree = settled.LeftOver(sound.cluster, sound.history), sound.tree
        session: Any = SimpleNamespace(machine="controller-1001")
        found = tree.get(path)
        content = json.loads(found.payload)

        def written(*replicas: int, code: ZkCode = ZkCode.OK) -> None:
            data = json.dumps(content | {"partitions": {"0": list(replicas)}}).encode()
            if code is ZkCode.OK:
                found.payload = data
            left.operation(session, SetData(path, data), ZkResult(code=code))

        def wrong() -> list[str]:
            return list(left.problems(sound.cluster, sound.history))

        with changed(found, "payload", found.payload):
            written(1, 2, 3)
            written(1, 2, code=ZkCode.BAD_VERSION)
            assert wrong() == [] and left.looked == 0, "it was not taken away"
            written(1, 2)
            assert wrong() == ["broker 3 still has t-0, of which it is no replica any more"]
            with changed(sound.history, "controller_epoch", 99):
                assert wrong() == [], "whoever is in office now tells nobody"
            with with_row(sound.cluster.brokers, 3, copy(sound.cluster.brokers[3])):
                assert wrong() == [], "another life of it"
            with changed(sound.cluster, "disks_failed", {3}):
                assert wrong() == [], "its log may lie in a dir that failed"
            with without(sound.cluster.brokers[3].replicas.table.partitions, TP):
                assert wrong() == []
            written(1, 2, 3)
            assert wrong() == [], "it is a replica again"

    at_rest(tmp_path, look)
