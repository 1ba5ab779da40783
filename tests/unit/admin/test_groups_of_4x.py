"""kafka-consumer-groups of 4.x: its tables, and whether a regular expression is one of RE2's."""

from __future__ import annotations

from typing import Any

import pytest

from controller.admin.cluster.client import Node
from controller.admin.commands import consumer_groups
from controller.admin.groups import tables_4x
from controller.admin.groups.queries import Group, GroupMember
from controller.admin.groups.tables import OffsetRow
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition

STATIC = GroupMember(
    member_id="m-1", group_instance_id="left", client_id="app", host="/h",
    assignment=tuple(TopicPartition(t, n) for t, n in (("b", 10), ("b", 9), ("a", 0))),
)  # fmt: skip
IDLE = GroupMember(member_id="m-2", group_instance_id=None, client_id="app", host="/h", assignment=())
GROUP = Group(
    group_id="g", state="Stable", strategy="range", members=(STATIC, IDLE),
    coordinator=Node(broker_id=BrokerId(1), host="a-host-with-a-rather-long-name", port=9092),
)  # fmt: skip


def test_members_have_epochs_and_targets() -> None:
    header, first, second = tables_4x.members(GROUP).splitlines()
    assert header.split() == [
        "GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT",
    ]  # fmt: skip
    assert first.split() == ["g", "m-1", "left", "/h", "app", "3", "-", "a:0;b:9,10", "-", "-"]
    assert second.split() == ["g", "m-2", "/h", "app", "0", "-", "-", "-", "-"]
    assert header.index("CURRENT-ASSIGNMENT") == first.index("a:0;b:9,10")


def test_the_state_has_epochs_when_asked_and_grows_with_its_coordinator() -> None:
    header, row = tables_4x.state(GROUP, verbose=True).splitlines()
    assert header.split()[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert row.split() == ["g", "a-host-with-a-rather-long-name:9092", "(1)", "range", "Stable", "-", "-", "2"]
    assert header.index("STATE") == row.index("Stable")


def test_offsets_have_the_leader_epoch_that_was_committed() -> None:
    row = OffsetRow(group="g", partition=TopicPartition("a", 0), current=3, end=5, member=None, leader_epoch=7)
    header, line = tables_4x.offsets([row], verbose=True).splitlines()
    assert dict(zip(header.split(), line.split(), strict=True))["LEADER-EPOCH"] == "7"
    assert "LEADER-EPOCH" not in tables_4x.offsets([row], verbose=False)


#: As `kafka-consumer-groups --validate-regex` of 4.1.0 said it.
REGEXES = (
    ("[a", "missing closing ]"),
    ("(a", "missing closing )"),
    ("a)", "regexp/syntax: internal error"),
    ("*a", "missing argument to repetition operator"),
    ("a**", "invalid nested repetition operator"),
    ("a{2,1}", "invalid repeat count"),
    ("a{1001}", "invalid repeat count"),
    ("\\", "trailing backslash at end of expression"),
    ("(?=a)", "invalid or unsupported Perl syntax"),
    ("(?P<1a)", "invalid named capture"),
    ("[b-a]", "invalid character class range"),
    ("\\8", "invalid escape sequence"),
    ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
    ("((a{100}){100}){100}", None),
    ("(?<x>a)|b", None),
)


@pytest.mark.parametrize(("regex", "why"), REGEXES)
def test_a_regex_is_judged_as_kafka_does_it_without_a_cluster(
    regex: str, why: str | None, cluster: Any, tool: Any
) -> None:
    outcome = tool(consumer_groups, cluster, ["--compat", "4.1", "--validate-regex", regex], bootstrap=None)
    judged = "valid" if why is None else f"invalid: {why}"
    assert (outcome.code, outcome.out) == (0, f"The regular expression `{regex}` is {judged}.\n")
    assert cluster.seen == []


def newer(broker: int, body: Any) -> dict[str, Any]:
    """`g` is a group of KIP-848, any other is not."""
    held = {"topic_partitions": [{"topic_id": None, "topic_name": "foo", "partitions": [1, 0]}]}
    due = {"topic_partitions": [{"topic_id": None, "topic_name": "foo", "partitions": [0]}]}
    member = {
        "member_id": "m-1", "instance_id": None, "rack_id": None, "member_epoch": 6, "client_id": "app",
        "client_host": "/h", "subscribed_topic_names": ["foo"], "assignment": held, "target_assignment": due,
    }  # fmt: skip
    found = {
        "error_code": 0, "group_state": "Reconciling", "group_epoch": 7, "assignment_epoch": 7,
        "assignor_name": "uniform", "members": [member],
    }  # fmt: skip
    none = {
        "error_code": 69,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }
    return {"groups": [{"group_id": g, **(found if g == "g" else none)} for g in body.group_ids]}


def test_a_group_of_the_newer_protocol_is_described(cluster: Any, tool: Any) -> None:
    """Asked for as a classic one it would be said not to exist."""
    cluster.topic("foo", (0, 1), (1, 0))
    cluster.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = newer
    words = ["--compat", "4.1", "--describe", "--group", "g"]
    outcome = tool(consumer_groups, cluster, [*words, "--members", "--verbose"])
    assert outcome.out.splitlines()[2].split() == ["g", "m-1", "/h", "app", "2", "6", "foo:0,1", "7", "foo:0"]
    assert "Warning: Consumer group 'g' is rebalancing." in outcome.err
    state = tool(consumer_groups, cluster, [*words, "--state", "--verbose"]).out.splitlines()[2]
    assert state.split()[-5:] == ["uniform", "Reconciling", "7", "7", "1"]
    cluster.groups["old"] = {"group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
    classic = tool(consumer_groups, cluster, ["--compat", "4.1", "--describe", "--group", "old", "--state"])
    assert classic.out.splitlines()[2].split()[-3:] == ["-", "Empty", "0"]


def test_where_some_members_are_upgraded_it_is_told_who_is(cluster: Any, tool: Any) -> None:
    """Brokers of 4.1 tell it; as soon as all are, nobody asks."""

    def half(broker: int, body: Any) -> dict[str, Any]:
        answer = newer(broker, body)
        one = answer["groups"][0]["members"][0]
        kinds = {"m-1": 1, "m-2": 0, "m-3": -1} if two else {"m-1": 1}
        answer["groups"][0]["members"] = [one | {"member_id": m, "member_type": kind} for m, kind in kinds.items()]
        return answer

    cluster.topic("foo", (0, 1), (1, 0))
    cluster.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = half
    words = ["--compat", "4.1", "--describe", "--group", "g", "--members", "--verbose"]
    two = True
    header, *rows = tool(consumer_groups, cluster, words).out.splitlines()[1:]
    assert header.endswith("TARGET-ASSIGNMENT    UPGRADED")
    assert [row.split()[-2:] for row in rows] == [["foo:0", "true"], ["foo:0", "false"], ["foo:0", "-"]]
    two = False
    assert "UPGRADED" not in tool(consumer_groups, cluster, words).out


#: what the coordinator says to the newer question -> whether the group is then asked for as a classic one
AS_CLASSIC = [
    (ErrorCode.GROUP_ID_NOT_FOUND, True), (ErrorCode.UNSUPPORTED_VERSION, True),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, False), (ErrorCode.INVALID_GROUP_ID, False),
]  # fmt: skip


@pytest.mark.parametrize(("code", "is_classic"), AS_CLASSIC)
def test_a_group_that_may_not_be_seen_is_not_taken_for_a_classic_one(
    cluster: Any, tool: Any, code: ErrorCode, is_classic: bool
) -> None:
    def refused(broker: int, body: Any) -> dict[str, Any]:
        answer = newer(broker, body)
        answer["groups"][0] |= {"error_code": int(code), "error_message": "not for you", "members": []}
        return answer

    cluster.groups["g"] = {"group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
    cluster.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = refused
    outcome = tool(consumer_groups, cluster, ["--compat", "4.1", "--describe", "--group", "g", "--state"])
    assert bool(cluster.requests(ApiKey.DESCRIBE_GROUPS)) is is_classic
    assert ("has no active members" in outcome.err, "not for you" in outcome.out) == (is_classic, not is_classic)


def test_an_epoch_of_zero_was_committed_too(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,), (1,), (2,))
    cluster.groups["g"] = {"group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
    epochs = {0: 0, 1: 7, 2: -1}
    cluster.answers[ApiKey.OFFSET_FETCH] = lambda *_: {
        "topics": [{"name": "foo", "partitions": [
            {"partition_index": n, "committed_offset": 3, "committed_leader_epoch": e} for n, e in epochs.items()
        ]}]
    }  # fmt: skip
    words = ["--compat", "4.1", "--describe", "--group", "g", "--verbose"]
    header, *rows = tool(consumer_groups, cluster, words).out.splitlines()[1:]
    at = header.split().index("LEADER-EPOCH")
    assert [row.split()[at] for row in rows] == ["0", "7", "-"]
