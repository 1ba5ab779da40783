"""Groups and their log: silent while they are the same, and not when either has more than the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_sim.groups.records import CommittedOffset
from controller.sim.oracles.group_log import ORPHANED_S, GroupsInTheLog
from controller.wire import log_events as ev
from tests.sim.test_oracles import TP, Sound, at_rest, changed

pytestmark = pytest.mark.sim


def _of_groups(sound: Sound) -> tuple[Any, Any]:
    """The registry of a coordinator that has groups, and an entry of one that has committed."""
    for _, broker in sorted(sound.cluster.brokers.items()):
        for entry in broker.context.groups.entries():
            if entry.offsets and entry.group.generation > 0:
                return broker.context.groups.registry, entry
    raise AssertionError("no group has committed")


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
            oracle.event({"event": ev.GROUP_WRITE_FAILED, "group_id": group.group_id})
            assert not seen(), "a write of it failed"

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
            oracle.event({"event": ev.GROUP_WRITE_FAILED, "group_id": entry.group.group_id})
            assert not list(oracle.forgets_what_is_deleted(cluster, history, within_s=-1)), "it could not be written"

    at_rest(tmp_path, look, group_members=1)
