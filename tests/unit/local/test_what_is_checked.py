"""`kwob check`: which statements a look is held to."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller import cli
from controller.admin.checks.truth import PartitionTruth, Truth, read_truth
from controller.admin.cluster.failures import ToolFailure
from controller.local import check, why_local
from controller.local.check import judged
from controller.local.cluster_file import ClusterRow, write_cluster
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, ZkCode, ZkRefused
from controller.wire.znode_json import ZnodeError
from controller.wire.znodes import BrokerIdZNode
from controller.world.simulated.world import World, run_world

B1, B2 = BrokerId(1), BrokerId(2)
T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
MOVES = "no partition is being reassigned"
#: `t` is being moved, and all its replicas are in sync already.
MOVING = Truth(
    controller=BrokerId(901), controller_epoch=1, brokers={},
    partitions={
        T0: PartitionTruth(
            assignment=ReplicaAssignment(replicas=(B2, B1), adding_replicas=(B2,), removing_replicas=(B1,)),
            state=LeaderAndIsr(leader=B1, isr=(B1, B2), leader_epoch=1),
        ),
        U0: PartitionTruth(
            assignment=ReplicaAssignment(replicas=(B1,)), state=LeaderAndIsr(leader=B1, isr=(B1,), leader_epoch=1)
        ),
    },
)  # fmt: skip
CASES = [
    ("ZooKeeper has it", [], [], (), "t-0"),
    ("no controller, and ZooKeeper has it", None, [], (), "t-0"),
    ("of another topic", [], [], ("u",), "no reassignment is under way"),
    ("the controller tells it", [T0, U0], None, ("t",), "t-0"),
    ("the controller tells of none", [], None, (), "no reassignment is under way"),
    ("nobody tells", None, None, (), "no controller tells"),
]


@pytest.mark.parametrize(("told", "left", "topics", "detail"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_move_that_brokers_were_asked_for_is_told(
    told: Collection[TopicPartition] | None, left: list[str] | None, topics: tuple[str, ...], detail: str
) -> None:
    """It stands in the topic's znode, not below /admin (KIP-455)."""
    (moves,) = [c for c in judged(MOVING, "ZooKeeper", {}, topics, moves=told, left=left) if c.statement == MOVES]
    assert (moves.holds, moves.detail) == (detail == "no reassignment is under way", detail)


async def looked(world: World, refused: int) -> tuple[list[Any], str]:
    """What a look asks of ZooKeeper, and what is said when it refuses one of that."""
    session = await world.machine("here").connector().connect(on_watch=lambda _: None, on_expired=lambda: None)
    made = (Create("/brokers"), Create("/brokers/ids"), Create("/brokers/topics"))
    topic = Create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    broker = BrokerIdZNode.encode(Broker(broker_id=B1, endpoints=(Endpoint(host="h", port=9),)), 0)
    await session.perform([*made, topic, Create("/brokers/ids/1", broker)])
    asked: list[Any] = []

    def refusal(op: Any) -> ZkCode | None:
        asked.append(op)
        return ZkCode.NO_AUTH if len(asked) - 1 == refused else None

    world.zookeeper.tree.refusal = refusal
    try:
        await read_truth(session)
        await check.leftovers(session)
    except ZkRefused as error:
        return asked, str(error)
    return asked, ""


def test_what_may_not_be_read_is_not_missing() -> None:
    """Each znode in turn; else a check would find nothing wrong in what it could not see."""
    asked, refused = run_world(1, partial(looked, refused=-1))
    assert (len(asked), refused) == (10, "")
    for place, op in enumerate(asked):
        assert run_world(1, partial(looked, refused=place))[1] == f"ZooKeeper: {op.path}: NO_AUTH"


REFUSED = ZkRefused("/controller", ZkCode.NO_AUTH)


@pytest.mark.parametrize(
    "flaw", [ZnodeError("/controller_epoch holds b'x'"), ToolFailure("no broker answers"), REFUSED]
)
def test_a_znode_that_nobody_can_read_ends_a_check_in_words(
    flaw: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(options: argparse.Namespace) -> Any:
        raise flaw

    monkeypatch.setattr(check, "_check", fails)
    assert check.check_main(["--bootstrap-server", "b0:9092"]) == 1
    assert capsys.readouterr().err == f"kwob check: {flaw}\n"


EMPTY = "No resolvable bootstrap urls given in bootstrap.servers"


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["check", "--bootstrap-server", ""], EMPTY),
        (["wait", "--until", "leader", "--bootstrap-server", ""], EMPTY),
        (["why", "t", "--zookeeper", ""], "zookeeper.connect '' names no server; expected host:port"),
        (["why", "t", "--zookeeper", "h:port"], "zookeeper.connect 'h:port' has no address of a server"),
    ],
)
def test_an_address_that_is_none_is_told_and_is_not_that_of_the_folders_cluster(
    argv: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one is a variable that a script never set: else another cluster would be found well."""
    write_cluster(tmp_path, ClusterRow(bootstrap="127.0.0.1:1", zookeeper="127.0.0.1:1", controllers=[], brokers=[]))
    assert cli.main([*argv, "--data", str(tmp_path)]) == 1
    assert why in capsys.readouterr().err


def test_who_asks_why_is_answered_for_the_address_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    async def explain(options: argparse.Namespace, *_: object) -> int:
        asked.append((options.bootstrap_server, options.zookeeper))
        return 0

    monkeypatch.setattr(why_local, "explain", explain)
    write_cluster(tmp_path, ClusterRow(bootstrap="b:1", zookeeper="z:1", controllers=[], brokers=[]))
    for given in ([], ["--bootstrap-server", "", "--zookeeper", ""], ["--bootstrap-server", "c:1"]):
        why_local.main(["t", "--data", str(tmp_path), *given])
    assert asked == [("b:1", "z:1"), ("", ""), ("c:1", "z:1")]
