"""Operations in which a controller serves, loses the office, and serves again when another has done its work: of what
it believed in its former term nothing is left. controller.md §2.3; Kafka 3.9 `ControllerContext.resetContext`.

They came after all others, and are drawn apart from them (see `late`): worlds that were stay what they were.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final

from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose, who_serves
from controller.sim.steps.held import until
from controller.sim.steps.seldom_moves import make
from controller.sim.steps.turn import NothingThere, Turn
from controller.sim.steps.twists import move
from controller.sim.steps.winding import create
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import SetData

#: Seconds in which nothing happens, so that it can be seen what is believed.
STILL_S: Final = 2.0
#: So many offices end at most before the first controller has its own again.
OFFICES_MAX: Final = 6
DONE_S: Final = 15.0


async def serve_again(turn: Turn) -> str:
    """A broker dies, so that a move cannot end, a deletion waits, and leaders are not where they should be; another
    controller sees the end of all of it, makes a topic of the same name, and then the first serves again."""
    cluster, first = turn.cluster, who_serves(turn)
    if len(set(cluster.controllers) - cluster.paused) < 2:
        raise NothingThere
    lost, stays = turn.one_of(sorted(set(cluster.brokers) - cluster.paused)), turn.replicas(1)
    went = [await _leave_work(turn, lost, [b for b in stays if b != lost])]
    await _next_office(turn)
    await cluster.world.sleep(turn.chance.choice((0.3, STILL_S)))
    cluster.start_one(lost)
    went.append(await _end_the_work(turn))
    for _ in range(OFFICES_MAX):
        if cluster.active_controller() == first:
            break
        await _next_office(turn)
    await cluster.world.sleep(STILL_S)
    again = "serves again" if cluster.active_controller() == first else "does not serve again"
    return f"{turn.name(first)}, without broker {lost}: {'; '.join(went)}; {again}"


async def _next_office(turn: Turn) -> None:
    former = who_serves(turn)
    turn.cluster.world.zookeeper.expire_sessions_of(turn.name(former))
    await until(turn, lambda: turn.cluster.active_controller() not in (None, former), DONE_S)


async def _leave_work(turn: Turn, lost: int, others: list[int]) -> str:
    """What cannot be done without this broker is asked for, and nothing comes of it yet."""
    cluster, (moved, deleted) = turn.cluster, turn.chance.sample(SIDE_TOPICS, 2)
    went = [await create(turn, moved) if not cluster.topic_partitions(moved) else moved]
    if not cluster.topic_partitions(deleted):
        went.append(await make(turn, deleted, [[lost, *others], [*others, lost]]))
    await cluster.world.sleep(1.0)
    lose(turn, lost)
    if turn.chance.random() < 0.8:
        went.append(await move(turn, moved, {"partition_index": 0, "replicas": [lost, *others]}))
    if turn.chance.random() < 0.8:
        went.append(await _delete(turn, deleted))
    await cluster.world.sleep(turn.chance.choice((0.5, STILL_S)))
    return ", ".join(went)


async def _end_the_work(turn: Turn) -> str:
    """Moves and deletions end; a topic that is gone is made again, or gets fields that nobody here understands."""
    cluster = turn.cluster
    ended = await until(turn, lambda: not cluster.children("/admin/delete_topics") and not _moving(turn), DONE_S)
    went = [f"{'' if ended else 'not '}all ended"]
    for topic in SIDE_TOPICS:
        chance = turn.chance.random()
        if not cluster.topic_partitions(topic) and chance < 0.7:
            went.append(await create(turn, topic))
        elif cluster.topic_partitions(topic) and chance < 0.3:
            went.append(await _delete(turn, topic))
        elif cluster.topic_partitions(topic) and chance < 0.6:
            went.append(f"{topic} of tomorrow: {await _of_tomorrow(turn, f'/brokers/topics/{topic}')}")
    await cluster.world.sleep(turn.chance.choice((0.5, STILL_S)))
    return ", ".join(went)


async def _of_tomorrow(turn: Turn, path: str) -> str:
    """A later version of Kafka writes a field that nobody here understands."""
    now = turn.cluster.world.zookeeper.tree.get(path)
    content = {**turn.cluster.znode(path), "of_tomorrow": turn.chance.randint(1, 9)}
    return await turn.cluster.write_znode(SetData(path, json.dumps(content).encode(), now.version if now else 0))


async def _delete(turn: Turn, topic: str) -> str:
    body = {"topic_names": [topic], "timeout": 100}
    return f"{topic} deleted: {await turn.cluster.ask_once(ApiKey.DELETE_TOPICS, 3, body)}"


def _moving(turn: Turn) -> bool:
    contents = [turn.cluster.znode(f"/brokers/topics/{topic}") for topic in turn.cluster.children("/brokers/topics")]
    return any(content and (content.get("adding_replicas") or content.get("removing_replicas")) for content in contents)


SECOND_TERMS: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {serve_again.__name__: serve_again}
