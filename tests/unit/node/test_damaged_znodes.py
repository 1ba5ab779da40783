"""Whatever stands in a znode that the controller's shell reads (configs and their notices, the cluster's id, blocks of
producer ids, registrations, those of the office), whatever it is refused, and whenever: at any read or write.

No task of the process fails, the office is kept (or won again), what is sound is served meanwhile, sound notices are
followed, no producer id is given out twice, and after the repair of the znode everything ends well, here and in a
controller that starts then.

A few examples in the plain run, many by name: `pytest -m slow tests/unit/node/test_damaged_znodes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.node.process import IdTaken
from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, SetData, ZkUnreachable
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode, ProducerIdBlockZNode, ZnodeError
from tests.worlds.damage import OFFICE, Damage, damages
from tests.worlds.fuzz import few, many, takes_long
from tests.worlds.node import HOST

Play = Callable[..., list[Any]]
FEW = few(40)
MANY = many(4_000)
UNCLEAN = "unclean.leader.election.enable"
ON, OFF = ConfigEntityZNode.encode({UNCLEAN: "true"}), ConfigEntityZNode.encode({UNCLEAN: "false"})
U = TopicPartition("u", 0)
DEFAULT = ConfigEntityZNode.broker(None)
BLOCK = ProducerIdBlockZNode.path
NOTICE = f"{ConfigChangesZNode.sequence_path}0000000000"
REGISTRATION = (
    b'{"version":4,"endpoints":["PLAINTEXT://broker-2:9092"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"host":"broker-2","port":9092}'
)

#: What the shell reads beside the core, with a content that is right.
ZNODES: dict[str, bytes | None] = {
    ConfigChangesZNode.path: b"",
    NOTICE: ConfigChangesZNode.encode("brokers/<default>"),
    f"{ConfigChangesZNode.path}/config_change_x": b"",
    DEFAULT: OFF,
    ConfigEntityZNode.broker(100): ConfigEntityZNode.encode({}),
    ConfigEntityZNode.broker(1): ConfigEntityZNode.encode({}),
    ConfigEntityZNode.topic("t"): OFF,
    "/config/brokers": None,
    "/config/topics": None,
    "/cluster/id": b'{"version":"1","id":"aaaaaaaaaaaaaaaaaaaaaa"}',
    BLOCK: ProducerIdBlockZNode.encode(BrokerId(100), 0, 999),
    "/feature": b'{"features":{},"version":2,"status":0}',
    "/brokers/ids/2": REGISTRATION,
    "/brokers/ids/101": REGISTRATION,  # the id of a controller that starts
    "/controller": b'{"version":2,"brokerid":7,"timestamp":"0","kraftControllerEpoch":-1}',
    "/controller_epoch": b"1",
}
#: The connection or the session ends: nothing to repair.
LINKS = ("cut", "expired")
ANY_DAMAGE = st.one_of(damages(ZNODES), damages(ZNODES), st.sampled_from([Damage("", how) for how in LINKS]))


class Stage:
    """A controller, a leaderless topic whose unclean election a notice switches on, and damage at the n-th step."""

    def __init__(self, cluster: Any, damage: Damage, at_step: int) -> None:
        self.cluster, self.damage, self.at_step, self.steps = cluster, damage, at_step, 0
        self.zookeeper = cluster.world.zookeeper
        self.ids: list[int] = []
        self.before: bytes | None = None
        self.was_there = self.is_damaged = False

    async def set(self) -> None:
        """The topic u on brokers 1 and 2, of which the one that has the records is gone."""
        await self.cluster.zk(*(Create(path, data) for path, data in ZNODES.items() if path.startswith("/config/b")))
        rows = [{"name": "u", "num_partitions": -1, "replication_factor": -1,
                 "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}]}]  # fmt: skip
        await self.cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
        await self.cluster.unregister(2)
        await self.cluster.unregister(1)
        await self.cluster.zk(Create("/brokers/ids/2", REGISTRATION, ephemeral=True))
        await self.cluster.world.sleep(1)
        assert self.leader_of_u() is None
        self.zookeeper.on_operation.append(self._count)

    def leader_of_u(self) -> int | None:
        state = self.cluster.controller.state.leadership(U)
        return None if state is None else state.leader

    def _count(self, session: Any, *_: Any) -> None:
        if session.machine.startswith(HOST) and not self.is_damaged:
            self.steps += 1
            if self.steps == self.at_step:
                self.inflict()

    def _write(self, *ops: Any) -> None:
        """Somebody's write, between two operations."""
        session = self.cluster.session
        self.cluster.world.loop.call_soon(lambda: [self.zookeeper.perform(session, op) for op in ops])

    def inflict(self) -> None:
        """Now, unless it has happened."""
        if self.is_damaged:
            return
        self.is_damaged = True
        damage, znode = self.damage, self.zookeeper.tree.get(self.damage.path or "/")
        self.before, self.was_there = (znode.payload, True) if znode is not None else (None, False)
        session_id = self.cluster.controller.state.session_id
        match damage.how:
            case "cut":
                self.zookeeper.disconnect(session_id)
            case "expired":
                self.cluster.world.loop.call_soon(self.zookeeper.expire_session, session_id)
            case "refused":
                self.zookeeper.tree.refusal = lambda op: (
                    damage.code if isinstance(op, damage.kinds) and getattr(op, "path", None) == damage.path else None
                )
            case "gone":
                children = () if znode is None else [f"{damage.path}/{child}" for child in znode.children]
                self._write(*(Delete(child) for child in children), Delete(damage.path))
            case _:
                self._write(Create(damage.path, damage.data or b""), SetData(damage.path, damage.data or b""))

    async def poke(self) -> None:
        """Everything that makes the shell read or write: notices, requests, a session, another controller's start."""
        cluster = self.cluster
        for entity in ("topics/t", "brokers/<default>", "brokers/100", "brokers/1"):
            await cluster.zk(Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity), sequence=True))
        change = {"name": "segment.bytes", "config_operation": 0, "value": "1048576"}
        resource = {"resource_type": 2, "resource_name": "u", "configs": [change]}
        await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        described = {"resource_type": 2, "resource_name": "u", "configuration_keys": None}
        await self.ask(ApiKey.DESCRIBE_CONFIGS, 3, {"resources": [described]})
        await self.ask(ApiKey.METADATA, 9, {"topics": None})
        await self.take_id()
        with suppress(ZkUnreachable, ZnodeError, IdTaken):
            await self.another_starts()
        await cluster.world.sleep(10)
        self.inflict()
        await cluster.world.sleep(20)

    async def ask(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        return await self.cluster.ask(api_key, version, body, timeout_s=3_000)

    async def take_id(self) -> bool:
        """Whether there was one; no id is there twice."""
        body = {"transactional_id": None, "transaction_timeout": 1}
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, 3, body)
        if answer["error_code"] == 0:
            assert answer["producer_id"] not in self.ids
            self.ids.append(answer["producer_id"])
        return bool(answer["error_code"] == 0)

    async def another_starts(self) -> None:
        """A controller that starts, takes its place in the row, and ends."""
        other = self.cluster.make(101, f"{HOST}-101")
        machine = self.cluster.world.machine(f"{HOST}-101")
        try:
            await machine.run(other.start())
        finally:
            await machine.run(other.stop())

    async def creates(self, topic: str) -> None:
        rows = [{"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
        answer = await self.ask(ApiKey.CREATE_TOPICS, 2, {"topics": rows, "timeout": 9_000})
        assert [row["error_code"] for row in answer["topics"]] == [0], answer

    async def sound_goes_on(self) -> None:
        """While the damage lasts, unless it is to the office or to what the sound needs."""
        if self.damage.path in (*OFFICE, "/brokers/ids/2", "/config/topics"):
            return
        assert self.cluster.controller.state.serving, "the office was lost"
        await self.creates("sound")
        if self.damage.path != ConfigChangesZNode.path:
            await self.switch_on_u()

    async def switch_on_u(self) -> None:
        """A sound notice is followed."""
        await self.cluster.zk(Create(ConfigEntityZNode.topic("u")), SetData(ConfigEntityZNode.topic("u"), ON))
        notice = ConfigChangesZNode.encode("topics/u")
        await self.cluster.zk(Create(ConfigChangesZNode.sequence_path, notice, sequence=True))
        await self.cluster.world.until(lambda: self.leader_of_u() == 2, within_s=10, what="a leader of u")

    async def repair(self) -> None:
        """As an operator would: what is refused is allowed, what was there is there again."""
        self.zookeeper.tree.refusal = lambda _: None
        path = self.damage.path
        if self.damage.how in (*LINKS, "refused"):
            return
        if path == "/controller":
            await self.cluster.zk(Delete(path))
        elif path == "/controller_epoch":
            data = b"%d" % (max(self.cluster.controller.state.epoch, 5) + 1)
            await self.cluster.zk(Create(path, data), SetData(path, data))
        elif path == BLOCK:  # nobody knows the last one: far above all
            data = ProducerIdBlockZNode.encode(BrokerId(2), 10**6, 10**6 + 999)
            await self.cluster.zk(Create(path, data), SetData(path, data))
        elif path == "/brokers/ids/2":
            await self.cluster.zk(Delete(path))
            await self.cluster.world.sleep(1)
            await self.cluster.zk(Create(path, REGISTRATION, ephemeral=True))
        elif self.was_there:
            await self.cluster.zk(Create(path, self.before), SetData(path, self.before))
        else:
            await self.cluster.zk(Delete(path))

    async def ends_well(self) -> None:
        """It serves, follows notices, gives out ids; and so does a controller that starts now."""
        if self.damage.path in OFFICE:  # the first write shows whether the term still holds
            with suppress(AssertionError):
                await self.creates("first")
        await self.cluster.world.sleep(30)
        state = self.cluster.controller.state
        assert state.serving, "not in office"
        assert state.epoch <= 3 or self.damage.path in OFFICE, "epochs race"
        await self.creates("after")
        assert await self.take_id()
        await self.switch_on_u()
        await self.cluster.zk(Create(DEFAULT), SetData(DEFAULT, ON))
        notice = ConfigChangesZNode.encode("brokers/<default>")
        await self.cluster.zk(Create(ConfigChangesZNode.sequence_path, notice, sequence=True))
        await self.cluster.world.until(
            lambda: state.settings.unclean_leader_election_enable, within_s=10, what="the new default"
        )
        await self.another_starts()
        found = json.loads(await self.cluster.read("/brokers/topics/u/partitions/0/state"))
        assert found["leader"] == 2


def check(play: Play, limits: settings) -> None:
    @limits
    @given(ANY_DAMAGE, st.integers(1, 40))
    def run(damage: Damage, at_step: int) -> None:
        async def scenario(cluster: Any) -> None:
            stage = Stage(cluster, damage, at_step)
            await stage.set()
            await stage.poke()
            await stage.sound_goes_on()
            await stage.repair()
            await stage.ends_well()

        lines = play(scenario, brokers=2)
        harm = {ev.TASK_FAILED, ev.CONTROLLER_FAULTED}
        faults = [line for line in lines if line["event"] in harm or "exc_info" in line]
        assert not faults or damage.path in OFFICE, faults

    run()


def test_znodes_of_the_shell_at_any_step(play: Play) -> None:
    check(play, FEW)


@takes_long
def test_znodes_of_the_shell_at_any_step_for_long(play: Play) -> None:
    check(play, MANY)
