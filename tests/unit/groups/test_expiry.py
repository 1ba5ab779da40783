"""Which offsets retention drops, which groups may go: every state, kind and age against the rule said once more.

Source: Kafka 3.9 `GroupMetadata.removeExpiredOffsets`, `GroupMetadataManager.cleanupGroupMetadata`.
"""

from __future__ import annotations

import itertools

import pytest

from broker_sim.groups.group import Group
from broker_sim.groups.members import Member, Members
from broker_sim.groups.records import CommittedOffset
from broker_sim.groups.registry import GroupEntry
from broker_sim.groups.retention import expired_offsets, may_die
from broker_sim.groups.values import GroupSettings, GroupState
from controller.wire.types import TopicPartition

READABLE, UNREADABLE = b"\x00\x00\x00\x00\x00\x01\x00\x01s\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00\x09"
#: topic -> when it was committed for: to `s` somebody subscribes, `w` is being committed again
COMMITTED = {"s": 0, "t": 0, "u": 3, "v": 7, "w": 0, "x": 0, "y": 7}
#: topic -> when its client said that it expires
EXPIRES = {"x": 104, "y": 103}
STATES = [each for each in GroupState if each is not GroupState.DEAD]


def group_of(state: GroupState, kind: str | None, changed_ms: int, subscription: bytes) -> Group:
    group = Group("g", GroupSettings())
    group.state, group.protocol_type, group.protocol_name = state, kind, "range"
    group.state_changed_ms = changed_ms
    if state is not GroupState.EMPTY:
        group.members = Members()
        for name, data in (("A", READABLE), ("B", subscription)):
            group.members[name] = Member(
                member_id=name, group_instance_id=None, client_id="", client_host="", session_timeout_ms=1,
                rebalance_timeout_ms=1, protocols=(("other", b""), ("range", data)),
            )  # fmt: skip
    return group


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", [None, "a", "consumer", "z"])
def test_what_retention_drops(state: GroupState, kind: str | None) -> None:
    has_members = state is not GroupState.EMPTY
    for changed_ms, before_ms, subscription in itertools.product((-1, 0, 1, 5), range(-2, 9), (READABLE, UNREADABLE)):
        if kind is None and has_members:
            continue
        offsets = {
            TopicPartition(topic, 4): CommittedOffset(
                offset=1, commit_timestamp=ms, expire_timestamp=EXPIRES.get(topic, -1)
            )
            for topic, ms in COMMITTED.items()
        }
        entry = GroupEntry(group_of(state, kind, changed_ms, subscription), offsets)
        entry.commits_under_way += [{}, {TopicPartition("w", 4): CommittedOffset(offset=2)}, {}]
        expected = set()
        for topic, committed_ms in COMMITTED.items():
            if has_members:
                is_unused = (state, kind, subscription) == (GroupState.STABLE, "consumer", READABLE) and topic != "s"
                since_ms = committed_ms
            else:
                is_unused, since_ms = True, committed_ms if kind is None or changed_ms == -1 else changed_ms
            is_over = EXPIRES[topic] - 100 <= before_ms if topic in EXPIRES else since_ms <= before_ms
            if is_unused and is_over and topic != "w":
                expected.add(topic)
        assert {tp.topic for tp in expired_offsets(entry, before_ms, before_ms + 100)} == expected, (
            changed_ms,
            before_ms,
        )
        assert not may_die(entry), "something is being committed"
        entry.commits_under_way.clear()
        assert may_die(entry) is not has_members
