"""A reassignment that is followed from look to look: by the tool, and as callers of `watch` see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.admin.cluster.client import AdminClient
from controller.admin.commands import reassign_partitions as reassign
from controller.admin.reassignment.progress import Progress, watch
from controller.admin.toolkit.machine import Machine
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition
from tests.worlds.scripted_brokers import run_tool

FOO_0, FOO_1 = TopicPartition("foo", 0), TopicPartition("foo", 1)


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def moving(*adding: int) -> ReplicaAssignment:
    return ReplicaAssignment(replicas=ids(1, 2, *adding), adding_replicas=ids(*adding), removing_replicas=ids(2))


def follow(cluster: Any, tool: Any, *argv: str) -> Any:
    """foo-0 is being copied to broker 2, a quarter with each look, and then it is done."""
    cluster.topic("foo", (0, 1))
    cluster.topics["foo"][0].replicas = (0, 1, 2)
    cluster.running[FOO_0] = ReplicaAssignment(replicas=ids(0, 1, 2), adding_replicas=ids(2), removing_replicas=ids(1))
    cluster.sizes = {PartitionReplica(FOO_0, BrokerId(0)): 1000}
    looks = iter([250, 500, 750])

    def copy(broker: int, body: Any) -> None:
        if cluster.running and broker == 2:
            size = next(looks, None)
            if size is None:
                cluster.finish()
            else:
                cluster.sizes[PartitionReplica(FOO_0, BrokerId(2))] = size

    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = copy
    return tool(reassign, cluster, argv)


def test_a_running_one_is_followed_from_the_list(cluster: Any, tool: Any) -> None:
    outcome = follow(cluster, tool, "--list", "--progress")
    assert outcome.out.startswith("Current partition reassignments:\nfoo-0: replicas: 0,1,2. adding: 2. removing: 1.\n")
    assert "foo-0 waits for broker 2 (250 bytes of 1.0 kB)\n" in outcome.out
    assert outcome.out.endswith("Reassignment done. Run --verify to remove throttles.\n")
    assert tool(reassign, cluster, ["--list", "--progress"]).out == "No partition reassignments found.\n"


def test_a_running_one_is_listed_and_followed_for_machines(cluster: Any, tool: Any) -> None:
    listed, *looks = map(json.loads, follow(cluster, tool, "--list", "--progress", "--json").out.splitlines())
    move = {"topic": "foo", "partition": 0, "replicas": [0, 1, 2], "adding_replicas": [2], "removing_replicas": [1]}
    assert listed == {"reassignments": [move]}
    common: dict[str, Any] = {"bytes_total": 1000, "partitions_total": 1}
    assert [{**look, "bytes_per_s": None} for look in looks] == [
        {"bytes_done": done, "bytes_per_s": None, "partitions_done": is_done, "waits_for": waits_for} | common
        for done, is_done, waits_for in (
            *((n, 0, [f"foo-0 waits for broker 2 ({n} bytes of 1.0 kB)"]) for n in (250, 500, 750, 750)),
            (1000, 1, []),
        )
    ]
    assert [look["bytes_per_s"] for look in looks[:2]] == [None, pytest.approx(500, rel=0.1)]


def test_verify_follows_to_the_end_and_then_removes_the_throttles(cluster: Any, tool: Any, tmp_path: Any) -> None:
    (tmp_path / "plan.json").write_text('{"partitions":[{"topic":"foo","partition":0,"replicas":[0,2]}]}')
    file = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    outcome = follow(cluster, tool, "--verify", "--progress", *file)
    assert outcome.out.index("Reassigning 100%") < outcome.out.index("Status of partition reassignment:\n")
    assert outcome.out.endswith("Clearing topic-level throttles on topic foo\n")
    assert "Run --verify" not in outcome.out


def test_a_move_between_directories_is_followed_in_bytes(cluster: Any, tool: Any, tmp_path: Any) -> None:
    """Nothing is being reassigned, and all bytes are still to be copied: it is done when the copy takes over."""
    replica = PartitionReplica(FOO_0, BrokerId(1))
    cluster.topic("foo", (0, 1))
    cluster.sizes = {replica: 1000}
    (tmp_path / "plan.json").write_text(
        '{"partitions":[{"topic":"foo","partition":0,"replicas":[0,1],"log_dirs":["any","/other"]}]}'
    )
    looks = iter([250, 500, 750])

    def copy(broker: int, body: Any) -> None:
        if replica in cluster.futures:
            size = next(looks, None)
            if size is None:
                del cluster.futures[replica]
            else:
                cluster.copied[replica] = size

    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = copy
    file = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    outcome = tool(reassign, cluster, ["--execute", "--progress", *file])
    lines = [line for line in outcome.out.splitlines() if line.startswith("Reassigning")]
    assert [line.split("%")[0].split()[-1] for line in lines] == ["25", "50", "75", "100"]
    assert "250 bytes of 1.0 kB" in lines[0] and "0 of 1 partitions done" in lines[0]
    assert "foo-0 waits for the copy of broker 1 in /other (250 bytes of 1.0 kB)" in lines[0]
    assert "1.0 kB of 1.0 kB" in lines[-1] and "1 of 1 partitions done" in lines[-1]


def test_what_was_done_before_the_first_look_counts_in_the_tool(cluster: Any, tool: Any, tmp_path: Any) -> None:
    """foo-0 is done with the answer to its request, foo-1 is followed: the bytes of both are told."""
    cluster.topic("foo", (0, 1), (0, 1))
    cluster.sizes = {PartitionReplica(p, BrokerId(0)): size for p, size in ((FOO_0, 700), (FOO_1, 300))}
    (tmp_path / "plan.json").write_text(
        '{"partitions":[{"topic":"foo","partition":0,"replicas":[0,2]},{"topic":"foo","partition":1,"replicas":[0,2]}]}'
    )

    def one_is_done(broker: int, body: Any) -> None:
        if cluster.running.pop(FOO_0, None) is not None:
            cluster.topics["foo"][0] = replace(cluster.topics["foo"][0], replicas=(0, 2), isr=(0, 2))

    def end(broker: int, body: Any) -> None:
        if cluster.running and broker == 2:
            cluster.finish()

    cluster.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = one_is_done
    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = end
    file = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    lines = tool(reassign, cluster, ["--execute", "--progress", *file]).out.splitlines()
    assert "700 bytes of 1.0 kB" in next(line for line in lines if line.startswith("Reassigning"))
    assert "1.0 kB of 1.0 kB" in lines[-2] and "2 of 2 partitions done" in lines[-2]


def test_on_a_cluster_of_kraft_the_view_says_fenced(cluster: Any, tool: Any) -> None:
    cluster.answers[ApiKey.DESCRIBE_QUORUM] = lambda broker, body: None
    cluster.topic("foo", (0, 1))
    cluster.running[FOO_0] = ReplicaAssignment(replicas=ids(0, 1, 2), adding_replicas=ids(2), removing_replicas=ids(1))
    cluster.topics["foo"][0].replicas = (0, 1, 2)
    cluster.sizes = {PartitionReplica(FOO_0, BrokerId(0)): 1000}
    cluster.down.add(2)
    looks = iter(range(3))

    def end(broker: int, body: Any) -> None:
        if next(looks, None) is None:
            cluster.finish()

    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = end
    outcome = tool(reassign, cluster, ["--list", "--progress"])
    assert "waits for broker 2, which is fenced" in outcome.out


#: A leader's log that moves to another directory while broker 2 copies it, and another that moves.
TWO_DIRS = {PartitionReplica(FOO_0, BrokerId(0)): "/other", PartitionReplica(FOO_1, BrokerId(1)): "/other"}


def test_copies_between_directories_and_between_brokers_are_told_apart(cluster: Any) -> None:
    led, copied, moved = (PartitionReplica(p, BrokerId(b)) for p, b in ((FOO_0, 0), (FOO_0, 2), (FOO_1, 1)))
    cluster.topic("foo", (0, 1, 2), (0, 1))
    cluster.running[FOO_0] = ReplicaAssignment(replicas=ids(0, 1, 2), adding_replicas=ids(2), removing_replicas=ids(1))
    cluster.topics["foo"][0].isr = (0, 1)
    cluster.sizes = {led: 1000, copied: 600, moved: 400}
    cluster.futures, cluster.copied = dict(TWO_DIRS), {led: 250, moved: 100}
    of_copy, of_led, of_moved = (
        "foo-0 waits for broker 2 (600 bytes of 1.0 kB)",
        "foo-0 waits for the copy of broker 0 in /other (250 bytes of 1.0 kB)",
        "foo-1 waits for the copy of broker 1 in /other (100 bytes of 400 bytes)",
    )

    def refuse() -> None:
        cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: {"results": []}

    def answer() -> None:
        del cluster.answers[ApiKey.DESCRIBE_LOG_DIRS]
        cluster.futures.clear()

    #: what happens before a look -> bytes done, partitions done, and what is waited for
    steps: list[tuple[Callable[[], Any], tuple[int, int, tuple[str, ...]]]] = [
        (lambda: None, (950, 0, (of_copy, of_led, of_moved))),
        (lambda: cluster.futures.pop(moved), (1250, 1, (of_copy, of_led))),
        (lambda: cluster.sizes.update({copied: 700}), (1350, 1, (of_copy.replace("600", "700"), of_led))),
        (cluster.finish, (1650, 1, (of_led,))),
        (refuse, (1650, 1, (of_led,))),
        (answer, (2400, 2, ())),
    ]
    seen: list[tuple[int, int, tuple[str, ...]]] = []

    async def looks(_: Sequence[str], machine: Machine) -> int:
        async with AdminClient(machine.network, "b0:9092") as admin:
            async for progress in watch(admin, [FOO_0, FOO_1], log_dirs=TWO_DIRS):
                assert progress.bytes_total == 2400
                seen.append((progress.bytes_done, progress.partitions_done, progress.waits_for))
                if len(seen) < len(steps):
                    steps[len(seen)][0]()
        return 0

    run_tool(looks, cluster, [], bootstrap=None)
    assert seen == [expected for _, expected in steps]


@pytest.mark.parametrize("between", ["brokers", "directories"])
def test_what_a_broker_that_was_silent_tells_first_was_not_copied_since(cluster: Any, between: str) -> None:
    """At that rate the end would seem to be near. Nor is it done what nobody has told of."""
    led, copied = (PartitionReplica(FOO_0, BrokerId(broker)) for broker in (0, 2))
    cluster.topic("foo", (0, 1, 2))
    cluster.sizes = {led: 1000, copied: 500}
    if between == "brokers":
        cluster.topics["foo"][0].isr = (0, 1)
        cluster.running[FOO_0] = ReplicaAssignment(
            replicas=ids(0, 1, 2), adding_replicas=ids(2), removing_replicas=ids(1)
        )
    else:
        cluster.futures, cluster.copied = {copied: "/other"}, {copied: 400}
    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: {"results": []} if broker == 2 else None
    seen: list[tuple[bool, bool]] = []
    waits: dict[str, str] = {}

    async def looks(_: Sequence[str], machine: Machine) -> int:
        async with AdminClient(machine.network, "b0:9092") as admin:
            async for progress in watch(admin, [FOO_0], log_dirs=dict(cluster.futures)):
                seen.append((bool(progress.bytes_done), bool(progress.bytes_per_s)))
                waits.update(dict.fromkeys(progress.waits_for, ""))
                if len(seen) == 2:
                    del cluster.answers[ApiKey.DESCRIBE_LOG_DIRS]
                if len(seen) == 4:
                    return 0
        return 1

    assert run_tool(looks, cluster, [], bootstrap=None).code == 0
    assert seen == [(False, False), (False, False), (True, False), (True, False)]
    first, then = {
        "brokers": ("broker 2 to begin", "broker 2 (500 bytes of 1.0 kB)"),
        "directories": ("broker 2 to answer", "the copy of broker 2 in /other (400 bytes of 500 bytes)"),
    }[between]
    assert list(waits) == [f"foo-0 waits for {first}", f"foo-0 waits for {then}"]


def test_a_topic_that_is_deleted_meanwhile_has_no_leader_to_copy_from(cluster: Any) -> None:
    cluster.running[FOO_0] = moving(3)
    seen: list[Progress] = []

    async def looks(_: Sequence[str], machine: Machine) -> int:
        async with AdminClient(machine.network, "b0:9092") as admin:
            async for progress in watch(admin):
                seen.append(progress)
                cluster.running.clear()
        return 0

    run_tool(looks, cluster, [], bootstrap=None)
    assert [progress.waits_for for progress in seen] == [("foo-0 waits for a leader to copy from",), ()]
    assert [(progress.partitions_done, progress.partitions_total) for progress in seen] == [(0, 1), (1, 1)]
