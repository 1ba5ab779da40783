"""Where --reset-offsets moves a group to, by each scenario, and which groups it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import consumer_groups as groups
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition
from tests.worlds.scripted_brokers import FakeCluster

EARLIEST, LATEST = -2, -1
#: The log of each partition begins at 5 and ends at 100; 42 is the first record at or after 500 ms, and the last one.
START, MIDDLE, END, NEWEST_MS = 5, 42, 100, 500
COMMITTED = 40

#: scenario -> what partition 0, which has a commit, and partition 1, which has none, are set to
SCENARIOS = [
    (["--to-current"], {0: COMMITTED, 1: END}),
    (["--to-earliest"], {0: START, 1: START}),
    (["--to-latest"], {0: END, 1: END}),
    (["--to-offset", "0"], {0: START, 1: START}),
    (["--to-offset", "3"], {0: START, 1: START}),
    (["--to-offset", "50"], {0: 50, 1: 50}),
    (["--to-offset", "101"], {0: END, 1: END}),
    (["--to-datetime", "1970-01-01T00:00:00.500"], {0: MIDDLE, 1: MIDDLE}),
    (["--to-datetime", "1970-01-01T00:00:00.501"], {0: END, 1: END}),
    (["--shift-by", "10"], {0: COMMITTED + 10}),
    (["--shift-by", "-36"], {0: START}),
    (["--shift-by", "61"], {0: END}),
    (["--shift-by", str(2**63 - 1)], {0: START}),  # a long of Java begins anew below zero
    (["--shift-by", str(-(2**63))], {0: START}),
]


@pytest.fixture
def group(cluster: FakeCluster) -> FakeCluster:
    """An empty group that has committed an offset of one of two partitions."""

    def listed(_: int, body: Any) -> dict[str, Any]:
        def of(partition: Any) -> dict[str, Any]:
            found = {EARLIEST: START, LATEST: END}.get(partition.timestamp)
            if found is None:
                found = MIDDLE if partition.timestamp <= NEWEST_MS else -1
            return {"partition_index": partition.partition_index, "offset": found}

        return {"topics": [{"name": t.name, "partitions": [of(p) for p in t.partitions]} for t in body.topics]}

    def committed(_: int, body: Any) -> dict[str, Any]:
        rows = [(t.name, [{"partition_index": p.partition_index} for p in t.partitions]) for t in body.topics]
        return {"topics": [{"name": name, "partitions": partitions} for name, partitions in rows]}

    cluster.topic("t", (0,), (1,))
    cluster.groups["g"] = {"group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
    cluster.committed["g"] = {TopicPartition("t", 0): COMMITTED}
    cluster.answers[ApiKey.LIST_OFFSETS] = listed
    cluster.answers[ApiKey.OFFSET_COMMIT] = committed
    return cluster


def commits(cluster: FakeCluster) -> dict[int, int]:
    bodies = cluster.requests(ApiKey.OFFSET_COMMIT)
    rows = [p for body in bodies for t in body.topics for p in t.partitions]
    return {p.partition_index: p.committed_offset for p in rows}


@pytest.mark.parametrize(("scenario", "expected"), SCENARIOS, ids=[" ".join(row[0]) for row in SCENARIOS])
def test_where_a_group_is_moved_to(
    group: FakeCluster, tool: Any, scenario: list[str], expected: dict[int, int]
) -> None:
    scope = f"t:{','.join(map(str, expected))}"
    argv = ["--reset-offsets", "--group", "g", "--topic", scope, *scenario]
    shown = tool(groups, group, [*argv, "--dry-run"])
    assert (shown.code, commits(group)) == (0, {})
    outcome = tool(groups, group, [*argv, "--execute"])
    assert (outcome.code, outcome.out, commits(group)) == (0, shown.out, expected)
    asked = scenario[1] if scenario[0] == "--to-offset" else None
    assert asked is None or (f"New offset ({asked}) is" in outcome.err) is (int(asked) not in expected.values())


@pytest.mark.parametrize("number", [1, 3])
def test_a_partition_that_no_broker_has_heard_of_is_not_reset_in_the_place_of_another(
    group: FakeCluster, tool: Any, number: int
) -> None:
    """Brokers hear of partitions one after the other: 2 may be there before 1."""
    group.topics["t"][2] = group.topics["t"].pop(1)
    outcome = tool(
        groups, group, ["--reset-offsets", "--group", "g", "--topic", f"t:{number}", "--to-latest", "--execute"]
    )
    assert f"metadata for partition t-{number}: it does not exist or has no leader" in outcome.out
    assert commits(group) == {}


@pytest.mark.parametrize("state", ["Empty", "Dead", "Stable", "PreparingRebalance", "CompletingRebalance"])
def test_a_group_with_members_is_left_alone(group: FakeCluster, tool: Any, state: str) -> None:
    group.groups["g"]["group_state"] = state
    argv = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute"]
    outcome = tool(groups, group, argv)
    may = state in ("Empty", "Dead")
    assert (bool(commits(group)), f"but the current state is {state}." in outcome.out) == (may, not may)


def by_group(cluster: FakeCluster) -> dict[str, dict[int, int]]:
    return {
        body.group_id: {p.partition_index: p.committed_offset for t in body.topics for p in t.partitions}
        for body in cluster.requests(ApiKey.OFFSET_COMMIT)
    }


G, H = {0: COMMITTED, 1: END}, {0: END, 1: 60}
#: how groups are named, those there are besides `g`, their state -> what each that may be is moved to, the columns
EXPORTS = [
    ("one group", ["--group", "g"], [], "Empty", {"g": G}, 3),
    ("one group of two", ["--group", "h"], ["h"], "Empty", {"h": H}, 3),
    ("two groups", ["--group", "g", "--group", "h"], ["h"], "Empty", {"g": G, "h": H}, 4),
    ("two groups, of which one has members", ["--group", "g", "--group", "h"], ["h"], "Stable", {"g": G}, 4),
    ("one group, named twice", ["--group", "g", "--group", "g"], [], "Empty", {"g": G}, 4),
    ("all groups", ["--all-groups"], ["h"], "Empty", {"g": G, "h": H}, 4),
    ("all groups, and there is one", ["--all-groups"], [], "Empty", {"g": G}, 4),
    ("all groups, of which one has members", ["--all-groups"], ["h"], "Stable", {"g": G}, 4),
]


@pytest.mark.parametrize(
    ("named", "others", "state", "moved", "columns"), [row[1:] for row in EXPORTS], ids=[row[0] for row in EXPORTS]
)
def test_an_export_names_the_group_unless_exactly_one_was_named_and_can_be_read_back(
    group: FakeCluster,
    tool: Any,
    tmp_path: Path,
    named: list[str],
    others: list[str],
    state: str,
    moved: dict[str, dict[int, int]],
    columns: int,
) -> None:
    for name in others:
        group.groups[name] = {**group.groups["g"], "group_state": state}
        group.committed[name] = {TopicPartition("t", 1): 60}
    argv = ["--reset-offsets", *named, "--topic", "t"]
    exported = tool(groups, group, [*argv, "--to-current", "--export", "--dry-run"])
    lines = [line for line in exported.out.splitlines() if line and not line.startswith("Error: ")]
    rows = [[name, "t", str(p), str(offset)] for name, to in moved.items() for p, offset in to.items()]
    assert [line.split(",") for line in lines] == [row[4 - columns :] for row in rows]
    assert (exported.code, by_group(group)) == (0, {})
    file = tmp_path / "plan.csv"
    file.write_text("\n".join(lines))
    read = tool(groups, group, ["--reset-offsets", *named, "--from-file", str(file), "--execute"])
    assert (read.code, by_group(group)) == (0, moved)


@pytest.mark.parametrize(
    ("version", "row", "end"),
    [
        ("2.0", "{1:<30} {2:<10} {3:<15}", "\n"),
        ("2.6", "{0:<30} {1:<30} {2:<10} {3:<15}", "\n"),
        ("3.9", "{0:<30} {1:<30} {2:<10} {3:<15}", ""),
        ("4.1", "{0:<30} {1:<30} {2:<10} {3:<15}", "\n"),
    ],
)
def test_the_rows_are_told_as_that_version_did(group: FakeCluster, tool: Any, version: str, row: str, end: str) -> None:
    """3.8 and 3.9 end no row. Source: `printOffsetsToReset` of each."""
    argv = ["--compat", version, "--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--dry-run"]
    rows = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), ("g", "t", 0, START), ("g", "t", 1, START)]
    assert tool(groups, group, argv).out == "\n" + "".join(row.format(*each) + end for each in rows)
