"""Operations in which a move or a deletion meets, at one given step, what hardly ever comes together: the one replica
that it leaves has died in sync, its successor in office cannot read the topic, or a broker says late that a dir failed.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Final

from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose, who_serves
from controller.sim.steps.log_troubles import PLAIN, fill, made
from controller.sim.steps.turn import Turn
from controller.sim.steps.twists import FAR_S, half_moved, move
from controller.sim.steps.unheard import leave_to_who_has_not_begun, when_written
from controller.sim.steps.winding import refuse_writes
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Check, GetData, ZkCode, ZkOp
from controller.world.simulated.net import Latency

#: How long ZooKeeper refuses to take who has died out of an ISR: less than its leader waits before it does that.
KEPT_S: Final = 0.5


async def move_to_who_died_in_sync(turn: Turn) -> str:
    """ZooKeeper refuses to take a follower that dies out of the ISR, and a move leaves that one alone: it is complete
    at once, and nobody leads until that one is back. controller.md §8.5; docs/deviations.md."""
    cluster = turn.cluster
    running = set(cluster.brokers) - cluster.paused
    led = [(*tp, state) for tp in cluster.movable() if (state := cluster.state(*tp)) and state["leader"] in running]
    topic, partition, state = turn.one_of([each for each in led if len(running & set(each[2]["isr"])) > 1])
    follower = turn.one_of([broker for broker in state["isr"] if broker in running - {state["leader"]}])
    refuse_writes(turn, f"/brokers/topics/{topic}/partitions/{partition}/state", ZkCode.NO_AUTH, 0, KEPT_S)
    lose(turn, follower)
    await cluster.world.sleep(KEPT_S + 0.1)
    went = await move(turn, topic, {"partition_index": partition, "replicas": [follower]})
    await cluster.world.sleep(turn.chance.choice((0.5, 2.0)))
    cluster.start_one(follower)
    await cluster.world.sleep(2.0)
    return f"{topic}-{partition} of {state['leader']} to {follower}: {went}"


async def cancel_and_hide(turn: Turn) -> str:
    """A move is cancelled when one whom it added is in the ISR; whoever is in office dies when it has written the
    replicas, and its successor cannot read them for a while: the stranger goes when they can be read. §8.5, §10."""
    cluster, office = turn.cluster, who_serves(turn)
    half, for_s = await half_moved(turn), turn.chance.choice((0.5, 1.5))
    path, tree = f"/brokers/topics/{half.topic}", cluster.world.zookeeper.tree

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        return ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == path else None

    def shown() -> None:
        if tree.refusal is refusal:
            tree.refusal = lambda _: None

    def die() -> None:
        tree.refusal = refusal
        cluster.later(for_s, shown)
        lose(turn, office)

    when_written(turn, office, path, die)
    cancelled = await move(turn, half.topic, half.row(None))
    await cluster.world.sleep(for_s + turn.chance.choice((1.5, 3.0)))
    cluster.start_one(office)
    cluster.start_one(half.gone)
    return f"{half}, cancelled: {cancelled}, not to be read for {for_s} s"


async def delete_off_a_failed_dir(turn: Turn) -> str:
    """A log dir fails, and the topic of a replica in it is deleted before its broker's answer about the dir comes: what
    counts is its answer to the deletion. controller.md §10.6, §11.6."""
    cluster, office = turn.cluster, who_serves(turn)
    topic = await made(turn, turn.chance.choice(SIDE_TOPICS), turn.replicas(2), PLAIN)
    await cluster.world.sleep(0.5)
    turn.one_of([tp for tp in cluster.partitions() if tp == (topic, 0)])  # nobody has deleted it meanwhile
    found = [
        (broker, folder)
        for broker in cluster.assignment(topic, 0)
        if broker in cluster.disks and broker in cluster.running() and len(turn.cluster.log_dirs(broker)) > 1
        for folder in turn.cluster.log_dirs(broker)
        if (folder / f"{topic}-0").is_dir()
    ]
    broker, folder = turn.one_of(found)
    cluster.world.network.set_latency(turn.name(broker), turn.name(office), Latency(min_s=FAR_S, max_s=FAR_S))
    cluster.disks[broker].failing[folder] = errno.EIO
    cluster.disks_failed.add(broker)
    await fill(turn, topic, 0, 1)
    for _ in range(500):
        if cluster.children("/log_dir_event_notification"):
            break
        await cluster.world.sleep(0.002)
    await cluster.world.sleep(0.05)
    deleted = await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 100})
    await cluster.world.sleep(4.0)
    cluster.world.network.set_latency(turn.name(broker), turn.name(office), None)
    return f"{topic}-0 of {turn.name(broker)}, deleted: {deleted}"


CORNERS: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (move_to_who_died_in_sync, cancel_and_hide, delete_off_a_failed_dir, leave_to_who_has_not_begun)
}
