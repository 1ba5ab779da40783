"""Operations of which the trouble is a part: asked for while somebody is away, stands still, or is refused.

Each brings two things together that by themselves seldom meet; what is asked for, and of whom, is drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from controller.sim.shape import SIDE_TOPICS, TOPIC
from controller.sim.steps.operations import (
    alter_configs,
    alter_topic_config,
    create_topic,
    delete_topic,
    elect,
    grow_topic,
    reassign,
    reassign_many,
    recreate_topic,
)
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey

_Operation = Callable[[Turn], Coroutine[Any, Any, str]]
#: What is asked for in the middle of trouble.
ASKED: Final[tuple[_Operation, ...]] = (
    *(create_topic, create_topic, delete_topic, recreate_topic, grow_topic),
    *(reassign, reassign_many, elect, alter_topic_config),
)
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
#: How long a refusal waits for the operation that it is meant for.
WAITS_S: Final = 6.0


def who_serves(turn: Turn) -> int:
    """Whoever is in office, and runs. Raises NothingThere."""
    active = turn.cluster.active_controller()
    if active is None or active not in turn.cluster.controllers or active in turn.cluster.paused:
        raise NothingThere
    return active


def _brokers_that_run(turn: Turn) -> list[int]:
    return sorted(set(turn.cluster.brokers) - turn.cluster.paused)


def lose(turn: Turn, number: int) -> None:
    """A broker dies, and its session ends in the same instant."""
    turn.cluster.kill(number)
    turn.cluster.world.zookeeper.expire_sessions_of(turn.name(number))


async def unseen(turn: Turn) -> str:
    """Whoever is in office stands still while much happens, and then hears of all of it at once."""
    cluster, number = turn.cluster, who_serves(turn)
    cluster.machine(number).suspend()
    lag_s = int(cluster.settings["replica.lag.time.max.ms"]) / 1000
    what, asked = [], list[asyncio.Task[str]]()
    for _ in range(turn.chance.choice((2, 3, 4))):
        running, kind = _brokers_that_run(turn), turn.chance.random()
        if kind < 0.5 and running:
            lost = turn.chance.choice(running)
            lose(turn, lost)
            what.append(f"without {lost}")
            if turn.chance.random() < 0.3:
                cluster.start_one(lost)
                what.append(f"{lost} again")
        elif kind < 0.7 and running:
            slow = turn.chance.choice(running)
            cluster.machine(slow).suspend()
            cluster.later(lag_s + 1.2, lambda slow=slow: _go_on(turn, slow))  # type: ignore[misc]  # bound at once
            what.append(f"{slow} stands still")
        else:
            ask = turn.chance.choice(ASKED)
            asked.append(asyncio.ensure_future(ask(turn)))
            what.append(ask.__name__)
        await cluster.world.sleep(turn.chance.choice((0.0, 0.3, lag_s + 0.7)))
    _go_on(turn, number)
    await asyncio.gather(*asked, return_exceptions=True)
    return f"{turn.name(number)} does not see: {', '.join(what)}"


def _go_on(turn: Turn, number: int) -> None:
    if number in turn.cluster.running():  # who was killed meanwhile must stay dead
        turn.cluster.machine(number).go_on()


async def backlog(turn: Turn) -> str:
    """A broker stands still, its session lives: what it is sent waits, and reaches it all at once."""
    number = turn.one_of(_brokers_that_run(turn))
    turn.cluster.machine(number).suspend()
    what = []
    for _ in range(turn.chance.choice((4, 6, 8))):
        ask = turn.chance.choice((create_topic, delete_topic, recreate_topic, reassign, reassign_many, elect))
        with_limit = asyncio.wait_for(ask(turn), 1.5)
        await asyncio.gather(with_limit, return_exceptions=True)
        what.append(ask.__name__)
    _go_on(turn, number)
    return f"{turn.name(number)} stands still: {', '.join(what)}"


async def without_a_broker(turn: Turn) -> str:
    """A broker is gone for good, as far as anybody knows; things are asked for meanwhile; then it comes back."""
    number = turn.one_of(_brokers_that_run(turn))
    lose(turn, number)
    await turn.cluster.world.sleep(0.3)
    what = []
    for _ in range(turn.chance.choice((1, 2, 3))):
        ask = turn.chance.choice(ASKED)
        what.append(f"{ask.__name__} {await ask(turn)}")
    await turn.cluster.world.sleep(turn.chance.choice((0.2, 3.0)))
    turn.cluster.start_one(number)
    return f"without {turn.name(number)}: {'; '.join(what)}"


async def move_and_cancel(turn: Turn) -> str:
    """A move to somebody who is not there, and its end: the replicas are again those of before."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.partitions() if tp[0] == TOPIC])
    before = cluster.assignment(topic, partition)
    others = [b for b in cluster.broker_ids if b not in before]
    if not others:
        raise NothingThere
    added = turn.chance.sample(others, min(len(others), turn.chance.choice((1, 2))))
    away = [b for b in added if b in cluster.brokers and b not in cluster.paused]
    for number in away:
        lose(turn, number)
    kept = turn.chance.sample(before, turn.chance.randint(0, len(before) - 1))
    try:
        return f"{topic}-{partition} {before}: {await _there_and_back(turn, topic, partition, [*added, *kept])}"
    finally:
        for number in away:
            cluster.start_one(number)


async def _there_and_back(turn: Turn, topic: str, partition: int, target: list[int]) -> str:
    cluster = turn.cluster
    before, mark = cluster.assignment(topic, partition), cluster.moves_of_others
    row = {"partition_index": partition, "replicas": target}
    went = await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _moves(topic, row), counts=False)
    await cluster.world.sleep(turn.chance.choice((0.5, 2.0)))
    content = cluster.znode(f"/brokers/topics/{topic}") or {}
    during = (content.get("partitions") or {}).get(str(partition), before)
    adding = (content.get("adding_replicas") or {}).get(str(partition)) or []
    active = cluster.active_controller()
    if active is None or not adding:
        return f"to {target}: {went}, nothing to cancel"
    try:
        answer = await cluster.call(
            active, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _moves(topic, row | {"replicas": None})
        )
    except OSError as error:
        return f"to {target}: {went}, cancelled: {type(error).__name__}"
    code = answer.error_code or answer.responses[0].partitions[0].error_code
    now = cluster.assignment(topic, partition)
    origin = [replica for replica in during if replica not in adding]
    if code == 0 and cluster.moves_of_others == mark and now != origin:
        cluster.contradictions.append(f"a cancelled move of {topic}-{partition} from {origin} left {now}")
    return f"to {target}: {went}, cancelled: {code}"


def _moves(topic: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"timeout": 5_000, "topics": [{"name": topic, "partitions": [row]}]}


async def across_offices(turn: Turn) -> str:
    """A move or a deletion that cannot end, since a broker is gone or stands still; then nobody is in office."""
    cluster = turn.cluster
    number, (topic, partition) = turn.one_of(_brokers_that_run(turn)), turn.one_of(cluster.partitions())
    is_gone = turn.chance.random() < 0.5
    if is_gone:
        lose(turn, number)
        await cluster.world.sleep(0.3)
    else:
        cluster.machine(number).suspend()
    if topic in SIDE_TOPICS and turn.chance.random() < 0.6:
        body = {"topic_names": [topic], "timeout": 100}
        what = f"{topic} deleted: {await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, body)}"
    else:
        others = [broker for broker in turn.replicas(3) if broker != number]
        row = {"partition_index": partition, "replicas": [number, *others]}
        went = await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _moves(topic, row))
        what = f"{topic}-{partition} to {row['replicas']}: {went}"
    offices = sorted(set(cluster.controllers) - cluster.paused)
    for office in offices:
        lose(turn, office)

    def broker() -> None:
        cluster.start_one(number) if is_gone else _go_on(turn, number)

    def controllers() -> None:
        for office in offices:
            cluster.start_one(office)

    first, second = turn.chance.sample((broker, controllers), 2)
    first()
    await cluster.world.sleep(turn.chance.choice((0.5, 1.0, 3.0)))
    second()
    return f"without {turn.name(number)} {what}; back: {first.__name__}, {second.__name__}"


async def throttled_move(turn: Turn) -> str:
    """A move under a throttle of both ends, so low that it takes effect at once; the throttle ends before the world."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.partitions() if tp[0] == TOPIC])
    before = cluster.assignment(topic, partition)
    target = turn.one_of([b for b in _brokers_that_run(turn) if b not in before])
    rate = turn.chance.choice(("50", "300", "2000"))
    await _throttle(turn, rate)
    row = {"partition_index": partition, "replicas": [*before[:-1], target]}
    went = await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _moves(topic, row))
    await cluster.world.sleep(turn.chance.choice((2.0, 8.0)))
    for _ in range(60):  # a throttle that stays would let no move end
        if await _throttle(turn, None):
            break
        await cluster.world.sleep(1.0)
    return f"{topic}-{partition} from {before} to {row['replicas']} at {rate} B/s: {went}"


async def _throttle(turn: Turn, rate: str | None) -> bool:
    """Sets the throttle of all brokers and of the main topic, or ends it; whether everybody who was asked answered."""
    operation, cluster = 0 if rate is not None else 1, turn.cluster
    went = [await alter_configs(turn, 2, TOPIC, dict.fromkeys(THROTTLED, "*"), operation)]
    for number in _brokers_that_run(turn):  # each broker takes its own
        went.append(await alter_configs(turn, 4, str(number), dict.fromkeys(RATES, rate or ""), operation, to=number))
    return len(went) == len(cluster.broker_ids) + 1 and set(went) == {"answered"}


COMBINED: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each for each in (unseen, backlog, without_a_broker, move_and_cancel, throttled_move, across_offices)
}
