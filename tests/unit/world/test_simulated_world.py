"""Machines that run, die and come back in a world that one seed makes."""

from __future__ import annotations

import asyncio

import pytest

from controller.wire.zk_operations import (
    Create,
    Exists,
    GetData,
    SetData,
    WatchEvent,
    ZkCode,
    ZkSessionExpired,
    ZkUnreachable,
)
from controller.world.ports import Connection
from controller.world.simulated.world import ZOOKEEPER, Machine, ProgramFailed, World, run_world


async def registered(machine: Machine, seen: list[str], *, timeout_ms: int = 6_000) -> None:
    """A program that registers, as a broker does, and says what happens to it."""
    expired = asyncio.Event()

    def on_watch(event: WatchEvent) -> None:
        seen.append(f"{machine.name} watch {event.kind.value} {event.path}")

    session = await machine.connector(session_timeout_ms=timeout_ms).connect(on_watch=on_watch, on_expired=expired.set)
    (created,) = await session.perform([Create(f"/{machine.name}", ephemeral=True)])
    seen.append(f"{machine.name} {created.code.name} at {machine.clock.now_ms()}")
    try:
        await expired.wait()
        seen.append(f"{machine.name} expired")
    finally:
        seen.append(f"{machine.name} finally")


def exists(world: World, path: str) -> bool:
    return world.zookeeper.tree.get(path) is not None


def test_a_killed_machine_does_nothing_more_and_loses_its_session_after_the_timeout() -> None:
    async def scenario(world: World) -> list[str]:
        seen: list[str] = []
        machine = world.machine("m")
        machine.start(registered(machine, seen))
        await world.sleep(1)
        machine.kill()
        await world.sleep(5)
        assert exists(world, "/m")
        await world.sleep(2)
        assert not exists(world, "/m")
        assert len(seen) == 1
        machine.start(registered(machine, seen))
        await world.sleep(1)
        assert exists(world, "/m")
        return list(seen)

    assert [line.split(" at ")[0] for line in run_world(1, scenario)] == ["m OK", "m OK"]


def test_a_paused_machine_learns_of_its_expiry_when_it_goes_on() -> None:
    async def scenario(world: World) -> None:
        seen: list[str] = []
        machine = world.machine("m")
        machine.start(registered(machine, seen))
        await world.sleep(1)
        machine.pause()
        await world.sleep(20)
        assert len(seen) == 1 and not exists(world, "/m")
        machine.resume()
        await world.sleep(1)
        assert seen[1:] == ["m expired", "m finally"]

    run_world(2, scenario)


def test_a_short_partition_costs_nothing_a_long_one_the_session() -> None:
    async def scenario(world: World) -> None:
        seen: list[str] = []
        machine = world.machine("m")
        machine.start(registered(machine, seen))
        await world.sleep(1)
        for _ in range(5):
            world.partition("m", ZOOKEEPER)
            await world.sleep(4)
            world.heal()
            await world.sleep(1)
        assert exists(world, "/m") and len(seen) == 1
        world.partition(ZOOKEEPER, "m")
        await world.sleep(10)
        assert not exists(world, "/m") and len(seen) == 1
        world.heal()
        await world.sleep(1)
        assert seen[1] == "m expired"

    run_world(3, scenario)


def test_sessions_do_not_age_while_zookeeper_is_down() -> None:
    async def scenario(world: World) -> None:
        seen: list[str] = []
        machine = world.machine("m")
        machine.start(registered(machine, seen))
        await world.sleep(1)
        world.zookeeper.stop()
        with pytest.raises(ZkUnreachable):
            await (
                world.machine("n")
                .connector(connect_timeout_s=3)
                .connect(on_watch=lambda _: None, on_expired=lambda: None)
            )
        await world.sleep(60)
        world.zookeeper.start()
        await world.sleep(10)
        assert exists(world, "/m") and len(seen) == 1

    run_world(4, scenario)


def test_lost_messages_are_sent_again_so_a_create_may_find_itself() -> None:
    async def scenario(world: World) -> set[ZkCode]:
        world.zookeeper.link_loss = 0.3
        session = await world.machine("m").connector().connect(on_watch=lambda _: None, on_expired=lambda: None)
        codes = set()
        for number in range(100):
            (made,) = await session.perform([Create(f"/n{number}")])
            codes.add(made.code)
            assert exists(world, f"/n{number}")
        return codes

    assert run_world(5, scenario) == {ZkCode.OK, ZkCode.NODE_EXISTS}


def test_no_watch_is_lost_with_its_message() -> None:
    async def scenario(world: World) -> None:
        events: list[WatchEvent] = []
        session = await world.machine("m").connector().connect(on_watch=events.append, on_expired=lambda: None)
        await session.perform([Create("/a")])
        world.zookeeper.link_loss = 0.3
        for number in range(50):
            read, written = (await session.perform([GetData("/a", watch=True), SetData("/a", b"")]))[:2]
            assert read.ok and written.ok
            await world.until(lambda n=number: len(events) > n, within_s=60, what="the watch")  # type: ignore[misc]

    run_world(6, scenario)


def test_work_that_a_listener_does_belongs_to_the_listener() -> None:
    async def scenario(world: World) -> None:
        server, client = world.machine("server"), world.machine("client")
        served: list[bytes] = []

        async def serve(connection: Connection) -> None:
            while data := await connection.recv():
                served.append(data)

        async def listen() -> None:
            await server.network.listen("server", 9092, serve)
            await asyncio.sleep(1e9)

        async def send() -> None:
            connection = await client.network.connect("server", 9092)
            connection.send(b"x")
            await asyncio.sleep(1e9)

        server.start(listen())
        await world.sleep(1)
        client.start(send())
        await world.sleep(1)
        client.kill()
        await world.sleep(1)
        assert served == [b"x"]
        server.kill()
        client.start(send_once(client))
        await world.sleep(1)
        assert served == [b"x"]

    async def send_once(client: Machine) -> None:
        with pytest.raises(ConnectionRefusedError):
            await client.network.connect("server", 9092)

    run_world(7, scenario)


def test_a_program_that_fails_fails_the_scenario() -> None:
    async def broken() -> None:
        await asyncio.sleep(1)
        raise ValueError("no such thing")

    async def scenario(world: World) -> None:
        world.machine("m").start(broken())
        await world.sleep(2)

    with pytest.raises(ProgramFailed, match=r"m: ValueError.*no such thing"):
        run_world(8, scenario)


def test_a_task_that_is_left_with_its_exception_fails_the_scenario() -> None:
    async def broken() -> None:
        raise ValueError("forgotten")

    async def program() -> None:
        asyncio.ensure_future(broken()).get_name()
        await asyncio.sleep(1)

    async def scenario(world: World) -> None:
        world.machine("m").start(program())
        await world.sleep(2)

    with pytest.raises(ProgramFailed, match="forgotten"):
        run_world(9, scenario)


async def chatter(world: World) -> list[str]:
    """Several machines that write one znode each and watch each other's, with faults."""
    seen: list[str] = []

    async def program(machine: Machine) -> None:
        session = await machine.connector(session_timeout_ms=3_000).connect(
            on_watch=lambda event: seen.append(f"{world.loop.time():.6f} {machine.name} {event}"),
            on_expired=lambda: seen.append(f"{world.loop.time():.6f} {machine.name} expired"),
        )
        try:
            while True:
                await session.perform([Create("/shared"), Exists("/shared", True), SetData("/shared", b"")])
                await asyncio.sleep(machine.chance.random())
        except ZkSessionExpired:
            pass

    machines = [world.machine(f"m{number}") for number in range(4)]
    for machine in machines:
        machine.start(program(machine))
    world.zookeeper.link_loss = 0.05
    for _ in range(10):
        await world.sleep(world.chance.random())
        victim = world.chance.choice(machines)
        victim.kill()
        await world.sleep(world.chance.random())
        victim.start(program(victim))
        world.partition(world.chance.choice(machines).name, ZOOKEEPER)
        await world.sleep(world.chance.uniform(0, 5))
        world.heal()
    return seen


def test_one_seed_gives_one_run_and_another_seed_another() -> None:
    first, again, other = (run_world(seed, chatter) for seed in (10, 10, 11))
    assert len(first) > 100
    assert first == again
    assert first != other


def test_what_a_machine_is_answered_waits_though_it_is_done_and_comes_in_its_order() -> None:
    async def scenario(world: World) -> None:
        machine, seen = world.machine("m"), list[str]()
        connector = machine.connector(session_timeout_ms=6_000)
        session = await connector.connect(
            on_watch=lambda event: seen.append(event.path), on_expired=lambda: seen.append("expired")
        )
        await session.perform([Create("/a"), Exists("/b", watch=True)])
        world.zookeeper.hold_answers("m")
        assert world.is_disturbed
        write = asyncio.ensure_future(session.perform([SetData("/a", b"1", 0), Create("/b")]))
        write.add_done_callback(lambda _: seen.append("answered"))
        await world.sleep(3)
        assert exists(world, "/b") and seen == []
        world.zookeeper.let_answers_go("m")
        assert not world.is_disturbed
        await world.sleep(0.1)
        assert seen == ["/b", "answered"] and [result.code for result in write.result()] == [ZkCode.OK, ZkCode.OK]
        world.zookeeper.hold_answers("m")
        world.heal()
        assert (await session.perform([GetData("/a")]))[0].data == b"1"

    run_world(4, scenario)
