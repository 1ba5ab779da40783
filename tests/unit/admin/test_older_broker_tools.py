"""GetOffsetShell, kafka-log-dirs and kafka-consumer-groups as 2.0 and 2.6 had them, against a scripted cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.admin.commands import consumer_groups as groups
from controller.admin.commands import get_offsets, log_dirs
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition

SERVER = ("--compat", "2.0", "--broker-list", "b0:9092")


def test_get_offsets(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", *([(n % 3,) for n in range(11)]))
    outcome = tool(get_offsets, cluster, [*SERVER, "--topic", "foo", "--partitions", "10,2,0"], bootstrap=None)
    assert (outcome.code, outcome.out, outcome.err) == (0, "foo:0:100\nfoo:2:100\nfoo:10:100\n", ""), "by number"
    earliest = tool(
        get_offsets, cluster, [*SERVER, "--topic", "foo", "--partitions", "1", "--time", "-2"], bootstrap=None
    )
    assert earliest.out == "foo:1:0\n"


def test_get_offsets_of_what_there_is_not(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,), (1,))
    cluster.topics["foo"][1].leader = -1
    missing = tool(get_offsets, cluster, [*SERVER, "--topic", "nix"], bootstrap=None)
    assert (missing.code, missing.out, missing.err) == (1, "", "Topic nix does not exist\n")
    partly = tool(get_offsets, cluster, [*SERVER, "--topic", "foo", "--partitions", "0,1,3"], bootstrap=None)
    assert (partly.code, partly.out) == (0, "foo:0:100\n")
    assert partly.err.splitlines() == [
        "Error: partition 3 does not exist",
        "Error: partition 1 does not have a leader. Skip getting offsets",
    ]
    usage = tool(get_offsets, cluster, ["--compat", "2.6", "--topic", "foo"], bootstrap=None)
    assert usage.err.splitlines()[0] == 'Missing required argument "[broker-list]"'
    word = tool(get_offsets, cluster, [*SERVER, "--topic", "foo", "--partitions", "x"], bootstrap=None)
    assert "--partitions expects a comma separated list of numeric partition ids, but received: x" in word.err


def test_log_dirs_in_the_order_of_2_x(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    out = tool(log_dirs, cluster, ["--compat", "2.6", "--describe", "--broker-list", "0"]).out.splitlines()
    assert out[-1] == (
        '{"version":1,"brokers":[{"broker":0,"logDirs":[{"logDir":"/data","error":null,"partitions":'
        '[{"partition":"foo-0","size":0,"offsetLag":0,"isFuture":false}]}]}]}'
    )


@pytest.fixture
def group(cluster: Any) -> Any:
    """Group g without members, three records behind in foo-0."""
    cluster.topic("foo", (0,))
    cluster.groups["g"] = {"group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
    cluster.committed["g"] = {TopicPartition("foo", 0): 97}
    return cluster


def test_groups_of_2_0_have_no_column_for_the_group(group: Any, tool: Any) -> None:
    outcome = tool(groups, group, ["--compat", "2.0", "--describe", "--group", "g"])
    assert (outcome.code, outcome.err) == (0, "Consumer group 'g' has no active members.\n")
    lines = outcome.out.splitlines()
    assert lines[0] == ""
    assert lines[1].split() == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
                                "CLIENT-ID"]  # fmt: skip
    assert lines[2].split() == ["foo", "0", "97", "100", "3", "-", "-", "-"]
    missing = tool(groups, group, ["--compat", "2.0", "--describe", "--group", "nix"])
    assert missing.out == "Error: Consumer group 'nix' does not exist.\n"


def test_groups_of_2_6(group: Any, tool: Any) -> None:
    outcome = tool(groups, group, ["--compat", "2.6", "--describe", "--all-groups", "--json"])
    assert json.loads(outcome.out)["groups"][0]["rows"] == [["g", "foo", "0", "97", "100", "3", "-", "-", "-"]]
    state = tool(groups, group, ["--compat", "2.6", "--describe", "--group", "g", "--state"]).out.splitlines()
    assert state[2].split() == ["g", "b1:9092", "(1)", "Empty", "0"], "one blank before the id"
    missing = tool(groups, group, ["--compat", "2.6", "--describe", "--group", "nix"])
    assert missing.out == "\nError: Consumer group 'nix' does not exist.\n"


@pytest.mark.parametrize(
    ("compat", "actions"),
    [
        ("2.0", "--list, --describe, --delete, --reset-offsets"),
        ("2.6", "--list, --describe, --delete, --reset-offsets, --delete-offsets"),
    ],
)
def test_actions_of_groups(group: Any, tool: Any, compat: str, actions: str) -> None:
    outcome = tool(groups, group, ["--compat", compat])
    assert outcome.err.splitlines()[0] == f"Command must include exactly one action: {actions}"
    same = [tool(groups, group, [*words, "--delete", "--group", "g"]) for words in (["--compat", compat], [])]
    assert same[0].out == same[1].out
    assert "Error: Deletion of some consumer groups failed" in same[0].out, "today's, where the spec has no older text"


@pytest.mark.parametrize("compat", ["2.0", "2.6"])
def test_a_time_limit_for_groups(group: Any, tool: Any, compat: str) -> None:
    group.unanswered.add(ApiKey.DESCRIBE_GROUPS)
    outcome = tool(groups, group, ["--compat", compat, "--describe", "--group", "g", "--timeout", "2000"])
    assert "DescribeGroups got no answer in 2 s" in outcome.err
    assert outcome.took_s < 2.5


def test_states_in_a_list_of_2_6(group: Any, tool: Any) -> None:
    words = ["--compat", "2.6", "--list", "--state"]
    assert tool(groups, group, words).out.splitlines() == ["GROUP           STATE", "g               Empty"]
    assert tool(groups, group, [*words, "Stable, Dead,"]).out.splitlines() == ["GROUP           STATE"]
    both = tool(groups, group, [*words, "Stable, Empty"]).out.splitlines()
    assert both == ["GROUP           STATE", "g               Empty"]
    assert tool(groups, group, ["--compat", "2.6", "--list"]).out == "g\n"
    states = "PreparingRebalance, CompletingRebalance, Stable, Dead, Empty"
    wrong = tool(groups, group, [*words, "stable"])
    assert wrong.err.startswith(f"Invalid state list 'stable'. Valid states are: {states}\n")


#: Of a line in 2.0 and in 2.6 what it is refused with.
TOGETHER = [
    ("--list --group g", *['Option "[group]" can\'t be used with option{gap}"[list]"'] * 2),
    ("--describe --topic t --group g", *['Option "[topic]" can\'t be used with option{gap}"[describe]"'] * 2),
    (
        "--describe",
        'Missing required argument "[group]"',
        "Option [describe] takes one of these options: [group], [all-groups]",
    ),
    (
        "--describe --group g --members --state",
        None,
        "Option [describe] takes at most one of these options: [members], [offsets], [state]",
    ),
    ("--describe --group g --state Stable", None, "Option [describe] does not take a value for [state]"),
    (
        "--describe --group g --all-groups",
        'Exception in thread "main" joptsimple.UnrecognizedOptionException: all-groups is not a recognized option',
        'Option "[group]" can\'t be used with option "[all-groups]"',
    ),
]


@pytest.mark.parametrize(("line", "old", "new"), TOGETHER)
def test_options_of_groups_that_do_not_go_together(
    group: Any, tool: Any, line: str, old: str | None, new: str | None
) -> None:
    for compat, gap, complaint in (("2.0", "", old), ("2.6", " ", new)):
        outcome = tool(groups, group, ["--compat", compat, *line.split()])
        if complaint is not None:
            assert (outcome.code, outcome.err.splitlines()[0]) == (1, complaint.format(gap=gap))


@pytest.mark.parametrize(("compat", "gap"), [("2.0", ""), ("2.6", "\n")])
def test_what_fails_exits_with_0_as_it_did(group: Any, tool: Any, compat: str, gap: str) -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    group.answers[ApiKey.OFFSET_FETCH] = lambda *_: {"error_code": code, "topics": []}
    outcome = tool(groups, group, ["--compat", compat, "--describe", "--group", "g"])
    assert outcome.code == 0
    assert outcome.out.startswith(f"{gap}Error: Executing consumer group command failed due to ")
