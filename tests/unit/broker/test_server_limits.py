"""Floods, slow peers and too many bytes: who is refused, who waits, and that the others are served."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim.broker import StartRefused
from broker_sim.connection_quotas import ConnectionQuotas, ConnectionRate, NoConnection
from broker_sim.faults.board import FaultBoard
from broker_sim.server import Api, Call, SocketServer
from broker_sim.server_limits import UNLIMITED, ListenerLimits, RequestMemory, ServerLimits
from controller.wire import log_events as ev
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey, encode_request
from controller.wire.types import BrokerId
from controller.world.simulated.net import MachineNetwork
from controller.world.simulated.world import World, run_world

ASK = encode_request(ApiKey.API_VERSIONS, 0, 1, None, {})


async def connect(cluster: Any, machine: str = "client") -> Any:
    endpoint = cluster.brokers[1].endpoint
    return await cluster.world.machine(machine).network.connect(endpoint.host, endpoint.port)


async def is_served(connection: Any) -> bool:
    connection.send(ASK)
    frames = FrameBuffer()
    while data := await connection.recv():
        if list(frames.feed(data)):
            return True
    return False


def reasons(lines: list[Any]) -> list[str]:
    return [line["reason"] for line in lines if line["event"] == ev.CONNECTION_CLOSED]


def test_connections_above_the_limit_wait_and_more_than_a_backlog_are_closed(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, max_connections=3)
        kept = [await connect(cluster) for _ in range(3)]
        assert all([await is_served(one) for one in kept])
        with capture_logs() as lines:
            waiting, *others = [await connect(cluster) for _ in range(60)]
            asked = asyncio.ensure_future(is_served(waiting))
            assert not any([await one.recv() for one in others[49:]])
        assert reasons(lines) == ["max.connections 3 reached and 50 connections wait"] * 10
        assert all([await is_served(one) for one in kept])
        assert not asked.done()
        kept.pop().close()
        assert await asked, "the one that has waited longest"

    in_memory(scenario)


def test_a_lowered_limit_closes_those_that_were_silent_longest(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        first, second, third = [await connect(cluster, "one") for _ in range(3)]
        for one in (second, first, third):
            assert await is_served(one)
        with capture_logs() as lines:
            await alter(cluster, "max.connections", "3")
        assert not await second.recv()
        assert reasons(lines) == ["max.connections 3 exceeded; silent longest"]
        assert all([await is_served(one) for one in (first, third)])

    in_memory(scenario)


#: what, who connects or asks (capitals: other brokers) or `-` goes, and how many the broker takes from now on, which is
#: 9 in the beginning -> whose connections are there in the end
EXCESS = [
    ("who was silent longest goes", "a b c a =2", "ac"),
    ("once more", "a b c d =3 =2", "cd"),
    ("and for the third time, after others came", "a b c =2 =9 d =2 =9 e f =3", "def"),
    ("who went by itself is not closed in another's place", "a b c d -a =2", "cd"),
    ("nor is one that went", "a b c =2 -b d e =1", "e"),
    ("each broker that comes takes a place", "=3 a b c A B", "cAB"),
    ("of clients that came later, too", "=2 a b A -A c B -B d C", "dC"),
    ("no broker's", "a A b B =2 =1", "AB"),
    ("as many as there are", "a A B =1 =9 b c =3", "ABc"),
    ("no more, however often limits change", "a b c d e f =4=4=4", "cdef"),
    ("nor fewer", "a b c d e f =5=3", "def"),
]


@pytest.mark.parametrize(("_", "steps", "left"), EXCESS, ids=[row[0] for row in EXCESS])
def test_each_time_that_there_are_too_many_connections_so_many_are_closed(_: str, steps: str, left: str) -> None:
    async def play(world: World) -> None:
        async def answer(_: Call) -> dict[str, Any]:
            return {}

        machine, log = world.machine("broker"), structlog.get_logger()
        faults = FaultBoard(BrokerId(1), world.chance, clock=machine.clock, log=log)
        apis = {ApiKey.API_VERSIONS: Api(handle=answer, versions=(0, 0))}
        server = SocketServer(apis, limits=ServerLimits(max_connections=9), faults=faults, log=log)
        server.protect("IN")
        for listener, port in (("EX", 1), ("IN", 2)):
            await server.listen(machine.network, "broker", port, listener=listener)
        server.serve_requests()
        peers: dict[str, Any] = {}
        for step in steps.split():
            if step[0] == "=":
                for most in step[1:].split("="):  # in one moment: those that are being closed are still there
                    server.reconfigure({"max.connections": most})
            elif step[0] == "-":
                peers.pop(step[1]).close()
            else:
                if step not in peers:
                    peers[step] = await world.machine("peer").network.connect("broker", 2 if step.isupper() else 1)
                assert await is_served(peers[step])
            await world.sleep(1)
        assert {name for name, peer in peers.items() if await is_served(peer)} == set(left)
        await server.close()

    run_world(7, play)


async def alter(cluster: Any, name: str, value: str) -> None:
    configs = [{"name": name, "config_operation": 0, "value": value}]
    body = {"resources": [{"resource_type": 4, "resource_name": "", "configs": configs}]}
    answer = await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
    assert answer.responses[0].error_code == 0
    await cluster.world.sleep(1)


def test_one_address_cannot_take_the_places_of_the_others(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, max_connections_per_ip=2)
        first = [await connect(cluster, "one") for _ in range(2)]
        assert all([await is_served(one) for one in first])
        with capture_logs() as lines:
            assert not await (await connect(cluster, "one")).recv()
        assert "max.connections.per.ip 2 reached" in reasons(lines)[0]
        assert await is_served(await connect(cluster, "two"))

    in_memory(scenario)


@pytest.mark.parametrize("when", ["at its start", "while it runs"])
def test_a_limit_is_that_of_the_address_which_a_name_stands_for(
    in_memory: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A name that stands for none is refused, as in Kafka: at a start with it, and later what was in force stays."""

    def address_of(self: MachineNetwork, host: str) -> str:
        if host not in ("pc", "two"):
            raise OSError(f"{host!r} has no address")
        return host.replace("pc", "one")

    monkeypatch.setattr(MachineNetwork, "address_of", address_of)
    name, limits = "max.connections.per.ip.overrides", "pc:1,two:0"

    async def scenario(cluster: Any) -> None:
        if when == "at its start":
            with pytest.raises(StartRefused, match="'x' has no address"):
                await cluster.in_broker(1, cluster.make(1, max_connections_per_ip_overrides="x:1").start())
            await cluster.start(1, max_connections_per_ip_overrides=limits)
        else:
            await cluster.start(1)
            await alter(cluster, name, limits)
            with capture_logs() as lines:
                await alter(cluster, name, "x:1")
            assert [line["reason"] for line in lines if line["event"] == ev.CONFIG_REFUSED] == ["'x' has no address"]
        assert await is_served(await connect(cluster, "one"))
        for host in ("one", "two"):
            assert not await (await connect(cluster, host)).recv(), host
        assert await is_served(await connect(cluster, "three"))

    in_memory(scenario)


def test_limits_change_while_the_broker_runs(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        kept = [await connect(cluster, "one") for _ in range(3)]
        assert all([await is_served(one) for one in kept])
        await alter(cluster, "max.connections.per.ip", "2")
        assert not await (await connect(cluster, "one")).recv()
        assert all([await is_served(one) for one in kept])
        await alter(cluster, "max.connections.per.ip", "9")
        assert await is_served(await connect(cluster, "one"))

    in_memory(scenario)


def test_a_peer_that_says_nothing_is_cut_off_and_one_that_trickles_is_not(in_memory: Any) -> None:
    """Every byte counts as activity, as in Kafka; what trickles in is held by nobody but its own connection."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, connections_max_idle_ms=5000)
        silent, slow = await connect(cluster), await connect(cluster)
        with capture_logs() as lines:
            for byte in ASK[:-1]:
                slow.send(bytes([byte]))
                await cluster.world.sleep(3)
            assert await silent.recv() == b""
        assert reasons(lines) == ["idle for connections.max.idle.ms 5000"]
        slow.send(ASK[-1:])
        assert await slow.recv()

    in_memory(scenario)


def test_requests_wait_for_memory_and_then_are_served(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        room = {"queued_max_request_bytes": 5000, "socket_request_max_bytes": 5000}
        await cluster.start(1, **room, connections_max_idle_ms=60_000)
        greedy = await connect(cluster)
        greedy.send(struct.pack(">i", 5000) + b"\x00" * 100)
        await cluster.world.sleep(1)
        others = [asyncio.ensure_future(is_served(await connect(cluster))) for _ in range(5)]
        await cluster.world.sleep(5)
        assert not any(one.done() for one in others)
        greedy.close()
        assert all(await asyncio.gather(*others))
        assert cluster.brokers[1].server.memory.used == 0

    in_memory(scenario)


@pytest.mark.parametrize("limit", [-1, 0])
def test_without_a_limit_of_memory_nobody_waits(in_memory: Any, limit: int) -> None:
    """Source: Kafka 3.9 `SocketServer.memoryPool`, which is none unless `queued.max.request.bytes` is positive."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, queued_max_request_bytes=limit)
        slow = await connect(cluster)
        slow.send(struct.pack(">i", 5000) + b"\x00" * 100)
        await cluster.world.sleep(1)
        asked = asyncio.ensure_future(is_served(await connect(cluster)))
        await cluster.world.sleep(1)
        assert asked.done() and asked.result()
        assert cluster.brokers[1].server.memory.limit == -1, "as its gauges take it"

    in_memory(scenario)


def test_a_request_above_the_limit_of_memory_is_served_alone(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        broker.server.memory = RequestMemory(1)
        assert await is_served(await connect(cluster))
        assert await is_served(await connect(cluster))

    in_memory(scenario)


async def take(memory: RequestMemory, size: int) -> int:
    """As a server does."""
    return memory.take_at_once(size) or await memory.take(size)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 60), st.data())
def test_memory_is_never_above_its_limit_but_for_one_request_and_all_is_given_back(
    sizes: list[int], limit: int, data: Any
) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    given_up = data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=5))

    async def play() -> None:
        memory = RequestMemory(limit)
        tasks = [asyncio.ensure_future(take(memory, size)) for size in sizes]
        await asyncio.sleep(0)
        for number in given_up:
            tasks[number].cancel()
        held: set[int] = set()
        for _ in range(len(sizes) + 1):
            await asyncio.sleep(0)
            now = {n for n, task in enumerate(tasks) if task.done() and not task.cancelled()}
            assert memory.used == sum(sizes[n] for n in now - held)
            assert memory.used < limit + max(sizes)
            for number in order:
                if number in now and number not in held:
                    memory.give(sizes[number])
                    held.add(number)
                    break
        for _ in range(len(sizes) + 1):
            await asyncio.sleep(0)
            for number, task in enumerate(tasks):
                if task.done() and not task.cancelled() and number not in held:
                    memory.give(sizes[number])
                    held.add(number)
        assert memory.used == 0
        assert all(task.done() for task in tasks)

    asyncio.run(play())


def test_room_that_one_large_request_leaves_is_for_all_that_fit_and_in_their_order() -> None:
    """Source: Kafka 3.9 `Selector.pollSelectionKeys`, which reads from all again once the pool has memory."""

    async def play() -> None:
        memory, served = RequestMemory(5), list[int]()

        async def wait(number: int) -> None:
            await memory.take(2)
            served.append(number)

        held = memory.take_at_once(50)
        waiting = [asyncio.ensure_future(wait(number)) for number in range(5)]
        await asyncio.sleep(0)
        memory.give(held)
        for _ in range(5):
            await asyncio.sleep(0)
        assert served == [0, 1, 2] and memory.used == 6, "as always: until it is full"
        memory.give(2)
        await waiting[3]
        assert not waiting[4].done()
        memory.give(2)
        await waiting[4]

    asyncio.run(play())


def test_a_request_that_waits_for_long_keeps_no_others_out_of_memory_that_is_free(in_memory: Any) -> None:
    """Three come while a large request is read; the first of them then waits for records."""
    wait = {"replica_id": -1, "max_wait": 30_000, "min_bytes": 1, "max_bytes": 100, "isolation_level": 0}
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}
    fetch = encode_request(ApiKey.FETCH, 4, 1, None, {**wait, "topics": [{"topic": "t", "partitions": [partition]}]})

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, queued_max_request_bytes=2_000, socket_request_max_bytes=2_000)
        await cluster.create_topic("t", [(1,)])
        large, consumer, *others = [await connect(cluster) for _ in range(4)]
        large.send(struct.pack(">i", 2_000))
        await cluster.world.sleep(1)
        consumer.send(fetch)
        await cluster.world.sleep(1)
        asked = [asyncio.ensure_future(is_served(one)) for one in others]
        await cluster.world.sleep(1)
        assert not any(task.done() for task in asked), "there is no room"
        large.close()
        await cluster.world.sleep(1)
        assert [task.done() and task.result() for task in asked] == [True, True]

    in_memory(scenario)


def test_who_gives_up_waiting_for_memory_when_its_turn_has_come_passes_it_on() -> None:
    async def play() -> None:
        memory = RequestMemory(1)
        held = memory.take_at_once(1)
        waiting = [asyncio.ensure_future(memory.take(1)) for _ in range(3)]
        await asyncio.sleep(0)
        memory.give(held)
        waiting[0].cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True, True, False] and memory.used == 1
        memory.give(1)
        assert await waiting[2] == 1

    asyncio.run(play())


RATES = [
    ("a burst of a second passes", 10, [0.0] * 10, [0.0] * 10),
    ("then one each tenth", 10, [0.0] * 13, [0.0] * 10 + [0.1, 0.2, 0.3]),
    ("a pause fills it again", 2, [0.0, 0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 0.5, 0.0, 0.0]),
    ("no limit", UNLIMITED, [0.0] * 100, [0.0] * 100),
]


@pytest.mark.parametrize(("_", "rate", "times", "delays"), RATES, ids=[row[0] for row in RATES])
def test_the_rate_of_new_connections(_: str, rate: int, times: list[float], delays: list[float]) -> None:
    counted = ConnectionRate()
    assert [counted.delay_s(at, rate) for at in times] == pytest.approx(delays)


# -- slots, as Kafka's ConnectionQuotas gives them ---------------------------------------------------------------------


def quotas(**limits: Any) -> ConnectionQuotas:
    made = ConnectionQuotas(ServerLimits(**limits))
    made.protect("IN")
    return made


async def entered(made: ConnectionQuotas, listener: str, host: str = "h") -> str:
    """`yes`, `waits`, or why not."""
    task = asyncio.ensure_future(made.enter(listener, host))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return "waits"
    error = task.exception()
    return "yes" if error is None else str(error)


TWO_EACH = {"EX": ListenerLimits(max_connections=2), "IN": ListenerLimits(max_connections=2)}
#: what, limits, listeners in the order in which peers come, how each fares, connections too many in the end
SLOTS: list[tuple[str, dict[str, Any], str, list[str], int]] = [
    ("the broker's limit holds for clients", {"max_connections": 2}, "EX EX EX", ["yes", "yes", "waits"], 0),
    ("the protected one goes above it", {"max_connections": 2}, "EX EX IN", ["yes"] * 3, 1),
    ("and has as many as the broker may", {"max_connections": 2}, "IN IN IN", ["yes", "yes", "waits"], 0),
    ("a listener's own limit", {"listeners": TWO_EACH}, "EX EX EX IN", ["yes", "yes", "waits", "yes"], 0),
    ("of the protected one, too", {"listeners": TWO_EACH}, "IN IN IN EX", ["yes", "yes", "waits", "yes"], 0),
    (
        "both limits count",
        {"listeners": TWO_EACH, "max_connections": 3},
        "IN IN EX EX OTHER",
        ["yes", "yes", "yes", "waits", "waits"],
        0,
    ),
    (
        "a listener may have more than the others",
        {"listeners": {"EX": ListenerLimits(max_connections=1)}, "max_connections": 3},
        "EX EX OTHER OTHER OTHER",
        ["yes", "waits", "yes", "yes", "waits"],
        0,
    ),
    (  # what Kafka 3.9.1 did with these settings: it served 2 of EX, then 5 of IN, and closed both of EX for them
        "the protected one fills the broker",
        {"listeners": {"EX": ListenerLimits(max_connections=2)}, "max_connections": 5},
        "EX EX EX IN IN IN IN IN IN",
        ["yes", "yes", "waits", "yes", "yes", "yes", "yes", "yes", "waits"],
        2,
    ),
    ("nobody waits without a backlog", {"max_connections": 1, "backlog": 0}, "EX EX",
     ["yes", "max.connections 1 reached and 0 connections wait"], 0),
    ("the listener's limit is named", {"listeners": TWO_EACH, "backlog": 0}, "EX EX EX",
     ["yes", "yes", "listener.name.ex.max.connections 2 reached and 0 connections wait"], 0),
    ("addresses have theirs", {"max_connections_per_ip": 1}, "EX EX", ["yes", "max.connections.per.ip 1 reached by h"],
     0),
]  # fmt: skip


@pytest.mark.parametrize(("_", "limits", "peers", "expected", "excess"), SLOTS, ids=[row[0] for row in SLOTS])
def test_who_gets_a_slot(_: str, limits: dict[str, Any], peers: str, expected: list[str], excess: int) -> None:
    async def play() -> None:
        made = quotas(**limits)
        assert [await entered(made, listener) for listener in peers.split()] == expected
        assert made.excess == excess

    asyncio.run(play())


def test_slots_are_given_in_order_and_each_listener_has_its_queue() -> None:
    async def play() -> None:
        made = quotas(listeners=TWO_EACH)
        for _ in range(2):
            await made.enter("EX", "h")
        first, given_up, second = (asyncio.ensure_future(made.enter("EX", "h")) for _ in range(3))
        await asyncio.sleep(0)
        given_up.cancel()
        made.leave("EX", "h")
        await asyncio.gather(first, given_up, return_exceptions=True)
        assert (first.done(), second.done()) == (True, False)
        made.change(ServerLimits(listeners={"EX": ListenerLimits(max_connections=3)}))
        await asyncio.wait({second}, timeout=5)
        assert second.done(), "a raised limit is for those that wait, too"
        for _ in range(3):
            made.leave("EX", "h")
        assert await entered(made, "EX") == "yes"

    asyncio.run(play())


def test_who_gives_up_when_its_slot_has_come_passes_it_on() -> None:
    async def play() -> None:
        made = quotas(max_connections=1)
        await made.enter("EX", "h")
        first, second = (asyncio.ensure_future(made.enter("EX", "h")) for _ in range(2))
        await asyncio.sleep(0)
        made.leave("EX", "h")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.wait_for(second, 5)
        assert await entered(made, "EX") == "waits", "the second has the one slot"

    asyncio.run(play())


#: Peers come (listener, host), the n-th of those that came goes, or the broker takes so many connections from now on.
COMES = st.tuples(st.sampled_from(["EX", "IN", "OTHER"]), st.sampled_from("ab"))
TAKES = st.fixed_dictionaries({"max_connections": st.integers(0, 4), "max_connections_per_ip": st.integers(1, 3)})
QUOTA_STEPS = st.lists(COMES | st.integers(0, 5) | TAKES, max_size=40)


@given(QUOTA_STEPS)
def test_whatever_comes_and_goes_a_slot_is_held_by_each_that_is_in_and_by_nobody_else(steps: list[Any]) -> None:
    async def play() -> None:
        fixed: dict[str, Any] = {"listeners": TWO_EACH, "backlog": 2}
        limits = {"max_connections": 2, "max_connections_per_ip": 2}
        made = quotas(**fixed, **limits)
        peers: list[tuple[str, str, asyncio.Future[None]]] = []

        def is_in(task: asyncio.Future[None]) -> bool:
            return task.done() and not task.cancelled() and task.exception() is None

        for step in steps:
            before = Counter(host for _, host, task in peers if is_in(task))
            match step:
                case (listener, host):
                    peers.append((listener, host, asyncio.ensure_future(made.enter(listener, host))))
                case int() if step < len(peers):
                    listener, host, task = peers.pop(step)
                    # It gives up, be it at the moment at which its slot comes.
                    if is_in(task):
                        made.leave(listener, host)
                        before[host] -= 1
                    task.cancel()
                case dict():
                    limits = step
                    made.change(ServerLimits(**fixed, **limits))
            for _ in range(4):
                await asyncio.sleep(0)
            inside = Counter(listener for listener, _, task in peers if is_in(task))
            most, of_one = limits["max_connections"], limits["max_connections_per_ip"]
            assert made.excess == max(0, inside.total() - most)
            waiting = {listener for listener, _, task in peers if not task.done()}
            room = {name for name in waiting if inside[name] < (2 if name in TWO_EACH else most)}
            assert not {name for name in room if name == "IN" or inside.total() < most}, "who waits has no room"
            hosts = Counter(host for _, host, task in peers if is_in(task))
            assert all(hosts[host] <= of_one for host in hosts - before), "who came is one too many of its address"
        made.change(ServerLimits(max_connections=0, backlog=0))
        assert made.excess == sum(is_in(task) for *_, task in peers)
        for *_, task in peers:
            task.cancel()
        await asyncio.gather(*(task for *_, task in peers), return_exceptions=True)

    asyncio.run(play())


#: what, addresses of the peers in the order in which they come (the broker takes two), what happens then (one goes, or
#: an address may have so many), how each of the others fares
WAITED: list[tuple[str, str, list[str | int], dict[str, str]]] = [
    ("places come free", "a b c1 c2 c3", ["a", "b"], {"c1": "yes", "c2": "no", "c3": "no"}),
    ("those of another have a place each", "a b c1 d c2", ["a", "b"], {"c1": "yes", "d": "yes", "c2": "waits"}),
    ("who is refused passes its place on", "a b c1 c2 d", ["a", "b"], {"c1": "yes", "c2": "no", "d": "yes"}),
    ("its own place comes free", "a1 b a2", ["a1"], {"b": "yes", "a2": "yes"}),
    ("another's place comes free", "a1 b a2", ["b"], {"a1": "yes", "a2": "no"}),
    ("it may have more by then", "a b c1 c2 c3", [2, "a", "b"], {"c1": "yes", "c2": "yes", "c3": "waits"}),
    ("it may have none by then", "a b c1", [0, "a"], {"b": "yes", "c1": "no"}),
]


@pytest.mark.parametrize(("_", "peers", "steps", "expected"), WAITED, ids=[row[0] for row in WAITED])
def test_an_address_is_counted_when_the_wait_is_over(
    _: str, peers: str, steps: list[str | int], expected: dict[str, str]
) -> None:
    """Not before: what it had then may have gone, and of several that waited each looks at the others.

    Source: Kafka 3.9 `ConnectionQuotas.inc`, which waits for a slot first.
    """

    async def play() -> None:
        made = ConnectionQuotas(ServerLimits(max_connections=2, max_connections_per_ip=1))
        tasks = {}
        for peer in peers.split():
            tasks[peer] = asyncio.ensure_future(made.enter("EX", peer[0]))
            await asyncio.sleep(0)
        for step in steps:
            if isinstance(step, int):
                made.change(ServerLimits(max_connections=2, max_connections_per_ip=step))
            else:
                await tasks.pop(step)
                made.leave("EX", step[0])
            for _ in peers:
                await asyncio.sleep(0)
        fates = {
            peer: "waits" if not task.done() else "no" if task.exception() else "yes" for peer, task in tasks.items()
        }
        assert fates == expected
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    asyncio.run(play())


def test_a_listener_may_have_a_rate_of_its_own_and_that_of_all_neither_holds_up_brokers_nor_counts_them() -> None:
    made = quotas(max_connection_creation_rate=1, listeners={"EX": ListenerLimits(max_connection_creation_rate=2)})
    assert [made.delay_s(name, 0.0) for name in ("EX", "IN", "OTHER", "EX", "EX")] == [0.0, 0.0, 1.0, 2.0, 3.0]
    alone = quotas(listeners={"EX": ListenerLimits(max_connection_creation_rate=2)})
    assert [alone.delay_s(name, 0.0) for name in ("EX", "EX", "EX", "OTHER")] == [0.0, 0.0, 0.5, 0.0]


def test_an_address_may_have_a_limit_of_its_own() -> None:
    async def play() -> None:
        limits = ServerLimits(max_connections_per_ip=1).changed({"max.connections.per.ip.overrides": "b:3, c:0"})
        made = ConnectionQuotas(limits)
        await made.enter("EX", "a")
        await made.enter("EX", "b")
        assert (await entered(made, "EX", "a")) == "max.connections.per.ip 1 reached by a"
        assert (await entered(made, "EX", "b")) == "yes"
        with pytest.raises(NoConnection):
            await made.enter("EX", "c")
        made.leave("EX", "a")
        assert (await entered(made, "EX", "a")) == "yes"

    asyncio.run(play())
