"""What stops a machine in a simulated world, what goes on meanwhile, and what a world says of how it stands."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from controller.wire.zk_operations import Create, Exists, GetChildren, GetData, WatchEvent, ZkCode
from controller.world.ports import Connection
from controller.world.simulated.net import Latency
from controller.world.simulated.world import ZOOKEEPER, Machine, ProgramFailed, World, run_world
from tests.worlds.machines import session_of


async def ticks(seen: list[str], name: str = "tick") -> None:
    """A program that says each second that it runs."""
    while True:
        seen.append(name)
        await asyncio.sleep(1)


def test_a_program_that_stands_still_for_a_moment_keeps_its_session_and_one_that_is_paused_does_not() -> None:
    async def scenario(world: World) -> None:
        for name, stop, go in (("m", Machine.suspend, Machine.go_on), ("n", Machine.pause, Machine.resume)):
            machine, seen = world.machine(name), list[str]()
            session, told = await machine.run(session_of(machine))
            await session.perform([Create(f"/{name}", ephemeral=True)])
            machine.start(ticks(seen))
            await world.sleep(3.5)
            before = len(seen)
            stop(machine)
            assert machine.is_stopped
            await world.sleep(20)
            assert len(seen) == before
            assert (world.zookeeper.tree.get(f"/{name}") is not None) is (name == "m")
            go(machine)
            assert not machine.is_stopped
            await world.sleep(3)
            assert len(seen) > before
            assert told == ([] if name == "m" else ["expired"])
        assert world.suspensions == 2

    run_world(1, scenario)


def test_a_program_that_was_killed_never_goes_on_beside_the_next_one() -> None:
    async def scenario(world: World) -> None:
        machine, seen = world.machine("m"), list[str]()
        assert not machine.is_stopped
        first = machine.start(ticks(seen, "first"))
        assert machine.program is first
        await world.sleep(2)
        machine.kill()
        assert machine.is_stopped and machine.program is None
        await world.sleep(2)
        seen.clear()
        machine.start(ticks(seen, "second"))
        machine.pause()
        machine.resume()
        machine.suspend()
        machine.go_on()
        await world.sleep(3)
        assert set(seen) == {"second"} and not machine.is_stopped

    run_world(1, scenario)


def test_what_one_machine_suffers_is_nothing_to_another() -> None:
    async def scenario(world: World) -> None:
        seen = {name: list[str]() for name in "ab"}
        for name, each in seen.items():
            world.machine(name).start(ticks(each))
        session, told = await session_of(world.machine("b"))
        await session.perform([Create("/b", ephemeral=True)])
        for stop in (Machine.suspend, Machine.pause, Machine.kill):
            stop(world.machine("a"))
            await world.sleep(20)
        assert len(seen["a"]) < 3 and len(seen["b"]) > 50
        assert (await session.perform([GetData("/b")]))[0].ok and not told

    run_world(1, scenario)


def test_what_a_machine_has_sent_arrives_though_it_was_killed_meanwhile() -> None:
    """Or a reset comes: as the kernel, which outlives the program, may have it."""

    def heard(seed: int) -> list[bytes]:
        async def scenario(world: World) -> list[bytes]:
            found: list[bytes] = []

            async def serve(connection: Connection) -> None:
                with suppress(ConnectionResetError):
                    found.append(await connection.recv())

            listener = await world.machine("b").network.listen("b", 0, serve)
            machine = world.machine("a")

            async def send() -> None:
                connection = await machine.network.connect(*listener.address)
                connection.send(b"x")
                await asyncio.sleep(1e6)

            program = machine.start(send())
            await world.until(lambda: world.network.connections_open == 1, within_s=1, every_s=1e-5, what="it")
            await asyncio.sleep(0)
            machine.kill()
            await world.sleep(1)
            assert not program.done()
            return found

        return run_world(seed, scenario)

    assert [b"x"] in [heard(seed) for seed in range(6)]


def test_each_start_of_a_machine_and_each_machine_has_a_chance_of_its_own() -> None:
    """Which nothing shifts: neither faults, nor what others draw, nor how often it drew in its life before."""

    def drawn(*, before: int) -> list[float]:
        async def scenario(world: World) -> list[float]:
            found = []
            for name in ("a", "b", "a"):
                machine = world.machine(name)
                for _ in range(before):
                    world.chance.random()
                    machine.chance.random()
                    world.partition("a", "b")
                    world.heal()

                async def draws(machine: Machine = machine) -> None:
                    found.append(machine.chance.random())

                machine.start(draws())
                await world.sleep(1)
            return found

        return run_world(7, scenario)

    quiet = drawn(before=0)
    assert len(set(quiet)) == 3
    assert drawn(before=1) == drawn(before=3) == quiet


def test_the_end_of_a_world_ends_each_program_also_of_who_stands_still_or_was_killed() -> None:
    """In their `finally` nothing can be done to the world any more; without it the garbage collector would run them."""
    ended: list[str] = []

    async def program(name: str) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(name)

    async def scenario(world: World) -> None:
        for name in ("runs", "paused", "suspended", "killed", "again"):
            world.machine(name).start(program(name))
        await world.sleep(1)
        world.machine("paused").pause()
        world.machine("suspended").suspend()
        world.machine("killed").kill()
        world.machine("again").kill()
        world.machine("again").start(program("anew"))
        world.machine("never").start(program("never"))
        world.machine("never").kill()
        work = asyncio.ensure_future(world.machine("runs").run(program("work")))
        await world.sleep(1)
        assert not ended and not work.done()

    run_world(1, scenario)
    assert sorted(ended) == ["again", "anew", "killed", "paused", "runs", "suspended", "work"]


def test_what_is_run_in_a_machines_name_stops_with_it() -> None:
    async def scenario(world: World) -> None:
        machine, seen = world.machine("m"), list[str]()
        work = asyncio.ensure_future(machine.run(ticks(seen)))
        await world.sleep(3)
        machine.kill()
        before = len(seen)
        assert before
        await world.sleep(3)
        assert len(seen) == before and not work.done()

    run_world(1, scenario)


def test_peers_of_a_killed_machine_hear_of_it_and_those_of_a_paused_one_do_not() -> None:
    async def scenario(world: World) -> None:
        for name, stop in (("m", Machine.pause), ("n", Machine.kill)):
            machine, ends = world.machine(name), list[Connection]()

            async def serve(connection: Connection, ends: list[Connection] = ends) -> None:
                ends.append(connection)
                await asyncio.sleep(1e6)

            listener = await world.machine("b").network.listen("b", 0, serve)
            await machine.run(machine.network.connect(*listener.address))
            await world.sleep(1)
            stop(machine)
            await world.sleep(60)
            assert [end.is_open for end in ends] == [name == "m"]

    run_world(1, scenario)


def test_a_failure_is_told_once_where_the_scenario_looks_next_and_a_cancelled_program_is_none() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    async def scenario(world: World) -> None:
        world.machine("n").start(ticks([])).cancel()
        await world.sleep(1)
        world.machine("m").start(broken())
        with pytest.raises(ProgramFailed) as failed:
            await world.sleep(1)
        assert str(failed.value) == "m: ValueError('broken')"
        world.machine("m").kill()
        await asyncio.sleep(1)
        assert world.failures == ["m: ValueError('broken')"]
        world.failures.clear()

    run_world(1, scenario)


def test_the_latency_of_a_world_is_that_of_its_network_and_its_zookeeper() -> None:
    async def scenario(world: World) -> None:
        async def serve(_: Connection) -> None: ...

        listener = await world.machine("b").network.listen("b", 0, serve)
        began = world.loop.time()
        await world.machine("a").network.connect(*listener.address)
        assert 2 <= world.loop.time() - began <= 4
        began = world.loop.time()
        session, _ = await session_of(world.machine("a"))
        assert 2 <= world.loop.time() - began <= 4
        for latency, least, most in ((None, 2, 4), (Latency(min_s=0.1, max_s=0.2), 0.2, 0.4), (None, 2, 4)):
            world.zookeeper.slow(latency)
            began = world.loop.time()
            await session.perform([Create("/a"), GetData("/a")][:1])
            assert least <= world.loop.time() - began <= most

    run_world(1, scenario, latency=Latency(min_s=1, max_s=2))


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("b", "a")])
def test_a_partition_of_two_machines_is_both_ways_unless_it_is_said_to_be_one_way(one: str, other: str) -> None:
    async def scenario(world: World) -> None:
        for one_way in (False, True):
            world.partition(one, other, one_way=one_way)
            assert world.network.is_cut(one, other)
            assert world.network.is_cut(other, one) is not one_way
            assert world.zookeeper.reachable("a") and world.zookeeper.reachable("b")
            assert world.is_disturbed
            world.heal()
            assert not world.is_disturbed
        for pair in ((one, ZOOKEEPER), (ZOOKEEPER, one)):
            for one_way in (False, True):
                world.partition(*pair, one_way=one_way)
                assert not world.zookeeper.reachable(one) and world.zookeeper.reachable(other)
                world.heal()
                assert world.zookeeper.reachable(one)

    run_world(1, scenario)


def test_every_disturbance_is_seen_while_it_lasts() -> None:
    async def scenario(world: World) -> None:
        zookeeper = world.zookeeper
        for begin, end in (
            (lambda: zookeeper.cut("m"), lambda: zookeeper.heal("m")),
            (lambda: zookeeper.hold_answers("m"), lambda: zookeeper.let_answers_go("m")),
            (lambda: zookeeper.hold_answers("m"), world.heal),
            (lambda: setattr(zookeeper, "link_loss", 0.1), world.heal),
            (lambda: zookeeper.slow(Latency(min_s=1, max_s=2)), lambda: zookeeper.slow(None)),
            (zookeeper.stop, zookeeper.start),
            (lambda: world.network.cut("m", "n"), world.heal),
            (lambda: world.network.set_latency("m", "n", Latency()), lambda: world.network.set_latency("n", "m", None)),
        ):
            assert not world.is_disturbed
            begin()
            assert world.is_disturbed
            end()
        assert not world.is_disturbed

    run_world(1, scenario)


def test_healing_one_machine_leaves_what_others_suffer() -> None:
    async def scenario(world: World) -> None:
        zookeeper = world.zookeeper
        for name in ("m", "n"):
            zookeeper.cut(name)
            zookeeper.hold_answers(name)
        zookeeper.heal("m")
        assert zookeeper.reachable("m") and not zookeeper.holds_answers("m")
        assert not zookeeper.reachable("n") and zookeeper.holds_answers("n")
        zookeeper.heal()
        assert zookeeper.reachable("n") and not zookeeper.holds_answers("n")
        zookeeper.cut("n")
        world.machine("m").pause()
        world.machine("m").resume()
        assert zookeeper.reachable("m") and not zookeeper.reachable("n")

    run_world(1, scenario)


def test_who_was_refused_a_look_and_who_is_gone_watches_nothing() -> None:
    async def scenario(world: World) -> None:
        zookeeper, seen = world.zookeeper, list[WatchEvent]()
        connector = world.machine("m").connector()
        session = await connector.connect(on_watch=seen.append, on_expired=lambda: None)
        looks = [kind("/", watch=True) for kind in (GetData, Exists, GetChildren)]
        zookeeper.tree.refusal = lambda op: ZkCode.NO_AUTH
        assert [each.code for each in await session.perform(looks)] == [ZkCode.NO_AUTH] * 3
        assert len(zookeeper.watches) == 0
        zookeeper.tree.refusal = lambda op: None
        assert all(each.ok for each in await session.perform(looks))
        assert zookeeper.watches.data_watchers("/") == zookeeper.watches.child_watchers("/") == {session.session_id}
        await session.close()
        assert len(zookeeper.watches) == 0
        other = await connector.connect(on_watch=seen.append, on_expired=lambda: None)
        assert (await other.perform([Create("/a", b"")]))[0].ok and seen == []

    run_world(1, scenario)


def test_a_scenario_waits_for_what_it_says_and_no_longer() -> None:
    async def scenario(world: World) -> None:
        began = world.loop.time()
        await world.until(lambda: world.loop.time() - began >= 2, within_s=3, what="two seconds")
        assert world.loop.time() - began < 2.1
        began = world.loop.time()
        with pytest.raises(AssertionError, match="the end of time"):
            await world.until(lambda: False, within_s=3, what="the end of time")
        assert 3 <= world.loop.time() - began < 3.1

    run_world(1, scenario)


def test_who_serves_a_connection_and_fails_fails_the_scenario_even_at_its_end() -> None:
    async def serve(_: Connection) -> None:
        raise ValueError("cannot serve")

    async def scenario(world: World) -> None:
        listener = await world.machine("m").network.listen("m", 0, serve)
        await world.machine("n").network.connect(*listener.address)

        async def broken() -> None:
            raise KeyError("at the end")

        world.machine("n").start(broken())
        await asyncio.sleep(1)

    with pytest.raises(ProgramFailed, match=r"(?s)at the end.*cannot serve|cannot serve.*at the end"):
        run_world(1, scenario)


def test_a_task_that_does_not_end_when_it_is_cancelled_fails_the_scenario() -> None:
    async def stubborn() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1e6)

    async def scenario(world: World) -> None:
        world.machine("m").start(stubborn())
        await world.sleep(1)

    with pytest.raises(ProgramFailed, match="do not end when cancelled"):
        run_world(1, scenario)
