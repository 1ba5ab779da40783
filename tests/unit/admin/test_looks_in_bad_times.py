"""`kwob wait`, `why` and `explain` where little is there: no broker, no answer, no partition, odd names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.admin import explain
from controller.admin.checks.conditions import Condition, trouble, unmet, wait_until
from controller.admin.cluster.client import AdminClient
from controller.admin.snapshot.anonymise import anonymise
from controller.admin.toolkit.machine import Machine
from controller.admin.why import command as why
from controller.wire.cluster_file import dump, parse
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.worlds.scripted_brokers import run_tool

NO_MOVES = ["no-moves"]


async def waiting(argv: Sequence[str], machine: Machine) -> int:
    """`kwob wait` for two seconds."""
    async with AdminClient(machine.network, "b0:9092") as admin:
        missing = await wait_until(admin, [Condition(name) for name in argv], timeout_s=2)
    machine.out.write(str(missing))
    return missing is not None


@pytest.mark.parametrize("condition", ["leader", "full-isr"])
def test_without_any_broker_nothing_is_as_it_should_be(cluster: Any, condition: str) -> None:
    cluster.answers[ApiKey.METADATA] = lambda *_: {"brokers": [], "controller_id": -1, "topics": []}
    assert trouble({}, (), is_full=False) is not None
    outcome = run_tool(waiting, cluster, [condition], bootstrap=None)
    assert (outcome.code, outcome.out) == (1, "no broker is registered, says who answers")


@pytest.mark.parametrize("topics", [(), ("foo",), ("bar",), ("foo", "bar"), ("other",), ("nosuch",), ("foo", "nosuch")])
def test_the_moves_of_all_topics_or_of_those_that_are_named_are_waited_for(
    cluster: Any, topics: tuple[str, ...]
) -> None:
    """Those of others, which may take days, are not; a name that no topic has is not taken for one that rests."""
    adding = (BrokerId(2),)
    for name in ("foo", "bar", "other"):
        cluster.topic(name, (0, 1))
    for name in ("foo", "bar"):
        replicas = (BrokerId(2), BrokerId(1))
        cluster.running[TopicPartition(name, 0)] = ReplicaAssignment(replicas=replicas, adding_replicas=adding)

    async def look(argv: Sequence[str], machine: Machine) -> int:
        async with AdminClient(machine.network, "b0:9092") as admin:
            machine.out.write(str(await unmet(admin, [Condition.NO_MOVES], topics)))
        return 0

    moving = [f"{name}-0" for name in ("bar", "foo") if not topics or name in topics]
    verb = "is" if len(moving) == 1 else "are"
    told = run_tool(look, cluster, [], bootstrap=None).out
    still = f"{', '.join(moving)} {verb} being reassigned" if moving else "None"
    assert told == ("there is no topic nosuch" if "nosuch" in topics else still)


def test_who_waits_does_not_wait_for_an_answer_that_takes_a_minute(cluster: Any) -> None:
    cluster.unanswered.add(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    outcome = run_tool(waiting, cluster, NO_MOVES, bootstrap=None)
    assert (outcome.code, outcome.out) == (1, "the cluster does not answer")
    assert outcome.took_s < 10


def test_what_was_seen_before_the_answers_ceased_is_told(cluster: Any) -> None:
    cluster.topic("foo", (0, 1))
    cluster.topics["foo"][0].leader = -1
    looks = []

    def metadata(broker: int, body: Any) -> None:
        looks.append(broker)
        if len(looks) > 6:
            cluster.unanswered.add(ApiKey.METADATA)

    cluster.answers[ApiKey.METADATA] = metadata
    outcome = run_tool(waiting, cluster, ["leader"], bootstrap=None)
    assert outcome.out != "None" and outcome.took_s < 10


def test_who_finds_no_broker_is_told_so(cluster: Any) -> None:
    cluster.dead |= {0, 1, 2}
    outcome = run_tool(waiting, cluster, NO_MOVES, bootstrap=None)
    assert "Is the cluster running" in outcome.out


async def asking_why(argv: Sequence[str], machine: Machine) -> int:
    parser = argparse.ArgumentParser()
    why.add_arguments(parser)
    return await why.explain(parser.parse_args(argv), machine, lambda hosts: None)  # type: ignore[return-value]


def test_a_broker_that_does_not_show_its_configs_costs_them_alone(cluster: Any) -> None:
    cluster.topic("foo", (0, 1))

    def configs(broker: int, body: Any) -> dict[str, Any] | None:
        [resource] = body.resources
        if resource.resource_type != 4:
            return None
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return {"results": [{"resource_type": 4, "resource_name": resource.resource_name, "error_code": code}]}

    cluster.answers[ApiKey.DESCRIBE_CONFIGS] = configs
    outcome = run_tool(asking_why, cluster, ["--bootstrap-server", "b0:9092", "foo"], bootstrap=None)
    assert (outcome.code, outcome.out.splitlines()[0]) == (0, "nothing is wrong")


ODD = [
    (["partitioner", "--partitions", "3", "--key", "[/x]", "--key", ":x:", "--key", "[b]c"], ["[/x]", ":x:", "[b]c"]),
    (["coordinator", "--group", "[/g]"], ["[/g]"]),
    (["assignors", "--topic", "t=3", "--members", "[/a],:x:"], ["[/a]", ":x:"]),
    (
        ["layout", "--brokers", "0:[/a],1::x:", "--partitions", "1", "--replication-factor", "1", "--start-index", "0"],
        ["[/a]", ":x:"],
    ),
]


@pytest.mark.parametrize(("argv", "names"), ODD)
def test_names_are_printed_as_they_are(cluster: Any, tmp_path: Path, argv: list[str], names: list[str]) -> None:
    outcome = run_tool(explain.main_async, cluster, argv, bootstrap=None)
    assert outcome.code == 0
    for name in names:
        assert name in outcome.out
    if argv[0] == "layout":
        file = tmp_path / "layout.html"
        assert run_tool(explain.main_async, cluster, [*argv, "--picture", str(file)], bootstrap=None).code == 0
        assert "[/a]" in file.read_text()


@pytest.mark.parametrize(
    "argv", [["coordinator", "--group", "g"], ["partitioner", "--topic", "__consumer_offsets", "--key", "a"]]
)
def test_a_topic_that_has_no_partitions_yet(cluster: Any, argv: list[str]) -> None:
    cluster.topic("__consumer_offsets")
    outcome = run_tool(explain.main_async, cluster, [*argv, "--bootstrap-server", "b0:9092"], bootstrap=None)
    assert (outcome.code, "has no partitions yet" in outcome.err) == (1, True)


def test_names_of_listeners_are_no_names_of_settings() -> None:
    text = """
version: 1
configs: {listener.name.secret.max.connections: "7", max.connections: "9"}
brokers: [{id: 1, configs: {listener.name.secret.max.connections: "8"}}]
topics: {a: {partitions: [[1]]}}
"""
    hidden = anonymise(parse(text))
    assert "secret" not in dump(hidden)
    assert hidden.configs == {"max.connections": "9"}
