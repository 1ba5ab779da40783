"""`kwob why`: reasons from facts, and the tool on a scripted cluster, with a ZooKeeper in memory, and with neither."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, cast

import pytest

from controller.admin.cluster.queries import PartitionInfo, TopicInfo
from controller.admin.toolkit.machine import Machine
from controller.admin.why.command import add_arguments, explain
from controller.admin.why.commands import Commands
from controller.admin.why.diagnosis import diagnose, split_target
from controller.admin.why.facts import BrokerFacts, Damage, Deletion, LogOn, PartitionFacts, TopicFacts
from controller.admin.why.finding import Finding, Trouble
from controller.admin.why.from_zookeeper import ZkCluster, ZkTopic, ZkView
from controller.admin.why.look import BrokerView, Locally
from controller.admin.why.look import facts as gather
from controller.local.cluster_file import BrokerRow, ClusterRow
from controller.local.fault_file import write_faults
from controller.local.why_local import last_signs, log_lines, look
from controller.wire.errors import ErrorCode
from controller.wire.fault_rows import FAULT_FILE, FailLogDir, PauseReplication, SlowDisk
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, ZkCode
from controller.world.simulated.net import Latency
from controller.world.simulated.world import World, run_world
from controller.world.simulated.zookeeper import SimulatedZooKeeper

T0 = TopicPartition("t", 0)
HERE = Commands(bootstrap="b:1", local=True)
GARBAGE = Damage(path="/brokers/topics/t/partitions/0/state", flaw="it is no JSON object: b'x'")


def broker(number: int, **changes: Any) -> BrokerFacts:
    return BrokerFacts(**{"broker_id": BrokerId(number), "is_alive": True, "answers": True, **changes})


def partition(**changes: Any) -> PartitionFacts:
    """t-0 on 1,2,3, led by 1, all in sync."""
    usual = {"partition": T0, "replicas": (1, 2, 3), "leader": 1, "isr": (1, 2, 3)}
    return PartitionFacts(**{**usual, **changes})


def topic(p: PartitionFacts, *brokers: BrokerFacts, **changes: Any) -> TopicFacts:
    """Brokers 1, 2, 3 are well unless told otherwise; 9 is the controller."""
    known = {BrokerId(n): broker(n) for n in (1, 2, 3)} | {b.broker_id: b for b in brokers}
    usual = {"topic": "t", "partitions": (p,), "brokers": known, "controller": BrokerId(9), "asked_zookeeper": True}
    return TopicFacts(**{**usual, **changes})


def log(size: int, before: int | None = None) -> LogOn:
    return LogOn(path="/d", size_bytes=size, offset_lag=0, size_before=before)


DEAD_2 = broker(2, is_alive=False, local=False)
LAGS = {"isr": (1, 3)}
CASES: list[tuple[str, TopicFacts, Trouble, str, str]] = [
    ("a dead broker", topic(partition(**LAGS), DEAD_2), Trouble.UNDER_REPLICATED,
     "broker 2 is not alive: it is not registered and its process does not run", "kwob broker start 2"),
    ("a dead process with a living session", topic(partition(**LAGS), broker(2, local=False)),
     Trouble.UNDER_REPLICATED, "its ZooKeeper session has not run out yet", "kwob broker start 2"),
    ("a failed log dir", topic(partition(**LAGS), broker(2, failed_dirs=("/disk1",))), Trouble.UNDER_REPLICATED,
     "broker 2 is alive, but a log dir failed: /disk1", "repair or replace the disk, then start broker 2 again"),
    ("a fault in force", topic(partition(**LAGS), broker(2, faults=("pause_replication",))), Trouble.UNDER_REPLICATED,
     "with faults in force: pause_replication", "kwob fault clear"),
    ("a throttled follower",
     topic(partition(**LAGS, follower_throttled=frozenset({2}), logs={1: log(900), 2: log(100)}),
           broker(2, follower_rate=7)), Trouble.UNDER_REPLICATED,
     "broker 2 may copy at 7 B/s only (throttled), 800 bytes behind its leader", "# removes the throttle"),
    ("a throttled leader", topic(partition(**LAGS, leader_throttled=frozenset({1})), broker(1, leader_rate=5)),
     Trouble.UNDER_REPLICATED, "its leader 1 may send 5 B/s only (throttled)", "# removes the throttle"),
    ("no answer", topic(partition(**LAGS), broker(2, answers=False)), Trouble.UNDER_REPLICATED,
     "broker 2 is registered but does not answer", "start broker 2 where it was started"),
    ("no log", topic(partition(**LAGS)), Trouble.UNDER_REPLICATED,
     "broker 2 is alive but has no log of it", "kwob log-dirs --bootstrap-server b:1 --describe"),
    ("catching up", topic(partition(**LAGS, logs={1: log(1000, 900), 2: log(500, 300)}), sampled_s=1.0),
     Trouble.UNDER_REPLICATED, "500 bytes behind its leader, catching up at 100 B/s: about 6 s", "log-dirs"),
    ("falling behind", topic(partition(**LAGS, logs={1: log(1000, 800), 2: log(500, 400)}), sampled_s=1.0),
     Trouble.UNDER_REPLICATED, "falling further behind: what is written is more than it copies", "log-dirs"),
    ("standing still", topic(partition(**LAGS, logs={1: log(1000, 1000), 2: log(500, 500)}), sampled_s=2.0),
     Trouble.UNDER_REPLICATED, "copied nothing in 2.0 s", "log-dirs"),
    ("there already", topic(partition(**LAGS, logs={1: log(500), 2: log(500)})), Trouble.UNDER_REPLICATED,
     "it is about to come into the ISR", "log-dirs"),
    ("too few in sync", topic(partition(isr=(1,)), DEAD_2, min_insync_replicas=2), Trouble.UNDER_MIN_ISR,
     "in sync: 1", "kwob broker start 2"),
    ("offline, the last in sync is dead",
     topic(partition(leader=None, isr=(2,)), DEAD_2), Trouble.OFFLINE,
     "the last ISR is 2, and a leader must come from it", "kwob broker start 2"),
    ("offline, others live",
     topic(partition(leader=None, isr=(2,)), DEAD_2), Trouble.OFFLINE,
     "broker 1,3 is alive but was not in sync; unclean.leader.election.enable is false",
     "only if those records may be lost: kwob leader-election --bootstrap-server b:1 --election-type unclean"),
    ("offline, its leader is dead", topic(partition(leader=2, isr=(2,)), DEAD_2), Trouble.OFFLINE,
     "the last ISR is 2", "kwob broker start 2"),
    ("offline for a moment", topic(partition(leader=None, isr=(2,))), Trouble.OFFLINE,
     "the controller may be about to elect it", "--describe --topic t"),
    ("never had a leader", topic(partition(state_known=False, leader=None, isr=(), replicas=(7,))), Trouble.OFFLINE,
     "broker 7 of its replicas is not alive, or there is none of that id", "reassign-partitions"),
    ("a state that nobody can read, of who is led", topic(partition(damage=GARBAGE)), Trouble.DAMAGED,
     "/brokers/topics/t/partitions/0/state: it is no JSON object: b'x'",
     'set /brokers/topics/t/partitions/0/state \'{"controller_epoch":0,"leader":1,"version":1,"leader_epoch":EPOCH,'
     '"isr":[1,2,3]}\''),
    ("a state that nobody can read, of who has no leader",
     topic(partition(damage=GARBAGE, leader=None, isr=(), state_known=False)), Trouble.DAMAGED, "it is no JSON",
     '"leader":LEADER'),
    ("an assignment that cannot be", topic(partition(damage=Damage(path="/t", flaw="x", is_assignment=True))),
     Trouble.DAMAGED, "/t: x", "zookeeper-shell.sh H:P get /t"),
    ("a topic that nobody can read", topic(partition(), damage=Damage(path="/brokers/topics/t", flaw="it is empty")),
     Trouble.DAMAGED, "/brokers/topics/t: it is empty", "create /admin/delete_topics/t ''"),
    ("a move that waits",
     topic(partition(adding_replicas=(3,), removing_replicas=(2,), isr=(1, 2)), broker(3, is_alive=False)),
     Trouble.REASSIGNMENT, "it is done once 1,3 are all in the ISR, which is 1,2", "start broker 3 where it was"),
    ("a move without a leader",
     topic(partition(adding_replicas=(3,), leader=None, isr=(2,)), DEAD_2), Trouble.REASSIGNMENT,
     "it has no leader to copy from, so nothing will change until it has one", "--list --progress"),
    ("a throttled move",
     topic(partition(adding_replicas=(3,), isr=(1, 2), follower_throttled=frozenset({3})), broker(3, follower_rate=1)),
     Trouble.REASSIGNMENT, "broker 3 may copy at 1 B/s only", "--additional --throttle MORE"),
    ("a move about to end", topic(partition(adding_replicas=(3,))), Trouble.REASSIGNMENT,
     "all of them are: the controller is about to finish it", "--list"),
    ("a wish nobody took up", topic(partition(asked_target=(3, 4))), Trouble.REASSIGNMENT,
     "/admin/reassign_partitions asks for it", "--list"),
    ("deletion waits for a dead broker", topic(partition(), DEAD_2, deletion=Deletion.MARKED), Trouble.DELETION,
     "broker 2 holds replicas and is not alive; deletion waits for it", "kwob broker start 2"),
    ("deletion is disabled", topic(partition(), deletion=Deletion.MARKED, delete_enabled=False), Trouble.DELETION,
     "delete.topic.enable is false", "set delete.topic.enable=true"),
    ("deletion meets a move", topic(partition(adding_replicas=(3,), isr=(1, 2)), deletion=Deletion.MARKED),
     Trouble.DELETION, "being reassigned: t-0", "--list"),
    ("deletion under way", topic(partition(), deletion=Deletion.MARKED), Trouble.DELETION,
     "it may just be going on", "--list --topic t"),
    ("no controller", topic(partition(), controller=None), Trouble.NO_CONTROLLER,
     "/controller does not exist", "kwob status"),
    ("another leader than preferred", topic(partition(leader=3)), Trouble.NOT_PREFERRED,
     "", "--election-type preferred --topic t --partition 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "trouble", "because", "then"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_reasons(facts: TopicFacts, trouble: Trouble, because: str, then: str) -> None:
    found = [f for f in diagnose(facts, HERE) if f.trouble is trouble]
    assert len(found) == 1
    assert not because or any(because in line for line in found[0].because), found[0]
    assert any(then in command for command in found[0].next), found[0]


@pytest.mark.parametrize("dead", [(), (1,), (2,), (3,), (1, 2), (2, 3), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("isr", [(1,), (2,), (1, 2), (3, 2)], ids=str)
def test_an_unclean_election_is_offered_where_nobody_in_sync_lives_and_somebody_else_does(
    isr: tuple[int, ...], dead: tuple[int, ...]
) -> None:
    away = [broker(number, is_alive=False) for number in dead]
    findings = diagnose(topic(partition(leader=None, isr=isr), *away), HERE)
    (found,) = [f for f in findings if f.trouble is Trouble.OFFLINE]
    offered = any("--election-type unclean" in command for command in found.next)
    assert offered == (set(isr) <= set(dead) and set(dead) < {1, 2, 3})


SETS = [tuple(r for r in (1, 2, 3) if bits >> r & 1) for bits in range(0, 16, 2)]


@pytest.mark.parametrize("adding", SETS)
@pytest.mark.parametrize("removing", SETS)
def test_who_is_missing(adding: tuple[int, ...], removing: tuple[int, ...]) -> None:
    """Of a partition that moves: who was a replica before and is not in sync is missing; whom the move adds and who is
    not in sync is waited for, and who is to stay as well."""
    if set(adding) & set(removing) or len(adding) == 3:
        return
    for isr in SETS[1:]:
        p = partition(adding_replicas=adding, removing_replicas=removing, isr=isr, leader=isr[0])
        found = {f.trouble: f for f in diagnose(topic(p), HERE)}
        missing = [r for r in (1, 2, 3) if r not in adding and r not in isr]
        waits = [r for r in (1, 2, 3) if r not in removing and r not in isr]
        named = found[Trouble.UNDER_REPLICATED].because if missing else ()
        assert (Trouble.UNDER_REPLICATED in found) is bool(missing), p
        assert [line.split()[1] for line in named] == [str(r) for r in missing], p
        assert (Trouble.REASSIGNMENT in found) is bool(adding or removing), p
        if adding or removing:
            asked = found[Trouble.REASSIGNMENT].summary.rpartition("waits for ")[2]
            assert asked == (",".join(map(str, waits)) or "the controller"), p


def test_a_healthy_partition_has_nothing_wrong() -> None:
    assert diagnose(topic(partition()), HERE) == []


def test_the_worst_comes_first_and_other_partitions_are_left_out() -> None:
    one = partition(partition=TopicPartition("t", 1), leader=None, isr=(2,))
    facts = topic(partition(isr=(1, 3)), DEAD_2, partitions=(partition(isr=(1, 3)), one))
    assert next(iter(diagnose(facts, HERE))).trouble is Trouble.OFFLINE
    assert {f.subject for f in diagnose(facts, HERE, only=0)} == {"t-0"}


def test_a_cluster_of_somebody_else_has_no_kwob_broker() -> None:
    found = diagnose(topic(partition(isr=(1, 3)), DEAD_2), Commands(bootstrap="h:9"))
    assert found[0].next == ("start broker 2 again (its log says why it ended)",)


def test_what_a_target_names() -> None:
    topics = {"a", "a-1", "b"}
    assert split_target("a-1", topics) == "a-1"
    assert split_target("a-2", topics) == TopicPartition("a", 2)
    assert split_target("a-1-0", topics) == TopicPartition("a-1", 0)
    assert split_target("c", topics) is None and split_target("b-x", topics) is None


@pytest.mark.parametrize("leader", [1, None])
def test_of_what_nobody_can_read_nothing_else_is_guessed(leader: int | None) -> None:
    """Why members are missing, or nobody leads, is in the znode."""
    lagging = partition(leader=leader, isr=(1,), damage=GARBAGE)
    assert [f.trouble for f in diagnose(topic(lagging), HERE)] == [Trouble.DAMAGED]


ZNODES = [
    ("sound", b'{"version":2,"partitions":{"0":[1]}}',
     b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1]}', ()),
    ("no state yet", b'{"version":2,"partitions":{"0":[1]}}', None, ()),
    ("a topic", b"{no", None, ("/brokers/topics/t: it holds no assignment: it is no JSON object: b'{no'",)),
    ("an assignment", b'{"version":2,"partitions":{"0":["x"]}}', None,
     ("/brokers/topics/t: partition 0: ['x'] does not hold integers alone",)),
    ("a state", b'{"version":2,"partitions":{"0":[1]}}', b"x",
     ("/brokers/topics/t/partitions/0/state: it is no JSON object: b'x'",)),
    ("an empty state", b'{"version":2,"partitions":{"0":[1]}}', b"",
     ("/brokers/topics/t/partitions/0/state: it is empty",)),
    ("a state that lacks something", b'{"version":2,"partitions":{"0":[1]}}', b"{}",
     ("/brokers/topics/t/partitions/0/state: it is no state of a partition; it holds b'{}'",)),
    ("a state that cannot be", b'{"version":2,"partitions":{"0":[1]}}',
     b'{"controller_epoch":1,"leader":2,"leader_epoch":0,"isr":[1]}',
     ("/brokers/topics/t/partitions/0/state: its leader 2 is not in its ISR [1]",)),
]  # fmt: skip


@pytest.mark.parametrize(("content", "state", "because"), [z[1:] for z in ZNODES], ids=[z[0] for z in ZNODES])
def test_what_is_damaged_in_zookeeper_is_found(content: bytes, state: bytes | None, because: tuple[str, ...]) -> None:
    async def scenario(world: World) -> list[Finding]:
        connector = world.machine("client").connector(session_timeout_ms=6000)
        session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        await session.perform([Create("/brokers"), Create("/brokers/topics"), Create("/brokers/topics/t", content)])
        for path in ("/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"):
            await session.perform([Create(path)])
        if state is not None:
            await session.perform([Create("/brokers/topics/t/partitions/0/state", state)])
        found = await ZkView(session).topic("t")
        await session.close()
        return diagnose(gather("t", None, None, found, Locally()), HERE)

    damaged = [f for f in run_world(1, scenario) if f.trouble is Trouble.DAMAGED]
    assert tuple(line for f in damaged for line in f.because) == because


@pytest.mark.parametrize("live", [None, (), (1,), (1, 2)], ids=["brokers: silent", "none", "1", "1, 2"])
@pytest.mark.parametrize("registered", [None, (), (1,), (1, 2)], ids=["ZooKeeper: silent", "none", "1", "1, 2"])
def test_who_is_alive_is_who_is_registered_where_zookeeper_tells(
    live: tuple[int, ...] | None, registered: tuple[int, ...] | None
) -> None:
    """Brokers repeat it, and may not have heard yet."""
    if live is None and registered is None:
        return
    one, two = BrokerId(1), BrokerId(2)
    info = TopicInfo(
        name="t", topic_id=None, is_internal=False,
        partitions=(PartitionInfo(partition=0, leader=one, replicas=(one, two), isr=(one,)),),
    )  # fmt: skip
    brokers = None if live is None else BrokerView(
        topic=info, live=frozenset(map(BrokerId, live)), controller=None, moving={}, configs={}, answers={}, earlier={},
        sampled_s=0.0,
    )  # fmt: skip
    cluster = None if registered is None else ZkCluster(
        topics=frozenset({"t"}), registered=frozenset(map(BrokerId, registered)), controller=None, broker_configs={}
    )  # fmt: skip
    topic = None if registered is None else ZkTopic(
        assignment={0: ReplicaAssignment(replicas=(one, two))}, states={}, configs={}, is_deleting=False,
        asked_targets={}, damages={}, damage=None,
    )  # fmt: skip
    found = gather("t", brokers, cluster, topic, Locally())
    alive = {broker for broker, facts in found.brokers.items() if facts.is_alive}
    assert alive == set(registered if registered is not None else live or ())


# -- through the tool --------------------------------------------------------------------------------------------------


async def no_zookeeper(_: str) -> Any:
    raise AssertionError("asked ZooKeeper")


async def why(argv: Any, machine: Machine) -> int:
    parser = ArgumentParser()
    add_arguments(parser)
    return await explain(parser.parse_args(list(argv)), machine, no_zookeeper, None)


def test_a_scripted_cluster(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 1), (1, 2))
    outcome = tool(why, cluster, ["t"])
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        "nothing is wrong\nt-0: led by 0, all 2 replicas in sync\nt-1: led by 1, all 2 replicas in sync\n"
    )
    cluster.topics["t"][1].isr = (1,)
    cluster.configs[2, "t"] = {"follower.replication.throttled.replicas": "²:1,1:²,1:2"}
    cluster.configs[4, "2"] = {"follower.replication.throttled.rate": "12"}
    outcome = tool(why, cluster, ["t"])
    assert outcome.code == 3
    assert "t-1 is under-replicated: 1 of 2 replicas not in sync\n  broker 2 may copy at 12 B/s only" in outcome.out
    assert tool(why, cluster, ["t-0"]).code == 0
    told = json.loads(tool(why, cluster, ["t-1", "--json"]).out)
    assert [f["trouble"] for f in told["findings"]] == ["under-replicated"]


@pytest.mark.parametrize(
    ("silent", "reason"), [("dead", "connection refused"), ("mute", "no answer within 0.9 s")], ids=["killed", "paused"]
)
@pytest.mark.parametrize("in_sync", [True, False], ids=["counted in sync", "out of the ISR"])
def test_a_broker_that_does_not_answer(cluster: Any, tool: Any, silent: str, reason: str, in_sync: bool) -> None:
    """Its session has not run out, so all others list it: only asking it tells."""
    cluster.topic("t", (1, 0), (2, 1), (1, 2))
    if not in_sync:
        cluster.topics["t"][0].isr = (0,)
    getattr(cluster, silent).add(1)
    outcome = tool(why, cluster, ["t"])
    assert outcome.code == 3
    assert f"broker 1 does not answer ({reason})\n  no word from it when asked at " in outcome.out
    assert "  it leads t-0, t-2: records are neither taken nor read there\n" in outcome.out
    assert ("in sync in t-1\n" in outcome.out) and "broker 2 does not answer" not in outcome.out
    assert outcome.took_s < 2.0
    assert tool(why, cluster, ["t-1"]).out.startswith("broker 1 does not answer")


def test_the_first_of_the_addresses_does_not_answer(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (1, 2))
    cluster.mute.add(0)
    cluster.controller = 2
    outcome = tool(why, cluster, ["t"], bootstrap="b0:9092,b1:9092")
    assert (outcome.code, outcome.out) == (0, "nothing is wrong\nt-0: led by 1, all 2 replicas in sync\n")
    assert outcome.took_s < 2.0


def test_the_newest_view_counts(cluster: Any, tool: Any) -> None:
    """The broker that is asked first has not heard of the election; the new leader has."""
    cluster.topic("t", (1, 2))

    def metadata(broker: int, body: Any) -> dict[str, Any] | None:
        if not body.topics or broker == 2:
            return None
        partition = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 4}
        partition |= {"replica_nodes": [1, 2], "isr_nodes": [1, 2], "offline_replicas": []}
        topic = {"error_code": 0, "name": "t", "is_internal": False, "partitions": [partition]}
        nodes = [{"node_id": n, "host": f"b{n}", "port": 9092, "rack": None} for n in range(3)]
        return {"brokers": nodes, "cluster_id": None, "controller_id": 0, "topics": [topic]}

    cluster.topics["t"][0].leader, cluster.topics["t"][0].isr = 2, (2,)
    cluster.topics["t"][0].leader_epoch = 5
    cluster.answers[ApiKey.METADATA] = metadata
    outcome = tool(why, cluster, ["t"])
    assert "t-0 is under-replicated: 1 of 2 replicas not in sync\n  broker 1 " in outcome.out


NEXT = [
    ("killed by a fault", BrokerFacts(broker_id=BrokerId(2), is_alive=True, local=False, faults=("kill",),
                                      fault_ids=("f1",)), "kwob fault clear f1"),
    ("its process ended", broker(2, local=False), "kwob broker start 2"),
    ("its process hangs", broker(2, local=True), "kwob broker kill 2 && kwob broker start 2"),
    ("not of this folder", broker(2), "start broker 2 where it was started (kwob up here has none of that id)"),
    ("nobody knows it", None, "start broker 2 where it was started"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "command"), [row[1:] for row in NEXT], ids=[row[0] for row in NEXT])
def test_what_brings_a_broker_back(facts: BrokerFacts | None, command: str) -> None:
    assert HERE.revive(BrokerId(2), facts).startswith(command)


def test_a_line_is_not_wrapped_in_a_pipe(cluster: Any, tool: Any) -> None:
    name = "t" * 240
    cluster.topic(name, (0, 1))
    assert f"\n{name}-0: led by 0, all 2 replicas in sync\n" in tool(why, cluster, [name]).out


def test_a_folder_that_is_not_the_default_one_is_named() -> None:
    there = Commands(bootstrap="b:1", local=True, data=" --data d")
    assert there.revive(BrokerId(2), broker(2, local=False)) == "kwob broker start 2 --data d"


def test_a_move_in_a_scripted_cluster(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 1))
    cluster.topics["t"][0].replicas = (0, 1, 2)
    cluster.running[T0] = ReplicaAssignment(replicas=(0, 1, 2), adding_replicas=(2,), removing_replicas=(1,))
    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: (
        {"results": [{"log_dir": "/d", "error_code": ErrorCode.KAFKA_STORAGE_ERROR, "topics": []}]}
        if broker == 2
        else None
    )
    outcome = tool(why, cluster, ["t-0"])
    assert "t-0 is being moved to 0,2; waits for 2\n" in outcome.out
    assert "broker 2 is alive, but a log dir failed: /d\n" in outcome.out


REFUSED = [
    ("no such topic", ["nix"], "There is no topic or partition nix; topics are: t"),
    ("no such partition", ["t-9"], "t has no partition 9; it has 0 to 0"),
]


@pytest.mark.parametrize(("argv", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusals(cluster: Any, tool: Any, argv: list[str], message: str) -> None:
    cluster.topic("t", (0, 1))
    outcome = tool(why, cluster, argv)
    assert (outcome.code, outcome.out, outcome.err) == (1, "", f"kwob why: {message}\n")
    assert json.loads(tool(why, cluster, [*argv, "--json"]).out) == {"error": message}


def test_a_cluster_must_be_named() -> None:
    err = io.StringIO()
    machine = Machine(network=None, clock=None, chance=random.Random(), out=io.StringIO(), err=err)
    assert asyncio.run(why(["t"], machine)) == 1
    assert "name a cluster" in err.getvalue()


def test_what_a_data_folder_adds(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    rows = [
        {"event": "isr.shrunk", "ts": "2", "topic": "t", "partition": 0, "isr": [1]},
        {"event": "partition.election_failed", "ts": "1", "topic": "t", "partition": 0, "reason": "nobody lives"},
        {"event": "broker.started", "ts": "3", "topic": "t", "partition": 0},
    ]
    text = "\n".join(map(json.dumps, rows)) + '\n{"event": "isr.shr'
    (tmp_path / "logs" / "broker-1.log").write_text(text)
    in_force = [
        SlowDisk(delay_ms=5),
        PauseReplication(broker=2),
        PauseReplication(rack="c"),
        PauseReplication(until_ms=1),
    ]
    write_faults(tmp_path / FAULT_FILE, in_force)
    assert log_lines(tmp_path / "cluster.json")[T0] == (
        "log of broker-1: partition.election_failed reason nobody lives",
        "log of broker-1: isr.shrunk isr [1]",
    )
    brokers = [BrokerRow(id=n, pid=None if n == 2 else 1, rack=None, listener="h:1", log_dirs=[]) for n in (1, 2)]
    found = look(tmp_path, ClusterRow(bootstrap="h:1", zookeeper="h:2", controllers=[], brokers=brokers))
    assert isinstance(found, Locally)
    assert found.running == {1: True, 2: False}
    assert found.faults == {1: ("slow_disk (delay_ms=5)",), 2: ("slow_disk (delay_ms=5)", "pause_replication")}


def test_the_last_sign_of_a_broker_that_shares_its_process_is_its_own_last_line(tmp_path: Path) -> None:
    """The others write on into that log; and one of its own may be left from when it had a process of its own."""
    (tmp_path / "logs").mkdir()
    old = tmp_path / "logs" / "broker-2.log"
    old.touch()
    os.utime(old, (1_000, 1_000))
    rows = [
        {"event": "broker.started", "ts": "2020-01-02T03:04:05.000Z", "broker_id": 2},
        {"event": "broker.started", "ts": "2020-01-02T03:04:06.000Z", "broker_id": 1},
        {"event": "broker.halted", "ts": "2020-01-02T03:04:07.000Z", "broker_id": 2},
        {"event": "isr.shrunk", "ts": "2020-01-02T03:04:09.000Z", "broker_id": 1},
        {"event": "isr.shrunk", "ts": "soon", "broker_id": 1},
    ]
    (tmp_path / "logs" / "brokers-1-3.log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    signs = last_signs(tmp_path / "cluster.json", [BrokerId(n) for n in (1, 2, 3)])
    assert {broker: sign.split(":")[2][:2] for broker, sign in signs.items()} == {1: "09", 2: "07"}


ON_TWO = ZkTopic(
    assignment={0: ReplicaAssignment(replicas=(BrokerId(2),))}, states={}, configs={}, is_deleting=False,
    asked_targets={}, damages={}, damage=None,
)  # fmt: skip


def test_a_broker_without_a_whole_log_dir_is_not_just_started(tmp_path: Path) -> None:
    """It would halt at once, which `kwob broker start` refuses. The end of all the faults starts it where others keep
    its process up."""
    dirs = [str(tmp_path / name) for name in ("data", "data-2")]
    broken = [FailLogDir(id=f"f{n}", broker=2, log_dir=path) for n, path in enumerate(dirs, start=1)]
    row = BrokerRow(id=2, pid=None, rack=None, listener="h:1", log_dirs=dirs)
    cluster = ClusterRow(bootstrap="h:1", zookeeper="h:2", controllers=[], brokers=[row])
    advice = {}
    for faults in (broken, broken[:1]):
        write_faults(tmp_path / FAULT_FILE, faults)
        for row.pid in (None, 1):
            facts = gather("t", None, None, ON_TWO, look(tmp_path, cluster)).brokers[BrokerId(2)]
            advice[len(faults), row.pid] = HERE.revive(BrokerId(2), facts)
    assert advice == {
        (2, None): "kwob fault clear f1 f2 && kwob broker start 2",
        (2, 1): "kwob fault clear f1 f2",
        (1, None): "kwob broker start 2",
        (1, 1): "kwob fault clear f1",
    }


def test_what_nobody_answers_is_given_up_in_time(cluster: Any, tool: Any) -> None:
    """Brokers that take connections and answer no more: the next line comes within two seconds, and says so."""
    cluster.topic("t", (1, 2))
    cluster.unanswered.add(ApiKey.METADATA)
    outcome = tool(why, cluster, ["t"])
    assert (outcome.code, outcome.out) == (1, "")
    assert "b0:9092" in outcome.err and outcome.took_s < 2.0


def test_slow_answers_together_are_bounded_too(cluster: Any, tool: Any) -> None:
    """Each broker leaves two requests unanswered and the partition lags, so that it is asked twice."""
    cluster.topic("t", (1, 2))
    cluster.topics["t"][0].isr = (1,)
    cluster.unanswered |= {ApiKey.DESCRIBE_LOG_DIRS, ApiKey.LIST_PARTITION_REASSIGNMENTS}
    outcome = tool(why, cluster, ["t"])
    assert outcome.code == 3 and "broker 1 does not answer (no answer within" in outcome.out
    assert outcome.took_s < 2.0


class Nowhere:
    """A ZooKeeper that takes the connection and says nothing."""

    async def connect(self, **_: Any) -> Any:
        await asyncio.Event().wait()


def test_a_zookeeper_that_is_silent_does_not_keep_brokers_from_telling(cluster: Any, tool: Any) -> None:
    async def with_silent(argv: Any, machine: Machine) -> int:
        parser = ArgumentParser()
        add_arguments(parser)
        return await explain(parser.parse_args(argv), machine, lambda _: cast(Any, Nowhere()))

    cluster.topic("t", (1, 2))
    cluster.dead.add(2)
    outcome = tool(with_silent, cluster, ["t", "--zookeeper", "z:2181"])
    assert outcome.code == 3 and "broker 2 does not answer (connection refused)" in outcome.out
    assert "ZooKeeper does not answer; this is what brokers tell" in outcome.err
    assert outcome.took_s < 2.0
    cluster.dead |= {0, 1}
    both = tool(with_silent, cluster, ["t", "--zookeeper", "z:2181"])
    assert both.code == 1 and "connection refused" in both.err and "ZooKeeper does not answer" in both.err
    assert both.took_s < 2.0


@pytest.mark.parametrize("do_brokers_tell", [True, False])
def test_what_zookeeper_refuses_to_show_is_not_missing(cluster: Any, tool: Any, do_brokers_tell: bool) -> None:
    """Each znode in turn: brokers are believed alone then, and without them nothing can be told."""
    asked: list[Any] = []

    async def refusing(argv: Any, machine: Machine) -> int:
        zookeeper = SimulatedZooKeeper(random.Random(1), machine.clock)
        session = await zookeeper.connector("here").connect(on_watch=lambda _: None, on_expired=lambda: None)
        paths = ("/brokers", "/brokers/ids", "/brokers/topics", "/brokers/ids/1", "/brokers/ids/2",
                 "/brokers/topics/t/partitions",
                 "/brokers/topics/t/partitions/0", "/config", "/config/brokers", "/config/brokers/1")  # fmt: skip
        content = b'{"version":2,"partitions":{"0":[1,2]}}'
        made = [Create("/brokers/topics/t", content), Create("/controller", b'{"version":1,"brokerid":0}')]
        state = b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1,2]}'
        await session.perform([*map(Create, paths[:3]), *made, *map(Create, paths[3:])])
        await session.perform([Create("/brokers/topics/t/partitions/0/state", state)])
        asked.clear()

        def refusal(op: Any) -> ZkCode | None:
            asked.append(op)
            return ZkCode.NO_AUTH if len(asked) - 1 == place else None

        zookeeper.tree.refusal = refusal
        parser = ArgumentParser()
        add_arguments(parser)
        return await explain(parser.parse_args(argv), machine, lambda _: zookeeper.connector("why"))

    cluster.topic("t", (1, 2))
    cluster.dead = set() if do_brokers_tell else {0, 1, 2}
    place = -1
    whole = tool(refusing, cluster, ["t", "--zookeeper", "z:2181"])
    silence = "no broker answers; as ZooKeeper has it, nothing is wrong yet"
    expected = (0, "nothing is wrong") if do_brokers_tell else (1, silence)
    assert (whole.code, whole.out.splitlines()[0]) == expected, "dead brokers have sessions for a while"
    healthy = list(asked)
    assert len(healthy) == 10
    for place in range(len(healthy)):
        op, outcome = healthy[place], tool(refusing, cluster, ["t", "--zookeeper", "z:2181"])
        assert f"{op.path}: NO_AUTH" in outcome.err and "There is no topic" not in outcome.err
        assert ("this is what brokers tell" in outcome.err) is do_brokers_tell
        assert outcome.code == (0 if do_brokers_tell else 1)


#: how late ZooKeeper opens a session, how late it answers, whether there is time for that
LATE = [(0.0, 0.0, True), (0.6, 0.0, True), (1.2, 0.0, True), (1.6, 0.0, True), (0.0, 0.2, True), (0.9, 0.1, True),
        (3.0, 0.0, False), (0.0, 3.0, False)]  # fmt: skip


@pytest.mark.parametrize("do_brokers_tell", [True, False])
@pytest.mark.parametrize(("open_s", "answer_s", "is_heard"), LATE)
def test_a_zookeeper_that_answers_late_is_heard_if_it_is_in_time(
    cluster: Any, tool: Any, open_s: float, answer_s: float, is_heard: bool, do_brokers_tell: bool
) -> None:
    """Also by who has gone on without it in the meantime; nothing is then said of its silence."""

    async def with_late(argv: Any, machine: Machine) -> int:
        zookeeper = SimulatedZooKeeper(random.Random(1), machine.clock)
        connector = zookeeper.connector("here")
        session = await connector.connect(on_watch=lambda _: None, on_expired=lambda: None)
        paths = ("/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/topics", "/admin", "/admin/delete_topics")
        await session.perform(list(map(Create, (*paths, "/admin/delete_topics/t"))))
        await session.perform([Create("/brokers/topics/t", b'{"version":2,"partitions":{"0":[1,2]}}')])

        class Late:
            async def connect(self, **on: Any) -> Any:
                await asyncio.sleep(open_s)
                opened = await connector.connect(**on)
                zookeeper.slow(Latency(min_s=answer_s / 2, max_s=answer_s / 2))
                return opened

        parser = ArgumentParser()
        add_arguments(parser)
        return await explain(parser.parse_args(argv), machine, lambda _: cast(Any, Late()))

    cluster.topic("t", (1, 2))
    cluster.dead = set() if do_brokers_tell else {0, 1, 2}
    outcome = tool(with_late, cluster, ["t", "--zookeeper", "z:2181"])
    assert ("ZooKeeper does not answer" in outcome.err) is not is_heard and "any more" not in outcome.err
    assert ("broker 2" in outcome.out, "marked for deletion" in outcome.out) == (is_heard, is_heard)
    assert (outcome.err == "") is (is_heard and do_brokers_tell)
    assert outcome.took_s < 2.0
