"""What kafka-consumer-groups asks of a group's coordinator, what it makes of the answers, and what it then says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admin.commands import consumer_groups as groups
from controller.admin.groups.queries import parse_member_assignment
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition
from tests.worlds.scripted_brokers import HIGHEST, FakeCluster

EMPTY = {"group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NONE = ErrorCode.NONE


def by_topic(codes: Mapping[TopicPartition, ErrorCode], body: Any) -> dict[str, Any]:
    """An answer with a code for each partition that was asked for."""
    return {
        "topics": [
            {
                "name": t.name,
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": codes.get(TopicPartition(t.name, p.partition_index), NONE),
                    }
                    for p in t.partitions
                ],
            }
            for t in body.topics
        ]
    }


def as_of(rows: Any) -> set[TopicPartition]:
    return {TopicPartition(t.name, p.partition_index) for t in rows for p in t.partitions}


@pytest.fixture
def group(cluster: FakeCluster) -> FakeCluster:
    """An empty group that has committed offsets of t-0 (0 of them), and of u-0; t-1 it has not read."""
    cluster.topic("t", (0,), (1,))
    cluster.topic("u", (2,))
    cluster.groups["g"] = EMPTY
    cluster.committed["g"] = {U0: 7, T0: 0, T1: -1}
    cluster.answers[ApiKey.OFFSET_COMMIT] = lambda _, body: by_topic({}, body)
    cluster.answers[ApiKey.OFFSET_DELETE] = lambda _, body: {"error_code": 0, **by_topic({}, body)}
    return cluster


# -- --reset-offsets ---------------------------------------------------------------------------------------------------

RESET = ["--reset-offsets", "--group", "g", "--execute"]
#: What of the cluster is meant by each way of naming it.
SCOPES = [
    (["--all-topics"], {T0, U0}),
    (["--topic", "t"], {T0, T1}),
    (["--topic", "t:1"], {T1}),
    (["--topic", "t:1,0", "--topic", "u"], {T0, T1, U0}),
    (["--topic", "t:1", "--topic", "t"], {T0, T1}),
]


@pytest.mark.parametrize(("scope", "meant"), SCOPES, ids=[" ".join(s[0]) for s in SCOPES])
def test_a_reset_is_committed_as_nobodys_member_of_what_was_named(
    group: FakeCluster, tool: Any, scope: list[str], meant: set[TopicPartition]
) -> None:
    """With neither a generation nor an epoch that a coordinator could hold against it."""
    outcome = tool(groups, group, [*RESET, *scope, "--to-latest", "--json"])
    [body] = group.requests(ApiKey.OFFSET_COMMIT)
    sent = {
        (p.committed_offset, p.committed_leader_epoch, p.committed_metadata) for t in body.topics for p in t.partitions
    }
    assert (body.group_id, body.generation_id_or_member_epoch, body.member_id) == ("g", -1, "")
    assert (body.group_instance_id, sent, as_of(body.topics)) == (None, {(100, -1, "")}, meant)
    rows = [{"topic": p.topic, "partition": p.partition, "offset": 100} for p in sorted(meant)]
    assert json.loads(outcome.out) == {"executed": True, "groups": {"g": rows}}
    shown = tool(groups, group, [*RESET[:-1], "--dry-run", *scope, "--to-latest", "--json"])
    assert json.loads(shown.out) == {"executed": False, "groups": {"g": rows}}
    assert len(group.requests(ApiKey.OFFSET_COMMIT)) == 1


def test_offsets_that_were_refused_fail_the_reset(group: FakeCluster, tool: Any) -> None:
    """Of whichever partition; the others may have been taken."""
    for refused in (T0, T1):
        codes = {refused: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        group.answers[ApiKey.OFFSET_COMMIT] = partial(lambda codes, _, body: by_topic(codes, body), codes)
        outcome = tool(groups, group, [*RESET, "--topic", "t", "--to-earliest"])
        assert "failed due to java.util" in outcome.out and "TopicAuthorizationException" in outcome.out
        assert "NEW-OFFSET" not in outcome.out


NO_RESET = [
    ("no such topic", ["--topic", "nix", "--to-latest"], "This server does not host this topic-partition."),
    ("no such topic among others", ["--topic", "t", "--topic", "nix", "--to-latest"], "does not host"),
    ("a shift of what was never committed", ["--topic", "t", "--shift-by", "1"], "partition t-1 since there is no"),
    ("no scope", ["--to-latest"], "One of the reset scopes should be defined"),
    ("no scenario", ["--topic", "t"], "requires one of the following scenarios"),
]


@pytest.mark.parametrize(("words", "why"), [r[1:] for r in NO_RESET], ids=[r[0] for r in NO_RESET])
def test_a_reset_that_cannot_be_whole_commits_nothing(
    group: FakeCluster, tool: Any, words: list[str], why: str
) -> None:
    outcome = tool(groups, group, [*RESET, *words])
    assert why in outcome.out + outcome.err
    assert not group.requests(ApiKey.OFFSET_COMMIT)


#: The machine's clock stands at 1,700,000,000,000.
DURATIONS = [("PT1S", 1_699_999_999_000), ("-PT1S", 1_700_000_001_000)]


@pytest.mark.parametrize(("duration", "asked"), DURATIONS)
def test_a_duration_is_counted_back_from_now(group: FakeCluster, tool: Any, duration: str, asked: int) -> None:
    """The first offset of a log is found like any other: only where there is none the end is taken."""
    seen: set[int] = set()

    def listed(_: int, body: Any) -> dict[str, Any]:
        seen.update(p.timestamp for t in body.topics for p in t.partitions)
        offsets = {(0, asked): 0, (1, asked): -1}
        return {
            "topics": [
                {"name": t.name, "partitions": [
                    {"partition_index": p.partition_index, "offset": offsets.get((p.partition_index, p.timestamp), 100)}
                    for p in t.partitions
                ]}
                for t in body.topics
            ]
        }  # fmt: skip

    group.answers[ApiKey.LIST_OFFSETS] = listed
    outcome = tool(groups, group, [*RESET, "--topic", "t", f"--by-duration={duration}"])
    [body] = group.requests(ApiKey.OFFSET_COMMIT)
    assert {p.partition_index: p.committed_offset for p in body.topics[0].partitions} == {0: 0, 1: 100}
    assert seen == {asked, -1}
    assert "Partition 1 from topic t is empty" in outcome.out and "Partition 0" not in outcome.out


def test_a_group_that_a_file_does_not_name_is_left_alone(group: FakeCluster, tool: Any, tmp_path: Path) -> None:
    group.groups["h"] = EMPTY
    (tmp_path / "plan.csv").write_text("g,t,0,5\n")
    words = ["--reset-offsets", "--group", "g", "--group", "h", "--from-file", str(tmp_path / "plan.csv"), "--execute"]
    outcome = tool(groups, group, words)
    assert "\nError: No reset plan for group h found\n" in outcome.out
    assert [(b.group_id, as_of(b.topics)) for b in group.requests(ApiKey.OFFSET_COMMIT)] == [("g", {T0})]


# -- --delete-offsets --------------------------------------------------------------------------------------------------

DELETE = ["--delete-offsets", "--group", "g"]


@pytest.mark.parametrize(("scope", "meant"), SCOPES[1:], ids=[" ".join(s[0]) for s in SCOPES[1:]])
def test_offsets_are_deleted_of_what_was_named(
    group: FakeCluster, tool: Any, scope: list[str], meant: set[TopicPartition]
) -> None:
    outcome = tool(groups, group, [*DELETE, *scope, "--json"])
    [body] = group.requests(ApiKey.OFFSET_DELETE)
    assert (body.group_id, as_of(body.topics)) == ("g", meant)
    rows = [{"topic": p.topic, "partition": p.partition, "error": None} for p in sorted(meant)]
    assert json.loads(outcome.out) == {"group": "g", "partitions": rows}


#: what is refused -> the first line
REFUSED: list[tuple[ErrorCode, dict[TopicPartition, ErrorCode], str]] = [
    (NONE, {}, "Request succeed for deleting offsets with topic t, u group g"),
    (ErrorCode.INVALID_GROUP_ID, {}, "Error: 'g' is not valid."),
    (ErrorCode.GROUP_ID_NOT_FOUND, {}, "Error: 'g' does not exist."),
    (ErrorCode.NON_EMPTY_GROUP, {}, "Error: Deleting offsets of a consumer group 'g' is forbidden if the group is not"),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, {}, "Error: Encounter some unknown error: GROUP_AUTHORIZATION_FAILED"),
    (NONE, {T1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}, "Error: Encounter some partition level error"),
    (NONE, {U0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "Error: Encounter some partition level error"),
]  # fmt: skip


@pytest.mark.parametrize(("whole", "each", "said"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_is_said_of_offsets_that_are_not_deleted(
    group: FakeCluster, tool: Any, whole: ErrorCode, each: dict[TopicPartition, ErrorCode], said: str
) -> None:
    """A row for each partition says how it went, whether all were refused as one or each by itself."""
    group.answers[ApiKey.OFFSET_DELETE] = lambda _, body: {"error_code": whole, **by_topic(each, body)}
    words = [*DELETE, "--topic", "t", "--topic", "u"]
    outcome = tool(groups, group, words)
    lines = outcome.out.strip().splitlines()
    assert outcome.code == 0 and lines[0].startswith(said)
    rows = json.loads(tool(groups, group, [*words, "--json"]).out)["partitions"]
    codes = {p: each.get(p, NONE) if whole is NONE else whole for p in (T0, T1, U0)}
    assert [(r["topic"], r["partition"], r["error"]) for r in rows] == [
        (p.topic, p.partition, None if code is NONE else code.name) for p, code in codes.items()
    ]
    for partition, code in codes.items():
        assert (f"{partition.topic:<30} {partition.partition:<15} Successful" in outcome.out) is (code is NONE)
    assert outcome.out.count("Error: :org.apache.kafka") == sum(code is not NONE for code in codes.values())


def test_a_topic_that_there_is_not_has_a_row_of_its_own(group: FakeCluster, tool: Any) -> None:
    """And the offsets of the others are deleted: this is no refusal of the coordinator."""
    outcome = tool(groups, group, [*DELETE, "--topic", "nix", "--topic", "u"])
    assert outcome.out.startswith("Request succeed for deleting offsets")
    assert f"{'nix':<30} {'Not Provided':<15} Error: :org.apache.kafka" in outcome.out
    [body] = group.requests(ApiKey.OFFSET_DELETE)
    assert as_of(body.topics) == {U0}


FUTURE = "java.util.concurrent.ExecutionException: "


# -- --delete ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "wrapper", "end"), [("3.9", FUTURE, ", '"), ("4.1", "", "")])
def test_each_group_is_deleted_by_itself(group: FakeCluster, tool: Any, version: str, wrapper: str, end: str) -> None:
    group.groups["h"] = group.groups["i"] = EMPTY

    def deleted(_: int, body: Any) -> dict[str, Any]:
        [name] = body.groups_names
        return {"results": [{"group_id": name, "error_code": ErrorCode.NON_EMPTY_GROUP if name == "g" else NONE}]}

    group.answers[ApiKey.DELETE_GROUPS] = deleted
    words = ["--compat", version, "--delete", "--all-groups"]
    assert tool(groups, group, words).out == (
        "\nError: Deletion of some consumer groups failed:\n"
        f"* Group 'g' could not be deleted due to: {wrapper}org.apache.kafka.common.errors.GroupNotEmptyException: "
        f"The group is not empty.\n\nThese consumer groups were deleted successfully: 'h'i'{end}\n"
    )
    assert json.loads(tool(groups, group, [*words, "--json"]).out) == {
        "deleted": ["h", "i"], "failed": {"g": "NON_EMPTY_GROUP"},
    }  # fmt: skip
    alone = tool(groups, group, ["--compat", version, "--delete", "--group", "g"])
    assert "deleted successfully" not in alone.out


def test_a_group_that_is_named_twice_is_meant_once(group: FakeCluster, tool: Any) -> None:
    """By what deletes in the order in which they are named, by what shows in theirs."""
    group.groups["h"] = EMPTY
    named = ["--group", "h", "--group", "g", "--group", "h"]
    shown = json.loads(tool(groups, group, ["--describe", *named, "--json"]).out)["groups"]
    assert [row["group"] for row in shown] == ["g", "h"]
    reset = tool(groups, group, ["--reset-offsets", "--topic", "t:0", "--to-latest", "--execute", *named, "--json"])
    assert list(json.loads(reset.out)["groups"]) == ["h", "g"]
    group.answers[ApiKey.DELETE_GROUPS] = lambda _, body: {"results": [{"group_id": n} for n in body.groups_names]}
    outcome = tool(groups, group, ["--delete", *named])
    assert outcome.out == "Deletion of requested consumer groups ('h, g') was successful.\n"
    for api, asked in ((ApiKey.DELETE_GROUPS, ["h", "g"]), (ApiKey.OFFSET_COMMIT, ["h", "g"])):
        bodies = group.requests(api)
        assert [name for b in bodies for name in getattr(b, "groups_names", None) or [b.group_id]] == asked


# -- --list and --describe ---------------------------------------------------------------------------------------------


def test_groups_are_listed_of_the_states_and_types_that_were_named(
    group: FakeCluster, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HIGHEST, ApiKey.LIST_GROUPS, 5)
    kinds = {"a": ("Stable", "classic"), "b": ("Empty", "consumer"), "c": ("Empty", ""), "d": ("", "consumer")}
    protocols = {"b": "", "x": "connect"}  # what commits alone has none; what is of Connect is no consumer group
    group.answers[ApiKey.LIST_GROUPS] = lambda broker, _: {
        "groups": [
            {"group_id": name, "protocol_type": protocols.get(name, "consumer"), "group_state": state,
             "group_type": kind}
            for name, (state, kind) in {**kinds, "x": ("Stable", "classic")}.items()
            if broker == 1
        ]
    }  # fmt: skip

    def listed(*words: str) -> list[list[str]]:
        return [line.split() for line in tool(groups, group, ["--list", *words]).out.splitlines()]

    assert listed() == [["a"], ["b"], ["c"], ["d"]]
    assert listed("--state") == [["GROUP", "STATE"], ["a", "Stable"], ["b", "Empty"], ["c", "Empty"], ["d", "Unknown"]]
    assert listed("--state", "empty") == [["GROUP", "STATE"], ["b", "Empty"], ["c", "Empty"]]
    assert listed("--type", "consumer") == [["GROUP", "TYPE"], ["b", "Consumer"], ["d", "Consumer"]]
    for text in ("stable,empty", "STABLE, Empty ", " empty,stable,"):
        both = listed("--type", "classic", "--state", text)
        assert both == [["GROUP", "TYPE", "STATE"], ["a", "Classic", "Stable"], ["c", "Classic", "Empty"]]
    rows = json.loads(tool(groups, group, ["--list", "--json", "--type", "consumer"]).out)["groups"]
    assert rows == [
        {"group": "b", "state": "Empty", "type": "Consumer"}, {"group": "d", "state": "Unknown", "type": "Consumer"},
    ]  # fmt: skip
    group.answers[ApiKey.LIST_GROUPS] = lambda *_: {"groups": []}
    assert tool(groups, group, ["--list"]).out == ""
    assert json.loads(tool(groups, group, ["--list", "--json"]).out) == {"groups": []}


def test_a_group_for_machines(group: FakeCluster, tool: Any) -> None:
    """Its members, and each partition that one has or that was committed; what is not there is null, and 0 is not."""
    member = {"member_id": "m", "group_instance_id": "i", "client_id": "c", "client_host": "/h", "member_metadata": b"",
              "member_assignment": assignment([T1])}  # fmt: skip
    group.groups["g"] = {**EMPTY, "group_state": "Stable", "protocol_data": "range", "members": [member]}
    group.answers[ApiKey.OFFSET_FETCH] = lambda *_: {
        "topics": [
            {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 0}]},
            {"name": "u", "partitions": [{"partition_index": 0, "committed_offset": 9, "error_code": 3}]},
        ]
    }
    assert json.loads(tool(groups, group, ["--describe", "--group", "g", "--json"]).out) == {
        "groups": [
            {
                "group": "g", "state": "Stable", "assignment_strategy": "range",
                "coordinator": {"id": 1, "host": "b1", "port": 9092},
                "members": [
                    {"consumer_id": "m", "group_instance_id": "i", "client_id": "c", "host": "/h",
                     "assignment": [{"topic": "t", "partition": 1}]}
                ],
                "offsets": [
                    {"topic": "t", "partition": 1, "current_offset": None, "log_end_offset": 100, "lag": None},
                    {"topic": "t", "partition": 0, "current_offset": 0, "log_end_offset": 100, "lag": 100},
                ],
            }
        ]
    }  # fmt: skip


#: of each member its instance id (2.3 and later) and the partitions of t that it has
MEMBERS = [("i", [0]), (None, [2, 10, 1])]


@pytest.mark.parametrize("members", [MEMBERS, MEMBERS[::-1], MEMBERS[:1], MEMBERS[1:]])
def test_all_that_members_have_is_shown_the_busiest_first(
    group: FakeCluster, tool: Any, members: list[tuple[str | None, list[int]]]
) -> None:
    """Numbers stand as texts sort, in the list of members; in that of partitions as numbers."""
    group.topic("t", *[(0,)] * 11)
    group.committed["g"] = {}
    rows = [
        {"member_id": f"m{at}", "group_instance_id": instance, "client_id": "c", "client_host": "/h",
         "member_metadata": b"", "member_assignment": assignment([TopicPartition("t", n) for n in numbers])}
        for at, (instance, numbers) in enumerate(members)
    ]  # fmt: skip
    group.groups["g"] = {**EMPTY, "group_state": "Stable", "members": rows}
    shown = tool(groups, group, ["--describe", "--group", "g", "--members", "--verbose"]).out.splitlines()[1:]
    is_static = any(instance for instance, _ in members)
    head = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if is_static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert shown[0].split() == [*head, "ASSIGNMENT"]
    assert [line.split() for line in shown[1:]] == [
        ["g", f"m{at}", *([instance] if instance else []), "/h", "c", str(len(numbers)),
         f"({','.join(sorted(map(str, numbers)))})"]
        for at, (instance, numbers) in enumerate(members)
    ]  # fmt: skip
    lines = tool(groups, group, ["--describe", "--group", "g"]).out.splitlines()[2:]
    busiest = sorted(members, key=lambda member: -len(member[1]))
    assert [int(line.split()[2]) for line in lines] == [n for _, numbers in busiest for n in sorted(numbers)]


STATES = {
    "Stable": "",
    "Empty": "\nConsumer group 'g' has no active members.\n",
    **dict.fromkeys(("PreparingRebalance", "CompletingRebalance"), "\nWarning: Consumer group 'g' is rebalancing.\n"),
}


@pytest.mark.parametrize(("state", "said"), STATES.items())
@pytest.mark.parametrize("view", [[], ["--members"], ["--state"]])
def test_what_is_said_of_a_groups_state(group: FakeCluster, tool: Any, state: str, said: str, view: list[str]) -> None:
    group.groups["g"] = {**EMPTY, "group_state": state}
    outcome = tool(groups, group, ["--describe", "--group", "g", *view])
    assert (outcome.err, outcome.out[:6]) == (said, "\nGROUP")


# -- what a member has -------------------------------------------------------------------------------------------------


def assignment(partitions: list[TopicPartition]) -> bytes:
    """`ConsumerProtocolAssignment`, version 0: a topic for each partition."""
    data = b"\0\0" + len(partitions).to_bytes(4, "big")
    for topic, number in partitions:
        name = topic.encode()
        data += len(name).to_bytes(2, "big") + name + (1).to_bytes(4, "big") + number.to_bytes(4, "big")
    return data


PARTITIONS = st.lists(st.builds(TopicPartition, st.text(max_size=3), st.integers(0, 2**31 - 1)), max_size=4)


@settings(max_examples=40)
@given(PARTITIONS, st.binary(max_size=6), st.data())
def test_an_assignment_is_whole_or_none(partitions: list[TopicPartition], after: bytes, data: st.DataObject) -> None:
    """Whatever else a member sent with it; of one that is cut nothing is believed."""
    whole = assignment(partitions)
    assert parse_member_assignment(whole + after) == tuple(sorted(partitions))
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert parse_member_assignment(whole[:cut]) == ()


NO_ASSIGNMENT = [
    ("a name of negative length", b"\0\0\0\0\0\1\xff\xff\0\0\0\0"),
    ("a name that is no text", b"\0\0\0\0\0\1\0\1\xff\0\0\0\0"),
    ("nothing", b""),
]


@pytest.mark.parametrize("data", [r[1] for r in NO_ASSIGNMENT], ids=[r[0] for r in NO_ASSIGNMENT])
def test_what_is_no_assignment_has_no_partitions(data: bytes) -> None:
    assert parse_member_assignment(data) == ()
