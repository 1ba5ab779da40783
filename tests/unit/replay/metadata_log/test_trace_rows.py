"""Changes of a partition as rows of a trace: what the controller did, and what leaders must have seen."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.metadata_log.causes import Cause
from broker_sim.replay.metadata_log.fold import Change, Kind
from broker_sim.replay.metadata_log.trace_rows import EMITTED, Teller, broker_rows, config_row
from broker_sim.replay.metadata_log.words import words

CREATED = Change(
    10, 100, 1, Kind.CREATED, Cause.CREATION, 1, 0, 0, None, [1, 2, 3], [1, 2, 3], [], [], [], [], False, None, True
)


def told(*changes: Change) -> list[dict[str, Any]]:
    teller = Teller(topic="t", partition=0, controllers={1: 101})
    for change in changes:
        teller.feed(change)
    rows = [dict(zip(EMITTED, row, strict=True)) for row in teller.rows]
    assert sorted({row["seq"] for row in rows}) == [row["seq"] for row in rows]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["ev"], r["broker"], r.get("epoch"), r.get("zk_version"), r.get("replica"), r.get("isr")) for r in rows]


def after(**said: Any) -> Change:
    base = CREATED._replace(
        offset=11, ts=110, event=Kind.CHANGED, partition_epoch=1, isr_old=[1, 2, 3], is_reassigned=False
    )
    return base._replace(leader_epoch_old=0, **said)


def test_a_new_partition_is_assigned_elected_and_led() -> None:
    rows = told(CREATED)
    assert brief(rows) == [
        ("assign", 101, None, None, None, None),
        ("elect", 101, 0, 0, 1, [1, 2, 3]),
        ("leader", 1, 0, 0, None, [1, 2, 3]),
    ]
    assert rows[0]["value"] == "created"
    assert [r["src"] for r in rows] == ["metadata"] * 3


def test_a_state_of_a_snapshot_is_marked_and_no_beginning() -> None:
    rows = told(CREATED._replace(event=Kind.SNAPSHOT, cause=Cause.UNKNOWN))
    assert {r["src"] for r in rows} == {"snapshot"}
    assert "value" not in rows[0]


def test_what_the_leader_did_is_a_row_of_the_leader_for_each_replica() -> None:
    rows = told(CREATED, after(cause=Cause.LEADER, isr=[1]))[3:]
    assert brief(rows) == [("isr_shrink", 1, 0, 1, 2, [1]), ("isr_shrink", 1, 0, 1, 3, [1])]
    assert [(r["key"], r["value"]) for r in rows] == [("made_by", "leader")] * 2


@pytest.mark.parametrize("cause", [Cause.FENCING, Cause.SHUTDOWN, Cause.REGISTRATION])
def test_what_the_controller_did_within_the_epoch_reaches_the_leader_too(cause: str) -> None:
    rows = told(CREATED, after(cause=cause, isr=[1, 2]))[3:]
    assert brief(rows) == [("elect", 101, 0, 1, 1, [1, 2]), ("leader", 1, 0, 1, None, [1, 2])]
    assert (rows[0]["key"], rows[0]["value"]) == ("made_by", cause)


def test_nobody_learns_that_nobody_leads() -> None:
    rows = told(CREATED, after(cause=Cause.FENCING, isr=[], leader=-1, leader_epoch=1))[3:]
    assert brief(rows) == [("elect", 101, 1, 1, -1, []), ("follower", 1, 1, 1, -1, None)]


def test_a_leaders_write_that_raises_its_epoch_is_followed_by_its_leadership() -> None:
    """Metadata versions before 3.6 raise the leader's epoch when an ISR shrinks."""
    rows = told(CREATED, after(cause=Cause.LEADER, isr=[1, 2], leader_epoch=1))[3:]
    assert brief(rows) == [("isr_shrink", 1, 1, 1, 3, [1, 2]), ("leader", 1, 1, 1, None, [1, 2])]


def test_a_move_that_is_complete_is_an_admission_by_the_old_leader_and_a_state_by_the_controller() -> None:
    moving = CREATED._replace(replicas=[1, 2, 3, 4], adding=[4], removing=[1])
    done = after(cause=Cause.REASSIGNMENT_COMPLETE, isr=[2, 3, 4], leader=2, leader_epoch=1, replicas=[2, 3, 4])
    rows = told(moving, done._replace(is_reassigned=True))[3:]
    assert brief(rows) == [
        ("isr_expand", 1, 0, None, 4, [1, 2, 3, 4]),
        ("elect", 101, 1, 1, 2, [2, 3, 4]),
        ("leader", 2, 1, 1, None, [2, 3, 4]),
        ("assign", 101, None, None, None, None),
        ("follower", 1, 1, 1, 2, None),
    ]
    assert (rows[3]["replicas"], rows[3]["adding"]) == ([2, 3, 4], [])


def test_a_move_that_only_adds_is_one_write_of_the_leader() -> None:
    adding = CREATED._replace(isr=[1, 2], replicas=[1, 2, 3], adding=[3])
    done = after(cause=Cause.REASSIGNMENT_COMPLETE, isr_old=[1, 2], is_reassigned=True)
    assert [r[0] for r in brief(told(adding, done)[3:])] == ["isr_expand", "assign"]


def test_a_move_that_only_removes_is_none_of_the_leader() -> None:
    """All targets are in sync, so that the controller completes it as it is asked for."""
    done = after(cause=Cause.REASSIGNMENT_COMPLETE, isr=[1, 2], leader_epoch=1, replicas=[1, 2])
    rows = told(CREATED, done._replace(is_reassigned=True))[3:]
    assert brief(rows) == [
        ("elect", 101, 1, 1, 1, [1, 2]),
        ("leader", 1, 1, 1, None, [1, 2]),
        ("assign", 101, None, None, None, None),
    ]


@pytest.mark.parametrize(("event", "ev", "value"), [(Kind.DELETED, "delete", None), (Kind.UNKNOWN, "stop", "unknown")])
def test_what_ends_a_partition_is_told(event: str, ev: str, value: str | None) -> None:
    (row,) = told(Change(12, 120, 1, event, Cause.UNKNOWN))
    assert brief(told(CREATED, Change(12, 120, 1, event, Cause.UNKNOWN))[4:]) == [("follower", 1, 0, None, None, None)]
    assert (row["ev"], row["role"], row.get("value")) == (ev, "controller", value)
    assert told(Change(12, 120, 1, Kind.WITHOUT_STATE, Cause.UNKNOWN)) == []


# -- brokers and configs ----------------------------------------------------------------------------------------------

PLACE: dict[str, Any] = {"ts": 50, "controller": 101}


@pytest.mark.parametrize(
    ("event", "rows"),
    [
        ("registered", [("broker_down", 4, "9"), ("config", 4, "r1")]),
        ("unregistered", [("broker_down", 4, "9")]),
        ("fenced", [("broker_down", 4, "9")]),
        ("unfenced", [("broker_up", 4, "9")]),
        ("controlled_shutdown", []),
    ],
)
def test_who_serves(event: str, rows: list[tuple[Any, ...]]) -> None:
    said = list(broker_rows(**PLACE, event=event, broker=4, epoch=9, rack="r1"))
    assert [(r["ev"], r["replica"], r["value"]) for r in said] == rows


def test_settings_are_of_a_topic_a_broker_or_all_brokers_and_secrets_stay_where_they_are() -> None:
    def row(resource: int, name: str, key: str = "min.insync.replicas") -> dict[str, Any] | None:
        return config_row(**PLACE, resource=resource, name=name, key=key, value="2")

    topic, broker, every = row(2, "t"), row(4, "3"), row(4, "")
    assert topic is not None
    assert broker is not None
    assert every is not None
    assert (topic["topic"], broker["replica"], every["replica"]) == ("t", 3, None)
    assert row(4, "3", "listener.name.internal.ssl.key.password") is None
    assert row(32, "t") is None
    assert row(4, "²") is None


# -- what is printed --------------------------------------------------------------------------------------------------


def test_what_is_printed_of_a_log() -> None:
    summary = {
        "cluster": "abc", "files": 3, "offsets": [[0, 10], [20, 30]], "gaps": [[10, 20]], "is_complete": False,
        "changes": 7, "controllers": 2,
        "check": {"snapshot": 25, "partitions": 4, "different": 1, "named": ["t-0: isr"]},
        "transactions": {"committed": 1, "aborted": 2, "unfinished": 0}, "superseded": 0, "changes_without_state": 3,
        "not_decoded": {"unknown_record": 5}, "told": ["x: no metadata log in it"],
    }  # fmt: skip
    assert words(summary) == [
        "metadata log of cluster abc: 3 files, offsets 0 to 9, 20 to 29, 7 changes of partitions, "
        "2 elections of a controller",
        "not all of its history is there: what was before the first state is unknown; offsets 10 to 19 are in no file",
        "state at the snapshot of offset 25: 3 of 4 partitions equal",
        "t-0: isr",
        "not used: 2 aborted transactions, 3 changes without a known state, 5 unknown record",
        "x: no metadata log in it",
    ]
