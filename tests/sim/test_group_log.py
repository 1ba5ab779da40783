"""Groups and their log: silent while they are the same, and not when either has more than the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_sim.groups.coordinator import GroupCoordinator
from broker_sim.groups.records import CommittedOffset
from controller.rules.hashing import group_partition
from controller.sim.oracles.group_log import ORPHANED_S, GroupsInTheLog
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from tests.sim.test_oracles import TP, Sound, at_rest, changed

pytestmark = pytest.mark.sim
OTHER = TopicPartition(TP.topic, 1)


def _of_groups(sound: Sound) -> tuple[Any, Any]:
    """The registry of a coordinator that has groups, and an entry of one that has committed."""
    for _, broker in sorted(sound.cluster.brokers.items()):
        for entry in broker.context.groups.entries():
            if entry.offsets and entry.group.generation > 0:
                return broker.context.groups.registry, entry
    raise AssertionError("no group has committed")


def _coordinator(sound: Sound, group_id: str) -> GroupCoordinator:
    """Who serves this group."""
    every = (broker.context.groups for broker in sound.cluster.brokers.values())
    return next(groups for groups in every if groups.error_for(group_id) is None)


async def _commit(groups: GroupCoordinator, group_id: str, tp: TopicPartition, offset: int) -> ErrorCode:
    offsets = {tp: CommittedOffset(offset=offset, commit_timestamp=offset)}
    return await groups.commit(group_id, offsets, member_id="", group_instance_id=None, generation=-1)


async def _begun(groups: GroupCoordinator, group_id: str, tp: TopicPartition, offset: int) -> asyncio.Future[ErrorCode]:
    """A commit that is in the log of the leader and waits for the others."""
    commit = asyncio.ensure_future(_commit(groups, group_id, tp, offset))
    await asyncio.sleep(0)
    entry = groups.entry(group_id)
    assert entry is not None and entry.commits_under_way and tp not in entry.offsets
    return commit


def _failed(group_id: str, error: str, *, tombstones: int = 0) -> dict[str, Any]:
    return {"event": ev.GROUP_WRITE_FAILED, "group_id": group_id, "error": error, "tombstones": tombstones}


def test_a_deletion_that_waits_for_replicas_is_found(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        oracle = sound.play.watchers.group_log
        oracle.event(_failed("g", "NOT_ENOUGH_REPLICAS"))
        oracle.event(_failed("g", "NOT_LEADER_OR_FOLLOWER", tombstones=1))
        assert not sound.play.watchers.so_far()
        oracle.event(_failed("g", "NOT_ENOUGH_REPLICAS", tombstones=1))
        assert "what group g deletes waits for replicas" in sound.play.watchers.so_far()[0]

    at_rest(tmp_path, look)


def test_a_group_that_is_not_what_its_log_says_is_found(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        oracle = sound.play.watchers.group_log
        registry, entry = _of_groups(sound)
        group = entry.group

        def seen() -> str:
            return "; ".join(oracle.equals_the_groups(sound.cluster, sound.history))

        assert not seen()
        with changed(entry, "offsets", {TP: CommittedOffset(offset=99)}):
            assert "has committed" in seen()
        with changed(group, "generation", group.generation + 1):
            assert f"is in generation {group.generation}, in the log is" in seen()
        member = next(iter(group.members.values()))
        with changed(member, "assignment", b"other"):
            assert "has members" in seen()
        with changed(entry, "group", group):
            registry.remove(group.group_id)
            assert f"group {group.group_id} is gone, in the log are" in seen()
            oracle.event(_failed(group.group_id, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"))
            assert not seen(), "a write of it failed"

    at_rest(tmp_path, look, group_members=1)


def test_what_was_being_committed_when_its_group_was_deleted_is_gone_from_the_log(tmp_path: Path) -> None:
    async def look(sound: Sound) -> None:
        oracle, groups = sound.play.watchers.group_log, _coordinator(sound, "g")

        def seen() -> str:
            return "; ".join(oracle.equals_the_groups(sound.cluster, sound.history))

        assert await _commit(groups, "g", TP, 1) is ErrorCode.NONE
        commit = await _begun(groups, "g", OTHER, 2)
        assert groups.delete_group("g") is ErrorCode.NONE
        assert await commit is ErrorCode.NONE
        assert not seen()
        assert await _commit(groups, "g", TP, 3) is ErrorCode.NONE
        assert not seen(), "who has its name now has not committed that"
        with changed(groups.entry("g"), "offsets", {}):
            assert "group g has committed {}, in the log are" in seen()
        assert await _commit(groups, "g", OTHER, 4) is ErrorCode.NONE
        assert not seen()

    at_rest(tmp_path, look, group_members=1)


def test_what_a_deleted_group_had_committed_may_not_be_in_the_log(tmp_path: Path) -> None:
    async def look(sound: Sound) -> None:
        oracle, groups = sound.play.watchers.group_log, _coordinator(sound, "g")
        assert await _commit(groups, "g", TP, 1) is ErrorCode.NONE
        commit = await _begun(groups, "g", OTHER, 2)
        groups.registry.remove("g")  # as if no tombstone were written
        assert await commit is ErrorCode.NONE
        assert [wrong.partition(": ")[2] for wrong in oracle.equals_the_groups(sound.cluster, sound.history)] == [
            f"group g is gone, in the log are {[TP, OTHER]} and None"
        ]

    at_rest(tmp_path, look, group_members=1)


def test_an_offset_of_a_partition_that_is_gone_is_found_after_a_while(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        cluster, history = sound.cluster, sound.history
        _, entry = _of_groups(sound)
        oracle = GroupsInTheLog(cluster, history)
        metadata: list[Any] = [broker.context.metadata for broker in cluster.brokers.values()]
        offset = CommittedOffset(offset=5)
        with changed(entry, "offsets", {TP: offset}):
            oracle.look()
            for cache in metadata:
                cache.partition = lambda _: None  # as if it were deleted now
            oracle.look()
            late = list(oracle.forgets_what_is_deleted(cluster, history, within_s=-1))
            assert len(late) == 1 and "still has 5 for" in late[0]
            assert not list(oracle.forgets_what_is_deleted(cluster, history, within_s=ORPHANED_S))
            with changed(entry, "offsets", {TP: CommittedOffset(offset=5)}):
                assert not list(oracle.forgets_what_is_deleted(cluster, history, within_s=-1)), "another commit"
            oracle.event(_failed(entry.group.group_id, "KAFKA_STORAGE_ERROR", tombstones=1))
            late = list(oracle.forgets_what_is_deleted(cluster, history, within_s=-1))
            assert len(late) == 1, "also where it could not be written"

    at_rest(tmp_path, look, group_members=1)


@pytest.mark.parametrize(
    ("topic", "ends", "lost"),
    [
        (GROUP_METADATA_TOPIC, [(0, 0), (0, 14), (0, 14), (0, 20)], []),
        (GROUP_METADATA_TOPIC, [(0, 14), (1, 7)], []),
        (GROUP_METADATA_TOPIC, [(0, 14), (0, 7), (0, 7), (0, 13), (1, 1), (1, 0)], [0, 1]),
        (TP.topic, [(0, 14), (0, 7)], []),
    ],
)
def test_a_coordinator_that_has_less_than_the_last_one_is_seen(
    topic: str, ends: list[tuple[int, int]], lost: list[int], tmp_path: Path
) -> None:
    """What the last one had read above its watermark may be gone; generations may come again, of its groups alone."""

    def look(sound: Sound) -> None:
        oracle, ledger = GroupsInTheLog(sound.cluster, sound.history), sound.play.ledger
        oracle.on_loss = sound.play.watchers.group_log.on_loss
        partitions = int(sound.cluster.settings["offsets.topic.num.partitions"])
        of = {group_partition(group, partitions): group for group in map(str, range(20))}
        for group in of.values():
            ledger.claimed(group, 1, {0}, "one")
        for partition, end in ends:
            oracle.event({"event": ev.LEADER_STARTED, "topic": topic, "partition": partition, "offset": end})
        for group in of.values():
            ledger.claimed(group, 1, {0}, "other")
        assert [wrong.partition(":")[0] for wrong in ledger.broken] == [
            f"group {group}" for partition, group in of.items() if partition not in lost
        ]

    at_rest(tmp_path, look)
