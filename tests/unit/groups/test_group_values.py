"""What the values of groups are where nobody says, and that none changes once it is made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker_sim.groups import records, values
from broker_sim.groups.group import Group
from broker_sim.groups.members import Member
from broker_sim.groups.records import CommittedOffset, GroupKey, OffsetKey, StoredGroup, StoredMember
from broker_sim.groups.registry import LOAD_BATCHES_PER_TURN, GroupEntry
from broker_sim.groups.values import (
    GROUP_TRANSITIONS,
    GroupSettings,
    GroupState,
    Join,
    JoinAnswer,
    MemberEntry,
    Reply,
    Store,
    Sync,
    SyncAnswer,
)
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from tests.worlds.group_model import GroupModel, picture_of
from tests.worlds.groups import join_request

TP = TopicPartition("t", 0)
MEMBER = Member(
    member_id="m", group_instance_id=None, client_id="c", client_host="h", session_timeout_ms=1,
    rebalance_timeout_ms=2, protocols=(),
)  # fmt: skip
STORED = StoredMember(
    member_id="m", group_instance_id=None, client_id="c", client_host="h", rebalance_timeout_ms=1,
    session_timeout_ms=2, subscription=b"", assignment=b"",
)  # fmt: skip
#: a value as it is where nothing more is said -> its fields that nobody named
DEFAULTS: list[tuple[Any, dict[str, Any]]] = [
    (GroupSettings(), {"initial_rebalance_delay_ms": 3_000, "max_size": 2**31 - 1}),
    (
        Sync(member_id="m", generation=1),
        {"group_instance_id": None, "protocol_type": None, "protocol_name": None, "assignments": {}},
    ),
    (
        JoinAnswer(),
        {"error": ErrorCode.NONE, "member_id": "", "generation": -1, "protocol_type": None, "protocol_name": None,
         "leader": "", "members": ()},
    ),
    (
        SyncAnswer(),
        {"error": ErrorCode.NONE, "protocol_type": None, "protocol_name": None, "assignment": b""},
    ),
    (CommittedOffset(offset=1), {"leader_epoch": -1, "metadata": "", "commit_timestamp": -1,
                                   "expire_timestamp": -1}),
    (MEMBER, {"assignment": b"", "is_new": False, "join": None, "sync": None, "expires_at_ms": 0}),
    (GroupEntry(Group("g", GroupSettings())), {"offsets": {}, "commits_under_way": [], "timer": None}),
]  # fmt: skip
FROZEN: list[Any] = [
    *(value for value, _ in DEFAULTS[:5]),
    join_request(),
    MemberEntry(member_id="m", group_instance_id=None, metadata=b""),
    Reply(1, SyncAnswer()),
    Store(1, None),
    OffsetKey("g", TP),
    GroupKey("g"),
    STORED,
    StoredGroup(protocol_type="p", generation=1, protocol=None, leader=None, state_changed_ms=1, members=(STORED,)),
]


@pytest.mark.parametrize(("value", "fields"), DEFAULTS, ids=[type(row[0]).__name__ for row in DEFAULTS])
def test_what_a_value_is_where_nobody_says(value: Any, fields: dict[str, Any]) -> None:
    assert {name: getattr(value, name) for name in fields} == fields
    assert all(type(getattr(value, name)) is type(expected) for name, expected in fields.items())


def test_numbers_that_kafka_has() -> None:
    assert (values.NO_GENERATION, values.NO_MEMBER, values.NEW_MEMBER_JOIN_TIMEOUT_MS) == (-1, "", 300_000)
    assert LOAD_BATCHES_PER_TURN == 100
    assert (records.OFFSET_KEY_VERSION, records.OFFSET_VALUE_VERSION) == (1, 3)
    assert (records.GROUP_KEY_VERSION, records.GROUP_VALUE_VERSION) == (2, 3)
    assert picture_of(Group("g", GroupSettings())) == GroupModel(3_000, 2**31 - 1).picture()


@pytest.mark.parametrize("value", FROZEN, ids=[type(each).__name__ for each in FROZEN])
def test_no_value_changes(value: Any) -> None:
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, getattr(value, field.name))
    assert {Join, *map(type, FROZEN)} >= {
        each
        for module in (values, records)
        for each in vars(module).values()
        if dataclasses.is_dataclass(each) and each.__module__ == module.__name__
    }


#: from -> to, besides the end, which comes from anywhere
MOVES = {"Empty": "P", "PreparingRebalance": "CE", "CompletingRebalance": "PS", "Stable": "P", "Dead": ""}


def test_a_group_moves_as_kafkas_do_and_in_no_other_way() -> None:
    for from_ in GroupState:
        for to in GroupState:
            is_legal = to is GroupState.DEAD or to.value[0] in MOVES[from_.value]
            assert (from_ in GROUP_TRANSITIONS[to]) is is_legal, (from_, to)
