"""Operations in which somebody else damages a znode of a running cluster, and repairs it after a while.

What is damaged is never believed: no program may write over it (`Cluster.damaged`), and what a controller knew stays
what it was. Whoever repairs a partition's state raises its leader epoch and lets the office be taken anew, as the
documentation says, so that its leader hears of the new version.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller.sim.history import parsed
from controller.sim.shape import SIDE_TOPICS, TOPIC
from controller.sim.steps.combined import ASKED, lose
from controller.sim.steps.operations import alter_topic_config
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession
from controller.world.simulated.znode_tree import Znode

EPOCH: Final = "/controller_epoch"
BLOCK: Final = "/latest_producer_id_block"
CHANGES: Final = "/config/changes"
#: What becomes of a state: a member stands in it twice, it is one of the past, a controller of the future wrote it, it
#: is gone.
FLAWS: Final = ("doubled", "past", "past", "newer", "removed")
FLAWS_OF_THE_FIRST: Final = ("doubled", "newer", "removed")


def _there(turn: Turn, path: str) -> Znode:
    """Raises NothingThere."""
    znode = turn.cluster.world.zookeeper.tree.get(path)
    if znode is None:
        raise NothingThere
    return znode


def _office(turn: Turn) -> int:
    """Who is in office, and runs. Raises NothingThere."""
    active = turn.cluster.active_controller()
    return turn.one_of([n for n in turn.cluster.controllers if n == active and n not in turn.cluster.paused])


async def overwrite_office(turn: Turn) -> str:
    """`/controller` gets another content: nobody serves by it, so that there must be an election. controller.md §2."""
    content = turn.chance.choice((b'{"version":1,"brokerid":99,"timestamp":"1"}', b"not json"))
    return f"{content.decode()}: {await turn.cluster.write_znode(SetData('/controller', content))}"


async def overwrite_epoch(turn: Turn) -> str:
    """`/controller_epoch` is written by somebody else: raised, or, where there is but one controller, which serves and
    remembers what it had, reset. No write of this term is done any more. controller.md §2.4."""
    cluster = turn.cluster
    epoch = int(_there(turn, EPOCH).payload or b"0")
    if len(cluster.controller_ids) == 1:
        if not cluster.controllers[_office(turn)].state.serving:
            raise NothingThere  # it has just started, and remembers nothing
        becomes = turn.chance.randrange(epoch) if epoch else 0
        await _reset_epoch(turn, epoch, becomes)
    else:
        operator = await cluster.operator()
        epoch = int(_there(turn, EPOCH).payload or b"0")
        becomes = epoch + turn.chance.choice((1, 1, 4))
        cluster.at_once(operator, SetData(EPOCH, str(becomes).encode()))
    ask = turn.chance.choice(ASKED)
    return f"{epoch} becomes {becomes}; {ask.__name__} {await ask(turn)}"


async def _reset_epoch(turn: Turn, epoch: int, becomes: int) -> None:
    """A process that starts remembers nothing: before that one, it is repaired."""
    cluster = turn.cluster
    operator = await cluster.operator()
    if int(_there(turn, EPOCH).payload or b"0") != epoch:
        raise NothingThere
    cluster.at_once(operator, SetData(EPOCH, str(becomes).encode()), unseen=True)

    def repaired(_: int, __: object) -> None:
        if int(_there(turn, EPOCH).payload or b"0") < epoch:
            cluster.at_once(operator, SetData(EPOCH, str(epoch).encode()), unseen=True)

    cluster.on_controller.append(repaired)


# -- a partition's state -----------------------------------------------------------------------------------------------


async def damage_state(turn: Turn) -> str:
    """The state of a partition cannot be, or is gone, while its leader dies or the office changes: it is waited for."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.partitions() if tp[0] == TOPIC])
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    operator, active = await cluster.operator(), _office(turn)
    if path in cluster.damaged or (content := parsed(_there(turn, path).payload)) is None:
        raise NothingThere
    if cluster.controllers[active].state.leadership(TopicPartition(topic, partition)) is None:
        raise NothingThere  # whoever has just been elected has yet to read it, and cannot tell what is of the past
    flaw = turn.chance.choice(FLAWS if content["leader_epoch"] else FLAWS_OF_THE_FIRST)
    repair = _Repair(turn, operator, path, content)
    cluster.at_once(operator, _flawed(turn, path, content, flaw), unseen=True)
    cluster.damaged[path] = flaw
    cluster.refused.add(path)  # nor can it be written
    cluster.on_damaged((topic, partition))
    cluster.armed.append(repair.do)
    if flaw in ("past", "newer"):  # a controller of another epoch cannot tell
        cluster.world.zookeeper.on_operation.append(repair.at_elections)
    lost = active if flaw == "removed" else content["leader"]
    if lost in cluster.running():
        lose(turn, lost)
    await cluster.world.sleep(turn.chance.choice((0.5, 2.0, 4.0)))
    repair.do()
    for _ in range(100):  # who leads by what was before the damage must not come back before it is decided anew
        state = cluster.state(topic, partition) or content
        if lost == active or state["leader_epoch"] > content["leader_epoch"] + 1:
            cluster.start_one(lost) if lost in cluster.numbers() else None
            break
        await cluster.world.sleep(0.1)
    return f"{topic}-{partition} is {flaw}, without {lost}"


def _flawed(turn: Turn, path: str, content: dict[str, Any], flaw: str) -> ZkOp:
    """What makes it so."""
    if flaw == "removed":
        return Delete(path)
    epoch = int(_there(turn, EPOCH).payload or b"0")
    changed = {
        "doubled": {"isr": [*content["isr"], content["isr"][0]]},
        "past": {"leader_epoch": max(0, content["leader_epoch"] - turn.chance.choice((1, 1, 2)))},
        "newer": {"controller_epoch": epoch + 1},
    }[flaw]
    return SetData(path, json.dumps(content | changed).encode())


class _Repair:
    """What the state was, in a new leader epoch and a later version, since brokers believe no older one; done once."""

    def __init__(self, turn: Turn, operator: SimulatedSession, path: str, content: dict[str, Any]) -> None:
        self._cluster, self._operator, self._path = turn.cluster, operator, path
        self._version = _there(turn, path).version
        self._is_done = False
        self._content = json.dumps(content | {"leader_epoch": content["leader_epoch"] + 1}).encode()

    def do(self) -> None:
        """Harmless when it was done: what is damaged there by then is for another."""
        if self._is_done or self._cluster.damaged.pop(self._path, None) is None:
            return
        self._is_done = True
        cluster, tree = self._cluster, self._cluster.world.zookeeper.tree
        if tree.get(self._path) is None:
            cluster.at_once(self._operator, Create(self._path, self._content), unseen=True)
        while (znode := tree.get(self._path)) is not None and znode.version < self._version:
            cluster.at_once(self._operator, SetData(self._path, self._content), unseen=True)
        cluster.at_once(self._operator, SetData(self._path, self._content))
        cluster.at_once(self._operator, Delete("/controller"))

    def at_elections(self, _: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """Before whoever was elected reads it."""
        if result.ok and isinstance(op, Multi) and any(isinstance(p, SetData) and p.path == EPOCH for p in op.ops):
            self._cluster.later(0.0, self.do)


# -- other znodes ------------------------------------------------------------------------------------------------------


async def damage_registration(turn: Turn) -> str:
    """A broker's registration becomes garbage, while another dies: who lives lives. controller.md §11."""
    cluster = turn.cluster
    number = turn.one_of([b for b in sorted(cluster.registered()) if b in cluster.brokers])
    path, operator = f"/brokers/ids/{number}", await cluster.operator()
    sound = _there(turn, path)
    czxid, content = sound.czxid, sound.payload
    if cluster.children("/admin/delete_topics"):
        raise NothingThere  # nobody could tell this broker that a topic is gone
    if "endpoints" not in (parsed(content) or ()):
        raise NothingThere  # somebody else has damaged it, and repairs it
    cluster.at_once(operator, SetData(path, turn.chance.choice((b"{", b"[]", b'{"version":4}'))))
    others = sorted(set(cluster.brokers) - cluster.paused - {number})
    other = turn.chance.choice(others) if others else None
    if other is not None:
        lose(turn, other)
    await cluster.world.sleep(turn.chance.choice((0.5, 2.0)))
    now = cluster.world.zookeeper.tree.get(path)
    if now is not None and now.czxid == czxid:
        cluster.at_once(operator, SetData(path, content))
    cluster.start_one(other) if other is not None else None
    return f"{turn.name(number)}, without broker {other}"


async def delete_unreadable_topic(turn: Turn) -> str:
    """A topic whose znode says nothing is deleted: no broker that was there keeps a replica. controller.md §10."""
    cluster = turn.cluster
    topic = turn.one_of([t for t in SIDE_TOPICS if cluster.topic_partitions(t)])
    path, operator, active = f"/brokers/topics/{topic}", await cluster.operator(), _office(turn)
    rows = [_registration(turn, broker) for broker in sorted(cluster.registered())]
    if any("endpoints" not in (parsed(znode.payload) or ()) for znode in rows if znode is not None):
        raise NothingThere  # nobody could tell that broker that the topic is gone
    czxid = _there(turn, path).czxid
    empty = json.dumps({"version": 2, "partitions": {}, "adding_replicas": {}, "removing_replicas": {}}).encode()
    cluster.at_once(operator, SetData(path, empty), unseen=True)
    lose(turn, active)
    cluster.at_once(operator, Create(f"/admin/delete_topics/{topic}"))
    lives = cluster.emptied[topic, czxid] = {
        b: znode.czxid for b in cluster.registered() if (znode := _registration(turn, b)) is not None
    }
    cluster.start_one(active)
    for _ in range(400):
        await cluster.world.sleep(0.05)
        if cluster.world.zookeeper.tree.get(f"/admin/delete_topics/{topic}") is None:
            break
    else:
        return f"{topic} is not deleted yet"
    found = cluster.world.zookeeper.tree.get(path)
    if found is None or found.czxid == czxid:
        for number, broker in sorted(cluster.brokers.items()):
            life = _registration(turn, number)
            hosted = broker.replicas.table.partitions if broker.replicas is not None else ()
            if life is not None and life.czxid == lives.get(number) and any(tp.topic == topic for tp in hosted):
                cluster.contradictions.append(f"{topic} was deleted, broker {number} still hosts it")
    return f"{topic} is deleted"


def _registration(turn: Turn, number: int) -> Znode | None:
    return turn.cluster.world.zookeeper.tree.get(f"/brokers/ids/{number}")


async def damage_producer_block(turn: Turn) -> str:
    """The last block of producer ids cannot be read while everybody is asked for an id. clients.md §3.1."""
    cluster, operator = turn.cluster, await turn.cluster.operator()
    sound = _there(turn, BLOCK).payload
    if not sound:
        raise NothingThere
    garbage = turn.chance.choice((b"{", b'{"version":1}', b"[]"))
    cluster.at_once(operator, SetData(BLOCK, garbage))
    cluster.damaged[BLOCK] = "garbage"
    body = {"transactional_id": None, "transaction_timeout": 60_000}
    for number in turn.chance.sample(cluster.running(), min(4, len(cluster.running()))):
        if number in cluster.running():
            await cluster.ask_one(number, ApiKey.INIT_PRODUCER_ID, 1, body)
    cluster.damaged.pop(BLOCK, None)
    if _there(turn, BLOCK).payload == garbage:
        cluster.at_once(operator, SetData(BLOCK, sound))
    return garbage.decode()


async def remove_config_list(turn: Turn) -> str:
    """The list of notices is gone for a while, and begins again at 0; then a setting changes. broker.md §17."""
    cluster, operator = turn.cluster, await turn.cluster.operator()
    gone = [Delete(f"{CHANGES}/{name}") for name in cluster.children(CHANGES)]
    _there(turn, CHANGES)
    cluster.at_once(operator, Multi((*gone, Delete(CHANGES))))
    for_s = turn.chance.choice((0.0, 0.5, 2.0))
    await cluster.world.sleep(for_s)
    cluster.at_once(operator, Create(CHANGES))
    await cluster.world.sleep(1.5)
    return f"for {for_s} s; {await alter_topic_config(turn)}"


FOREIGN: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(overwrite_office, overwrite_epoch, damage_state, damage_registration, delete_unreadable_topic),
        *(damage_producer_block, remove_config_list),
    )
}
