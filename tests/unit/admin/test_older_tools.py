"""The tools as Kafka 2.0 and 2.6 had them, by znode, on a ZooKeeper in memory: the spec's transcripts and refusals."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import configs, leader_election, reassign_partitions, topics
from controller.admin.toolkit.machine import Machine
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Create, GetChildren, GetData, ZkCode
from controller.wire.znodes import BrokerIdZNode, TopicPartitionStateZNode
from controller.world.simulated.world import World, run_world

TOOLS = {"topics": topics, "reassign": reassign_partitions, "election": leader_election, "configs": configs}
MIXED = "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "


class Draws(random.Random):
    """Chance that draws what it is told."""

    def __init__(self, *draws: int) -> None:
        super().__init__(0)
        self._draws = list(draws)

    def randrange(self, *_: Any) -> int:
        return self._draws.pop(0) if self._draws else 0


class Stage:
    """Znodes before, runs, znodes after. `run` collects what a play does; `play` does it, in one world."""

    def __init__(self, brokers: Mapping[int, str | None] | None = None) -> None:
        self.brokers = brokers if brokers is not None else dict.fromkeys(range(3))
        self.before: dict[str, Any] = {}
        self.lines: list[tuple[str, ...]] = []
        self.chance: random.Random = Draws()
        self.said: list[tuple[int, str, str]] = []
        self.after: dict[str, Any] = {}
        #: What the tool asked of ZooKeeper, and with which code it refuses the operation at a place in that list.
        self.asked: list[Any] = []
        self.refuse: tuple[int, ZkCode] | None = None

    def topic(self, name: str, *replicas: tuple[int, ...], leaderless: tuple[int, ...] = ()) -> None:
        """A topic that is there, in sync."""
        self.before[f"/brokers/topics/{name}"] = {
            "version": 1,
            "partitions": {str(n): list(r) for n, r in enumerate(replicas)},
        }
        for number, ids in enumerate(replicas):
            if number not in leaderless:
                state = LeaderAndIsr(
                    leader=BrokerId(ids[0]),
                    isr=tuple(BrokerId(i) for i in ids),
                    leader_epoch=0,
                    partition_epoch=0,
                    controller_epoch=1,
                )
                self.before[TopicPartitionStateZNode.path(TopicPartition(name, number))] = state

    def run(self, tool: str, *words: str, compat: str = "2.0") -> tuple[int, str, str]:
        """One run on the znodes that earlier runs left."""
        self.said.clear()
        run_world(1, lambda world: self._play(world, tool, ("--compat", compat, *words)))
        return self.said[-1]

    async def _play(self, world: World, tool: str, words: tuple[str, ...]) -> None:
        connector = world.machine("laptop").connector(session_timeout_ms=3_600_000)
        session = await connector.connect(on_watch=lambda _: None, on_expired=lambda: None)
        await session.perform([Create(p) for p in ("/brokers", "/brokers/ids", "/config", "/config/changes", "/admin")])
        for number, rack in self.brokers.items():
            broker = Broker(broker_id=BrokerId(number), endpoints=(Endpoint(host="h", port=9),), rack=rack)
            await session.perform([Create(f"/brokers/ids/{number}", BrokerIdZNode.encode(broker, 0))])
        for path, value in (self.after or self.before).items():
            parts = path.split("/")
            await session.perform([Create("/".join(parts[:n])) for n in range(2, len(parts))])
            await session.perform([Create(path, self._encoded(value))])
        out, err = io.StringIO(), io.StringIO()
        machine = Machine(
            network=world.machine("laptop").network,
            clock=world.clock,
            chance=self.chance,
            out=out,
            err=err,
            zookeeper=lambda hosts: connector,
        )
        words = tuple("--zookeeper=zk:2181/k" if word == "--zk" else word for word in words)
        self.asked.clear()
        world.zookeeper.tree.refusal = self._refusal
        code = await TOOLS[tool](words, machine)
        world.zookeeper.tree.refusal = lambda _: None
        self.said.append((code, out.getvalue(), err.getvalue()))
        self.after = {p: v async for p, v in self._all(session, "")} | {"": None}

    def _refusal(self, op: Any) -> ZkCode | None:
        self.asked.append(op)
        number, code = self.refuse or (None, None)
        return code if len(self.asked) - 1 == number else None

    @staticmethod
    def _encoded(value: Any) -> bytes | None:
        if isinstance(value, LeaderAndIsr):
            return TopicPartitionStateZNode.encode(value)
        return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()

    async def _all(self, session: Any, path: str) -> Any:
        [children] = await session.perform([GetChildren(path or "/")])
        for name in sorted(children.children):
            if (path, name) in (("", "zookeeper"), ("", "brokers")) and name == "zookeeper":
                continue
            [found] = await session.perform([GetData(f"{path}/{name}")])
            if not path.startswith("/brokers/ids"):
                if found.data is not None:
                    yield f"{path}/{name}", found.data
                elif path == "/admin/delete_topics":
                    yield f"{path}/{name}", None
                async for item in self._all(session, f"{path}/{name}"):
                    yield item

    def json(self, path: str) -> Any:
        """A znode after the last run; None where there is none."""
        found = self.after.get(path)
        return None if found is None else json.loads(found)

    def notices(self) -> list[str]:
        """The entities of the config notices, in order."""
        paths = sorted(p for p in self.after if p.startswith("/config/changes/"))
        return [json.loads(self.after[p])["entity_path"] for p in paths]


@pytest.fixture
def stage() -> Stage:
    """Brokers 0, 1, 2 without racks."""
    return Stage()


# kafka-topics


@pytest.mark.feature("000-07")
def test_the_transcript_of_document_000_byte_for_byte(stage: Stage) -> None:
    stage.chance = Draws(2, 0)
    words = ("--create", "--zk", "--topic", "topic-test4", "--partitions", "6", "--replication-factor", "3")
    assert stage.run("topics", *words) == (0, 'Created topic "topic-test4".\n', "")
    assert stage.after["/brokers/topics/topic-test4"] == (
        b'{"version":1,"partitions":{"0":[2,0,1],"1":[0,1,2],"2":[1,2,0],"3":[2,1,0],"4":[0,2,1],"5":[1,0,2]}}'
    )
    assert stage.json("/config/topics/topic-test4") == {"version": 1, "config": {}}
    assert stage.notices() == [], "creation needs no notice"
    code, out, err = stage.run("topics", "--describe", "--zk", "--topic", "topic-test4")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "Topic:topic-test4\tPartitionCount:6\tReplicationFactor:3\tConfigs:",
        "\tTopic: topic-test4\tPartition: 0\tLeader: none\tReplicas: 2,0,1\tIsr: ",
    ], "only a plan: no controller made replicas of it"


@pytest.mark.feature("000-10", "000-02")
def test_topic_test5_partial_racks_and_the_flag() -> None:
    stage = Stage({0: "rack1", 1: "rack2", 2: None})
    words = ("--create", "--zk", "--topic", "topic-test5", "--partitions", "4", "--replication-factor", "2")
    code, out, err = stage.run("topics", *words)
    assert (code, out) == (1, f"Error while executing topic command : {MIXED}without rack information.\n")
    assert f"ERROR kafka.admin.AdminOperationException: {MIXED}without rack information." in err
    assert err.endswith("(kafka.admin.TopicCommand$)\n")
    assert stage.json("/brokers/topics/topic-test5") is None, "what fails writes nothing"
    assert stage.run("topics", *words, "--disable-rack-aware")[:2] == (0, 'Created topic "topic-test5".\n')


CREATE = ("--create", "--zk", "--topic", "t")
REFUSED: list[tuple[str, tuple[str, ...], str]] = [
    ("2.0", (*CREATE, "--replication-factor", "1"), 'Missing required argument "[partitions]"'),
    ("2.0", (*CREATE, "--partitions", "1"), 'Missing required argument "[replication-factor]"'),
    ("2.6", (*CREATE, "--partitions", "1"), 'Missing required argument "[replication-factor]"'),
    ("2.0", ("--list",), 'Missing required argument "[zookeeper]"'),
    (
        "2.0",
        ("--list", "--zk", "--config", "a=b"),
        'Option "[config]" can\'t be used with option"[list]"',
    ),
    (
        "2.6",
        ("--list", "--zk", "--config", "a=b"),
        'Option "[config]" can\'t be used with option "[list]"',
    ),
    (
        "2.0",
        ("--describe", "--zk", "--unavailable-partitions", "--under-replicated-partitions"),
        'Option "[under-replicated-partitions]" can\'t be used with option"[unavailable-partitions]"',
    ),
    (
        "2.6",
        ("--describe", "--zk", "--at-min-isr-partitions"),
        'Option "[at-min-isr-partitions]" can\'t be used with option "[zookeeper]"',
    ),
    (
        "2.0",
        ("--zk", "--topic", "t"),
        "Command must include exactly one action: --list, --describe, --create, --alter or --delete",
    ),
]


@pytest.mark.feature("000-01", "003-05")
@pytest.mark.parametrize(("compat", "words", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_usage(stage: Stage, compat: str, words: tuple[str, ...], message: str) -> None:
    code, out, err = stage.run("topics", *words, compat=compat)
    assert (code, out, err.splitlines()[0]) == (1, "", message)


FAILED: list[tuple[str, tuple[str, ...], str]] = [
    ("2.0", (*CREATE, "--partitions", "0", "--replication-factor", "0"), "Number of partitions must be larger than 0."),
    ("2.0", (*CREATE, "--partitions", "1", "--replication-factor", "0"), "Replication factor must be larger than 0."),
    (
        "2.0",
        ("--create", "--zk", "--topic", "a b", "--partitions", "1", "--replication-factor", "9"),
        "Replication factor: 9 larger than available brokers: 3.",
    ),
    (
        "2.0",
        ("--create", "--zk", "--topic", "a b", "--partitions", "1", "--replication-factor", "1"),
        "Topic name \"a b\" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    (
        "2.6",
        ("--create", "--zk", "--topic", "..", "--replica-assignment", "0"),
        'Topic name cannot be "." or ".."',
    ),
    ("2.6", ("--create", "--zk", "--topic", "foo", "--replica-assignment", "0"), "Topic 'foo' already exists."),
    (
        "2.0",
        (*CREATE, "--replica-assignment", "0:0"),
        "Partition replica lists may not contain duplicate entries: 0",
    ),
    (
        "2.0",
        ("--create", "--zk", "--topic", "x_y", "--replica-assignment", "0"),
        "Topic 'x_y' collides with existing topics: x.y",
    ),
    ("2.0", ("--alter", "--zk", "--topic", "no", "--partitions", "3"), "Topic no does not exist on ZK path zk:2181/k"),
    ("2.6", ("--alter", "--zk", "--topic", "no", "--partitions", "3"), "Topic 'no' does not exist as expected"),
    ("2.6", ("--describe", "--zk", "--topic", "no"), "Topic 'no' does not exist as expected"),
    (
        "2.0",
        ("--alter", "--zk", "--topic", "foo", "--partitions", "1"),
        "The number of partitions for a topic can only be increased. Topic foo currently has 2 partitions, 1 would not "
        "be an increase.",
    ),
    (
        "2.0",
        ("--alter", "--zk", "--topic", "foo", "--partitions", "3", "--replica-assignment", "0:1,1:2"),
        'For input string: ""',
    ),
    (
        "2.0",
        ("--alter", "--zk", "--topic", "__consumer_offsets", "--partitions", "3"),
        "The number of partitions for the offsets topic cannot be changed.",
    ),
    (
        "2.6",
        ("--alter", "--zk", "--topic", "__transaction_state", "--partitions", "3"),
        "The number of partitions for the internal topic __transaction_state cannot be changed.",
    ),
    (
        "2.0",
        ("--delete", "--zk", "--topic", "__consumer_offsets"),
        "Topic __consumer_offsets is a kafka internal topic and is not allowed to be marked for deletion.",
    ),
    (
        "2.0",
        ("--alter", "--zk", "--topic", "foo", "--delete-config", "nix"),
        "Unknown topic config name: nix",
    ),
]


@pytest.mark.feature("000-03")
@pytest.mark.parametrize(("compat", "words", "message"), FAILED, ids=[f"{r[0]} {r[2]}" for r in FAILED])
def test_failures_change_nothing(stage: Stage, compat: str, words: tuple[str, ...], message: str) -> None:
    for name in ("foo", "x.y", "__consumer_offsets", "__transaction_state"):
        stage.topic(name, (0, 1), (1, 2))
    before = {p: v for p, v in stage.before.items() if p.count("/") == 3}
    code, out, err = stage.run("topics", *words, compat=compat)
    assert code == 1
    assert out.splitlines()[-1] == f"Error while executing topic command : {message}"
    assert err.endswith(" (kafka.admin.TopicCommand$)\n")
    assert {p: stage.json(p) for p in before} == before
    assert not [p for p in stage.after if p.startswith(("/config/topics/", "/admin/delete_topics/"))]


def test_alter_and_delete(stage: Stage) -> None:
    stage.topic("foo", (1, 2))
    assert stage.run("topics", "--alter", "--zk", "--topic", "foo", "--partitions", "3")[:2] == (
        0,
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
        "messages will be affected\nAdding partitions succeeded!\n",
    )
    assert stage.json("/brokers/topics/foo")["partitions"]["0"] == [1, 2]
    assert len(stage.json("/brokers/topics/foo")["partitions"]) == 3
    code, out, _ = stage.run("topics", "--alter", "--zk", "--topic", "foo", "--config", "retention.ms=5")
    assert (code, out.splitlines()[-1]) == (0, 'Updated config for topic "foo".')
    assert out.splitlines()[1] == "         Going forward, please use kafka-configs.sh for this functionality"
    assert stage.json("/config/topics/foo") == {"version": 1, "config": {"retention.ms": "5"}}
    assert stage.notices() == ["topics/foo"]
    deleted = stage.run("topics", "--delete", "--zk", "--topic", "foo")
    assert deleted[:2] == (
        0,
        "Topic foo is marked for deletion.\n"
        "Note: This will have no impact if delete.topic.enable is not set to true.\n",
    )
    assert "/admin/delete_topics/foo" in stage.after
    assert stage.run("topics", "--delete", "--zk", "--topic", "foo")[1] == "Topic foo is already marked for deletion.\n"
    assert stage.run("topics", "--list", "--zk")[1] == "foo - marked for deletion\n"
    described = stage.run("topics", "--describe", "--zk", compat="2.6")[1].splitlines()
    assert described[0].endswith("\tMarkedForDeletion: true")
    assert described[1].endswith("\tMarkedForDeletion: true")
    assert not stage.run("topics", "--describe", "--zk")[1].splitlines()[1].endswith("MarkedForDeletion: true")


def test_of_names_with_underscores_two_are_internal(stage: Stage) -> None:
    """Those alone are left out where these are excluded, and refused where they are to be deleted."""
    internal = ("__consumer_offsets", "__transaction_state")
    others = ("__mine", "__share_group_state", "_schemas", "t")
    for name in (*internal, *others):
        stage.topic(name, (0, 1))
    listed = stage.run("topics", "--list", "--zk", "--exclude-internal", compat="2.6")[1].split()
    described = stage.run("topics", "--describe", "--zk", "--exclude-internal", compat="2.6")[1]
    shown = {line.split("\t")[0].removeprefix("Topic:").strip() for line in described.splitlines() if line[0] == "T"}
    assert listed == [*others] and shown == {*others}
    codes = {n: stage.run("topics", "--delete", "--zk", "--topic", n, compat="2.6")[0] for n in (*internal, *others)}
    assert codes == dict.fromkeys(internal, 1) | dict.fromkeys(others, 0)


def test_a_short_manual_list_wins_over_the_number(stage: Stage) -> None:
    stage.topic("foo", (0, 1))
    words = ("--alter", "--zk", "--topic", "foo", "--partitions", "3", "--replica-assignment", "0:1,1:2")
    assert stage.run("topics", *words)[0] == 0
    assert stage.json("/brokers/topics/foo")["partitions"] == {"0": [0, 1], "1": [1, 2]}


def test_what_2_6_writes_and_shows(stage: Stage) -> None:
    words = ("--create", "--zk", "--topic", "t", "--replica-assignment", "0:1", "--config", "retention.ms=7")
    assert stage.run("topics", *words, compat="2.6")[:2] == (0, "Created topic t.\n")
    assert stage.json("/brokers/topics/t") == {
        "version": 2,
        "partitions": {"0": [0, 1]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert stage.run("topics", "--describe", "--zk", compat="2.6")[1].splitlines()[0] == (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: retention.ms=7"
    )


# kafka-reassign-partitions


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Writes a file; the option with its name."""

    def write(text: str) -> tuple[str, str]:
        (tmp_path / "plan.json").write_text(text)
        return "--reassignment-json-file", str(tmp_path / "plan.json")

    yield write


FOO = '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}'
HEAD = (
    "Current partition replica assignment\n\n"
    '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[0,1],"log_dirs":["any","any"]}]}\n\n'
    "Save this to use as the --reassignment-json-file option during rollback\n"
)


@pytest.mark.feature("002-08", "002-13", "002-14", "002-18")
@pytest.mark.parametrize("compat", ["2.0", "2.6"])
def test_the_transcript_of_an_execution(stage: Stage, plan: Any, compat: str) -> None:
    stage.topic("foo", (0, 1))
    code, out, _ = stage.run("reassign", "--execute", "--zk", "--throttle", "1000", *plan(FOO), compat=compat)
    warning = {
        "2.0": "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed. You can also alter the throttle by rerunning the Execute command passing a new value.\n",
        "2.6": "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
        "is removed.\n",
    }[compat]
    last = {
        "2.0": "Successfully started reassignment of partitions.\n",
        "2.6": "Successfully started partition reassignment for foo-0\n",
    }[compat]
    first = (
        "Warning: --zookeeper is deprecated, and will be removed in a future version of Kafka.\n"
        if compat == "2.6"
        else ""
    )
    assert code == 0
    assert out == first + HEAD + warning + "The inter-broker throttle limit was set to 1000 B/s\n" + last
    assert stage.json("/admin/reassign_partitions") == json.loads(FOO)
    assert stage.json("/config/topics/foo")["config"] == {
        "leader.replication.throttled.replicas": "0:0,0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    rates = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}
    assert [stage.json(f"/config/brokers/{b}")["config"] for b in range(3)] == [rates] * 3
    assert stage.notices() == ["topics/foo", "brokers/0", "brokers/1", "brokers/2"]


@pytest.mark.feature("002-07", "002-11", "002-12")
def test_a_second_execution_of_2_0_changes_only_the_rate(stage: Stage, plan: Any) -> None:
    stage.topic("foo", (0, 1))
    stage.run("reassign", "--execute", "--zk", "--throttle", "1000", *plan(FOO))
    lists = stage.after["/config/topics/foo"]
    again = stage.run("reassign", "--execute", "--zk", "--throttle", "7", *plan(FOO))
    assert again[:2] == (0, "There is an existing assignment running.\n")
    assert stage.json("/config/brokers/2")["config"]["leader.replication.throttled.rate"] == "7"
    assert stage.after["/config/topics/foo"] == lists
    refused = stage.run("reassign", "--execute", "--zk", *plan(FOO), compat="2.6")
    assert refused[0] == 1
    assert refused[1].splitlines()[1] == (
        "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
        "create a new partition assignment in addition to the existing one."
    )


@pytest.mark.feature("002-30")
def test_verify_of_2_0_removes_the_throttle_once(stage: Stage, plan: Any) -> None:
    stage.topic("foo", (0, 1))
    stage.run("reassign", "--execute", "--zk", "--throttle", "1000", *plan(FOO))
    running = stage.run("reassign", "--verify", "--zk", *plan(FOO))
    head = "Status of partition reassignment: \n"
    assert running[:2] == (0, f"{head}Reassignment of partition foo-0 is still in progress\n")
    assert stage.json("/config/brokers/0")["config"], "still there"
    del stage.after["/admin/reassign_partitions"]
    failed = stage.run("reassign", "--verify", "--zk", *plan(FOO))
    assert failed[1] == (
        "ERROR: Assigned replicas (0,1) don't match the list of replicas for reassignment (1,2) for partition foo-0\n"
        f"{head}Reassignment of partition foo-0 failed\n"
    )
    assert stage.json("/config/brokers/0")["config"], "a failed one leaves the throttle"
    stage.after["/brokers/topics/foo"] = b'{"version":1,"partitions":{"0":[1,2]}}'
    done = f"{head}Reassignment of partition foo-0 completed successfully\n"
    assert stage.run("reassign", "--verify", "--zk", *plan(FOO))[1] == done + "Throttle was removed.\n"
    assert stage.json("/config/brokers/0") == {"version": 1, "config": {}}
    assert stage.run("reassign", "--verify", "--zk", *plan(FOO))[1] == done


@pytest.mark.feature("002-30")
def test_verify_of_2_6_clears_when_nothing_runs(stage: Stage, plan: Any) -> None:
    stage.topic("foo", (0, 1))
    out = stage.run("reassign", "--verify", "--zk", *plan(FOO), compat="2.6")[1].splitlines()
    assert out[2:] == [
        "Status of partition reassignment:",
        "There is no active reassignment of partition foo-0, but replica set is 0,1 rather than 1,2.",
        "Clearing broker-level throttles on brokers 0,1,2",
        "Clearing topic-level throttles on topic foo",
    ]


T1 = dict(enumerate([(0, 1, 2), (1, 2, 0), (2, 1, 0)]))
#: known answers of the spec: current, targets, leader list of 2.0 and of 2.6, follower list
THROTTLES = [
    (
        "T1",
        T1,
        {n: (*r, 3) for n, r in T1.items()},
        "0:0,0:1,0:2,1:1,1:2,1:0,2:2,2:1,2:0",
        "0:0,0:1,0:2,1:0,1:1,1:2,2:0,2:1,2:2",
        "0:3,1:3,2:3",
    ),
    (
        "T2",
        {0: (100, 101), 1: (100, 102), 2: (100, 101)},
        {0: (101, 102), 1: (102,), 2: (100, 101, 102)},
        "0:100,0:101,2:100,2:101",
        "0:100,0:101,1:100,1:102,2:100,2:101",
        "0:102,2:102",
    ),
    ("T4", {0: (0, 1, 2)}, {0: (2, 1, 0)}, "", "0:0,0:1,0:2", ""),
    (
        "T5",
        dict.fromkeys(range(11), (0, 1)),
        {2: (0, 2), 10: (0, 2)},
        "2:0,2:1,10:0,10:1",
        "10:0,10:1,2:0,2:1",
        "2:2,10:2",
    ),
]


@pytest.mark.feature("002-10")
@pytest.mark.parametrize("compat", ["2.0", "2.6"])
@pytest.mark.parametrize(("current", "targets", "old", "new", "followers"), [r[1:] for r in THROTTLES],
                         ids=[r[0] for r in THROTTLES])  # fmt: skip
def test_throttle_lists(plan: Any, compat: str, current: Any, targets: Any, old: str, new: str, followers: str) -> None:
    stage = Stage(dict.fromkeys([*range(4), *range(100, 103)]))
    stage.topic("foo", *current.values())
    rows = [{"topic": "foo", "partition": p, "replicas": r} for p, r in targets.items()]
    code, _, _ = stage.run(
        "reassign", "--execute", "--zk", "--throttle", "5", *plan(json.dumps({"partitions": rows})), compat=compat
    )
    assert code == 0
    found = stage.json("/config/topics/foo")["config"]
    assert found["leader.replication.throttled.replicas"] == (old if compat == "2.0" else new)
    listed = found["follower.replication.throttled.replicas"]
    assert listed == (followers if compat == "2.0" else ",".join(sorted(filter(None, followers.split(",")))))


EXECUTE_REFUSED = [
    ("2.0", '{"version":1,"partitions":[]}', "Partition reassignment data file is empty"),
    ("2.6", '{"version":1,"partitions":[]}', "Partition reassignment list cannot be empty"),
    (
        "2.0",
        '{"partitions":[{"topic":"foo","partition":7,"replicas":[1]}]}',
        "The proposed assignment contains non-existent partitions: Set(foo-7)",
    ),
    (
        "2.0",
        '{"partitions":[{"topic":"foo","partition":0,"replicas":[10,9]}]}',
        "The proposed assignment contains non-existent brokerIDs: 9,10",
    ),
    (
        "2.0",
        '{"partitions":[{"topic":"foo","partition":0,"replicas":[1],"log_dirs":["/a"]}]}',
        "bootstrap-server needs to be provided in order to reassign replica to the specified log directory",
    ),
    (
        "2.6",
        '{"partitions":[{"topic":"foo","partition":0,"replicas":[1],"log_dirs":["/a"]}]}',
        "bootstrap-server needs to be provided when replica reassignments are present.",
    ),
    ("2.0", '{"partitions":[{"topic":"foo","partition":0,"replicas":[]}]}', "Partition replica list cannot be empty"),
]


@pytest.mark.feature("002-06", "002-15", "002-16")
@pytest.mark.parametrize(
    ("compat", "text", "message"), EXECUTE_REFUSED, ids=[f"{r[0]} {r[2]}" for r in EXECUTE_REFUSED]
)
def test_execute_refuses_before_it_changes(stage: Stage, plan: Any, compat: str, text: str, message: str) -> None:
    stage.topic("foo", (0, 1))
    code, out, _ = stage.run("reassign", "--execute", "--zk", "--throttle", "5", *plan(text), compat=compat)
    head = "Partitions reassignment failed due to " if compat == "2.0" else "Error: "
    assert head + message in out.splitlines()
    assert code == (0 if compat == "2.0" else 1), "2.0 exits with 0 whatever happens"
    assert not [p for p in stage.after if p.startswith(("/config/brokers/", "/admin/reassign"))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "This command moves topic partitions between replicas."),
        (("--zk",), "Command must include exactly one action: --generate, --execute or --verify"),
        (("--verify",), 'Missing required argument "[zookeeper]"'),
        (
            ("--verify", "--zk"),
            "If --verify option is used, command must include --reassignment-json-file that was used during the "
            "--execute option",
        ),
        (
            ("--verify", "--zk", "--reassignment-json-file", "x", "--throttle", "5"),
            'Option "[verify]" can\'t be used with option"[throttle]"',
        ),
        (
            ("--execute", "--zk", "--reassignment-json-file", "x", "--broker-list", "5"),
            'Option "[execute]" can\'t be used with option"[broker-list]"',
        ),
    ],
)
def test_reassign_usage_of_2_0(stage: Stage, words: tuple[str, ...], message: str) -> None:
    assert stage.run("reassign", *words)[2].splitlines()[0] == message


def test_what_2_6_does_only_by_brokers(stage: Stage) -> None:
    _, _, err = stage.run("reassign", "--list", "--zk", compat="2.6")
    assert err.splitlines()[0] == 'Option "[zookeeper]" can\'t be used with action "[list]"'
    words = ("--execute", "--zk", "--reassignment-json-file", "x")
    _, _, err = stage.run("reassign", *words, "--additional", compat="2.6")
    assert err.startswith('Exception in thread "main" java.lang.RuntimeException: You must specify ')
    assert '--bootstrap-server when using "[additional]"' in err


@pytest.mark.feature("002-02")
def test_generate_leaves_missing_topics_and_brokers_out(stage: Stage, tmp_path: Path) -> None:
    stage.topic("foo", (0,), (1,))
    (tmp_path / "topics.json").write_text('{"topics":[{"topic":"foo"},{"topic":"quux"}]}')
    words = ("--generate", "--zk", "--topics-to-move-json-file", str(tmp_path / "topics.json"), "--broker-list", "2,9")
    code, out, _ = stage.run("reassign", *words)
    assert code == 0
    assert [r["replicas"] for r in json.loads(out.splitlines()[4])["partitions"]] == [[2], [2]]


# kafka-preferred-replica-election


def test_preferred_election_by_znode(stage: Stage, tmp_path: Path) -> None:
    stage.topic("foo", (0, 1), (1, 0))
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions":[{"topic":"foo","partition":1},{"topic":"nix","partition":0}]}')
    said = stage.run("election", "--zk", "--path-to-json-file", str(file))
    assert said[:2] == (
        0,
        "Created preferred replica election path with foo-1\n"
        "Successfully started preferred replica election for partitions Set(foo-1)\n"
        "Skipping preferred replica leader election for partition nix-0 since it doesn't exist.\n",
    )
    assert stage.json("/admin/preferred_replica_election") == {
        "version": 1,
        "partitions": [{"topic": "foo", "partition": 1}],
    }
    again = stage.run("election", "--zk", compat="2.6")
    assert again[0] == 1
    text = "Preferred replica leader election currently in progress for foo-1. Aborting operation"
    assert again[2] == (
        'Exception in thread "main" kafka.common.AdminCommandFailedException: Admin command failed\n'
        f"Caused by: kafka.admin.AdminOperationException: {text}\n"
    )
    old = stage.run("election", "--zk")[1]
    assert old.startswith("Failed to start preferred replica election\nkafka.common.AdminCommandFailedException: ")
    assert text in old
    file.write_text('{"partitions":[{"topic":"foo","partition":1},{"topic":"foo","partition":1}]}')
    twice = stage.run("election", "--zk", "--path-to-json-file", str(file))
    assert "Preferred replica election data contains duplicate partitions: foo-1" in twice[1]
    file.write_text("no")
    assert "Preferred replica election data is empty" in stage.run(
        "election", "--zk", "--path-to-json-file", str(file)
    )[1]  # fmt: skip


# kafka-configs


def test_configs_by_znode(stage: Stage) -> None:
    stage.topic("foo", (0,))
    topic = ("--entity-type", "topics", "--entity-name", "foo")
    altered = stage.run("configs", "--zk", "--alter", *topic, "--add-config", "retention.ms=5,flush.ms=7")
    assert altered == (0, "Completed Updating config for entity: topic 'foo'.\n", "")
    assert stage.notices() == ["topics/foo"]
    assert stage.run("configs", "--zk", "--describe", *topic)[1] == (
        "Configs for topic 'foo' are retention.ms=5,flush.ms=7\n"
    )
    assert stage.run("configs", "--zk", "--alter", *topic, "--delete-config", "flush.ms", compat="2.6")[1] == (
        "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
        "Use --bootstrap-server instead to specify a broker to connect to.\n"
        "Completed updating config for entity: topic 'foo'.\n"
    )
    assert stage.json("/config/topics/foo")["config"] == {"retention.ms": "5"}
    unset = stage.run("configs", "--zk", "--alter", *topic, "--delete-config", "flush.ms")
    assert unset == (1, "", "Invalid config(s): flush.ms\n")
    bad = stage.run("configs", "--zk", "--alter", *topic, "--add-config", "retention.ms=x")
    assert bad == (1, "", "Invalid value x for configuration retention.ms: Not a number of type LONG\n")
    missing = stage.run(
        "configs", "--zk", "--alter", "--entity-type", "topics", "--entity-name", "no", "--add-config", "flush.ms=1"
    )
    assert missing[0] == 1
    assert missing[2].splitlines()[1] == 'kafka.admin.AdminOperationException: Topic "no" does not exist.'


def test_brokers_that_run_take_only_throttles_by_znode(stage: Stage) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1", "--alter", "--zk")
    rate = "leader.replication.throttled.rate=5"
    assert stage.run("configs", *broker, "--add-config", rate)[:2] == (
        0,
        "Completed Updating config for entity: brokers '1'.\n",
    )
    refused = stage.run("configs", *broker, "--add-config", "num.io.threads=9")
    assert refused[2].startswith("--bootstrap-server option must be specified to update broker configs ")
    away = ("--entity-type", "brokers", "--entity-name", "8", "--alter", "--zk", "--add-config", "num.io.threads=9")
    assert stage.run("configs", *away)[0] == 0, "of one that does not run, anything"


def test_a_version_that_is_not_known(stage: Stage) -> None:
    assert stage.run("topics", "--list", "--zk", compat="1.0")[2] == (
        "--compat 1.0: expected one of 2.0, 2.6, 3.9, 4.1\n"
    )
