"""Features of the tools that a scripted cluster is enough for, and of the pure arithmetic behind them."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.groups.group import Group
from broker_sim.groups.values import Effect, GroupSettings, Join, JoinAnswer, Reply, SyncAnswer
from controller.admin.assignors.members import Member
from controller.admin.assignors.rebalance import ASSIGNORS, DEFAULT_STRATEGIES, step
from controller.admin.commands import reassign_partitions as reassign
from controller.admin.commands import topics
from controller.admin.layout.skew import measure
from controller.admin.toolkit.machine import Machine
from controller.rules.configs.settings import ignored
from controller.rules.placement import (
    BrokerRack,
    InvalidPartitions,
    InvalidReplicationFactor,
    Start,
    assign_replicas,
    draw_start,
    fixed_start,
)
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.worlds.scripted_brokers import FakeCluster, run_tool
from tests.worlds.system import plan

Tool = Callable[..., Any]
FIVE = [BrokerRack(broker_id=BrokerId(i)) for i in range(5)]


@pytest.fixture
def cluster() -> FakeCluster:
    """Brokers 0 to 2, and t with two partitions of two replicas."""
    made = FakeCluster()
    made.topic("t", (0, 1), (1, 2))
    return made


def tool(main: Any, cluster: FakeCluster, *argv: str, **more: Any) -> Any:
    return run_tool(main, cluster, argv, **more)


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.feature("000-01")
def test_counts_are_the_clusters_at_creation_and_needed_to_add(cluster: FakeCluster) -> None:
    assert tool(topics, cluster, "--create", "--topic", "new").code == 0
    asked = cluster.requests(ApiKey.CREATE_TOPICS)[0].topics[0]
    assert (asked.num_partitions, asked.replication_factor, list(asked.assignments)) == (-1, -1, [])
    refused = tool(topics, cluster, "--alter", "--topic", "t")
    assert (refused.code, refused.err.splitlines()[0]) == (1, 'Missing required argument "[partitions]"')


@pytest.mark.feature("000-07")
def test_the_transcript_of_topic_test4(cluster: FakeCluster) -> None:
    """KA-2, in the words of Kafka 3.9."""
    layout = assign_replicas(
        [BrokerRack(broker_id=BrokerId(b)) for b in range(3)], partitions=6, replication_factor=3, start=fixed_start(2)
    )
    words = ",".join(":".join(map(str, replicas)) for replicas in layout.values())
    created = tool(topics, cluster, "--create", "--topic", "topic-test4", "--replica-assignment", words)
    assert created.out == "Created topic topic-test4.\n"
    described = tool(topics, cluster, "--describe", "--topic", "topic-test4")
    rows = ["2,0,1", "0,1,2", "1,2,0", "2,1,0", "0,2,1", "1,0,2"]
    elr = "\tElr: N/A\tLastKnownElr: N/A"
    assert described.out == "Topic: topic-test4\tPartitionCount: 6\tReplicationFactor: 3\tConfigs: \n" + "".join(
        f"\tTopic: topic-test4\tPartition: {n}\tLeader: {r[0]}\tReplicas: {r}\tIsr: {r}{elr}\n"
        for n, r in enumerate(rows)
    )


@pytest.mark.feature("000-16")
def test_two_topics_with_a_comma(cluster: FakeCluster) -> None:
    cluster.topic("topic-test1", (0,))
    cluster.topic("topic-test6", (1,))
    out = tool(topics, cluster, "--describe", "--topic", "topic-test1,topic-test6").out
    heads = [line.split("\t")[0] for line in out.splitlines() if line.startswith("Topic")]
    assert heads == ["Topic: topic-test1", "Topic: topic-test6"]


@pytest.mark.feature("000-19")
def test_the_command_as_a_function_with_the_same_arguments(cluster: FakeCluster) -> None:
    """`main` of every action takes the words of the shell and returns the exit code."""
    for argv, out in (
        (["--create", "--topic", "topic-test8", "--replica-assignment", "0:1"], "Created topic topic-test8.\n"),
        (["--list"], "t\ntopic-test8\n"),
        (["--alter", "--topic", "topic-test8", "--partitions", "2"], ""),
        (["--describe", "--topic", "topic-test8"], "Topic: topic-test8\tPartitionCount: 2"),
        (["--delete", "--topic", "topic-test8"], ""),
        (["--list"], "t\n"),
    ):
        ran = tool(topics, cluster, *argv)
        assert ran.code == 0 and ran.out.startswith(out), argv
    assert callable(topics.main) and topics.main(["--version"], Machine(**_streams())) == 0


def _streams() -> dict[str, Any]:
    import io

    return {"network": None, "clock": None, "chance": random.Random(), "out": io.StringIO(), "err": io.StringIO()}


@pytest.mark.feature("003-02")
def test_internal_topics_are_left_out_when_asked(cluster: FakeCluster) -> None:
    cluster.topic("__consumer_offsets", (0,))
    cluster.topic("__transaction_state", (0,))
    assert tool(topics, cluster, "--list").out == "__consumer_offsets\n__transaction_state\nt\n"
    assert tool(topics, cluster, "--list", "--exclude-internal").out == "t\n"


@pytest.mark.feature("003-05")
@pytest.mark.parametrize("words", [[], ["--list", "--describe"]], ids=["none", "two"])
def test_exactly_one_action(cluster: FakeCluster, words: list[str]) -> None:
    ran = tool(topics, cluster, *words, "--topic", "t")
    assert ran.code == 1
    assert ran.err.startswith(
        "Command must include exactly one action: --list, --describe, --create, --alter or --delete\n"
    )


# -- placement ---------------------------------------------------------------------------------------------------------


@pytest.mark.feature("001-01")
def test_what_the_parameters_mean() -> None:
    drawn = {(s.start_index, s.shift) for s in (draw_start(5, random.Random(seed)) for seed in range(400))}
    assert drawn == set(itertools.product(range(5), range(5))), "two independent draws"
    assert fixed_start(3) == Start(start_index=3, shift=3)
    one = assign_replicas(FIVE, partitions=3, replication_factor=2, start=fixed_start(1), first_partition=-1)
    assert one == assign_replicas(FIVE, partitions=3, replication_factor=2, start=fixed_start(1))
    assert list(one) == [0, 1, 2]


@pytest.mark.feature("001-02")
@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(0, 8), st.integers(0, 8))
def test_followers_are_never_at_distance_nothing_and_the_shift_grows_each_round(n: int, start: int, shift: int) -> None:
    brokers = [BrokerRack(broker_id=BrokerId(b)) for b in range(n)]
    begin = Start(start_index=start % n, shift=shift % n)
    layout = assign_replicas(brokers, partitions=3 * n, replication_factor=2, start=begin)
    distances = [(r[1] - r[0]) % n for r in layout.values()]
    assert all(1 <= d <= n - 1 for d in distances)
    rounds = [set(distances[at : at + n]) for at in range(0, 3 * n, n)]
    assert all(len(r) == 1 for r in rounds), "the same for all partitions of a round"
    first, second, third = (next(iter(r)) for r in rounds)
    assert {(second - first) % (n - 1), (third - second) % (n - 1)} == {1 % (n - 1)} if n > 2 else True


@pytest.mark.feature("002-05")
def test_any_replication_factor_can_be_placed() -> None:
    for factor in range(1, 6):
        layout = assign_replicas(FIVE, partitions=10, replication_factor=factor, start=fixed_start(0))
        assert {len(set(r)) for r in layout.values()} == {factor}
        assert measure(layout.values(), FIVE).replica_skew == 1.0


@pytest.mark.feature("004-06")
def test_ten_thousand_partitions() -> None:
    layout = assign_replicas(FIVE, partitions=10_000, replication_factor=3, start=fixed_start(0))
    assert list(layout) == list(range(10_000))
    assert Counter(r[0] for r in layout.values()) == dict.fromkeys(range(5), 2000)


@pytest.mark.feature("004-09")
def test_five_sentences_about_placement() -> None:
    with pytest.raises(InvalidPartitions):
        assign_replicas(FIVE, partitions=0, replication_factor=1, start=fixed_start(0))
    with pytest.raises(InvalidReplicationFactor):
        assign_replicas(FIVE, partitions=1, replication_factor=6, start=fixed_start(0))
    layout = assign_replicas(FIVE, partitions=4, replication_factor=3, start=Start(start_index=3, shift=0))
    assert [r[0] for r in layout.values()] == [3, 4, 0, 1], "the fourth broker, the fifth, the first, the second"
    followers = {
        assign_replicas(FIVE, partitions=1, replication_factor=2, start=Start(start_index=3, shift=h))[0][1]
        for h in range(5)
    }
    assert followers == {0, 1, 2, 4}, "which followers is the shift's affair"


# -- reassignment ------------------------------------------------------------------------------------------------------


@pytest.mark.feature("002-04")
def test_generate_takes_the_replication_factor_of_partition_0(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.topic("mixed", (0, 1), (2,), (0, 1, 2))
    (tmp_path / "topics.json").write_text('{"topics":[{"topic":"mixed"}]}')
    words = ("--generate", "--broker-list", "0,1,2", "--topics-to-move-json-file", str(tmp_path / "topics.json"))
    told = json.loads(tool(reassign, cluster, *words, "--json").out)
    assert [len(r["replicas"]) for r in told["current"]["partitions"]] == [2, 1, 3]
    assert [len(r["replicas"]) for r in told["proposed"]["partitions"]] == [2, 2, 2]


@pytest.mark.feature("002-05")
def test_execute_takes_another_number_of_replicas(cluster: FakeCluster, tmp_path: Path) -> None:
    assert tool(reassign, cluster, "--execute", *plan(tmp_path, {("t", 0): (0, 1, 2), ("t", 1): (2,)})).code == 0
    assert cluster.running[TopicPartition("t", 0)].adding_replicas == (2,)
    assert cluster.running[TopicPartition("t", 1)].removing_replicas == (1,)


@pytest.mark.feature("002-08")
def test_the_printed_lists_bring_everything_back(cluster: FakeCluster, tmp_path: Path) -> None:
    before = {n: p.replicas for n, p in cluster.topics["t"].items()}
    ran = tool(reassign, cluster, "--execute", *plan(tmp_path, {("t", 0): (2, 0), ("t", 1): (2, 1)}))
    lines = ran.out.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert lines[4] == "Save this to use as the --reassignment-json-file option during rollback"
    cluster.finish()
    assert {n: p.replicas for n, p in cluster.topics["t"].items()} != before
    (tmp_path / "rollback.json").write_text(lines[2])
    file = ("--reassignment-json-file", str(tmp_path / "rollback.json"))
    assert tool(reassign, cluster, "--execute", *file).code == 0
    cluster.finish()
    assert {n: p.replicas for n, p in cluster.topics["t"].items()} == before


@pytest.mark.feature("002-11", "002-07")
def test_a_refused_second_run_leaves_the_throttles_alone(cluster: FakeCluster, tmp_path: Path) -> None:
    file = plan(tmp_path, {("t", 0): (0, 2)})
    tool(reassign, cluster, "--execute", "--throttle", "1000", *file)
    before = {entity: dict(values) for entity, values in cluster.configs.items()}
    cluster.seen.clear()
    ran = tool(reassign, cluster, "--execute", "--throttle", "5", *file)
    assert ran.code == 1 and ran.out.startswith("Cannot execute because there is an existing partition assignment.")
    assert {entity: dict(values) for entity, values in cluster.configs.items()} == before
    assert not cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)


@pytest.mark.feature("002-12")
def test_a_source_that_is_done_keeps_its_old_rate_until_verify(cluster: FakeCluster, tmp_path: Path) -> None:
    file = plan(tmp_path, {("t", 0): (1, 2), ("t", 1): (2, 1)})
    tool(reassign, cluster, "--execute", "--throttle", "1000", *file)
    rate = "leader.replication.throttled.rate"
    assert cluster.configs[4, "0"][rate] == "1000"
    cluster.finish()
    cluster.running[TopicPartition("t", 1)] = ReplicaAssignment(replicas=(2, 1), adding_replicas=(2,))
    again = tool(reassign, cluster, "--execute", "--additional", "--throttle", "9", *file)
    assert again.code == 0, again.out
    assert {b: cluster.configs[4, b][rate] for b in "012"} == {"0": "1000", "1": "9", "2": "9"}
    cluster.running.clear()
    tool(reassign, cluster, "--verify", *file)
    assert not any(cluster.configs[4, b] for b in "012")


@pytest.mark.feature("002-13")
@pytest.mark.parametrize(
    "words", [(), ("--throttle", "10"), ("--replica-alter-log-dirs-throttle", "10")], ids=["none", "rate", "dir rate"]
)
def test_the_warning_comes_with_a_throttle(cluster: FakeCluster, tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = tool(reassign, cluster, "--execute", *words, *plan(tmp_path, {("t", 0): (0, 2)}))
    warning = (
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed.\n"
    )
    assert (warning in ran.out) == bool(words)


@pytest.mark.feature("002-16")
@pytest.mark.parametrize("action", ["--list", "--execute", "--verify"])
def test_a_bootstrap_server_is_always_needed(cluster: FakeCluster, tmp_path: Path, action: str) -> None:
    file = plan(tmp_path, {("t", 0): (0, 1)}, log_dirs=["/a", "any"])
    ran = tool(reassign, cluster, action, *(file if action != "--list" else ()), bootstrap=None)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "Please specify --bootstrap-server")


@pytest.mark.feature("002-29")
def test_a_broker_that_does_not_allow_a_move_of_dirs(cluster: FakeCluster, tmp_path: Path) -> None:
    entry = {"partition_index": 0, "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    cluster.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = lambda broker, body: {
        "results": [{"topic_name": "t", "partitions": [entry]}]
    }
    ran = tool(reassign, cluster, "--execute", *plan(tmp_path, {("t", 0): (0, 1)}, log_dirs=["/other", "any"]))
    assert ran.code == 1 and "Failed to alter dir for t-0-0\n" in ran.out
    assert not cluster.futures


# -- groups ------------------------------------------------------------------------------------------------------------


def member(name: str) -> Member:
    return Member(member_id=name, topics=("t",))


@pytest.mark.feature("004-13", "004-03")
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_every_partition_has_one_owner_after_a_death_and_a_return(assignor: str) -> None:
    everything = {TopicPartition("t", n) for n in range(10)}

    def owners(shares: dict[str, list[TopicPartition]]) -> Counter[TopicPartition]:
        return Counter(p for listed in shares.values() for p in listed)

    members = [member(name) for name in "ABC"]
    first, after_death = step(assignor, members, {"t": 10}, change=lambda now: [m for m in now if m.member_id != "C"])
    assert owners(first[-1].shares) == owners(after_death[-1].shares) == dict.fromkeys(everything, 1)
    assert set(after_death[-1].shares) == {"A", "B"}
    _, back = step(assignor, members[:2], {"t": 10}, change=lambda now: [*now, member("C")])
    assert owners(back[-1].shares) == dict.fromkeys(everything, 1)
    assert len(back[-1].shares["C"]) == 3, "it gets its share back"
    if "sticky" in assignor:
        kept = [set(first[-1].shares[m]) <= set(after_death[-1].shares[m]) for m in "AB"]
        assert all(kept), "survivors lose nothing"


@pytest.mark.feature("004-12", "004-15")
@pytest.mark.parametrize("version", DEFAULT_STRATEGIES)
def test_range_is_what_a_group_of_default_clients_gets(version: str) -> None:
    protocols = tuple((name, b"") for name in DEFAULT_STRATEGIES[version])
    assert protocols[0][0] == "range"
    group = Group("g", GroupSettings())
    answers: dict[int, JoinAnswer | SyncAnswer] = {}

    def take(effects: list[Effect]) -> None:
        answers.update({e.ticket: e.answer for e in effects if isinstance(e, Reply)})

    for ticket, name in enumerate("AB"):
        request = Join(
            member_id="", new_member_id=name, group_instance_id=None, client_id="c", client_host="/h",
            session_timeout_ms=45_000, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=protocols,
            needs_known_member_id=False,
        )  # fmt: skip
        take(group.join(request, ticket, 0))
    while (due := group.next_deadline_ms) is not None and not answers:
        take(group.tick(due))
    assert {a.protocol_name for a in answers.values() if isinstance(a, JoinAnswer)} == {"range"}
    assert {a.generation for a in answers.values() if isinstance(a, JoinAnswer)} == {1}


@pytest.mark.feature("000-20")
def test_a_policy_is_named_as_not_served() -> None:
    given = {"create.topic.policy.class.name": "com.example.Policy", "auto.create.topics.enable": "false"}
    assert ignored(given, ["auto.create.topics.enable"]) == ("create.topic.policy.class.name",)
