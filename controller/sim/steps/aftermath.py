"""Operations after which a broker goes on with what it had before: a file of before a cut, a log of which it is not
said that it was closed, a copy of what has been cut or deleted meanwhile.

They came after all others, and are drawn apart from them (see `late`): worlds that were stay what they were.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from broker_sim.log import checkpoints
from controller.sim.disk import WRITE_BACK_S
from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose
from controller.sim.steps.log_troubles import PLAIN, fill, limit_moves, made, move_dirs, replicas_of
from controller.sim.steps.ruins import UNCLEAN, flip, leads, recovery_point
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition

#: Of a topic whose logs are synced late.
LATE_SYNC: Final = {**UNCLEAN, "segment.bytes": "1000000", "flush.messages": "1000000"}
#: Bytes a second at which replicas move between dirs: so few that nothing ends, and so that some of it is copied.
SLOWLY, HARDLY = "150", "1"


def _running(turn: Turn) -> list[int]:
    return sorted(set(turn.cluster.brokers) - turn.cluster.paused)


async def _pair(turn: Turn, configs: dict[str, str]) -> tuple[str, int, int]:
    """A side topic of one partition, and its two replicas, both of which run. Raises NothingThere."""
    running = _running(turn)
    if len(running) < 2:
        raise NothingThere
    topic = await made(turn, turn.chance.choice(SIDE_TOPICS), turn.chance.sample(running, 2), configs)
    replicas = replicas_of(turn, topic)
    if len(replicas) != 2 or not set(replicas) <= set(_running(turn)):
        raise NothingThere
    one, other = turn.chance.sample(replicas, 2)
    return topic, one, other


async def epochs_of_before(turn: Turn) -> str:
    """Two replicas lead in turns, each alone; who follows in the end has cut its log and has that of the other when its
    machine fails: its file of epochs may be the one of before the cut, its log is not. broker.md §14."""
    cluster = turn.cluster
    topic, one, other = await _pair(turn, LATE_SYNC)
    went = [await fill(turn, topic, 0, 2)]
    await cluster.world.sleep(1.0)
    for nth in range(4):
        alone, away = (one, other) if nth % 2 == 0 else (other, one)
        if away in cluster.running():
            lose(turn, away)
        cluster.start_one(alone)
        if not await leads(turn, topic, alone):
            break
        went.append(await fill(turn, topic, 0, turn.chance.choice((1, 2))))
    await cluster.world.sleep(WRITE_BACK_S + 1)
    cluster.start_one(one)
    await cluster.world.sleep(turn.chance.choice((2.0, 3.0)))
    if one in cluster.running():
        lose(turn, one)
        cluster.disks[one].forget_replaced()
    cluster.start_one(one)
    cluster.start_one(other)
    return f"{topic} of {one} and {other}: {went}, files of before on {one}"


async def unmarked_stop(turn: Turn) -> str:
    """A broker that stops in order dies when it has closed its logs, before it says so; a batch above its recovery
    point is not what was written: what was closed is looked at all the same. `LogLoader.recoverLog`; broker.md §4.2."""
    cluster = turn.cluster
    topic, number, _ = await _pair(turn, PLAIN)
    await fill(turn, topic, 0, turn.chance.choice((2, 5)))
    await cluster.world.sleep(0.5)
    points = {path: path.read_bytes() for path in _recovery_points(turn, number) if path.exists()}
    await cluster.shut_down(number)
    if number in cluster.running():
        raise NothingThere
    done = []
    for path in _recovery_points(turn, number):
        path.with_name(checkpoints.CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        if path in points:
            path.write_bytes(points[path])
        else:
            path.unlink(missing_ok=True)
        segments = sorted((path.parent / f"{topic}-0").glob("*.log"))
        point = recovery_point(path.parent, TopicPartition(topic, 0))
        if segments and (at := flip(turn, segments[-1], above=point)) is not None:
            done.append(f"{path.parent.name}/{topic}-0 at {at}")
            cluster.on_damaged((topic, 0))
    cluster.start_one(number)
    await cluster.world.sleep(1.0)
    return f"{turn.name(number)}: {', '.join(done)}"


def _recovery_points(turn: Turn, number: int) -> list[Path]:
    """Their checkpoint in each of its dirs."""
    return [log_dir / checkpoints.RECOVERY_POINT_FILE for log_dir in turn.cluster.log_dirs(number)]


async def delete_what_moves(turn: Turn) -> str:
    """Replicas move to another dir, and hardly get on, when their topic is deleted or they are moved away. §11.2."""
    cluster = turn.cluster
    if cluster.shape is None or cluster.shape.log_dirs < 2:
        raise NothingThere
    topic, number, _ = await _pair(turn, PLAIN)
    await fill(turn, topic, 0, turn.chance.choice((2, 5)))
    rates = [await limit_moves(turn, number, HARDLY)]
    await cluster.world.sleep(0.5)  # until it knows
    moved = [await move_dirs(turn, number) for _ in range(2)]  # what has moved before it was held back moves again
    await cluster.world.sleep(turn.chance.choice((0.2, 1.0)))
    replicas = replicas_of(turn, topic)
    others = [broker for broker in _running(turn) if broker not in replicas]
    if others and turn.chance.random() < 0.5:
        target = [others[0] if broker == number else broker for broker in replicas]
        row = {"name": topic, "partitions": [{"partition_index": 0, "replicas": target}]}
        body = {"timeout": 5_000, "topics": [row]}
        went = await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
    else:
        went = await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 100})
    await cluster.world.sleep(turn.chance.choice((2.0, 4.0)))
    await _unlimited(turn, number, rates)
    return f"{turn.name(number)} {moved}; {topic} deleted or moved: {went}"


async def cut_what_moves(turn: Turn) -> str:
    """A replica that moves to another dir leads alone, is deposed, and hears of that before it reaches its new leader:
    what is cut then has been copied in part, and the log is longer again before the copying goes on. §11.2, §15."""
    cluster = turn.cluster
    if cluster.shape is None or cluster.shape.log_dirs < 2:
        raise NothingThere
    topic, one, other = await _pair(turn, PLAIN)
    number = (cluster.state(topic, 0) or {"leader": -1})["leader"]
    if number not in (one, other):
        raise NothingThere
    heir = other if number == one else one
    await fill(turn, topic, 0, 2, sizes=(1,))
    rates = [await limit_moves(turn, number, HARDLY)]
    await cluster.world.sleep(1.0)
    far = [turn.name(each) for each in cluster.numbers() if each != number]
    for name in far:
        cluster.world.network.partition(turn.name(number), name)
    await fill(turn, topic, 0, 12, sizes=(1,))
    tp = TopicPartition(topic, 0)
    moved = await move_dirs(turn, number, {tp})
    rates.append(await limit_moves(turn, number, SLOWLY))
    cluster.world.zookeeper.expire_sessions_of(turn.name(number))
    await cluster.world.sleep(turn.chance.choice((1.0, 2.0)))
    await fill(turn, topic, 0, 20, sizes=(1,))  # of who leads now: its log is another, and longer
    for name in far:
        if name != turn.name(heir):
            cluster.world.network.heal(turn.name(number), name)
    await cluster.world.sleep(turn.chance.choice((1.0, 2.0, 3.0)))
    cluster.world.network.heal(turn.name(number), turn.name(heir))
    await cluster.world.sleep(turn.chance.choice((2.0, 4.0)))
    await _unlimited(turn, number, rates)
    return f"{turn.name(number)} {moved}; {topic} goes on at {turn.name(heir)}"


async def _unlimited(turn: Turn, number: int, rates: list[str]) -> None:
    for _ in range(30):
        rates.append(await limit_moves(turn, number, None))
        if rates[-1] == "answered":
            return
        await turn.cluster.world.sleep(1.0)


AFTERMATH: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each for each in (epochs_of_before, unmarked_stop, delete_what_moves, cut_what_moves)
}
