"""Sessions of the ZooKeeper in memory: how long they live without a link, and what is done over the next one."""

from __future__ import annotations

import asyncio

import pytest

from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    SetData,
    WatchEvent,
    ZkCode,
    ZkOp,
    ZkSessionExpired,
)
from controller.world.simulated.net import Latency
from controller.world.simulated.world import ZOOKEEPER, World, run_world
from tests.worlds.machines import session_of


def test_a_session_expires_by_fault_for_it_alone_and_is_told_at_once_or_when_it_is_back() -> None:
    async def scenario(world: World) -> None:
        zookeeper = world.zookeeper
        sessions = {name: await session_of(world.machine(name)) for name in "abc"}
        for name, (session, _) in sessions.items():
            await session.perform([Create(f"/{name}", ephemeral=True)])
        assert zookeeper.sessions == zookeeper.connected == {s.session_id: n for n, (s, _) in sessions.items()}
        zookeeper.cut("b")
        assert set(zookeeper.connected.values()) == {"a", "c"} and len(zookeeper.sessions) == 3
        for name in "ab":
            zookeeper.expire_session(sessions[name][0].session_id)
            zookeeper.expire_session(sessions[name][0].session_id)
            assert zookeeper.tree.get(f"/{name}") is None
        await world.sleep(3)
        assert [told for _, told in sessions.values()] == [["expired"], [], []]
        world.heal()
        await world.sleep(3)
        assert [told for _, told in sessions.values()] == [["expired"], ["expired"], []]
        assert zookeeper.sessions == zookeeper.connected == {sessions["c"][0].session_id: "c"}

    run_world(1, scenario)


def test_a_session_lives_for_its_timeout_without_a_link_and_each_link_gives_it_all_of_that_again() -> None:
    async def scenario(world: World) -> None:
        zookeeper = world.zookeeper
        session, told = await session_of(world.machine("m"), timeout_ms=6_000)
        await session.perform([Create("/m", ephemeral=True)])
        for number in range(1, 4):
            assert session.is_connected and session.connections == number
            world.partition("m", ZOOKEEPER)
            assert not session.is_connected
            await world.sleep(5.4)
            assert zookeeper.tree.get("/m") is not None
            world.heal()
            await world.sleep(0.6)
        zookeeper.stop()
        await world.sleep(60)
        zookeeper.start()
        world.partition("m", ZOOKEEPER)
        await world.sleep(5.9)
        assert zookeeper.tree.get("/m") is not None and not told
        await world.sleep(0.2)
        assert zookeeper.tree.get("/m") is None

    run_world(1, scenario)


def test_a_closed_session_leaves_nothing_and_is_no_expiry() -> None:
    async def scenario(world: World) -> None:
        zookeeper = world.zookeeper
        for is_cut in (False, True):
            session, told = await session_of(world.machine("m"))
            await session.perform([Create("/m", ephemeral=True), GetData("/m", watch=True)])
            if is_cut:
                zookeeper.cut("m")
            await session.close()
            await session.close()
            assert (zookeeper.tree.get("/m") is not None) is is_cut
            assert not zookeeper.connected
            await world.sleep(6.1)
            assert zookeeper.tree.get("/m") is None and not zookeeper.sessions and not len(zookeeper.watches)
            world.heal()
            await world.sleep(1)
            assert not told

    run_world(1, scenario)


def test_a_session_that_is_being_closed_counts_no_more_and_ends_when_the_server_hears_of_it() -> None:
    async def scenario(world: World) -> None:
        zookeeper = world.zookeeper
        zookeeper.slow(Latency(min_s=1, max_s=1))
        for is_lost in (False, True):
            session, told = await session_of(world.machine("m"))
            await session.perform([Create("/m", ephemeral=True)])
            closing = asyncio.ensure_future(session.close())
            await world.sleep(0.5)
            assert not zookeeper.connected and zookeeper.tree.get("/m") is not None
            if is_lost:
                zookeeper.disconnect(session.session_id)
            await world.sleep(0.6)
            assert (zookeeper.tree.get("/m") is not None) is is_lost
            await closing
            await world.sleep(6)
            assert zookeeper.tree.get("/m") is None and not told

    run_world(1, scenario)


def test_what_is_asked_without_a_link_is_done_once_when_there_is_one() -> None:
    async def scenario(world: World) -> None:
        session, _ = await session_of(world.machine("m"))
        await session.perform([Create("/a", b"0")])
        for round_ in range(3):
            world.partition("m", ZOOKEEPER)
            writing = asyncio.ensure_future(session.perform([SetData("/a", b"%d" % n) for n in range(300)]))
            await world.sleep(3)
            before = world.zookeeper.tree.get("/a")
            assert before is not None and before.version == 300 * round_ and not writing.done()
            world.heal()
            written = await writing
            assert [w.stat and w.stat.version for w in written] == [300 * round_ + n + 1 for n in range(300)]

    run_world(1, scenario)


def test_without_a_server_who_connects_waits_and_is_let_in_when_it_is_there() -> None:
    async def scenario(world: World) -> None:
        world.zookeeper.stop()
        waiting = asyncio.ensure_future(session_of(world.machine("m")))
        await world.sleep(10)
        assert not waiting.done()
        world.zookeeper.start()
        await world.sleep(1)
        session, _ = waiting.result()
        assert (await session.perform([Create("/m")]))[0].code is ZkCode.OK

    run_world(1, scenario)


@pytest.mark.parametrize("killed", ["before", "meanwhile", "without"])
def test_nobody_revives_the_session_of_who_was_killed_and_nobody_is_told(killed: str) -> None:
    """Its timeout is counted by a server that runs: all of it again by one that was down."""

    async def scenario(world: World) -> None:
        zookeeper = world.zookeeper
        session, told = await session_of(world.machine("m"))
        await session.perform([Create("/m", ephemeral=True)])
        if killed == "meanwhile":
            zookeeper.stop()
        zookeeper.kill("m")
        assert not zookeeper.connected and zookeeper.sessions == {session.session_id: "m"}
        if killed == "before":
            await world.sleep(3)
            zookeeper.stop()
        if killed != "without":
            await world.sleep(60)
            zookeeper.start()
        world.heal()
        await world.sleep(5.9)
        assert zookeeper.tree.get("/m") is not None
        await world.sleep(0.2)
        assert zookeeper.tree.get("/m") is None and not zookeeper.sessions
        await world.sleep(10)
        assert not told and session.connections == 1

    run_world(1, scenario)


def test_a_link_that_stands_is_not_made_anew() -> None:
    async def scenario(world: World) -> None:
        sessions = {name: (await session_of(world.machine(name)))[0] for name in "ab"}
        world.partition("a", ZOOKEEPER)
        await world.sleep(1)
        world.heal()
        await world.sleep(1)
        assert {name: session.connections for name, session in sessions.items()} == {"a": 2, "b": 1}

    run_world(1, scenario)


def test_of_messages_whose_link_is_lost_some_were_heard_and_some_were_not() -> None:
    async def scenario(world: World) -> bool:
        session, _ = await session_of(world.machine("m"))
        world.zookeeper.link_loss = 1.0
        asking = asyncio.ensure_future(session.perform([Create("/a")]))
        await world.until(lambda: not session.is_connected, within_s=1, every_s=0.001, what="the loss")
        was_heard = world.zookeeper.tree.get("/a") is not None
        world.heal()
        assert (await asking)[0].code is (ZkCode.NODE_EXISTS if was_heard else ZkCode.OK)
        return was_heard

    assert {run_world(seed, scenario) for seed in range(8)} == {True, False}


def test_what_is_asked_in_a_session_that_has_expired_is_not_done_though_its_client_does_not_know_yet() -> None:
    async def scenario(world: World) -> None:
        session, told = await session_of(world.machine("m"))
        under_way = asyncio.ensure_future(session.perform([Create("/under_way")]))
        await asyncio.sleep(0)
        world.zookeeper.expire_session(session.session_id)
        assert not told
        for asked in (under_way, asyncio.ensure_future(session.perform([Create("/late")]))):
            with pytest.raises(ZkSessionExpired):
                await asked
        await world.sleep(1)
        assert told == ["expired"]
        assert not {"/under_way", "/late"} & set(world.zookeeper.tree.paths())

    run_world(1, scenario)


def test_paths_are_those_below_the_chroot_wherever_an_answer_has_one() -> None:
    async def scenario(world: World) -> None:
        seen: list[str] = []

        def on_watch(event: WatchEvent) -> None:
            seen.append(event.path)

        connector = world.machine("m").connector(chroot="/deep/er")
        session = await connector.connect(on_watch=on_watch, on_expired=lambda: None)
        ops: list[ZkOp] = [
            GetChildren("/", watch=True),
            Create("/a", b"x"),
            Multi((Create("/b-", sequence=True), SetData("/", b"root"), Check("/a", 0), Delete("/a"))),
            GetData("/"),
        ]
        _, created, both, root = await session.perform(ops)
        assert (created.path, both.path, root.path, root.data) == ("/a", "", "", b"root")
        assert [result.path for result in both.results] == ["/b-0000000001", "", "", ""]
        assert world.zookeeper.tree.paths() == ["/", "/deep", "/deep/er", "/deep/er/b-0000000001"]
        await world.sleep(1)
        assert seen == ["/"]

    run_world(1, scenario)
