"""Settings that brokers act by, against those in ZooKeeper of which they were given notice."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.replicas.quota import ReplicationQuota
from controller.sim.oracles.configs import CHANGES, Configs
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, SetData, ZkCode, ZkOp, ZkResult
from controller.world.simulated.znode_tree import ZnodeTree

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)


class Scene:
    """Broker 1 has `t-0` and no throttle."""

    def __init__(self) -> None:
        self.tree, self.machine = ZnodeTree(), "operator"
        for path in ("/config", CHANGES, "/config/topics", "/config/brokers"):
            self.tree.write(Create(path), session=1, now_ms=0)
        self.log = SimpleNamespace(config=LogConfig(segment_bytes=700))
        self.quota, self.throttled = ReplicationQuota(BrokerId(1)), ReplicationQuota(BrokerId(1))
        self.dirs_quota = ReplicationQuota(BrokerId(1))
        self.replica = SimpleNamespace(log=self.log, min_insync_replicas=1, led=SimpleNamespace(min_insync_replicas=1))
        table = SimpleNamespace(
            partitions={TP: self.replica},
            leader_quota=self.quota,
            follower_quota=self.throttled,
            alter_log_dirs_quota=self.dirs_quota,
            config_of=lambda _: self.log.config,
        )
        self.table = table
        broker = SimpleNamespace(replicas=SimpleNamespace(table=table), _context=object())
        cluster: Any = SimpleNamespace(
            world=SimpleNamespace(zookeeper=SimpleNamespace(tree=self.tree)),
            brokers={1: broker},
            disks={},
            settings={"log.segment.bytes": "2000", "min.insync.replicas": "1"},
        )
        self.configs = Configs(cluster)

    def write(self, op: ZkOp) -> None:
        assert isinstance(op, Create | SetData | Delete)
        self.tree.write(op, session=1, now_ms=0)
        session: Any = SimpleNamespace(machine=self.machine)
        self.configs.operation(session, op, ZkResult(ZkCode.OK))

    def set(self, entity: str, notice: bool = True, **config: str) -> None:
        content = json.dumps({"version": 1, "config": {n.replace("_", "."): v for n, v in config.items()}}).encode()
        self.write(Create(f"/config/{entity}", content))
        if notice:
            notice_of = json.dumps({"version": 2, "entity_path": entity}).encode()
            self.write(Create(f"{CHANGES}/config_change_0000000001", notice_of))

    @property
    def problems(self) -> str:
        return "; ".join(self.configs.problems())


def test_settings_that_brokers_act_by() -> None:
    scene = Scene()
    scene.set("topics/t", segment_bytes="700")
    assert scene.problems == ""
    assert scene.configs.looked == 1


def test_a_setting_that_a_broker_has_not_taken() -> None:
    scene = Scene()
    scene.set("topics/t", segment_bytes="600")
    assert scene.problems == "broker 1 has segment.bytes=700 for t-0, ZooKeeper says 600"


def test_a_setting_whose_end_a_broker_has_not_taken() -> None:
    scene = Scene()
    scene.set("topics/t")
    assert "ZooKeeper says 2000" in scene.problems


@pytest.mark.parametrize(
    ("quota", "rate"),
    [
        ("leader_quota", "leader.replication.throttled.rate"),
        ("follower_quota", "follower.replication.throttled.rate"),
        ("alter_log_dirs_quota", "replica.alter.log.dirs.io.max.bytes.per.second"),
    ],
)
def test_a_rate_that_a_broker_has_not_taken(quota: str, rate: str) -> None:
    scene = Scene()
    scene.set("brokers/1", True, **{rate: "100"})
    assert f"{rate}=None, ZooKeeper says 100" in scene.problems
    getattr(scene.table, quota).bound = 100
    assert scene.problems == ""


LEADER_LIST, FOLLOWER_LIST = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("name", "text", "is_listed"),
    [
        *((name, text, True) for name in (LEADER_LIST, FOLLOWER_LIST) for text in ("0:1", "0:2,0:1", "*")),
        *((name, text, False) for name in (LEADER_LIST, FOLLOWER_LIST) for text in ("0:2,1:1", "")),
    ],
)
def test_who_is_throttled_is_who_is_listed(name: str, text: str, is_listed: bool) -> None:
    scene = Scene()
    scene.set("topics/t", segment_bytes="700", **{name.replace(".", "_"): text})
    quota = scene.quota if name == LEADER_LIST else scene.throttled
    assert ("does not throttle" in scene.problems) is is_listed
    quota.set_throttled("t", "0:1")
    assert ("broker 1 throttles t-0" in scene.problems) is not is_listed
    assert bool(scene.problems) is not is_listed


@pytest.mark.parametrize("who", ["replica", "led"])
def test_a_leader_that_needs_more_in_sync_than_is_set(who: str) -> None:
    scene = Scene()
    (scene.replica if who == "replica" else scene.replica.led).min_insync_replicas = 2
    assert "broker 1 needs {1, 2} in sync of t-0, not 1" in scene.problems
    scene.replica.led = None
    assert bool(scene.problems) is (who == "replica")


def test_nobody_knows_of_what_there_was_no_notice_of() -> None:
    scene = Scene()
    scene.set("topics/t", notice=False, segment_bytes="600")
    assert scene.problems == ""


def test_a_notice_that_is_gone_says_nothing() -> None:
    scene = Scene()
    scene.set("topics/t", segment_bytes="600")
    scene.write(Delete(f"{CHANGES}/config_change_0000000001"))
    assert "ZooKeeper says 600" in scene.problems  # it was there
    scene.write(Delete(CHANGES))
    assert scene.problems == ""


def test_a_log_that_does_not_hear_of_a_setting_of_its_broker() -> None:
    scene = Scene()
    assert scene.problems == ""
    scene.table.config_of = lambda _: LogConfig(segment_bytes=900)
    assert "treats its log of t-0 by" in scene.problems


@pytest.mark.parametrize("machine", ["broker-1", "controller-1001", "operator"])
def test_a_topic_that_is_made_before_its_configs(machine: str) -> None:
    scene = Scene()
    scene.machine = machine
    for path in ("/brokers", "/brokers/topics"):
        scene.write(Create(path))
    scene.set("topics/u")
    scene.write(Create("/brokers/topics/u"))
    assert scene.configs.broken == []
    scene.write(Create("/brokers/topics/v"))
    expected = [f"{machine} makes topic v before its configs"]
    assert scene.configs.broken == ([] if machine == "operator" else expected)
