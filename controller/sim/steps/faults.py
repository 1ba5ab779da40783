"""The faults that a world may have. Each acts at once on what is there and says on whom."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from controller.sim.shape import TOPIC
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    SetData,
    ZkCode,
    ZkOp,
    ZkResult,
)
from controller.world.simulated.net import Latency
from controller.world.simulated.world import ZOOKEEPER
from controller.world.simulated.zk_session import SimulatedSession

#: What ZooKeeper may refuse.
REFUSED_PATHS: Final = (
    *("/brokers/topics/t/partitions/0/state", "/brokers/topics/t", "/brokers/ids", "/brokers/topics"),
    *("/brokers/topics/t/partitions/1/state", "/admin/reassign_partitions", "/config/topics/t"),
)
#: How long a fault that waits for a write waits.
WAITS_FOR_WRITES_S: Final = 15.0


def kill(turn: Turn) -> str:
    """SIGKILL; with power cuts in the world, sometimes the machine loses its power."""
    number = turn.one_of(turn.cluster.running())
    shape = turn.cluster.shape
    power = bool(shape and shape.power_cuts) and turn.chance.random() < 0.5
    if power:
        turn.cluster.on_power_lost(number)
    turn.cluster.kill(number, power=power)
    return turn.name(number) + (" (power cut)" if power else "")


def start(turn: Turn) -> str:
    """One that is down runs again."""
    cluster = turn.cluster
    down = [n for n in cluster.numbers() if n not in cluster.brokers and n not in cluster.controllers]
    number = turn.one_of(down)
    cluster.start_one(number)
    return turn.name(number)


def pause(turn: Turn) -> str:
    """SIGSTOP."""
    number = turn.one_of(turn.cluster.running())
    turn.cluster.pause(number)
    return turn.name(number)


def resume(turn: Turn) -> str:
    """SIGCONT."""
    number = turn.one_of(sorted(turn.cluster.paused))
    turn.cluster.resume(number)
    return turn.name(number)


def bounce(turn: Turn) -> str:
    """Killed and started at once: the session of the old life is still there."""
    number = turn.one_of(turn.cluster.running())
    turn.cluster.kill(number)
    turn.cluster.start_one(number)
    return turn.name(number)


def kill_many(turn: Turn) -> str:
    """All brokers, or all controllers, or everything, in one instant."""
    cluster = turn.cluster
    groups = [list(cluster.brokers), list(cluster.controllers), [*cluster.brokers, *cluster.controllers]]
    chosen = turn.one_of([sorted(group) for group in groups if group])
    for number in chosen:
        cluster.kill(number)
    return " ".join(map(turn.name, chosen))


def cut(turn: Turn) -> str:
    """Two machines, one of them perhaps ZooKeeper, do not reach each other."""
    one, other = turn.chance.sample([*turn.machines(), ZOOKEEPER], 2)
    turn.cluster.world.partition(one, other)
    return f"{one} {other}"


def cut_one_way(turn: Turn) -> str:
    """One machine does not hear another any more."""
    one, other = turn.pair()
    turn.cluster.world.partition(one, other, one_way=True)
    return f"{one} to {other}"


def cut_zookeeper(turn: Turn) -> str:
    """A machine and ZooKeeper."""
    name = turn.one_of(turn.machines())
    turn.cluster.world.partition(name, ZOOKEEPER)
    return name


def zombie(turn: Turn) -> str:
    """A leader is cut off from ZooKeeper and all controllers, perhaps from all brokers; clients still reach it."""
    cluster = turn.cluster
    leads = {(cluster.state(*tp) or {}).get("leader") for tp in cluster.partitions() if tp[0] == TOPIC}
    number = turn.one_of(sorted(set(cluster.brokers) & leads - cluster.paused))
    name, is_alone = turn.name(number), turn.chance.random() < 0.7
    far = cluster.numbers() if is_alone else cluster.controller_ids
    cut = [turn.name(other) for other in far if other != number]
    for other in (*cut, ZOOKEEPER):
        cluster.world.partition(name, other)
    for_s = turn.chance.choice((4.0, 10.0, 20.0))

    def end() -> None:
        for other in cut:
            cluster.world.network.heal(name, other)
        if number not in cluster.paused:
            cluster.world.zookeeper.heal(name)

    cluster.later(for_s, end)
    return f"{name} {'alone' if is_alone else 'with the other brokers'} for {for_s} s"


def lagging_follower(turn: Turn) -> str:
    """A broker hears all others late: it follows, and hardly keeps up."""
    cluster = turn.cluster
    number = turn.one_of(sorted(cluster.brokers))
    most_s = turn.chance.choice((0.3, 1.0, 2.0))
    for other in cluster.broker_ids:
        if other != number:
            latency = Latency(min_s=most_s / 2, max_s=most_s)
            cluster.world.network.set_latency(turn.name(other), turn.name(number), latency)
    return f"{turn.name(number)} up to {most_s} s"


def heal(turn: Turn) -> str:
    """No cut is left; what is paused stays deaf to ZooKeeper."""
    cluster = turn.cluster
    cluster.world.heal()
    cluster.world.zookeeper.slow(None)
    for number in sorted(cluster.paused):
        cluster.world.zookeeper.cut(turn.name(number))
    return "all cuts"


def kill_at_write(turn: Turn) -> str:
    """A program is killed at one of its next writes to ZooKeeper, which is done; its answer does not arrive."""
    cluster = turn.cluster
    number = turn.one_of(_preferably_active(turn))
    nth, again_s = turn.chance.choice((1, 1, 2, 3, 4, 6, 9)), turn.chance.choice((0.3, 4.0, 12.0))

    def die() -> None:
        cluster.kill(number)
        cluster.later(again_s, lambda: cluster.start_one(number))

    _at_write(turn, number, nth, die)
    return f"{turn.name(number)} at its write {nth}, back after {again_s} s"


def expire_at_write(turn: Turn) -> str:
    """ZooKeeper ends a program's session right after one of its next writes."""
    number = turn.one_of(_preferably_active(turn))
    server, name, nth = turn.cluster.world.zookeeper, turn.name(number), turn.chance.choice((1, 1, 2, 3, 5))
    _at_write(turn, number, nth, lambda: server.expire_sessions_of(name))
    return f"{name} at its write {nth}"


def _preferably_active(turn: Turn) -> list[int]:
    """Who is in office, or else anybody who runs."""
    active = turn.cluster.active_controller()
    if active in turn.cluster.controllers and active is not None and turn.chance.random() < 0.7:
        return [active]
    return turn.cluster.running()


def _at_write(turn: Turn, number: int, nth: int, action: Callable[[], None]) -> None:
    """Does it right after the n-th write of this program from now on, before its answer; gives up after a while, or
    when everything is mended."""
    server, name, left = turn.cluster.world.zookeeper, turn.name(number), [nth]

    def operation(session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        if session.machine == name and result.ok and isinstance(op, Multi | SetData | Create | Delete) and left[0] > 0:
            left[0] -= 1
            if left[0] == 0:
                turn.cluster.later(0.0, action)

    def give_up() -> None:
        left[0] = 0

    server.on_operation.append(operation)
    turn.cluster.armed.append(give_up)
    turn.cluster.later(WAITS_FOR_WRITES_S, lambda: server.on_operation.remove(operation))


def expire(turn: Turn) -> str:
    """ZooKeeper ends a session."""
    sessions = turn.cluster.world.zookeeper.sessions
    session = turn.one_of(sorted(sessions))
    turn.cluster.world.zookeeper.expire_session(session)
    return sessions[session]


def disconnect(turn: Turn) -> str:
    """A session's connection breaks with all that is under way."""
    sessions = turn.cluster.world.zookeeper.sessions
    session = turn.one_of(sorted(sessions))
    turn.cluster.world.zookeeper.disconnect(session)
    return sessions[session]


def drop_connections(turn: Turn) -> str:
    """Both ends see a reset."""
    one, other = turn.pair()
    turn.cluster.world.network.drop_connections(one, other)
    return f"{one} {other}"


def slow_link(turn: Turn) -> str:
    """Up to a second each way."""
    one, other = turn.pair()
    turn.cluster.world.network.set_latency(one, other, Latency(min_s=0.05, max_s=1.0))
    return f"{one} {other}"


def slow_zookeeper(turn: Turn) -> str:
    """Each message to and from ZooKeeper takes long."""
    most_s = turn.chance.choice((0.05, 0.3, 1.0))
    turn.cluster.world.zookeeper.slow(Latency(min_s=0.01, max_s=most_s))
    return f"up to {most_s} s"


def lossy_zookeeper(turn: Turn) -> str:
    """Connections end before an operation is done, or before its answer: the outcome is unknown."""
    turn.cluster.world.zookeeper.link_loss = turn.chance.choice((0.02, 0.1))
    return f"{turn.cluster.world.zookeeper.link_loss:.0%} of messages"


def stop_zookeeper(turn: Turn) -> str:
    """ZooKeeper is away for a while."""
    server, for_s = turn.cluster.world.zookeeper, turn.chance.choice((0.5, 3.0, 10.0))
    server.stop()
    turn.cluster.later(for_s, server.start)
    return f"for {for_s} s"


def refuse(turn: Turn) -> str:
    """ZooKeeper refuses some operations for a while: those on a path, of a kind."""
    cluster, tree = turn.cluster, turn.cluster.world.zookeeper.tree
    path = turn.chance.choice(REFUSED_PATHS)
    kinds: tuple[type, ...] = turn.chance.choice(((SetData, Multi), (GetData,), (GetChildren,), (Create, Delete)))
    code = turn.chance.choice((ZkCode.NO_AUTH, ZkCode.OTHER))
    for_s = turn.chance.choice((1.0, 5.0))

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        if not isinstance(op, kinds):
            return None
        paths = [part.path for part in op.ops] if isinstance(op, Multi) else [op.path]
        return code if path in paths else None

    tree.refusal = refusal
    cluster.later(for_s, lambda: setattr(tree, "refusal", lambda _: None))
    return f"{'/'.join(kind.__name__ for kind in kinds)} of {path} with {code.name} for {for_s} s"


def clock_jump(turn: Turn) -> str:
    """A machine's clock is set."""
    shape = turn.cluster.shape
    most = shape.clock_skew_max_ms if shape else 0
    if not most:
        raise NothingThere
    number = turn.one_of(turn.cluster.numbers())
    skew_ms = turn.chance.randint(-most, most)
    turn.cluster.machine(number).clock.skew_ms = skew_ms
    return f"{turn.name(number)} by {skew_ms} ms"


def fail_log_dir(turn: Turn) -> str:
    """The disk of a log dir fails, or is full, until the broker starts again."""
    cluster = turn.cluster
    number = turn.one_of(sorted(set(cluster.brokers) & set(cluster.disks)))
    chosen, code = turn.one_of(cluster.log_dirs(number)), turn.chance.choice((errno.EIO, errno.ENOSPC))
    cluster.disks[number].failing[chosen] = code
    cluster.disks_failed.add(number)
    return f"{chosen.name} with {errno.errorcode[code]}"


def quiet(turn: Turn) -> str:
    """Nothing for a while, so that faults of calm show."""
    del turn
    return ""


FAULTS: Final[dict[str, Callable[[Turn], str]]] = {
    each.__name__: each
    for each in (
        *(kill, start, pause, resume, bounce, kill_many, cut, cut_one_way, cut_zookeeper, zombie, heal, expire),
        *(
            disconnect,
            drop_connections,
            slow_link,
            lagging_follower,
            slow_zookeeper,
            lossy_zookeeper,
            stop_zookeeper,
            refuse,
            clock_jump,
        ),
        *(fail_log_dir, kill_at_write, expire_at_write, quiet),
    )
}
