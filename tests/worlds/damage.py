"""Damage to one znode of a cluster, at a chosen read or write of its controller, and its repair."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from controller.core.effects import Effect, Read, Write
from controller.core.events import ApiPartitionReassignment
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Create, Delete, Exists, GetChildren, GetData, Multi, SetData, ZkCode
from controller.wire.znodes import TopicZNode
from controller.world.simulated.znode_tree import parent_of
from tests.worlds.data import BROKERS, PARTITIONS, Cluster

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 5),
        st.integers(-(2**70), 2**70),
        st.text(max_size=5),
        st.floats(),
        st.lists(st.integers(-2, 5), max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(["0", "1", "7", "topic"]), st.text(max_size=6)), inner, max_size=3),
    ),
    max_leaves=6,
)

#: What the controller reads, with a content that is right where others write it.
ZNODES: Mapping[str, bytes | None] = {
    "/controller": b'{"version":2,"brokerid":100,"timestamp":"0","kraftControllerEpoch":-1}',
    "/controller_epoch": b"1",
    "/feature": b'{"features":{},"version":2,"status":0}',
    "/brokers/ids": None,
    "/brokers/ids/1": b'{"version":4,"endpoints":["PLAINTEXT://b1:9001"],"listener_security_protocol_map":{"PLAINTEXT":'
    b'"PLAINTEXT"},"host":"b1","port":9001}',
    "/brokers/ids/3": b'{"version":1,"host":"b3","port":9003}',
    "/brokers/topics": None,
    "/brokers/topics/t": b'{"version":3,"partitions":{"0":[1,2],"1":[2,3]},"adding_replicas":{}}',
    "/brokers/topics/u": b'{"version":3,"partitions":{"0":[3,1]},"adding_replicas":{},"removing_replicas":{}}',
    "/brokers/topics/t/partitions": None,
    "/brokers/topics/t/partitions/0/state": b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1,2]}',
    "/brokers/topics/u/partitions/0/state": b'{"controller_epoch":1,"leader":3,"leader_epoch":0,"isr":[3,1]}',
    "/admin/delete_topics": None,
    "/admin/reassign_partitions": b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,4]}]}',
    "/admin/preferred_replica_election": b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "/isr_change_notification": None,
    "/isr_change_notification/isr_change_0000000099": b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "/log_dir_event_notification": None,
    "/log_dir_event_notification/log_dir_event_0000000099": b'{"version":1,"broker":2,"event":1}',
    "/config/topics/t": b'{"version":1,"config":{"unclean.leader.election.enable":"false"}}',
}
#: Without these two nothing can be said of a cluster.
LISTS = ("/brokers/ids", "/brokers/topics")
#: Those that only the office has.
OFFICE = ("/controller", "/controller_epoch")
#: What is written over these a controller sees at its failover alone, as in Kafka.
EDITED = ("/brokers/topics/t", "/brokers/topics/u", "/admin/reassign_partitions")
#: Reads and writes of one play; a busy one takes some 400.
STEPS_MAX = 3_000
CODES = (ZkCode.NO_AUTH, ZkCode.OTHER, ZkCode.SESSION_MOVED, ZkCode.MARSHALLING_ERROR)


@dataclass(frozen=True)
class Damage:
    """What happens to one znode: reads (and writes) of it are refused with a code, it is gone, or holds these bytes."""

    path: str
    how: str
    data: bytes | None = None
    code: ZkCode | None = None
    kinds: tuple[type, ...] = ()


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(place for name, each in inner for place in places(each, (*way, name)))]


def replaced(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    """The document with another value there."""
    if not way:
        return new
    if isinstance(value, dict):
        return {**value, way[0]: replaced(value[way[0]], way[1:], new)}
    return [replaced(each, way[1:], new) if n == way[0] else each for n, each in enumerate(value)]


@st.composite
def damages(draw: Any, znodes: Mapping[str, bytes | None]) -> Damage:
    """Damage to one of these znodes, by path with a content that is right; None for a parent that stays."""
    path = draw(st.sampled_from(sorted(znodes)))
    sound = znodes[path]
    how = draw(st.sampled_from(["bytes", "json", "document", "document", "refused", "gone"]))
    if how == "refused" or sound is None:
        kinds: tuple[type, ...] = (GetData, GetChildren, Exists)
        if draw(st.booleans()):
            kinds = draw(st.sampled_from([(SetData, Create, Delete), (*kinds, SetData, Create, Delete)]))
        return Damage(path, "refused", code=draw(st.sampled_from(CODES)), kinds=kinds)
    if how == "gone":
        return Damage(path, "gone")
    if how == "bytes":
        return Damage(path, how, draw(st.one_of(st.none(), st.binary(max_size=12))))
    if how == "json" or not sound:
        return Damage(path, how, json.dumps(draw(VALUES)).encode())
    document = json.loads(sound)
    wrong = replaced(document, draw(st.sampled_from(places(document))), draw(VALUES))
    return Damage(path, how, json.dumps(wrong).encode())


DAMAGES = damages(ZNODES)


class Damaged(Cluster):
    """A cluster to one of whose znodes something happens just before the n-th read or write from now on."""

    def __init__(self, damage: Damage, at_step: int) -> None:
        self.damage, self.damage_at = damage, 0
        self.before: bytes | None = None
        self.was_there = self.is_damaged = False
        super().__init__()
        self.logs.clear()
        self.steps, self.damage_at = 0, at_step

    def perform(self, effect: Effect) -> Any:
        if isinstance(effect, Read | Write):
            assert self.steps < STEPS_MAX, "the controller is busy without an end"
            if self.steps + 1 == self.damage_at:
                self.inflict()
        return super().perform(effect)

    def inflict(self) -> None:
        """Now, unless it has happened."""
        if self.is_damaged:
            return
        self.is_damaged = True
        damage, znode = self.damage, self.tree.get(self.damage.path)
        self.before, self.was_there = (znode.payload, True) if znode is not None else (None, False)
        match damage.how:
            case "refused":
                if znode is None and damage.path.startswith(("/admin/", "/isr_", "/log_dir")):
                    self.make(damage.path, ZNODES[damage.path])
                self.tree.refusal = lambda op: (
                    damage.code
                    if not isinstance(op, Multi) and isinstance(op, damage.kinds) and op.path == damage.path
                    else None
                )
            case "gone":
                self.others_write(Delete(damage.path))
            case _ if self.tree.get(parent_of(damage.path)) is not None or damage.path.startswith("/admin"):
                self.make(damage.path, damage.data)

    def sound_goes_on(self) -> None:
        """While the znode is as it is: the controller is in office, unless it is the office's own znode or a list
        without which nothing can be said; what has nothing to do with it is served."""
        self.go_on()
        if self.damage.path in (*OFFICE, *LISTS):
            return
        assert self.state.serving, "the office was lost"
        assert self.state.epoch <= 3, "epochs race"  # of which each of two scenes may take one
        self.topic("sound", p0=(4,))
        self.go_on(seconds=1)
        assert self.leader_of(TopicPartition("sound", 0)) == 4

    def repair(self) -> None:
        """As an operator would: what is refused is allowed, what was there is there again. What the controller wrote
        or removed since stays."""
        self.tree.refusal = lambda _: None
        path, znode = self.damage.path, self.tree.get(self.damage.path)
        if path in ("/brokers/ids/1", "/brokers/ids/3") and znode is None and int(path[-1]) in self.broker_sessions:
            self.end_session(self.broker_sessions.pop(int(path[-1])))  # it could not register, and tries again
            return
        for tp in PARTITIONS:  # no such broker will ever come: what somebody asked for is taken back
            if not set(self.state.assignment(tp).replicas) <= set(BROKERS):
                self.run(ApiPartitionReassignment({tp: None}, 9))
        if self.damage.how == "refused" or path.startswith(("/isr_", "/log_dir", "/admin")):
            return
        if path == "/controller":
            if znode is not None:
                self.others_write(Delete(path))
        elif path.startswith("/brokers/ids/"):
            broker = int(path.rpartition("/")[2])
            self.others_write(Delete(path))
            if broker in self.broker_sessions:
                self.end_session(self.broker_sessions.pop(broker))
            self.go_on(seconds=1)
            self.broker_starts(broker)
        elif path == "/controller_epoch":
            self.make(path, str(max(self.state.epoch, 5) + 1).encode())
        elif self.was_there and (znode is None or znode.payload == self.damage.data):
            if self.tree.get(parent_of(path)) is not None:  # else it went with its topic
                self.make(path, self.before)
        elif not self.was_there and znode is not None and znode.payload == self.damage.data:
            self.others_write(Delete(path))
        elif path in EDITED and self.was_there and znode is not None:
            self.give_back_partitions(path, znode.payload)

    def give_back_partitions(self, path: str, rewritten: bytes | None) -> None:
        """The controller wrote the topic again, and kept what it could not read of it."""
        readable = TopicZNode.decode(rewritten).partitions
        before = json.loads(self.before or b"{}").get("partitions", {})
        lost = {number: replicas for number, replicas in before.items() if int(number) not in readable}
        if lost:
            content = json.loads(rewritten or b"{}")
            content["partitions"].update(lost)
            self.make(path, json.dumps(content).encode())

    def ends_well(self) -> None:
        """Every partition is led, all its replicas live and are in sync, and nothing acknowledged is lost: under the
        controller that saw the damage, and under the next."""
        self.broker_starts(*(b for b in BROKERS if b not in self.broker_sessions))
        self.go_on(seconds=6)
        if self.damage.path not in EDITED or self.damage.how == "refused":
            self.is_well()
        self.new_controller()
        self.start()
        self.go_on(seconds=2)
        self.is_well()

    def is_well(self) -> None:
        assert self.state.serving
        faults = [line.fields for line in self.logs if line.event == ev.CONTROLLER_FAULTED]
        assert not faults or self.damage.path in (*OFFICE, *LISTS), faults
        for tp in PARTITIONS:
            if not self.exists(f"/brokers/topics/{tp.topic}"):
                continue
            found = self.state_in_zk(tp)
            assert found is not None, f"{tp} has no state"
            assigned = self.assigned(tp)
            assert not assigned.is_being_reassigned, f"{tp} moves for ever: {assigned}"
            assert set(found.isr) == set(assigned.replicas), f"{tp} has {found} of {assigned}"
            assert self.leader_of(tp) is not None, f"nobody leads {tp}: {found}"
            assert self.state.assignment(tp) == assigned
        assert not self.children("/admin/delete_topics")
        assert not self.exists("/admin/reassign_partitions")
        self.produce()
        assert not self.lost(), self.lost()
